"""Consumer groups (KIP-848) in the coordinator: joining, revoking, leaving, sessions, offsets, both protocols."""

from __future__ import annotations

import pytest

from broker.coordinator.group.consumer.records import is_of_consumer_group
from broker.coordinator.group.membership import check_transactional_commit
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.consumer_group_fakes import SESSION_MS, TOPIC, ConsumerHarness, parts
from tests.support.group_fakes import REBALANCE_MS

TP = TopicPartition("t", 0)


@pytest.fixture
def world():
    return ConsumerHarness()


def owned(*numbers):
    return {TOPIC: frozenset(numbers)}


# --- joining and the way to the next assignment


def test_the_first_member_gets_everything_at_once(world):
    joined = world.enter("a")
    assert (joined.error, joined.member_id, joined.member_epoch) == (Errors.NONE, "a", 1)
    assert joined.heartbeat_interval_ms == 5_000
    assert parts(joined) == {0, 1, 2, 3}
    assert world.described().state == "Stable"


def test_a_member_without_an_id_gets_one(world):
    assert len(world.enter("").member_id) == 22


def test_a_member_revokes_before_another_gets_its_partitions(world):
    world.enter("a")
    assert parts(world.enter("b")) == set()
    told = world.beat("a", 1, owned=owned(0, 1, 2, 3))
    assert (told.member_epoch, parts(told)) == (1, {0, 1})
    assert parts(world.beat("b", 2)) is None
    assert world.described().state == "Reconciling"
    assert world.beat("a", 1, owned=owned(0, 1)).member_epoch == 2
    assert parts(world.beat("b", 2)) == {2, 3}
    assert world.described().state == "Stable"


def test_an_assignment_is_told_once_and_with_every_full_request(world):
    world.enter("a")
    assert parts(world.beat("a", 1)) is None
    full = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_names": frozenset({"t"}), "owned": owned(0)}
    assert parts(world.beat("a", 1, **full)) == {0, 1, 2, 3}


def test_new_partitions_are_assigned_with_the_next_heartbeat(world):
    world.enter("a")
    world.has_topics(t=6)
    told = world.beat("a", 1)
    assert (told.member_epoch, parts(told)) == (2, {0, 1, 2, 3, 4, 5})


def test_a_topic_that_does_not_exist_yet_is_assigned_when_it_does(world):
    assert parts(world.enter("a", "later")) == set()
    world.has_topics(t=4, later=2)
    assert sum(map(len, world.beat("a", 1).assignment.values())) == 2


def test_the_assignor_that_most_members_prefer_is_used(world):
    world.enter("a", server_assignor="range")
    assert world.described().assignor == "range"
    world.beat("a", 1, server_assignor="uniform")
    assert world.described().assignor == "uniform"


# --- refusals


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"rebalance_timeout_ms": -1}, Errors.INVALID_REQUEST),
        ({"subscribed_names": None}, Errors.INVALID_REQUEST),
        ({"owned": None}, Errors.INVALID_REQUEST),
        ({"owned": {TOPIC: frozenset({0})}}, Errors.INVALID_REQUEST),
        ({"instance_id": ""}, Errors.INVALID_REQUEST),
        ({"rack_id": ""}, Errors.INVALID_REQUEST),
        ({"group": ""}, Errors.INVALID_REQUEST),
        ({"rack_id": "r" * 600_000}, Errors.INVALID_REQUEST),
        ({"server_assignor": "mine"}, Errors.UNSUPPORTED_ASSIGNOR),
    ],
)
def test_a_wrong_request_to_join_is_refused(world, fields, error):
    assert world.enter("a", **fields).error is error


def test_a_wrong_epoch_or_member_is_refused(world):
    assert world.beat("a", 1).error is Errors.GROUP_ID_NOT_FOUND
    world.enter("a")
    assert world.beat("b", 1).error is Errors.UNKNOWN_MEMBER_ID
    assert world.beat("", 1).error is Errors.INVALID_REQUEST
    assert world.beat("a", 2).error is Errors.FENCED_MEMBER_EPOCH
    assert world.beat("a", -3).error is Errors.INVALID_REQUEST
    assert world.beat("b", -1).error is Errors.UNKNOWN_MEMBER_ID


def test_the_previous_epoch_is_taken_with_no_more_than_was_assigned(world):
    world.enter("a")
    world.has_topics(t=5)
    assert world.beat("a", 1).member_epoch == 2
    assert world.beat("a", 1, owned=owned(0, 1)).error is Errors.NONE
    assert world.beat("a", 1, owned=owned(7)).error is Errors.FENCED_MEMBER_EPOCH
    assert world.beat("a", 1).error is Errors.FENCED_MEMBER_EPOCH


