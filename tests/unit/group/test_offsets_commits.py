"""OffsetCommit and OffsetFetch: who may commit, what counts as committed, what a transaction leaves behind."""

from __future__ import annotations

import struct

import pytest

from broker.coordinator.group import describe
from broker.coordinator.group.describe import FetchedOffset
from broker.coordinator.group.offsets import CommittedOffset, GroupOffsets
from broker.coordinator.group.records import OffsetAndMetadata, encode_offset_key, encode_offset_value
from broker.protocol.errors import Errors
from broker.utils.timer import TICK_MS
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import APPEND_ERRORS, SESSION_MS, START_WALL_MS, Harness

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


@pytest.fixture
def h() -> Harness:
    return Harness()


def value(offset: int, metadata: str = "", expire_ms: int | None = None) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, 4, metadata, START_WALL_MS, expire_ms)


def test_simple_consumer_commits_without_a_group(h):
    assert h.commit({TP: 5, OTHER: 6}).result == {TP: Errors.NONE, OTHER: Errors.NONE}
    assert h.offsets() == {TP: 5, OTHER: 6}
    assert h.state() == "Empty"


def test_generation_of_a_group_that_is_gone_is_illegal(h):
    assert h.commit({TP: 5}, "member", 3).result == {TP: Errors.ILLEGAL_GENERATION}
    assert h.coordinator.list_groups((), ())[1] == []


def test_member_commits_in_its_generation_only(h):
    (member,) = h.stable_group()
    assert h.commit({TP: 5}, member.member_id, 1).result == {TP: Errors.NONE}
    assert h.commit({TP: 6}, member.member_id, 0).result == {TP: Errors.ILLEGAL_GENERATION}
    assert h.commit({TP: 6}, member.member_id, -1).result == {TP: Errors.ILLEGAL_GENERATION}
    assert h.commit({TP: 6}, "stranger", 1).result == {TP: Errors.UNKNOWN_MEMBER_ID}
    assert h.commit({TP: 6}).result == {TP: Errors.UNKNOWN_MEMBER_ID}
    assert h.offsets() == {TP: 5}


def test_commit_is_a_sign_of_life(h):
    (member,) = h.stable_group()
    for _ in range(5):
        h.advance(SESSION_MS - TICK_MS)
        assert h.commit({TP: 5}, member.member_id, 1).result == {TP: Errors.NONE}


def test_member_may_commit_while_the_group_prepares_to_rebalance(h):
    (member,) = h.stable_group()
    h.join()
    assert h.commit({TP: 5}, member.member_id, 1).result == {TP: Errors.NONE}


def test_member_may_not_commit_before_it_has_its_assignment(h):
    answers = h.join()
    h.advance(3_000)
    assert h.commit({TP: 5}, answers.result.member_id, 1).result == {TP: Errors.REBALANCE_IN_PROGRESS}


def test_commit_is_answered_and_visible_only_when_acknowledged(h):
    h.appender.hold = True
    answers = h.commit({TP: 5})
    assert answers.waiting
    assert h.offsets() == {}
    h.appender.release()
    assert answers.result == {TP: Errors.NONE}
    assert h.offsets() == {TP: 5}


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *APPEND_ERRORS,
        (Errors.MESSAGE_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE),
        (Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE),
        (Errors.INVALID_FETCH_SIZE, Errors.INVALID_COMMIT_OFFSET_SIZE),
        (Errors.REQUEST_TIMED_OUT, Errors.REQUEST_TIMED_OUT),
    ],
)
def test_commit_that_is_not_acknowledged_is_told_and_not_visible(h, error, expected):
    h.commit({TP: 4})
    h.appender.hold = True
    answers = h.commit({TP: 5})
    h.appender.release(error)
    assert answers.result == {TP: expected}
    assert h.offsets() == {TP: 4}


def test_of_two_commits_the_later_record_wins_whichever_is_acknowledged_first():
    offsets = GroupOffsets()
    earlier, later = value(10), value(20)
    offsets.begin({TP: earlier})
    offsets.begin({TP: later})
    offsets.finish({TP: later}, appended_at=9)
    offsets.finish({TP: earlier}, appended_at=8)
    assert offsets.get(TP).offset == 20


def test_too_long_metadata_is_refused_for_its_partition_alone(h):
    answers = h.commit({TP: value(5, "x" * 4_096), OTHER: value(6, "x" * 4_097)})
    assert answers.result == {TP: Errors.NONE, OTHER: Errors.OFFSET_METADATA_TOO_LARGE}
    assert h.offsets() == {TP: 5}
    before = h.appender.log(0).log_end_offset
    assert h.commit({OTHER: value(6, "x" * 4_097)}).result == {OTHER: Errors.OFFSET_METADATA_TOO_LARGE}
    assert h.appender.log(0).log_end_offset == before


def test_metadata_that_the_record_cannot_hold_is_refused_whatever_the_config_says():
    h = Harness(offset_metadata_max_bytes=100_000)
    assert h.commit({TP: value(5, "x" * 40_000)}).result == {TP: Errors.OFFSET_METADATA_TOO_LARGE}


