"""Groups that change between the classic and the consumer protocol (KIP-848) while they have members."""

from __future__ import annotations

import itertools

import pytest

from broker.coordinator.group.consumer.records import is_of_consumer_group
from broker.coordinator.group.messages import MemberIdentity
from broker.coordinator.group.migration import STEPS, GroupKind, MembersEvent, MigrationStep
from broker.protocol.errors import Errors
from broker.protocol.primitives import INT16, INT32
from broker.utils.topic_partition import TopicPartition
from tests.support.consumer_group_fakes import TOPIC, parts
from tests.support.group_fakes import REBALANCE_MS, SESSION_MS, recounted_bytes
from tests.support.migration_fakes import MigrationHarness, assigned, range_of, subscription

TP = TopicPartition("t", 0)


@pytest.fixture
def world():
    return MigrationHarness()


# --- the table


def test_every_kind_of_group_has_its_step_for_every_event():
    drawn = """
        CLASSIC_EMPTY CONSUMER_JOINS REPLACE
        CLASSIC CONSUMER_JOINS UPGRADE
        CONSUMER_EMPTY CLASSIC_JOINS REPLACE
        CONSUMER_ALL_CLASSIC CHANGED DOWNGRADE
    """
    table = {
        (GroupKind[kind], MembersEvent[event]): MigrationStep[step]
        for kind, event, step in map(str.split, drawn.strip().splitlines())
    }
    assert table == STEPS
    assert all(
        STEPS.get(pair) is not MigrationStep.STAY for pair in itertools.product(GroupKind, MembersEvent)
    )


@pytest.mark.parametrize(
    ("policy", "upgrades", "downgrades"),
    [
        ("disabled", False, False),
        ("upgrade", True, False),
        ("downgrade", False, True),
        ("bidirectional", True, True),
        ("Bidirectional", True, True),
    ],
)
def test_the_policy_decides_which_way_a_group_with_members_goes(policy, upgrades, downgrades):
    world = MigrationHarness(policy)
    world.classic_group((0, 1, 2, 3))
    joined = world.enter("a")
    assert (joined.error is Errors.NONE) is upgrades
    assert world.kind() == ("consumer" if upgrades else "classic")
    other = MigrationHarness(policy)
    other.enter("a")
    assert other.join(protocols=range_of()).error is Errors.NONE, "a classic member may always join"
    other.beat("a", -1)
    assert other.kind() == ("classic" if downgrades else "consumer")


# --- from classic to consumer


def test_a_consumer_that_joins_makes_a_classic_group_a_consumer_group(world):
    (member,) = world.classic_group((0, 1, 2, 3))
    world.commit({TP: 5}, member.member_id, member.generation_id)
    joined = world.enter("a")
    assert (joined.error, joined.member_epoch, parts(joined)) == (Errors.NONE, 2, set())
    assert world.kind() == "consumer"
    assert world.described().state == "Reconciling"
    assert world.heartbeat(member) is Errors.REBALANCE_IN_PROGRESS
    member, has = world.rejoin(member)  # the eager protocol: it has revoked everything
    assert (member.generation_id, has) == (2, {0, 1})
    assert parts(world.beat("a", 2)) == {2, 3}
    assert world.heartbeat(member) is Errors.NONE
    assert world.described().state == "Stable"
    assert world.offsets() == {TP: 5}


def test_a_cooperative_member_revokes_before_the_consumer_gets_its_partitions(world):
    (member,) = world.classic_group((0, 1, 2, 3))
    world.enter("a")
    member, has = world.rejoin(member, 0, 1, 2, 3)
    assert (member.generation_id, has) == (1, {0, 1})
    assert world.heartbeat(member) is Errors.REBALANCE_IN_PROGRESS
    assert parts(world.beat("a", 2)) is None
    member, has = world.rejoin(member, 0, 1)
    assert (member.generation_id, has) == (2, {0, 1})
    assert parts(world.beat("a", 2)) == {2, 3}


