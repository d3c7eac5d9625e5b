"""The records of consumer groups (KIP-848): what is written when, and what the next coordinator reads."""

from __future__ import annotations

import pytest

from broker.coordinator.group.consumer.records import (
    ConsumerGroupKey,
    CurrentAssignmentRecord,
    KeyKind,
    MemberMetadataRecord,
    TopicRecord,
    decode_key,
    encode_current,
    encode_epoch,
    encode_key,
    encode_member,
    encode_target,
    encode_topics,
)
from broker.protocol.errors import Errors
from broker.utils.timer import TICK_MS
from tests.support.consumer_group_fakes import SESSION_MS, TOPIC, ConsumerHarness, parts
from tests.support.group_fakes import APPEND_ERRORS, REBALANCE_MS, recounted_bytes


@pytest.fixture
def world():
    return ConsumerHarness()


def owned(*numbers):
    return {TOPIC: frozenset(numbers)}


def test_a_new_coordinator_knows_epochs_members_and_assignments(world):
    world.enter("a", instance_id="i", server_assignor="range")
    world.enter("b")
    world.beat("a", 1, instance_id="i", owned=owned(0, 1, 2, 3))
    before = world.described()
    world.restart()
    assert world.described() == before
    assert world.beat("a", 1, instance_id="i", owned=owned(0, 1)).member_epoch == 2
    assert parts(world.beat("b", 2)) == {2, 3}


def test_sessions_start_anew_with_a_new_coordinator(world):
    world.enter("a")
    world.advance(SESSION_MS - TICK_MS)
    world.restart()
    world.advance(SESSION_MS - TICK_MS)
    assert world.beat("a", 1).error is Errors.NONE
    world.advance(SESSION_MS)
    assert world.beat("a", 1).error is Errors.UNKNOWN_MEMBER_ID


def test_a_heartbeat_that_changes_nothing_writes_nothing(world):
    world.enter("a")
    end = world.appender.log(0).log_end_offset
    world.beat("a", 1)
    assert world.appender.log(0).log_end_offset == end


def test_answers_wait_for_the_log(world):
    world.appender.hold = True
    joined = world.send("a", 0, owned={}, rebalance_timeout_ms=1, subscribed_names=frozenset({"t"}))
    again = world.send("a", 0, owned={}, rebalance_timeout_ms=1, subscribed_names=frozenset({"t"}))
    assert joined.waiting
    assert again.waiting, "it tells what is not stored yet"
    world.appender.release()
    assert parts(joined.result) == parts(again.result) == {0, 1, 2, 3}


def test_an_answer_waits_only_for_what_was_being_written_when_it_was_given(world):
    world.enter("a")
    world.enter("b")
    world.beat("b", 2)
    world.appender.hold = True
    world.send("a", 1, rack_id="r0")
    quiet = world.send("b", 2)
    for number in range(1, 4):
        world.send("a", 1, rack_id=f"r{number}")
    assert quiet.waiting
    world.appender.held.pop(0)(Errors.NONE)
    assert quiet.error is Errors.NONE


def test_a_write_that_fails_does_not_bring_old_records_back(world):
    world.enter("a")
    world.appender.hold = True
    world.send("a", 1, rack_id="old")
    world.send("a", 1, rack_id="new")
    held, world.appender.held, world.appender.hold = world.appender.held, [], False
    for answer, error in zip(held, (Errors.REQUEST_TIMED_OUT, Errors.NONE), strict=True):
        answer(error)
    world.beat("a", 1)
    world.restart()
    assert [member.rack_id for member, _ in world.described().members] == ["new"]


@pytest.mark.parametrize("failing", [(0, 1), (1, 0)])
def test_of_two_writes_that_fail_the_later_one_is_written_again(world, failing):
    world.enter("a")
    world.appender.hold = True
    world.send("a", 1, rack_id="old")
    world.send("a", 1, rack_id="new")
    held, world.appender.held, world.appender.hold = world.appender.held, [], False
    for number in failing:
        held[number](Errors.REQUEST_TIMED_OUT)
    world.beat("a", 1)
    world.restart()
    assert [member.rack_id for member, _ in world.described().members] == ["new"]


@pytest.mark.parametrize(("error", "told"), APPEND_ERRORS)
def test_what_could_not_be_written_is_written_with_the_next_request(world, error, told):
    world.appender.error = error
    assert world.enter("a").error is told
    world.appender.error = Errors.NONE
    assert world.enter("a").error is Errors.NONE
    before = world.described()
    world.restart()
    assert world.described() == before


