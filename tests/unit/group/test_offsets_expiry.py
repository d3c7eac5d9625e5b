"""Offsets and groups that go: offsets.retention.minutes by KIP-211's rules, and deleted topics."""

from __future__ import annotations

import struct

import pytest

from broker.coordinator.group.records import GroupKey, OffsetAndMetadata, OffsetKey, decode_key
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.group_fakes import START_WALL_MS, Harness

TP = TopicPartition("t", 0)
OTHER = TopicPartition("other", 0)
MINUTE_MS = 60_000
RETENTION_MS = 10 * MINUTE_MS


@pytest.fixture
def h() -> Harness:
    return Harness(offsets_retention_minutes=10)


def subscription(*topics: str) -> bytes:
    names = b"".join(struct.pack(">h", len(t)) + t.encode() for t in topics)
    return struct.pack(">hi", 1, len(topics)) + names + struct.pack(">i", -1)


def clean(h: Harness, wait_ms: int) -> None:
    h.advance(wait_ms)
    h.coordinator.delete_expired()


def keep_alive(h: Harness, member, duration_ms: int) -> None:
    for _ in range(duration_ms // 5_000):
        h.advance(5_000)
        assert h.heartbeat(member) is Errors.NONE


def tombstones(h: Harness) -> list[object]:
    return [decode_key(r.key) for r in h.appender.log(0).records() if r.value is None]


def test_expiry_runs_at_its_interval(h):
    ((name, _, delay_ms, period_ms),) = h.scheduler.tasks
    assert (name, delay_ms, period_ms) == ("delete-expired-group-metadata", 600_000, 600_000)


def test_simple_consumers_offsets_expire_each_from_its_commit(h):
    h.commit({TP: 1})
    h.advance(6 * MINUTE_MS)
    h.commit({OTHER: 2})
    clean(h, 4 * MINUTE_MS)
    assert h.offsets() == {OTHER: 2}
    assert tombstones(h) == [OffsetKey(h.GROUP, TP)]


def test_group_dies_with_its_last_offset_and_leaves_no_tombstone_if_it_never_had_members(h):
    h.commit({TP: 1})
    clean(h, RETENTION_MS)
    assert h.coordinator.list_groups((), ())[1] == []
    assert tombstones(h) == [OffsetKey(h.GROUP, TP)]


def test_offsets_of_an_empty_group_expire_from_when_it_became_empty(h):
    (member,) = h.stable_group()
    h.commit({TP: 1}, member.member_id, 1)
    keep_alive(h, member, 2 * RETENTION_MS)
    h.leave(member.member_id)
    clean(h, RETENTION_MS - 1)
    assert h.offsets() == {TP: 1}
    clean(h, 1)
    assert h.coordinator.list_groups((), ())[1] == []
    assert tombstones(h) == [OffsetKey(h.GROUP, TP), GroupKey(h.GROUP)]
    h.restart()
    assert h.coordinator.list_groups((), ())[1] == []


def test_active_consumers_keep_what_they_subscribe_and_lose_what_they_left(h):
    (member,) = h.stable_group(protocols=(("range", subscription("t")),))
    h.commit({TP: 1, OTHER: 2}, member.member_id, 1)
    keep_alive(h, member, RETENTION_MS)
    h.coordinator.delete_expired()
    assert h.offsets() == {TP: 1}
    assert h.state() == "Stable"


def test_active_group_of_another_protocol_type_keeps_everything(h):
    (member,) = h.stable_group(protocol_type="connect")
    h.commit({TP: 1}, member.member_id, 1)
    keep_alive(h, member, RETENTION_MS)
    h.coordinator.delete_expired()
    assert h.offsets() == {TP: 1}


def test_consumers_whose_metadata_does_not_parse_keep_everything(h):
    (member,) = h.stable_group(protocols=(("range", b"\1"),))
    h.commit({TP: 1}, member.member_id, 1)
    keep_alive(h, member, RETENTION_MS)
    h.coordinator.delete_expired()
    assert h.offsets() == {TP: 1}


def test_retention_that_the_client_asked_for_goes_before_the_brokers(h):
    h.commit({TP: OffsetAndMetadata(1, -1, "", START_WALL_MS, START_WALL_MS + MINUTE_MS)})
    h.commit({OTHER: OffsetAndMetadata(1, -1, "", START_WALL_MS, START_WALL_MS + 100 * MINUTE_MS)})
    clean(h, MINUTE_MS)
    assert set(h.offsets()) == {OTHER}
    h.restart()
    clean(h, 98 * MINUTE_MS)
    assert set(h.offsets()) == {OTHER}
    clean(h, MINUTE_MS)
    assert h.offsets() == {}


def test_group_without_offsets_dies_when_its_last_member_has_left(h):
    (member,) = h.stable_group()
    h.leave(member.member_id)
    clean(h, 1)
    assert h.coordinator.list_groups((), ())[1] == []
    assert tombstones(h) == [GroupKey(h.GROUP)]


def test_group_that_a_member_is_about_to_join_stays(h):
    pending = h.join(require_known=True).result.member_id
    clean(h, 1)
    assert h.join(pending).waiting


def test_commit_that_meets_a_dying_group_is_told_to_try_again_and_is_not_lost(h):
    h.commit({TP: 1})
    h.advance(RETENTION_MS)
    seen = []

    def interrupt(**call):
        seen.append(h.commit({OTHER: 7}))
        h.coordinator._store._appender = h.appender
        h.appender(**call)

    h.coordinator._store._appender = interrupt
    h.coordinator.delete_expired()
    assert seen[0].result == {OTHER: Errors.COORDINATOR_NOT_AVAILABLE}
    assert h.commit({OTHER: 7}).result == {OTHER: Errors.NONE}
    h.restart()
    assert h.offsets() == {OTHER: 7}


def test_deleted_topics_offsets_go_and_the_others_stay(h):
    h.commit({TP: 1, TopicPartition("t", 1): 2, OTHER: 3})
    h.coordinator.on_partitions_deleted([TP, TopicPartition("t", 1)])
    assert h.offsets() == {OTHER: 3}
    h.restart()
    assert h.offsets() == {OTHER: 3}


def test_deleted_topics_offsets_go_from_groups_with_members_too(h):
    (member,) = h.stable_group()
    h.commit({TP: 1}, member.member_id, 1)
    h.coordinator.on_partitions_deleted([TP])
    assert (h.offsets(), h.state()) == ({}, "Stable")


@pytest.mark.parametrize("others", [0, 10], ids=["one was deleted", "many were deleted"])
def test_only_the_deleted_partitions_lose_their_offsets(h, others):
    of_others = [TopicPartition("u", number) for number in range(others)]
    h.commit({TP: 1, TopicPartition("t", 1): 2, OTHER: 3})
    h.coordinator.on_partitions_deleted([TP, *of_others])
    assert h.offsets() == {TopicPartition("t", 1): 2, OTHER: 3}


def test_an_offset_for_a_topic_that_was_made_anew_stays_whatever_waits_for_its_turn(h):
    h.commit({TP: 5})
    h.coordinator.on_partitions_deleted([TP])
    assert h.commit({TP: 7}).result == {TP: Errors.NONE}
    h.scheduler.run()
    assert h.offsets() == {TP: 7}
    h.restart()
    assert h.offsets() == {TP: 7}


def test_offsets_of_partitions_that_are_deleted_during_a_load_go_with_the_load(h):
    h.commit({TP: 1, OTHER: 2})
    h.commit({TP: 3}, group="g2")
    h.coordinator.on_election(0, 2)
    h.coordinator.on_partitions_deleted([TP])
    h.coordinator.on_partitions_deleted([TopicPartition("t", 1)])
    h.scheduler.run()
    assert (h.offsets(), h.offsets("g2")) == ({OTHER: 2}, {})
    assert h.coordinator._registry.find("g2") is None, "it has nothing left"
    h.commit({TP: 7})
    h.restart()
    assert (h.offsets(), h.offsets("g2")) == ({TP: 7, OTHER: 2}, {})


def test_partitions_that_are_deleted_while_the_log_is_being_read_are_not_missed(h):
    h.commit({TP: 1, OTHER: 2})
    log = h.appender.log(0)
    read = log.read_bytes

    def deletes_meanwhile(offset: int, max_bytes: int) -> memoryview:
        data = read(offset, max_bytes)
        h.coordinator.on_partitions_deleted([TP])
        return data

    log.read_bytes = deletes_meanwhile
    h.coordinator.on_election(0, 2)
    h.scheduler.run()
    assert h.offsets() == {OTHER: 2}


def test_a_deletion_during_a_load_that_failed_is_not_forgotten_by_the_next_try(h):
    h.commit({TP: 1, OTHER: 2})
    h.appender.log(0).broken = True
    h.coordinator.on_election(0, 2)
    h.coordinator.on_partitions_deleted([TP])
    h.scheduler.run()
    h.appender.log(0).broken = False
    h.scheduler.run()
    assert h.offsets() == {OTHER: 2}


def test_a_deletion_before_another_broker_was_coordinator_is_its_business(h):
    h.coordinator.on_election(0, 2)
    h.coordinator.on_partitions_deleted([TP])
    h.coordinator.on_resignation(0, 3)
    elsewhere = h.new_coordinator()
    here, h.coordinator = h.coordinator, elsewhere
    elsewhere.on_election(0, 3)
    h.scheduler.run()
    h.commit({TP: 7})
    h.coordinator = here
    here.on_election(0, 4)
    h.scheduler.run()
    assert h.offsets() == {TP: 7}


def test_a_load_that_comes_too_late_after_a_deletion_holds_no_memory(h):
    h.commit({TP: 1, OTHER: 2})
    h.coordinator.on_election(0, 2)
    h.coordinator.on_partitions_deleted([TP])
    append = h.appender

    def resigns_meanwhile(**call):
        h.coordinator.on_resignation(0, 3)
        append(**call)

    h.coordinator._store._appender = resigns_meanwhile
    h.scheduler.run()
    assert h.held_bytes == 0
    assert h.coordinator._registry.cells() == []


def test_thousands_of_offsets_go_in_batches_of_a_thousand(h):
    h.commit({TopicPartition("t", n): n for n in range(2_500)})
    before = len(h.appender.log(0).batches)
    clean(h, RETENTION_MS)
    assert len(h.appender.log(0).batches) - before == 3
    h.restart()
    assert h.offsets() == {}
