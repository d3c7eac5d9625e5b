"""Members of a consumer group that still use the classic protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup. Pure.

To its client the group looks like a classic one with another leader. The member's epoch is the generation, and it is
told to join again as long as there is something to revoke or to get. The coordinator assigns, as to all members of
the group. Follows Kafka 4's errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.group.consumer import heartbeats
from broker.coordinator.group.consumer.answers import answer, store
from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.checks import check_size
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.member import JOIN_EPOCH, ConsumerMember, MemberState, difference
from broker.coordinator.group.consumer.messages import ClusterTopics, ConsumerGroupLimits, HeartbeatRequest
from broker.coordinator.group.consumer.records import ClassicMemberRecord, TopicRecord
from broker.coordinator.group.consumer.unstored import PendingAnswer
from broker.coordinator.group.embedded import Partitions, decode_subscription, encode_assignment
from broker.coordinator.group.memory import Admits, admits_all
from broker.coordinator.group.messages import (
    NO_MEMBER_ID,
    Effects,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    Moment,
    Reply,
    SyncRequest,
    SyncResult,
)
from broker.protocol.errors import Errors, KafkaError

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def join(
    group: ConsumerGroup,
    request: JoinRequest,
    now: Moment,
    limits: ConsumerGroupLimits,
    topics: ClusterTopics,
    *,
    admits: Admits = admits_all,
) -> Effects:
    """Answers at once, without waiting for other members: the generation is the member's epoch."""
    try:
        member_id = request.member_id or request.new_member_id
        _check_join(group, request, member_id, limits)
        if (
            request.require_known_member_id
            and request.member_id == NO_MEMBER_ID
            and request.group_instance_id is None
        ):
            return [Reply(request.respond, JoinResult(member_id, Errors.MEMBER_ID_REQUIRED))]
        before = _joining_member(group, request, member_id)
        member = heartbeats.advance(
            group,
            before,
            _as_heartbeat(request, member_id, before, topics, limits),
            now,
            limits=limits,
            topics=topics,
            admits=admits,
        )
    except KafkaError as error:
        refusal = JoinResult(request.member_id, error.error_code)
        return [Reply(request.respond, refusal), *store(group.unstored)]
    group.awaited.set(member.member_id, now.monotonic_ms + request.rebalance_timeout_ms)
    result = JoinResult(
        member.member_id, Errors.NONE, member.member_epoch, CONSUMER_PROTOCOL_TYPE, _protocol_of(member)
    )
    return answer(
        group.unstored,
        PendingAnswer(request.respond, result, lambda error: JoinResult(request.member_id, error)),
    )


def sync(group: ConsumerGroup, request: SyncRequest, now: Moment, limits: ConsumerGroupLimits) -> Effects:
    """Answers with the member's partitions once they are stored."""
    try:
        member = _member_of(group, MemberIdentity(request.member_id, request.group_instance_id))
        _check_sync(group, member, request)
    except KafkaError as error:
        if error.error_code is Errors.REBALANCE_IN_PROGRESS:
            _await_join(group, group.members[request.member_id], now)
        return [Reply(request.respond, SyncResult(error.error_code))]
    group.awaited.drop(member.member_id)
    heartbeats.extend_session(group, member, now, limits)
    result = SyncResult(
        Errors.NONE,
        CONSUMER_PROTOCOL_TYPE,
        _protocol_of(member),
        assignment_bytes(member.classic, member.assigned, group.topics),
    )
    return answer(group.unstored, PendingAnswer(request.respond, result, SyncResult))


def heartbeat(
    group: ConsumerGroup,
    identity: MemberIdentity,
    generation_id: int,
    now: Moment,
    limits: ConsumerGroupLimits,
    *,
    topics: ClusterTopics,
) -> Errors:
    """Extends the session. REBALANCE_IN_PROGRESS makes the member join again."""
    try:
        member = _member_of(group, identity)
    except KafkaError as error:
        return error.error_code
    if generation_id != member.member_epoch:
        return Errors.ILLEGAL_GENERATION
    heartbeats.extend_session(group, member, now, limits)
    if not _must_join(group, member, topics):
        return Errors.NONE
    _await_join(group, member, now)
    return Errors.REBALANCE_IN_PROGRESS


def leave(group: ConsumerGroup, leaving: Sequence[MemberIdentity]) -> list[Errors]:
    """One error per identity, in order. Members of the consumer protocol leave with their heartbeats only."""
    errors: list[Errors] = []
    gone: dict[str, ConsumerMember] = {}
    for identity in leaving:
        try:
            member = _leaving_member(group, identity)
            if member.member_id in gone:
                raise KafkaError(Errors.UNKNOWN_MEMBER_ID)
        except KafkaError as error:
            errors.append(error.error_code)
            continue
        gone[member.member_id] = member
        errors.append(Errors.NONE)
    if gone:
        heartbeats.remove(group, *gone.values())
    return errors


def assignment_bytes(
    classic: ClassicMemberRecord | None, assigned: Assignment, topics: Mapping[str, TopicRecord]
) -> bytes:
    """The partitions as the member's client reads them, in the version of its subscription. Topics that are gone have
    no name, and are left out.
    """
    names = {topic.topic_id: name for name, topic in topics.items()}
    partitions: Partitions = {
        names[topic_id]: numbers for topic_id, numbers in assigned.items() if topic_id in names
    }
    version = 0 if classic is None else int.from_bytes(classic.protocols[0][1][:2], signed=True)
    return encode_assignment(max(version, 0), partitions)


# -- who may join