def test_members_that_wait_are_told_to_join_again(world):
    leader, other = world.classic_group((0, 1), (2, 3))
    waiting = world.join(leader.member_id, protocols=range_of())
    assert waiting.waiting
    world.enter("a")
    assert waiting.error is Errors.REBALANCE_IN_PROGRESS
    for member in (leader, other):
        assert world.join(member.member_id, protocols=range_of()).error is Errors.NONE


def test_a_member_that_waits_for_the_leader_joins_again(world):
    leader, other = world.classic_group((0, 1), (2, 3))
    first = world.join(leader.member_id, protocols=range_of())
    second = world.join(other.member_id, protocols=range_of())
    waiting = world.sync(second.result)
    world.enter("a")
    assert waiting.error is Errors.REBALANCE_IN_PROGRESS
    assert world.sync(first.result, {}).error is Errors.REBALANCE_IN_PROGRESS


def test_what_a_member_owns_between_generations_is_not_given_away(world):
    """Its client may use its partitions until it has joined again."""
    leader, other = world.classic_group((0, 1), (2, 3))
    world.join(leader.member_id, protocols=range_of())
    assert parts(world.enter("a")) == set()
    assert parts(world.beat("a", 3)) is None
    _, has = world.rejoin(leader)
    assert has | (parts(world.beat("a", 3)) or set()) <= {0, 1}
    _, others = world.rejoin(other)
    assert not has & others


def test_a_rebalance_that_began_anew_leaves_to_cooperative_members_what_they_go_on_with(world):
    """Nobody has an assignment then; that the third member has left is why it began anew."""
    leader, other, third = world.classic_group((0, 1), (2,), (3,))
    for member, owned in ((leader, (0, 1)), (other, (2,)), (third, (3,))):
        world.join(member.member_id, protocols=range_of(*owned))
    world.leave(third.member_id)
    world.enter("a")
    holds = {one.member_id: set(one.assigned.get(TOPIC, ())) for one, _ in world.described().members}
    assert holds[leader.member_id] == {0, 1}
    assert holds[other.member_id] == {2}
    assert holds["a"] <= {3}


def test_a_partition_that_two_members_have_stays_with_the_first(world):
    first, second = world.classic_group((0, 1), (1, 2, 3))
    world.enter("a")
    _, has = world.rejoin(first, 0, 1)
    _, others = world.rejoin(second, 2, 3)
    assert not has & others


@pytest.mark.parametrize("data", [b"", b"\x00", INT16.pack(-1), INT16.pack(0) + INT32.pack(9)])
def test_a_group_whose_members_speak_of_something_else_stays_classic(world, data):
    world.stable_group(protocols=(("range", data),))
    assert world.enter("a").error is Errors.GROUP_ID_NOT_FOUND
    assert world.state() == "Stable"


def test_a_group_of_another_type_stays_classic(world):
    world.stable_group(protocol_type="connect", protocols=range_of())
    assert world.enter("a").error is Errors.GROUP_ID_NOT_FOUND
    assert world.state() == "Stable"


def test_a_group_that_would_be_too_large_stays_classic():
    world = MigrationHarness(group_consumer_max_size=1)
    world.classic_group((0, 1, 2, 3))
    assert world.enter("a").error is Errors.GROUP_ID_NOT_FOUND
    assert world.state() == "Stable"


def test_a_consumer_that_is_refused_changes_nothing(world):
    world.stable_group(protocols=range_of(), instance="one")
    (held_bytes, log) = world.held_bytes, world.appender.log(0).log_end_offset
    refused = world.enter("a", subscribed_names=None, subscribed_regex="(a|a)*" * 1_000 + "t")
    assert refused.error is not Errors.NONE
    assert (world.state(), world.held_bytes) == ("Stable", held_bytes)
    assert world.appender.log(0).log_end_offset == log


def test_the_log_has_one_kind_of_group_only(world):
    (member,) = world.classic_group((0, 1, 2, 3))
    world.enter("a")
    before = world.described()
    world.restart()
    assert world.described() == before
    assert world.kind() == "consumer"
    assert world.heartbeat(member) is Errors.REBALANCE_IN_PROGRESS
    world.beat("a", -1)
    joined, _ = world.classic_leader_after(member)
    world.restart()
    assert world.kind() == "classic"
    assert world.heartbeat(joined) is Errors.NONE
    records = {r.key: r.value for r in world.appender.log(0).records()}
    assert {value for key, value in records.items() if is_of_consumer_group(key)} == {None}