def test_a_full_group_takes_no_other_member():
    world = ConsumerHarness(group_consumer_max_size=1)
    world.enter("a")
    assert world.enter("b").error is Errors.GROUP_MAX_SIZE_REACHED
    assert world.beat("a", 1).error is Errors.NONE


def test_without_memory_a_member_is_refused_and_those_that_are_there_stay():
    world = ConsumerHarness(landline_group_max_bytes=16_000)
    world.enter("a")
    assert world.enter("b", *(f"topic-{n}" for n in range(100))).error is Errors.GROUP_MAX_SIZE_REACHED
    assert world.beat("a", 1).error is Errors.NONE


# --- leaving, sessions and time to revoke


def test_the_partitions_of_a_member_that_leaves_go_to_the_others(world):
    world.enter("a")
    world.enter("b")
    left = world.beat("a", -1)
    assert (left.error, left.member_epoch) == (Errors.NONE, -1)
    assert parts(world.beat("b", 2)) == {0, 1, 2, 3}


def test_a_member_that_is_silent_is_removed_when_its_session_ends(world):
    world.enter("a")
    world.enter("b")
    world.advance(SESSION_MS - 1_000)
    assert world.beat("b", 2).error is Errors.NONE
    world.advance(2_000)
    assert parts(world.beat("b", 2)) == {0, 1, 2, 3}
    assert world.beat("a", 1).error is Errors.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_in_time_is_removed(world):
    world.enter("a", rebalance_timeout_ms=10_000)
    world.enter("b")
    world.beat("a", 1, owned=owned(0, 1, 2, 3))
    world.advance(10_001)
    assert world.beat("a", 1, owned=owned(0, 1, 2, 3)).error is Errors.UNKNOWN_MEMBER_ID
    assert parts(world.beat("b", 2)) == {0, 1, 2, 3}


# --- static members


def test_a_static_member_that_comes_back_gets_its_partitions_without_a_rebalance(world):
    world.enter("a", instance_id="i")
    world.enter("b")
    assert world.beat("a", -2, instance_id="i").member_epoch == -2
    epoch = world.described().epoch
    back = world.enter("c", instance_id="i")
    assert (back.error, parts(back)) == (Errors.NONE, {0, 1})
    assert world.described().epoch == epoch
    assert world.beat("a", 2, instance_id="i").error is Errors.FENCED_INSTANCE_ID


def test_a_member_id_that_is_in_use_is_not_taken_by_a_static_member(world):
    world.enter("a")
    world.beat("a", 1)
    assert world.enter("c").error is Errors.NONE
    assert parts(world.beat("a", 1, owned=owned(0, 1, 2, 3))) == {0, 1}
    assert world.beat("a", 1, owned=owned(0, 1)).member_epoch == 2
    assert world.enter("a", instance_id="new").error is Errors.FENCED_MEMBER_EPOCH
    world.enter("i", instance_id="one")
    world.beat("i", -2, instance_id="one")
    assert world.enter("c", instance_id="one").error is Errors.FENCED_MEMBER_EPOCH
    assert parts(world.beat("c", 2)) == {2}


def test_an_instance_id_is_not_given_away_while_its_member_lives(world):
    world.enter("a", instance_id="i")
    assert world.enter("b", instance_id="i").error is Errors.UNRELEASED_INSTANCE_ID
    assert world.beat("a", 1, instance_id="j").error is Errors.UNKNOWN_MEMBER_ID


def test_a_static_member_that_does_not_come_back_loses_its_partitions(world):
    world.enter("a", instance_id="i")
    world.enter("b")
    world.beat("a", -2, instance_id="i")
    world.advance(SESSION_MS - 1_000)
    world.beat("b", 2)
    world.advance(1_001)
    assert parts(world.beat("b", 2)) == {0, 1, 2, 3}


# --- offsets


