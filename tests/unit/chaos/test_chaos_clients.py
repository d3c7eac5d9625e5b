"""What the load's client processes decide without a broker: counts, reports, who is behind, going on after errors."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from multiprocessing import Pipe
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from chaos import client_process
from chaos.client_process import Command, Drain, ProcessSide, Records, Stop, keep_trying
from chaos.consuming import DeafError, Ears, Positions
from chaos.history import Acked, Failed, Polled, Sent, Trouble
from chaos.history_file import HistoryWriter, read_history
from rig.wait import wait_until

ONE, TWO = ("t", 0), ("t", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "h.jsonl"


@pytest.fixture
def records(path: Path) -> Iterator[Records]:
    with HistoryWriter(path) as writer:
        yield Records(writer)


def acked(records: Records, number: int, at_s: float) -> None:
    records.acked(Acked("p", f"p-{number}", 0, number, "t", at_s), ONE)


def test_a_report_counts_from_the_start_and_tells_times_once(records: Records) -> None:
    acked(records, 0, 1.0)
    acked(records, 1, 2.0)
    records.failed(Failed("p", "p-2", "timed out"))
    records.polled(Polled("c", 0, 0, "p-0", "t"), Polled("c", 0, 1, "p-1", "t"))
    first, second = records.report(), records.report(done=True)
    assert (first.acked, first.failed, first.polled) == (2, 1, 2)
    assert first.bursts == [(ONE, 1.0, 1.0), (ONE, 2.0, 2.0)]
    assert not first.done
    assert (second.acked, second.bursts, second.done) == (2, [], True)
    assert second.through_s >= first.through_s


def test_a_committed_transaction_counts_its_records_which_are_waited_for_where_that_is_asked(
    records: Records,
) -> None:
    written = [Acked("x", "x-0", 0, 3, "t", 1.0), Acked("x", "x-1", 1, 0, "t", 1.0)]
    records.committed(written, timed=True)
    records.committed([Acked("copier", "copier-0", 0, 5, "t", 2.0)], timed=False)
    report = records.report()
    assert (report.committed, report.acked) == (2, 3)
    assert report.bursts == [(ONE, 1.0, 1.0), (TWO, 1.0, 1.0)]


def test_times_that_two_producers_told_out_of_order_are_reported_in_order(records: Records) -> None:
    acked(records, 1, 2.0)
    acked(records, 0, 1.0)
    assert records.report().bursts == [(ONE, 1.0, 1.0), (ONE, 2.0, 2.0)]


def test_everything_recorded_is_on_file_after_a_flush(records: Records, path: Path) -> None:
    records.add(Sent("p", "p-0", "t"))
    acked(records, 0, 1.0)
    records.flush()
    assert read_history(path).events == [Sent("p", "p-0", "t"), Acked("p", "p-0", 0, 0, "t")]


def test_a_reader_is_behind_until_it_has_read_the_last_record_of_each_partition() -> None:
    positions, drain = Positions(), Drain({ONE: 2, TWO: 0})
    assert positions.behind("g", drain)
    positions.read("g", ONE, 1)
    assert not positions.behind("g", drain)
    assert positions.behind("other", drain)


def test_a_reader_is_asked_for_the_ends_of_its_own_topics_only() -> None:
    drain = Drain({ONE: 2, ("u", 0): 7})
    assert drain.within(["t"]) == Drain({ONE: 2})


def test_a_group_has_come_as_far_as_its_farthest_member() -> None:
    positions = Positions()
    positions.read("g", ONE, 7)
    positions.read("g", ONE, 3)
    assert positions.next("g", ONE) == 8
    assert positions.next("g", TWO) is None


def test_a_client_that_raises_is_told_of_and_replaced(
    records: Records, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_process, "RETRY_S", 0.0)
    outcomes = iter([ValueError("first"), ValueError("second"), None])

    def work() -> None:
        if (outcome := next(outcomes)) is not None:
            raise outcome

    keep_trying("c", records, work, threading.Event())
    records.flush()
    assert [event.what for event in read_history(path).of_type(Trouble)] == [
        "ValueError('first')",
        "ValueError('second')",
    ]


def test_a_client_that_raises_as_it_leaves_is_not_replaced(records: Records) -> None:
    calls: list[int] = []

    def work() -> None:
        calls.append(1)
        raise ValueError

    leaving = threading.Event()
    leaving.set()
    keep_trying("c", records, work, leaving)
    assert len(calls) == 1


def test_a_process_obeys_reports_and_says_when_it_is_done(records: Records) -> None:
    ours, theirs = Pipe()
    told: list[Command] = []
    ended = threading.Event()

    def is_done() -> bool:
        if told:
            ended.set()
        return ended.is_set()

    ours.send(Stop())
    ProcessSide(theirs, records).serve(told.append, is_done, ended)
    assert told == [Stop()]
    assert ours.recv().done


def test_a_process_whose_test_is_gone_does_not_go_on(records: Records) -> None:
    ours, theirs = Pipe()
    ours.close()
    with pytest.raises((EOFError, OSError)):
        ProcessSide(theirs, records).serve(lambda _: None, lambda: False, threading.Event())


def test_a_consumer_that_gets_nothing_of_one_partition_is_deaf_though_it_hears_the_other() -> None:
    ears = Ears("reader0", deaf_s=0.05)
    ears.assigned([TopicPartition(*ONE), TopicPartition(*TWO)])
    ears.heard([ONE, TWO])

    def is_deaf() -> bool:
        try:
            ears.heard([ONE])
        except DeafError as error:
            return str(TWO) in str(error)
        return False

    wait_until(is_deaf, what="it is deaf to the other")
    ears.assigned([])
    ears.heard([ONE])
