"""What the checker makes of transactions: each is visible whole or not at all, and fenced producers do nothing."""

from __future__ import annotations

import random
from pathlib import Path

from chaos.anomalies import Anomaly, AnomalyKind
from chaos.checker import check
from chaos.history import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Acked,
    Began,
    Ended,
    Ending,
    Event,
    Fenced,
    GroupOffset,
    History,
    OffsetSent,
    Polled,
    Sent,
    Stored,
    StoredRange,
    Wrote,
)
from chaos.history_file import PLAIN, TRANSACTIONAL, HistoryWriter, read_history, write_history
from tests.support.legal_transactions import legal_transactions

A, B = "x-0", "x-1"


def wrote(transaction: str, *records: str, producer: str = "x.0", at_s: float = 1.0) -> list[Event]:
    """A transaction with its records in partitions 0, 1 and so on."""
    events: list[Event] = [Began(producer, transaction, at_s)]
    for partition, record in enumerate(records):
        events += [Sent("x", record, "t", at_s), Wrote(transaction, record, partition, "t", "", at_s)]
    return events


def ended(transaction: str, outcome: str, *, commits: bool = True, at_s: float = 2.0) -> list[Event]:
    return [Ending(transaction, commits, at_s), Ended(transaction, outcome, "", at_s + 0.5)]


def read(record: str, partition: int = 0, at_s: float = 3.0) -> list[Event]:
    return [Polled("c", partition, 0, record, "t", at_s)]


def final(*records: str) -> list[Event]:
    """The final log of two partitions; an empty name stands for no record."""
    ranges: list[Event] = [StoredRange(partition, 0, 2, "t", 9.0) for partition in (0, 1)]
    stored = [Stored(partition, 0, record, "t", 9.0) for partition, record in enumerate(records) if record]
    return [*ranges, *stored]


def anomalies(*parts: list[Event]) -> list[Anomaly]:
    return check(History([event for part in parts for event in part], frozenset({"x"})))


def kinds(*parts: list[Event]) -> list[AnomalyKind]:
    return [anomaly.kind for anomaly in anomalies(*parts)]


def test_a_committed_transaction_that_is_visible_whole_is_clean() -> None:
    assert kinds(wrote("1", A, B), ended("1", COMMITTED), read(A), final(A, B)) == []


def test_a_committed_record_that_is_not_visible_is_lost() -> None:
    acked: list[Event] = [Acked("x", A, 0, 0, "t", 2.6), Acked("x", B, 1, 0, "t", 2.6)]
    assert kinds(wrote("1", A, B), ended("1", COMMITTED), acked, final(A)) == [AnomalyKind.LOST]


def test_an_aborted_record_that_is_read_is_found_with_its_reader_and_is_nothing_else() -> None:
    (found,) = anomalies(wrote("1", A), ended("1", ABORTED), read(A), final())
    assert found.kind is AnomalyKind.ABORTED_READ
    assert "1 was aborted () @2.500, but c read it @3.000" in found.detail


def test_a_record_that_its_producer_wanted_aborted_must_not_be_visible_though_the_end_is_unknown() -> None:
    parts = (wrote("1", A, B), ended("1", UNKNOWN, commits=False), final(A, B))
    assert kinds(*parts) == [AnomalyKind.ABORTED_READ] * 2


def test_a_record_of_a_transaction_that_nobody_asked_to_end_must_not_be_visible() -> None:
    assert kinds(wrote("1", A), final(A)) == [AnomalyKind.ABORTED_READ]


def test_a_record_read_before_its_producer_asked_to_commit_is_found_though_it_is_committed_later() -> None:
    parts = (wrote("1", A), ended("1", COMMITTED, at_s=2.0), read(A, at_s=1.9), final(A))
    assert kinds(*parts) == [AnomalyKind.UNDECIDED_READ]


def test_a_transaction_whose_end_is_unknown_is_there_whole_or_not_at_all() -> None:
    unknown = (wrote("1", A, B), ended("1", UNKNOWN))
    assert kinds(*unknown, final(A, B)) == []
    assert kinds(*unknown, final()) == []
    assert kinds(*unknown, final(A)) == [AnomalyKind.TORN]
    assert kinds(*unknown, final("", B)) == [AnomalyKind.TORN]


def test_a_visible_transaction_without_its_offset_is_torn() -> None:
    offset: list[Event] = [OffsetSent("1", "g", 0, 5, "s"), GroupOffset("g", 0, 3, "s")]
    assert kinds(wrote("1", A), ended("1", UNKNOWN), offset, final(A)) == [AnomalyKind.TORN]


def test_a_producer_that_asks_to_commit_after_it_was_fenced_must_have_no_effect() -> None:
    fenced: list[Event] = [Fenced("x.0", "x.1", 1.5)]
    (found,) = anomalies(wrote("1", A), fenced, ended("1", UNKNOWN), final(A))
    assert found.kind is AnomalyKind.ZOMBIE
    assert "x.0 was fenced by x.1 @1.500" in found.detail
    assert kinds(wrote("1", A), fenced, ended("1", COMMITTED), final()) == [AnomalyKind.ZOMBIE]
    assert kinds(wrote("1", A), fenced, ended("1", UNKNOWN), final()) == []


def test_what_a_producer_asked_before_it_was_fenced_may_take_effect() -> None:
    fenced: list[Event] = [Fenced("x.0", "x.1", 2.1)]
    assert kinds(wrote("1", A), ended("1", UNKNOWN), fenced, final(A)) == []


def test_a_history_of_transactions_comes_back_from_its_file(tmp_path: Path) -> None:
    legal = legal_transactions(random.Random(3))
    write_history(tmp_path / "h.jsonl", legal)
    again = read_history(tmp_path / "h.jsonl")
    assert again.events == legal.events
    assert check(again) == []


def test_a_transactional_producer_is_idempotent_too(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "h.jsonl", {"x": TRANSACTIONAL, "p": PLAIN}):
        pass
    assert read_history(tmp_path / "h.jsonl").idempotent == {"x"}