# --- from consumer to classic


def test_the_last_consumer_that_leaves_makes_the_group_a_classic_one(world):
    member, _ = world.mixed_group()
    assert world.beat("a", -1).error is Errors.NONE
    assert (world.kind(), world.state()) == ("classic", "PreparingRebalance")
    assert world.heartbeat(member) is Errors.REBALANCE_IN_PROGRESS
    assert world.commit({TP: 7}, member.member_id, member.generation_id).result == {TP: Errors.NONE}
    joined, synced = world.classic_leader_after(member)
    assert joined.generation_id > member.generation_id
    assert synced == {0, 1, 2, 3}
    assert world.offsets() == {TP: 7}


def test_the_last_consumer_that_is_silent_makes_the_group_a_classic_one(world):
    member, _ = world.mixed_group()
    for _ in range(9):
        world.advance(SESSION_MS // 2)
        assert world.heartbeat(member) in (
            Errors.NONE,
            Errors.ILLEGAL_GENERATION,
            Errors.REBALANCE_IN_PROGRESS,
        )
    assert world.kind() == "classic"


def test_a_static_consumer_in_whose_place_a_classic_one_steps_makes_the_group_classic(world):
    world.enter("a", instance_id="one")
    joined = world.join(protocols=range_of(), instance="one")
    assert joined.error is Errors.NONE
    assert world.kind() == "classic"
    assert world.beat("a", 1, instance_id="one").error is Errors.GROUP_ID_NOT_FOUND
    joined, synced = world.classic_leader_after(joined.result, instance="one")
    assert synced == {0, 1, 2, 3}


def test_a_group_that_has_become_classic_may_become_a_consumer_group_at_once(world):
    member, _ = world.mixed_group()
    world.beat("a", -1)
    joined = world.enter("b")
    assert (joined.error, parts(joined)) == (Errors.NONE, {0, 1}), "the others are the member's"
    before = world.described()
    world.restart()
    assert world.described() == before
    assert world.join(member.member_id, protocols=range_of()).error is Errors.NONE


def test_a_group_too_large_for_the_classic_protocol_stays_a_consumer_group():
    world = MigrationHarness(group_max_size=1)
    world.enter("a")
    for _ in range(2):
        world.join(protocols=range_of())
    world.beat("a", -1)
    assert world.kind() == "consumer"


def test_a_failing_log_keeps_the_tombstones_for_the_next_generation(world):
    member, _ = world.mixed_group()
    world.appender.error = Errors.NOT_ENOUGH_REPLICAS
    assert world.beat("a", -1).error is Errors.COORDINATOR_NOT_AVAILABLE
    joined = world.join(member.member_id, protocols=range_of()).result
    assert world.sync(joined, {}).error is Errors.COORDINATOR_NOT_AVAILABLE
    world.appender.error = Errors.NONE
    world.classic_leader_after(member)
    world.restart()
    assert (world.kind(), world.state()) == ("classic", "Stable")
    left = {r.key: r.value for r in world.appender.log(0).records() if is_of_consumer_group(r.key)}
    assert set(left.values()) == {None}


def test_a_classic_groups_tombstone_comes_before_those_of_a_consumer_groups_members(world):
    """Kafka reads no tombstone of a member of a consumer group while the group is a classic one."""
    (member,) = world.classic_group((0, 1, 2, 3))
    world.appender.error = Errors.NOT_ENOUGH_REPLICAS
    world.enter("a")
    world.beat("a", -1)
    world.appender.error = Errors.NONE
    end = world.appender.log(0).log_end_offset
    world.classic_leader_after(member)
    keys = [r.key for r in world.appender.log(0).records() if r.offset >= end]
    classic = [n for n, key in enumerate(keys) if not is_of_consumer_group(key)]
    assert classic == [0, len(keys) - 1]
    assert len(keys) > 2


def test_a_group_that_ends_between_its_protocols_leaves_only_tombstones(world):
    member, _ = world.mixed_group()
    world.beat("a", -1)
    world.leave(member.member_id)
    world.coordinator.delete_expired()
    world.scheduler.run()
    assert set({r.key: r.value for r in world.appender.log(0).records()}.values()) == {None}
    world.restart()
    assert world.coordinator.list_groups((), ())[1] == []


def test_what_a_group_weighs_is_given_back_on_both_ways(world):
    member, _ = world.mixed_group()
    assert recounted_bytes(world.coordinator) == world.held_bytes
    world.beat("a", -1)
    assert recounted_bytes(world.coordinator) == world.held_bytes
    world.enter("b")
    world.leave(member.member_id)
    assert recounted_bytes(world.coordinator) == world.held_bytes


# --- classic members in a consumer group


def test_a_classic_member_joins_a_consumer_group(world):
    world.enter("a")
    first = world.join(protocols=range_of(), require_known=True)
    assert first.error is Errors.MEMBER_ID_REQUIRED
    joined = world.join(first.result.member_id, protocols=range_of(), require_known=True).result
    assert (joined.error, joined.generation_id, joined.leader_id, joined.members) == (Errors.NONE, 2, "", ())
    assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")
    assert assigned(world.sync(joined)) == set()
    assert world.heartbeat(joined) is Errors.NONE, "its partitions are another's still"
    world.beat("a", 1, owned={TOPIC: frozenset({0, 1, 2, 3})})
    world.beat("a", 1, owned={TOPIC: frozenset({0, 1})})
    assert world.heartbeat(joined) is Errors.REBALANCE_IN_PROGRESS
    _, has = world.rejoin(joined)
    assert has == {2, 3}


@pytest.mark.parametrize(
    ("join", "error"),
    [
        ({"protocol_type": "connect"}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("roundrobin", subscription()),)}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": ()}, Errors.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": (("range", b"?"),)}, Errors.UNKNOWN_SERVER_ERROR),
        ({"protocols": (("range", subscription() + bytes(1 << 19)),)}, Errors.INVALID_REQUEST),
        ({"member_id": "x", "instance": "nobody"}, Errors.UNKNOWN_MEMBER_ID),
        ({"member_id": "x", "instance": "one"}, Errors.FENCED_INSTANCE_ID),
        ({"session_ms": 1}, Errors.INVALID_SESSION_TIMEOUT),
    ],
    ids=lambda value: value.name if isinstance(value, Errors) else "-".join(value),
)
def test_a_wrong_join_is_refused(world, join, error):
    world.enter("a")
    world.join(protocols=range_of(), instance="one")
    before = world.described()
    assert world.join(**{"protocols": range_of(), **join}).error is error
    assert world.described() == before


