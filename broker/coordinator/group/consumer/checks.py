"""Which ConsumerGroupHeartbeats are refused, with Kafka's errors and messages. Pure."""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    NO_REBALANCE_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
)
from broker.coordinator.group.consumer.messages import ConsumerGroupLimits, HeartbeatRequest
from broker.coordinator.group.consumer.topic_pattern import InvalidPattern, compiled
from broker.protocol.errors import Errors, KafkaError

MUST_REJOIN: Final = "The member must abandon all its partitions and rejoin."
_MAX_KEY_BYTES: Final = 0x7FFF


def request_error(group_id: str, request: HeartbeatRequest, limits: ConsumerGroupLimits) -> KafkaError | None:
    """The error of a request that no group would accept."""
    message = _what_is_wrong(group_id, request)
    if message is not None:
        return KafkaError(Errors.INVALID_REQUEST, message)
    try:
        check_size(request, limits)
    except KafkaError as error:
        return error
    if request.subscribed_regex:
        try:
            compiled(request.subscribed_regex)
        except InvalidPattern as error:
            return invalid_regex(request.subscribed_regex, error)
    if request.server_assignor is not None and request.server_assignor not in limits.assignors:
        supported = ", ".join(limits.assignors)
        return KafkaError(
            Errors.UNSUPPORTED_ASSIGNOR,
            f"ServerAssignor {request.server_assignor} is not supported. Supported assignors: {supported}.",
        )
    return None


def _what_is_wrong(group_id: str, request: HeartbeatRequest) -> str | None:
    epoch = request.member_epoch
    if not group_id:
        return "GroupId can't be empty."
    if request.instance_id is not None and not request.instance_id:
        return "InstanceId can't be empty."
    if request.rack_id is not None and not request.rack_id:
        return "RackId can't be empty."
    if epoch == JOIN_EPOCH:
        return _what_is_wrong_with_join(request)
    if epoch < STATIC_LEAVE_EPOCH:
        return "MemberEpoch is invalid."
    if not request.member_id:
        return "MemberId can't be empty."
    if epoch == STATIC_LEAVE_EPOCH and request.instance_id is None:
        return "InstanceId can't be null."
    return None


def _what_is_wrong_with_join(request: HeartbeatRequest) -> str | None:
    if request.rebalance_timeout_ms == NO_REBALANCE_TIMEOUT:
        return "RebalanceTimeoutMs must be provided in first request."
    if request.owned is None or request.owned:
        return "TopicPartitions must be empty when (re-)joining."
    if request.makes_own_id and not request.member_id:
        return "MemberId can't be empty."
    if request.subscribed_names is None and request.subscribed_regex is None:
        return "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining."
    return None


def invalid_regex(regex: str, error: InvalidPattern) -> KafkaError:
    return KafkaError(
        Errors.INVALID_REGULAR_EXPRESSION,
        f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}.",
    )


def member_of(
    group: ConsumerGroup, request: HeartbeatRequest, limits: ConsumerGroupLimits
) -> ConsumerMember | None:
    """The member that sent the request; None if it is a new one. Raises :class:`KafkaError`."""
    member = group.members.get(request.member_id)
    if member is None and len(group.members) >= limits.max_size:
        raise KafkaError(
            Errors.GROUP_MAX_SIZE_REACHED,
            f"The consumer group has reached its maximum capacity of {limits.max_size} members.",
        )
    if request.instance_id is not None:
        return _static_member_of(group, request)
    if member is None and request.member_epoch != JOIN_EPOCH:
        raise _unknown(request.member_id, group)
    if member is not None:
        _check_epoch(member, request)
    return member


def _static_member_of(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember | None:
    holder_id = group.static_members.get(request.instance_id or "")
    if holder_id is None:
        if request.member_epoch == JOIN_EPOCH:
            return _under_that_id(group, request)
        raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    holder = group.members[holder_id]
    if request.member_epoch != JOIN_EPOCH:
        _check_instance(holder, request)
        _check_epoch(holder, request)
        return holder
    if (
        holder.classic is None
        and not holder.has_left_for_now()
        and not (holder_id == request.member_id and holder.accepts(JOIN_EPOCH, request.owned))
    ):
        raise KafkaError(
            Errors.UNRELEASED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} cannot join the group "
            f"because the instance id is owned by {holder_id} member.",
        )
    if holder_id != request.member_id and request.member_id in group.members:
        raise KafkaError(
            Errors.FENCED_MEMBER_EPOCH, f"Another member has the id {request.member_id}. {MUST_REJOIN}"
        )
    return holder