def test_fetch_answers_minus_one_where_nothing_was_committed(h):
    h.commit({TP: value(5, "meta")})
    error, found = h.coordinator.fetch_offsets(h.GROUP, [TP, OTHER], require_stable=True)
    assert error is Errors.NONE
    assert (found[TP].offset, found[TP].leader_epoch, found[TP].metadata) == (5, 4, "meta")
    assert (found[OTHER].offset, found[OTHER].leader_epoch, found[OTHER].error) == (-1, -1, Errors.NONE)
    assert h.coordinator.fetch_offsets("nowhere", [TP], require_stable=False)[1][TP].offset == -1


def test_the_groups_lock_is_not_held_while_the_answer_is_made(h, monkeypatch):
    """That takes most of the time: of 20,000 offsets it is 13 of 14 ms."""
    h.commit({TP: 5, OTHER: 6})
    (cell,) = h.coordinator._registry.cells()

    def fetched(*fields: object) -> FetchedOffset:
        assert not cell._lock.locked()
        return FetchedOffset(*fields)

    monkeypatch.setattr(describe, "FetchedOffset", fetched)
    assert h.offsets() == {TP: 5, OTHER: 6}


def test_committed_offsets_survive_a_new_coordinator_the_later_one_winning(h):
    h.commit({TP: value(1, "a"), OTHER: 2})
    h.commit({TP: value(3, "b", expire_ms=START_WALL_MS + 10_000)})
    h.restart()
    _, found = h.coordinator.fetch_offsets(h.GROUP, None, require_stable=False)
    assert (found[TP].offset, found[TP].metadata, found[OTHER].offset) == (3, "b", 2)


def transactional(h: Harness, offset: int, producer_id: int = 7) -> None:
    record = (encode_offset_key(h.GROUP, TP), encode_offset_value(value(offset)))
    h.appender.log(0).append_records(
        record, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True
    )


def marker(h: Harness, *, commit: bool, producer_id: int = 7) -> None:
    record = (struct.pack(">hh", 0, int(commit)), struct.pack(">hi", 0, 0))
    h.appender.log(0).append_records(
        record, producer_id=producer_id, producer_epoch=0, transactional=True, control=True
    )


def test_offsets_of_a_committed_transaction_count(h):
    transactional(h, 5)
    marker(h, commit=True)
    h.restart()
    assert h.offsets() == {TP: 5}


def test_offsets_of_an_aborted_transaction_never_count(h):
    h.commit({TP: 4})
    transactional(h, 5)
    marker(h, commit=False)
    h.restart()
    assert h.offsets() == {TP: 4}


def test_marker_of_one_producer_does_not_end_anothers_transaction(h):
    transactional(h, 5, producer_id=7)
    marker(h, commit=True, producer_id=8)
    h.restart()
    assert h.offsets() == {}


def test_plain_commit_after_a_transactions_record_wins_over_its_marker(h):
    transactional(h, 5)
    h.commit({TP: 9})
    marker(h, commit=True)
    h.restart()
    assert h.offsets() == {TP: 9}


def test_open_transaction_is_unstable_for_who_asks(h):
    h.commit({TP: 4})
    transactional(h, 5)
    h.restart()
    assert h.offsets() == {TP: 4}
    _, found = h.coordinator.fetch_offsets(h.GROUP, [TP, OTHER], require_stable=True)
    assert (found[TP].error, found[TP].offset) == (Errors.UNSTABLE_OFFSET_COMMIT, -1)
    assert found[OTHER].error is Errors.NONE


def test_commit_under_way_keeps_the_offset_from_expiring():
    offsets = GroupOffsets()
    offsets.load({TP: CommittedOffset(0, value(1))})
    assert offsets.expired(START_WALL_MS + 100, 100) == [TP]
    one, other = value(2), value(2)
    offsets.begin({TP: one})
    offsets.begin({TP: other})
    offsets.finish({TP: one}, None)
    assert offsets.expired(START_WALL_MS + 100, 100) == []
    offsets.finish({TP: other}, None)
    assert offsets.expired(START_WALL_MS + 100, 100) == [TP]


@pytest.mark.parametrize("others", [{}, {TopicPartition("kept", 0): 7}], ids=["dies", "lives on"])
def test_commit_under_way_when_its_topic_is_deleted_does_not_come_back(h, others):
    """Neither where the group ends with its last offset, nor where it has others."""
    h.commit({OTHER: 1, TP: 4, **others})
    assert h.offsets() == {OTHER: 1, TP: 4, **others}
    h.appender.hold = True
    answers = h.commit({TP: 5})
    h.coordinator.on_partitions_deleted([TP, OTHER])
    h.appender.release()
    assert answers.result == {TP: Errors.NONE}
    assert h.offsets() == others
    h.restart()
    assert h.offsets() == others


def test_commit_after_the_deletion_of_its_topic_is_kept_though_one_before_it_ends_later(h):
    h.appender.hold = True
    h.commit({TP: 5})
    h.coordinator.on_partitions_deleted([TP])
    h.commit({TP: 0})
    h.appender.release()
    h.appender.release()
    assert h.offsets() == {TP: 0}
