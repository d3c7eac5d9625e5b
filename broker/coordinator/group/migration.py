"""The change of a group between the classic and the consumer protocol (KIP-848), with and without members. Pure.

:data:`STEPS` is the table of what happens. An upgrade takes the members' assignments over. A downgrade starts a
rebalance. Neither writes anything by itself: the tombstones of one kind go with the first records of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Final

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.classic import assignment_bytes, by_id
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.member import ConsumerMember, difference, union
from broker.coordinator.group.consumer.messages import ClusterTopics, ConsumerGroupLimits
from broker.coordinator.group.consumer.records import ClassicMemberRecord
from broker.coordinator.group.embedded import Subscription, decode_assignment, decode_subscription
from broker.coordinator.group.group import CONSUMER_PROTOCOL_TYPE, Group
from broker.coordinator.group.member import Member
from broker.coordinator.group.messages import Effects, GroupLimits, JoinResult, Moment, SyncResult
from broker.coordinator.group.rebalance import answer_join, answer_sync, prepare_rebalance
from broker.coordinator.group.records import encode_group_key
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors


class GroupKind(Enum):
    """A group by its protocol and by what its members use."""

    CLASSIC_EMPTY = "classic, no members"
    CLASSIC = "classic, with members"
    CONSUMER_EMPTY = "consumer, no members"
    CONSUMER_ALL_CLASSIC = "consumer, all members use the classic protocol"
    CONSUMER = "consumer, some members use its protocol"


class MembersEvent(Enum):
    """What may change the kind of a group."""

    CONSUMER_JOINS = "a member of the consumer protocol joins"
    CLASSIC_JOINS = "a classic member joins"
    CHANGED = "members have joined or gone"


class MigrationStep(Enum):
    """What becomes of the group. UPGRADE and DOWNGRADE keep its members, if ``group.consumer.migration.policy``
    allows them.
    """

    STAY = "stay"
    REPLACE = "replace"
    UPGRADE = "upgrade"
    DOWNGRADE = "downgrade"


STEPS: Final[Mapping[tuple[GroupKind, MembersEvent], MigrationStep]] = {
    (GroupKind.CLASSIC_EMPTY, MembersEvent.CONSUMER_JOINS): MigrationStep.REPLACE,
    (GroupKind.CLASSIC, MembersEvent.CONSUMER_JOINS): MigrationStep.UPGRADE,
    (GroupKind.CONSUMER_EMPTY, MembersEvent.CLASSIC_JOINS): MigrationStep.REPLACE,
    (GroupKind.CONSUMER_ALL_CLASSIC, MembersEvent.CHANGED): MigrationStep.DOWNGRADE,
}


def kind(group: Group) -> GroupKind:
    consumer = group.consumer
    if consumer is None:
        return GroupKind.CLASSIC_EMPTY if group.state is GroupState.EMPTY else GroupKind.CLASSIC
    if not consumer.members:
        return GroupKind.CONSUMER_EMPTY
    all_classic = consumer.classic_members == len(consumer.members)
    return GroupKind.CONSUMER_ALL_CLASSIC if all_classic else GroupKind.CONSUMER


def step(group: Group, event: MembersEvent, limits: GroupLimits) -> MigrationStep:
    """What becomes of the group, by the table, the policy and the greatest sizes."""
    found = STEPS.get((kind(group), event), MigrationStep.STAY)
    policy = limits.consumers.migration
    if found is MigrationStep.UPGRADE:
        fits = len(group.members) < limits.consumers.max_size
        allowed = policy.upgrades and fits and group.protocol_type == CONSUMER_PROTOCOL_TYPE
        return MigrationStep.UPGRADE if allowed else MigrationStep.STAY
    if found is MigrationStep.DOWNGRADE and group.consumer is not None:
        fits = len(group.consumer.members) <= limits.max_size
        return MigrationStep.DOWNGRADE if policy.downgrades and fits else MigrationStep.STAY
    return found


# -- to a consumer group


def upgraded(group: Group, topics: ClusterTopics, limits: ConsumerGroupLimits) -> ConsumerGroup:
    """The consumer group that the group would become by :func:`adopt`, with all its members. Raises
    :class:`MalformedRecord` if a member's subscription or assignment is not one of consumers.

    Every member has its assignment of the last generation, also during a rebalance: its client may still use it. Where
    a rebalance began anew before its end, nobody has one, and a member has what its client said that it goes on with.
    A partition that two members have is the first one's.
    """
    consumer = ConsumerGroup(group.group_id)
    if group.generation_id > 0 or group.members:
        consumer.unstored.note(encode_group_key(group.group_id), None)
    consumer.epoch = consumer.assignment_epoch = group.generation_id
    taken: Assignment = {}
    for member in group.members.values():
        subscription = decode_subscription(member.metadata(group.protocol_name or member.protocols[0][0]))
        held = decode_assignment(member.assignment) if member.assignment else subscription.owned
        assigned = difference(by_id(held, topics), taken)
        taken = union(taken, assigned)
        consumer.put(_consumer_member(member, group, subscription, assigned, limits))
        consumer.set_target(member.member_id, assigned)
    if group.members:
        consumer.note_epochs()
    return consumer


def _consumer_member(
    member: Member,
    group: Group,
    subscription: Subscription,
    assigned: Assignment,
    limits: ConsumerGroupLimits,
) -> ConsumerMember:
    if member.protocols_size > limits.max_member_bytes:
        raise MalformedRecord("the subscription is too long for a record")
    return ConsumerMember(
        member.member_id,
        member.group_instance_id,
        subscription.rack_id or None,
        member.client_id,
        member.client_host,
        member.rebalance_timeout_ms,
        subscription.topics,
        member_epoch=group.generation_id,
        previous_epoch=group.generation_id,
        assigned=assigned,
        classic=ClassicMemberRecord(member.session_timeout_ms, member.protocols),
    )


def adopt(group: Group, consumer: ConsumerGroup, now: Moment) -> Effects:
    """Makes the group a consumer group. Waiting members are told to join again."""
    effects: Effects = []
    for member in list(group.members.values()):
        again = Errors.REBALANCE_IN_PROGRESS
        effects += answer_join(group, member, JoinResult(member.member_id, again))
        effects += answer_sync(member, SyncResult(again))
        group.remove(member.member_id)
    for member_id in list(group.pending_members):
        group.forget_pending(member_id)
    if group.leftover is not None:
        group.leftover.note_all(consumer.unstored.noted)
        consumer.unstored, group.leftover = group.leftover, None
    group.clear_generation(now)
    group.consumer = consumer
    group.compute_wake()
    group.wake_by(consumer.next_deadline_ms())
    return effects


# -- to a classic group


def replace(group: Group, consumer: ConsumerGroup) -> None:
    """Makes a consumer group without members a classic one. Its tombstones are written with the next generation."""
    consumer.end()
    group.consumer, group.leftover = None, consumer.unstored


def maybe_downgrade(group: Group, now: Moment, limits: GroupLimits) -> Effects:
    """Makes the group a classic one if only classic members are left. They have to join again. Until then those of
    the last epoch may commit with it as their generation.
    """
    consumer = group.consumer
    if consumer is None or step(group, MembersEvent.CHANGED, limits) is not MigrationStep.DOWNGRADE:
        return []
    members = [_classic_member(member, consumer) for member in consumer.members.values()]
    generation_id = max(member.member_epoch for member in consumer.members.values())
    replace(group, consumer)
    group.protocol_type, group.generation_id = CONSUMER_PROTOCOL_TYPE, generation_id
    for member in members:
        group.add(member, None)
        group.extend_session(member, now)
    group.assign(group.assignments())
    group.protocol_name = group.select_protocol()
    group.restart_in(GroupState.STABLE, now)
    return prepare_rebalance(group, now, limits)


def _classic_member(member: ConsumerMember, consumer: ConsumerGroup) -> Member:
    """The member with all that its client may still use as its assignment."""
    classic = member.classic
    if classic is None:
        raise ValueError(f"{member.member_id} does not use the classic protocol")
    made = Member(
        member.member_id,
        member.instance_id,
        client_id=member.client_id,
        client_host=member.client_host,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        session_timeout_ms=classic.session_timeout_ms,
        protocols=classic.protocols,
    )
    held = union(member.assigned, member.pending_revocation)
    made.assignment = assignment_bytes(classic, held, consumer.topics)
    return made