def _check_join(
    group: ConsumerGroup, request: JoinRequest, member_id: str, limits: ConsumerGroupLimits
) -> None:
    if member_id not in group.members and len(group.members) >= limits.max_size:
        raise KafkaError(Errors.GROUP_MAX_SIZE_REACHED)
    if request.protocol_type != CONSUMER_PROTOCOL_TYPE or not _supports(group, request, member_id):
        raise KafkaError(Errors.INCONSISTENT_GROUP_PROTOCOL)


def _supports(group: ConsumerGroup, request: JoinRequest, member_id: str) -> bool:
    """Whether all classic members have one of the protocols in common with it, as they need if the group becomes a
    classic one.
    """
    common = {name for name, _ in request.protocols}
    for member in group.members.values():
        if member.classic is not None and member.member_id != member_id:
            common &= {name for name, _ in member.classic.protocols}
    return bool(common)


def _joining_member(group: ConsumerGroup, request: JoinRequest, member_id: str) -> ConsumerMember | None:
    """The member that joins again, or in whose place the client steps; None for a new one."""
    if request.group_instance_id is None:
        return group.members.get(member_id)
    holder_id = group.static_members.get(request.group_instance_id)
    if request.member_id == NO_MEMBER_ID:
        return None if holder_id is None else group.members[holder_id]
    return _identified(group, MemberIdentity(request.member_id, request.group_instance_id))


def _as_heartbeat(
    request: JoinRequest,
    member_id: str,
    before: ConsumerMember | None,
    topics: ClusterTopics,
    limits: ConsumerGroupLimits,
) -> HeartbeatRequest:
    """What the JoinGroup says, as a heartbeat says it. A static member that used the consumer protocol ``before``
    gives its regular expression up; others never had one. Raises :class:`KafkaError`.
    """
    try:
        subscription = decode_subscription(request.protocols[0][1])
    except MalformedRecord as error:
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR) from error
    heartbeat = HeartbeatRequest(
        member_id,
        JOIN_EPOCH,
        respond=lambda _result: None,
        client_id=request.client_id,
        client_host=request.client_host,
        instance_id=request.group_instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        subscribed_names=subscription.topics,
        subscribed_regex="" if before is not None and before.subscribed_regex else None,
        owned=by_id(subscription.owned, topics),
        classic=ClassicMemberRecord(request.session_timeout_ms, request.protocols),
    )
    check_size(heartbeat, limits)
    return heartbeat


def by_id(partitions: Partitions, topics: ClusterTopics) -> Assignment:
    """The partitions of those topics that exist."""
    return {
        topics.by_name[name].topic_id: numbers
        for name, numbers in partitions.items()
        if name in topics.by_name and numbers
    }


# -- a member between joins


def _identified(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    if identity.group_instance_id is None:
        member = group.members.get(identity.member_id)
        if member is None:
            raise KafkaError(Errors.UNKNOWN_MEMBER_ID)
        return member
    holder_id = group.static_members.get(identity.group_instance_id)
    if holder_id is None:
        raise KafkaError(Errors.UNKNOWN_MEMBER_ID)
    if holder_id != identity.member_id:
        raise KafkaError(Errors.FENCED_INSTANCE_ID)
    return group.members[holder_id]


def _member_of(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    member = _identified(group, identity)
    if member.classic is None:
        raise KafkaError(Errors.UNKNOWN_MEMBER_ID)
    return member


def _leaving_member(group: ConsumerGroup, identity: MemberIdentity) -> ConsumerMember:
    """An administrator removes static members by instance id only."""
    if identity.member_id == NO_MEMBER_ID and identity.group_instance_id is not None:
        holder_id = group.static_members.get(identity.group_instance_id, NO_MEMBER_ID)
        identity = MemberIdentity(holder_id, identity.group_instance_id)
    return _member_of(group, identity)


def _check_sync(group: ConsumerGroup, member: ConsumerMember, request: SyncRequest) -> None:
    if request.generation_id != member.member_epoch:
        raise KafkaError(Errors.ILLEGAL_GENERATION)
    if request.protocol_type not in (None, CONSUMER_PROTOCOL_TYPE):
        raise KafkaError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    if request.protocol_name not in (None, _protocol_of(member)):
        raise KafkaError(Errors.INCONSISTENT_GROUP_PROTOCOL)
    # A member that must revoke has joined already, and joins again when it has revoked.
    if group.epoch > member.member_epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
        raise KafkaError(Errors.REBALANCE_IN_PROGRESS)


def _must_join(group: ConsumerGroup, member: ConsumerMember, topics: ClusterTopics) -> bool:
    """Whether joining again would change something for the member."""
    if member.member_epoch < group.epoch or member.state is MemberState.UNREVOKED_PARTITIONS:
        return True
    if group.topics_version != topics.version:
        if heartbeats.present_topics(group, topics) != group.topics:
            return True
        group.topics_version = topics.version  # what has changed is not of this group: do not look again
    if member.state is not MemberState.UNRELEASED_PARTITIONS:
        return False
    waits = difference(group.target_of(member.member_id), member.assigned)
    return all(group.is_free(topic, number) for topic, numbers in waits.items() for number in numbers)


def _await_join(group: ConsumerGroup, member: ConsumerMember, now: Moment) -> None:
    if member.member_id not in group.awaited:
        group.awaited.set(member.member_id, now.monotonic_ms + member.rebalance_timeout_ms)


def _protocol_of(member: ConsumerMember) -> str:
    """The protocol that the member is told: the first of its own, since the coordinator assigns."""
    return "" if member.classic is None else member.classic.protocols[0][0]
