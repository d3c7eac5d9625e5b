"""The history checker finds what is planted in a history, and nothing in a clean one."""

from __future__ import annotations

import re

import pytest

from chaos.checker import AnomalyKind, check, summary
from chaos.history import (
    Acked,
    Assigned,
    Committed,
    Event,
    Failed,
    History,
    Polled,
    Recorder,
    Sent,
    record_id,
)

IDS = [record_id("p", number) for number in range(6)]


def sends(ids: list[str], first_offset: int = 0) -> list[Event]:
    """Sent and acknowledged one after the other, in partition 0."""
    return [
        event
        for offset, record in enumerate(ids, first_offset)
        for event in (Sent("p", record), Acked("p", record, 0, offset))
    ]


def polls(ids: list[str], consumer: str = "c", first_offset: int = 0) -> list[Event]:
    """Read one after the other from partition 0, after an assignment."""
    read = [Polled(consumer, 0, offset, record) for offset, record in enumerate(ids, first_offset)]
    return [Assigned(consumer, 0), *read]


def kinds(*events: Event, idempotent: bool = True) -> list[AnomalyKind]:
    return [found.kind for found in check(History(list(events), frozenset({"p"} if idempotent else ())))]


def test_every_record_read_once_in_order_is_clean() -> None:
    assert kinds(*sends(IDS), *polls(IDS)) == []


def test_an_empty_history_is_clean() -> None:
    assert kinds() == []


def test_an_acknowledged_record_that_nobody_read_is_lost() -> None:
    without_last = polls(IDS[:5])
    assert kinds(*sends(IDS), *without_last) == [AnomalyKind.LOST]


def test_a_lost_record_in_the_middle_is_also_skipped() -> None:
    read = [event for event in polls(IDS) if not (isinstance(event, Polled) and event.offset == 2)]
    assert kinds(*sends(IDS), *read) == [AnomalyKind.LOST, AnomalyKind.SKIPPED]


def test_a_failed_record_may_be_in_the_log_or_not() -> None:
    unsure: list[Event] = [Sent("p", IDS[5]), Failed("p", IDS[5], "timed out")]
    assert kinds(*sends(IDS[:5]), *unsure, *polls(IDS)) == []
    assert kinds(*sends(IDS[:5]), *unsure, *polls(IDS[:5])) == []


def test_an_idempotent_producers_record_at_two_offsets_is_a_duplicate() -> None:
    assert kinds(*sends(IDS), *polls([*IDS, IDS[5]])) == [AnomalyKind.DUPLICATE]


def test_a_plain_producers_retried_batch_is_no_anomaly() -> None:
    log = [*IDS, IDS[4], IDS[5]]
    assert kinds(*sends(IDS), *polls(log), idempotent=False) == []


def test_a_record_before_one_sent_earlier_is_reordered() -> None:
    log = [IDS[1], IDS[0], *IDS[2:]]
    unplaced = [Acked("p", record, 0, None) for record in IDS]
    sent = [Sent("p", record) for record in IDS]
    assert kinds(*sent, *unplaced, *polls(log)) == [AnomalyKind.REORDERED]


def test_one_offset_read_with_two_values_is_inconsistent() -> None:
    other = Polled("d", 0, 2, IDS[3])
    assert AnomalyKind.INCONSISTENT_OFFSET in kinds(*sends(IDS), *polls(IDS), Assigned("d", 0), other)


def test_a_record_read_only_where_it_was_not_acknowledged_is_inconsistent() -> None:
    found = kinds(*sends(IDS, first_offset=0), *polls(IDS, first_offset=1))
    assert found == [AnomalyKind.INCONSISTENT_OFFSET] * len(IDS)


def test_going_back_within_an_assignment_is_a_nonmonotonic_poll() -> None:
    again = Polled("c", 0, 3, IDS[3])
    assert kinds(*sends(IDS), *polls(IDS), again) == [AnomalyKind.NONMONOTONIC_POLL]


def test_reading_again_after_a_rebalance_is_clean() -> None:
    assert kinds(*sends(IDS), *polls(IDS[:4]), *polls(IDS[2:], first_offset=2)) == []
    assert kinds(*sends(IDS), *polls(IDS[:4]), *polls(IDS[2:], consumer="d", first_offset=2)) == []


def test_reading_again_below_an_acknowledged_commit_is_a_lost_commit() -> None:
    commit = Committed("c", 0, 4)
    again = polls(IDS[3:], consumer="d", first_offset=3)
    assert kinds(*sends(IDS), *polls(IDS[:4]), commit, *again) == [AnomalyKind.COMMIT_LOST]


def test_a_record_that_nobody_sent_is_a_phantom() -> None:
    assert kinds(*sends(IDS), *polls([*IDS, "ghost-1"])) == [AnomalyKind.PHANTOM]


def test_each_partition_has_its_own_order() -> None:
    sent = [Sent("p", record) for record in IDS]
    acks = [Acked("p", record, number % 2, number // 2) for number, record in enumerate(IDS)]
    read = [Polled("c", number % 2, number // 2, record) for number, record in enumerate(IDS)]
    assert kinds(*sent, *acks, *read[::2], *read[1::2]) == []


def test_the_summary_counts_by_kind_and_tells_each_story() -> None:
    text = summary(check(History([*sends(IDS), *polls(IDS[:4])])))
    assert text.splitlines()[0] == "2 lost"
    assert re.search(
        f"lost: {IDS[5]} in partition 0: acknowledged to p at offset 5 @[0-9.]+, never read", text
    )
    assert summary([]) == "no anomaly"


def test_a_recorder_knows_which_acknowledged_records_are_unread() -> None:
    recorder = Recorder()
    recorder.add(*sends(IDS))
    assert recorder.missing() == 6
    recorder.add(*polls(IDS[:4]))
    assert recorder.missing() == 2
    assert recorder.acked_count() == 6
    assert len(check(recorder.history(["p"]))) == 2


@pytest.mark.parametrize("kind", list(AnomalyKind))
def test_every_kind_is_explained_in_the_module(kind: AnomalyKind) -> None:
    import chaos.anomalies as module

    assert kind.name in (module.__doc__ or "")