def test_a_large_group_is_written_in_batches_that_the_log_takes(world):
    world.has_topics(**{f"{n:0200}": 1 for n in range(3_000)})
    assert world.enter("a", *(f"{n:0200}" for n in range(2_000))).error is Errors.NONE
    assert len(world.appender.log(0).batches) > 1
    before = world.described()
    world.restart()
    assert world.described() == before


@pytest.mark.parametrize("before", [0, 1])
def test_after_a_batch_that_failed_the_log_gets_no_other_of_the_same_change(world, before):
    """Kafka reads no tombstone of a member whose assignment has none before it."""
    world.has_topics(**{f"{n:0200}": 1 for n in range(3_000)})
    names = [f"{n:0200}" for n in range(2_000)]
    world.appender.next_errors = [Errors.NONE] * before + [Errors.NOT_ENOUGH_REPLICAS]
    assert world.enter("a", *names).error is Errors.COORDINATOR_NOT_AVAILABLE
    assert len(world.appender.log(0).batches) == before
    assert world.enter("a", *names).error is Errors.NONE
    known = world.described()
    world.restart()
    assert world.described() == known


def test_what_is_known_of_too_many_topics_is_computed_again_by_a_new_coordinator(world):
    world.has_topics(**{f"{n:0200}": 1 for n in range(5_000)})
    before = world.enter("a", "none", subscribed_regex=".*").assignment
    assert len(before) == 5_000
    assert max(len(record.value or b"") for record in world.appender.log(0).records()) < 512 * 1024
    world.restart()
    again = world.beat("a", 1)
    assert (again.error, again.member_epoch) == (Errors.NONE, 2)
    assert world.described().members[0][0].assigned == before


def test_a_group_without_members_and_offsets_leaves_only_tombstones(world):
    world.enter("a")
    world.beat("a", -1)
    world.coordinator.delete_expired()
    assert world.described().error is Errors.GROUP_ID_NOT_FOUND
    last = {record.key: record.value for record in world.appender.log(0).records()}
    assert set(last.values()) == {None}
    world.restart()
    assert world.described().error is Errors.GROUP_ID_NOT_FOUND


def test_the_tombstones_of_a_member_come_in_the_order_that_kafka_reads(world):
    world.enter("a")
    before = len(world.appender.log(0).records())
    world.beat("a", -1)
    kinds = [decode_key(record.key).kind for record in world.appender.log(0).records()[before:]]
    assert kinds[:3] == [KeyKind.CURRENT_MEMBER, KeyKind.TARGET_MEMBER, KeyKind.MEMBER_METADATA]


def test_what_a_group_weighs_is_given_back(world):
    empty = world.held_bytes
    world.enter("a")
    world.enter("b", "t", "u")
    assert world.held_bytes == recounted_bytes(world.coordinator) > empty
    world.beat("a", -1)
    world.beat("b", -1)
    world.coordinator.delete_expired()
    assert world.held_bytes == empty


# --- what the log has of both kinds


def test_without_its_tombstones_a_group_is_a_consumer_group_to_the_next_coordinator(world):
    world.enter("a")
    world.beat("a", -1)
    joined = world.join()
    world.advance(3_000)
    world.appender.error = Errors.NOT_ENOUGH_REPLICAS
    assert world.sync(joined.result).error is Errors.COORDINATOR_NOT_AVAILABLE
    world.appender.error = Errors.NONE
    world.restart()
    assert parts(world.enter("b")) == {0, 1, 2, 3}
    before = world.described()
    world.restart()
    assert world.described() == before