def test_a_member_commits_and_fetches_with_its_epoch(world):
    world.enter("a")
    assert world.commit({TP: 5}, "a", 1).result == {TP: Errors.NONE}
    assert world.commit({TP: 6}, "a", 0).result == {TP: Errors.STALE_MEMBER_EPOCH}
    assert world.commit({TP: 6}, "b", 1).result == {TP: Errors.UNKNOWN_MEMBER_ID}
    assert world.commit({TP: 6}).result == {TP: Errors.UNKNOWN_MEMBER_ID}
    fetch = world.coordinator.fetch_offsets
    assert fetch("g1", [TP], require_stable=False, member=("a", 1))[1][TP].offset == 5
    assert fetch("g1", [TP], require_stable=False)[1][TP].offset == 5
    assert fetch("g1", [TP], require_stable=False, member=("a", 0))[0] is Errors.STALE_MEMBER_EPOCH
    assert fetch("g1", [TP], require_stable=False, member=("b", 1))[0] is Errors.UNKNOWN_MEMBER_ID


def test_a_producer_that_knows_no_members_commits_in_its_transaction(world):
    """KIP-447: old producers name only the group."""
    world.enter("a")
    (cell,) = world.coordinator._registry.cells()
    assert check_transactional_commit(cell.group, "", None, -1) is Errors.NONE
    assert check_transactional_commit(cell.group, "x", None, -1) is Errors.UNKNOWN_MEMBER_ID
    assert check_transactional_commit(cell.group, "a", None, 7) is Errors.ILLEGAL_GENERATION
    assert check_transactional_commit(cell.group, "a", None, 1) is Errors.NONE


def test_anyone_commits_to_a_group_without_members(world):
    world.enter("a")
    world.beat("a", -1)
    assert world.commit({TP: 6}).result == {TP: Errors.NONE}


def test_offsets_of_subscribed_topics_are_kept(world):
    world.enter("a")
    world.commit({TP: 5, TopicPartition("u", 0): 6}, "a", 1)
    deleted = []
    both = [TP, TopicPartition("u", 0)]
    world.coordinator.delete_offsets("g1", both, lambda error, errors: deleted.append((error, errors)))
    assert deleted == [
        (Errors.NONE, dict(zip(both, (Errors.GROUP_SUBSCRIBED_TO_TOPIC, Errors.NONE), strict=True)))
    ]
    assert world.offsets() == {TP: 5}


def test_only_a_group_without_members_is_deleted(world):
    world.enter("a")
    answers = []
    world.coordinator.delete("g1", answers.append)
    world.beat("a", -1)
    world.coordinator.delete("g1", answers.append)
    assert answers == [Errors.NON_EMPTY_GROUP, Errors.NONE]
    world.restart()
    assert world.described().error is Errors.GROUP_ID_NOT_FOUND


# --- the two protocols


def test_lists_show_the_type(world):
    world.enter("a")
    world.stable_group(group="g2")
    listed = {one.group_id: (one.kind, one.state) for one in world.coordinator.list_groups((), ())[1]}
    assert listed == {"g1": ("consumer", "Stable"), "g2": ("classic", "Stable")}
    assert [one.group_id for one in world.coordinator.list_groups((), ["Consumer"])[1]] == ["g1"]
    assert [one.group_id for one in world.coordinator.list_groups((), ["classic"])[1]] == ["g2"]


def test_offsets_of_topics_without_a_subscriber_expire(world):
    world.enter("a")
    other = TopicPartition("u", 0)
    world.commit({TP: 5, other: 6}, "a", 1)
    world.clock.now_ms += 8 * 24 * 3_600_000
    world.beat("a", 1)
    world.coordinator.delete_expired()
    assert world.offsets() == {TP: 5}


def test_describe_groups_does_not_know_a_consumer_group(world):
    world.enter("a")
    assert world.state() == "Dead"


def test_without_a_policy_a_classic_group_with_members_takes_no_consumer(world):
    world.stable_group(group="g2")
    assert world.enter("a", group="g2").error is Errors.GROUP_ID_NOT_FOUND
    assert world.described("g2").error is Errors.GROUP_ID_NOT_FOUND


def test_a_group_without_members_goes_to_the_other_protocol_and_back_with_its_offsets(world):
    (joined,) = world.stable_group()
    world.commit({TP: 5}, joined.member_id, joined.generation_id)
    world.leave(joined.member_id)
    assert parts(world.enter("a")) == {0, 1, 2, 3}
    assert world.offsets() == {TP: 5}
    world.restart()
    assert world.described().state == "Stable"
    world.beat("a", -1)
    world.stable_group()
    assert world.offsets() == {TP: 5}
    world.restart()
    assert world.state() == "Stable"
    left = {r.key: r.value for r in world.appender.log(0).records() if is_of_consumer_group(r.key)}
    assert set(left.values()) == {None}