def test_a_full_group_takes_no_classic_member():
    world = MigrationHarness(group_consumer_max_size=1)
    world.enter("a")
    assert world.join(protocols=range_of()).error is Errors.GROUP_MAX_SIZE_REACHED


def test_a_wrong_sync_or_heartbeat_is_refused_as_in_a_classic_group(world):
    member, _ = world.mixed_group()
    unknown = member.__class__("x", Errors.NONE, 1)
    old = member.__class__(member.member_id, Errors.NONE, 1)
    consumer = member.__class__("a", Errors.NONE, member.generation_id)
    for one, error in (
        (unknown, Errors.UNKNOWN_MEMBER_ID),
        (old, Errors.ILLEGAL_GENERATION),
        (consumer, Errors.UNKNOWN_MEMBER_ID),
    ):
        assert world.heartbeat(one) is error
        assert world.sync(one).error is error
    assert world.sync(member, protocol_type="connect").error is Errors.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(member, protocol_name="sticky").error is Errors.INCONSISTENT_GROUP_PROTOCOL
    world.enter("b")
    assert world.sync(member).error is Errors.REBALANCE_IN_PROGRESS


def test_classic_members_leave_and_consumers_do_not_by_that_request(world):
    member, _ = world.mixed_group()
    static = world.join(protocols=range_of(), instance="one").result
    assert world.leave(member.member_id, member.member_id, "a", "x", MemberIdentity("", "one")) == [
        Errors.NONE,
        Errors.UNKNOWN_MEMBER_ID,
        Errors.UNKNOWN_MEMBER_ID,
        Errors.UNKNOWN_MEMBER_ID,
        Errors.NONE,
    ]
    assert world.heartbeat(static) is Errors.UNKNOWN_MEMBER_ID
    assert [one.member_id for one, _ in world.described().members] == ["a"]