def stored_group(epoch, assignment_epoch, *members):
    """The records of a group with these members: their epochs and partitions, which are also their targets."""
    yield KeyKind.GROUP_METADATA, "", encode_epoch(epoch)
    yield KeyKind.TARGET_METADATA, "", encode_epoch(assignment_epoch)
    yield KeyKind.PARTITION_METADATA, "", encode_topics([TopicRecord(TOPIC, "t", 4)])
    for number, (member_epoch, partitions) in enumerate(members):
        metadata = MemberMetadataRecord(None, None, "c", "/h", ("t",), "", REBALANCE_MS, None)
        yield KeyKind.MEMBER_METADATA, f"m{number}", encode_member(metadata)
        yield KeyKind.TARGET_MEMBER, f"m{number}", encode_target(owned(*partitions))
        current = CurrentAssignmentRecord(member_epoch, 0, 0, owned(*partitions), {})
        yield KeyKind.CURRENT_MEMBER, f"m{number}", encode_current(current)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param(stored_group(1, 1, (2, {0, 1, 2, 3})), id="a-members-epoch"),
        pytest.param(stored_group(1, 2, (1, {0, 1, 2, 3})), id="the-targets-epoch"),
        pytest.param(stored_group(1, 1, (1, {0, 1})), id="a-target"),
        pytest.param(stored_group(1, 1, (1, {0, 1, 2, 3}), (1, {3})), id="the-other-target"),
    ],
)
def test_a_group_of_which_only_a_part_was_written_is_assigned_again(records):
    """Of one change the first batch may be in the log and the second not, or the other way round."""
    world = coordinator_of(
        *((encode_key(ConsumerGroupKey(kind, "g1", name)), value) for kind, name, value in records)
    )
    for _ in range(3):
        for member, _ in world.described().members:
            has = dict(member.assigned)
            world.beat(member.member_id, member.member_epoch, owned=has)
            world.beat(
                member.member_id, world.epochs()[member.member_id], owned=world.targets()[member.member_id]
            )
    assert world.described().state == "Stable"
    assert sorted(n for target in world.targets().values() for n in target.get(TOPIC, ())) == [0, 1, 2, 3]


def classic_records():
    """The records of a classic group that has come and gone."""
    world = ConsumerHarness()
    (joined,) = world.stable_group()
    with_member = records_of(world)
    world.leave(joined.member_id)
    return with_member, records_of(world)


def records_of(world):
    return [(r.key, r.value) for r in world.appender.log(0).records()]


def coordinator_of(*records):
    """A coordinator that has just read these records."""
    world = ConsumerHarness()
    world.appender.log(0).append_records(*records)
    world.restart()
    return world


@pytest.mark.parametrize("left", [False, True])
def test_the_later_kind_of_group_is_taken_from_the_log(world, left):
    """A Kafka that does not know consumer groups may have led the partition meanwhile."""
    world.enter("a")
    later = coordinator_of(*records_of(world), *classic_records()[left])
    assert later.coordinator.list_groups((), ())[1][0].kind == "classic"
    later.advance(SESSION_MS)
    later.coordinator.delete_expired()
    later.restart()
    assert later.coordinator.list_groups((), ())[1] == []
    assert set(dict(records_of(later)).values()) == {None}


def test_a_consumer_group_behind_a_classic_one_leaves_nothing_of_it(world):
    world.enter("a")
    later = coordinator_of(*classic_records()[1], *records_of(world))
    assert later.described() == world.described()
    later.beat("a", -1)
    later.coordinator.delete_expired()
    assert set(dict(records_of(later)).values()) == {None}


def test_waiting_requests_are_answered_when_another_broker_takes_over(world):
    world.appender.hold = True
    world.send("a", 0, owned={}, rebalance_timeout_ms=1, subscribed_names=frozenset({"t"}))
    again = world.send("a", 0, owned={}, rebalance_timeout_ms=1, subscribed_names=frozenset({"t"}))
    world.coordinator.on_resignation(0, 1)
    assert again.error is Errors.NOT_COORDINATOR


def test_a_group_that_is_given_up_as_soon_as_it_is_loaded_removes_nobody(world, monkeypatch):
    world.enter("a")
    world.coordinator.on_resignation(0, 1)
    coordinator = world.coordinator = world.new_coordinator()
    ownership = coordinator._ownership
    publish = ownership._publish

    def gives_up_at_once(*loaded):
        served = publish(*loaded)
        coordinator.on_resignation(0, 2)
        return served

    with monkeypatch.context() as patch:
        patch.setattr(ownership, "_publish", gives_up_at_once)
        coordinator.on_election(0, 1)
        world.scheduler.run()
    assert (world.timer.waiting, world.held_bytes) == (0, 0)
    coordinator.on_election(0, 3)
    world.scheduler.run()
    before = records_of(world)
    for _ in range(3):
        world.advance(SESSION_MS // 2)
        world.beat("a", 1)
    assert records_of(world) == before
    world.restart(4)
    assert world.epochs() == {"a": 1}