def _under_that_id(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember | None:
    """The member with the id of the request, if there is one. It must not be replaced by an empty one: its client
    may use its partitions. Raises :class:`KafkaError` if it is another client's.
    """
    member = group.members.get(request.member_id)
    if member is not None:
        _check_epoch(member, request)
    return member


def _check_instance(holder: ConsumerMember, request: HeartbeatRequest) -> None:
    if holder.member_id != request.member_id:
        raise KafkaError(
            Errors.FENCED_INSTANCE_ID,
            f"Static member {request.member_id} with instance id {request.instance_id} was fenced by member "
            f"{holder.member_id}.",
        )


def _check_epoch(member: ConsumerMember, request: HeartbeatRequest) -> None:
    if not member.accepts(request.member_epoch, request.owned):
        than = "greater" if request.member_epoch > member.member_epoch else "smaller"
        raise KafkaError(
            Errors.FENCED_MEMBER_EPOCH,
            f"The consumer group member has a {than} member epoch ({request.member_epoch}) than the one known by "
            f"the group coordinator ({member.member_epoch}). {MUST_REJOIN}",
        )


def _unknown(member_id: str, group: ConsumerGroup) -> KafkaError:
    return KafkaError(
        Errors.UNKNOWN_MEMBER_ID, f"Member {member_id} is not a member of group {group.group_id}."
    )


def leaving_member(group: ConsumerGroup, request: HeartbeatRequest) -> ConsumerMember:
    """The member that leaves. Raises :class:`KafkaError`."""
    if request.instance_id is None:
        member = group.members.get(request.member_id)
        if member is None:
            raise _unknown(request.member_id, group)
        return member
    holder_id = group.static_members.get(request.instance_id)
    if holder_id is None:
        raise KafkaError(Errors.UNKNOWN_MEMBER_ID, f"Instance id {request.instance_id} is unknown.")
    _check_instance(group.members[holder_id], request)
    return group.members[holder_id]


def commit_error(
    group: ConsumerGroup,
    member_id: str,
    member_epoch: int,
    *,
    transactional: bool = False,
    knows_epochs: bool = True,
) -> Errors:
    """The error of a commit of offsets. Without an epoch anyone may commit while the group has no members.
    ``knows_epochs``: it comes in a version that has member epochs (OffsetCommit 9).
    """
    if member_epoch < 0 and not group.members:
        return Errors.NONE
    member = group.members.get(member_id)
    if member is None:
        return Errors.UNKNOWN_MEMBER_ID
    if not knows_epochs and not transactional and member.classic is None:
        return Errors.UNSUPPORTED_VERSION
    error = _epoch_error(member, member_epoch)
    return Errors.ILLEGAL_GENERATION if transactional and error is not Errors.NONE else error


def fetch_error(group: ConsumerGroup, member_id: str | None, member_epoch: int) -> Errors:
    """The error of an OffsetFetch. Clients that are no members name neither id nor epoch."""
    if member_id is None and member_epoch < 0:
        return Errors.NONE
    member = group.members.get(member_id or "")
    if member is None:
        return Errors.UNKNOWN_MEMBER_ID
    return _epoch_error(member, member_epoch)


def _epoch_error(member: ConsumerMember, epoch: int) -> Errors:
    """The error of a wrong epoch, which is the generation to classic members."""
    if epoch == member.member_epoch:
        return Errors.NONE
    return Errors.STALE_MEMBER_EPOCH if member.classic is None else Errors.ILLEGAL_GENERATION


def check_size(request: HeartbeatRequest, limits: ConsumerGroupLimits) -> None:
    """Raises :class:`KafkaError` if the member would not fit into records. Keys have its id and its
    regular expression.
    """
    texts = (
        request.instance_id,
        request.rack_id,
        request.client_id,
        request.subscribed_regex,
        *(request.subscribed_names or ()),
    )
    size = sum(len(text.encode()) for text in texts if text)
    if request.classic is not None:
        size += sum(len(name) + len(metadata) for name, metadata in request.classic.protocols)
    in_keys = (request.member_id, request.subscribed_regex or "")
    if size > limits.max_member_bytes or any(len(text.encode()) > _MAX_KEY_BYTES for text in in_keys):
        raise KafkaError(Errors.INVALID_REQUEST, "The member's ids and subscription are too long.")