def test_a_classic_member_has_no_regular_expression_and_a_static_member_gives_one_up(world):
    """As Kafka's records have it: an empty text, and not null."""
    world.enter("a", instance_id="one", subscribed_names=frozenset(), subscribed_regex="t.*")
    world.join(protocols=range_of())
    world.enter("b")
    world.join(protocols=range_of(), instance="one")
    regexes = {one.instance_id: one.subscribed_regex for one, _ in world.described().members if one.classic}
    assert regexes == {None: "", "one": ""}


def test_a_classic_member_commits_with_its_generation_in_any_version(world):
    member, _ = world.mixed_group()
    assert world.commit({TP: 1}, member.member_id, member.generation_id).result == {TP: Errors.NONE}
    assert world.commit({TP: 1}, member.member_id, 1).result == {TP: Errors.ILLEGAL_GENERATION}


def test_a_classic_member_is_removed_when_its_own_session_ends(world):
    member, _ = world.mixed_group()
    world.advance(SESSION_MS)
    assert world.heartbeat(member) is Errors.UNKNOWN_MEMBER_ID
    assert parts(world.beat("a", 2)) == {0, 1, 2, 3}


def test_a_classic_member_that_does_not_join_again_in_time_is_removed(world):
    member, _ = world.mixed_group(rebalance_ms=20_000)
    world.enter("b")
    for _ in range(4):
        assert world.heartbeat(member) is Errors.REBALANCE_IN_PROGRESS
        world.advance(5_000)
    assert world.heartbeat(member) is Errors.UNKNOWN_MEMBER_ID


def test_a_classic_member_that_does_not_sync_in_time_is_removed(world):
    world.enter("a")
    joined = world.join(protocols=range_of()).result
    for _ in range(REBALANCE_MS // 5_000):
        assert world.heartbeat(joined) is Errors.NONE
        world.advance(5_000)
        world.beat("a", 1)
    assert world.heartbeat(joined) is Errors.UNKNOWN_MEMBER_ID


def test_classic_members_see_new_partitions(world):
    member, _ = world.mixed_group()
    world.has_topics(t=5)
    assert world.heartbeat(member) is Errors.REBALANCE_IN_PROGRESS
    again, _ = world.rejoin(member)
    assert again.generation_id == member.generation_id + 1
    assert any(4 in target[TOPIC] for _, target in world.described().members)


def test_topics_of_others_are_looked_at_once(world, monkeypatch):
    member, _ = world.mixed_group()
    world.has_topics(t=4, unrelated=1)
    assert world.heartbeat(member) is Errors.NONE
    monkeypatch.setattr("broker.coordinator.group.consumer.heartbeats.present_topics", None)
    assert world.heartbeat(member) is Errors.NONE


def test_a_new_coordinator_knows_classic_members(world):
    member, has = world.mixed_group()
    before = world.described()
    world.restart()
    assert world.described() == before
    assert world.heartbeat(member) is Errors.NONE
    assert assigned(world.sync(member)) == has


def test_a_static_member_goes_to_the_consumer_protocol_and_keeps_its_partitions(world):
    world.enter("a")
    static = world.join(protocols=range_of(), instance="one").result
    world.sync(static, instance="one")
    world.beat("a", 1, owned={TOPIC: frozenset({0, 1, 2, 3})})
    world.beat("a", 1, owned={TOPIC: frozenset({0, 1})})
    _, has = world.rejoin(static, instance="one")
    assert has == {2, 3}
    moved = world.enter("new", instance_id="one")
    assert (moved.error, parts(moved)) == (Errors.NONE, {2, 3})
    assert world.heartbeat(static, instance="one") is Errors.FENCED_INSTANCE_ID
