"""ConsumerGroupHeartbeat (KIP-848): joining, the way to the next assignment, leaving, and the ends of sessions. Pure.

Every request is checked, changes the group, and is answered when its records are stored. Requests that change
nothing wait only for records that are being written.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from broker.coordinator.group.append_errors import store_error
from broker.coordinator.group.consumer.assignors import ASSIGNORS, NOTHING, AssigneeSpec
from broker.coordinator.group.consumer.checks import MUST_REJOIN, leaving_member, member_of
from broker.coordinator.group.consumer.group import ConsumerGroup, Records, names_weight, partitions_weight
from broker.coordinator.group.consumer.member import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    NO_REBALANCE_TIMEOUT,
    STATIC_LEAVE_EPOCH,
    ConsumerMember,
    FencedMember,
    MemberState,
)
from broker.coordinator.group.consumer.messages import (
    ClusterTopics,
    ConsumerGroupLimits,
    HeartbeatRequest,
    HeartbeatResult,
)
from broker.coordinator.group.consumer.records import TopicRecord
from broker.coordinator.group.memory import Admits, admits_all
from broker.coordinator.group.messages import Append, AppendDone, Effects, Moment, Reply
from broker.protocol.errors import Errors, KafkaError

# A batch of __consumer_offsets may have a megabyte.
_BATCH_BYTES: Final = 256 * 1024


def heartbeat(
    group: ConsumerGroup,
    request: HeartbeatRequest,
    now: Moment,
    limits: ConsumerGroupLimits,
    topics: ClusterTopics,
    *,
    admits: Admits = admits_all,
) -> Effects:
    """Handles a valid request. A member that joins has its id already."""
    try:
        if request.member_epoch in {LEAVE_EPOCH, STATIC_LEAVE_EPOCH}:
            result = _leave(group, request)
        else:
            result = _beat(group, request, now, limits, topics, admits)
    except KafkaError as error:
        return [Reply(request.respond, HeartbeatResult(error.error_code, error.message)), *store(group)]
    return _answer(group, request, result)


def on_time(group: ConsumerGroup, now: Moment) -> Effects:
    """Removes the members whose sessions have ended, and those that have not revoked in time."""
    late = [member_id for member_id, due_ms in group.sessions.items() if due_ms <= now.monotonic_ms]
    for member_id, (epoch, due_ms) in list(group.revocations.items()):
        if due_ms > now.monotonic_ms:
            continue
        del group.revocations[member_id]
        if member_id not in late and group.members[member_id].member_epoch == epoch:
            late.append(member_id)
    for member_id in late:
        _fence(group, group.members[member_id])
    return store(group) if late else []


def start(group: ConsumerGroup, now: Moment, limits: ConsumerGroupLimits) -> None:
    """Starts all sessions, and the time to revoke, of a group that was read from the log."""
    for member in group.members.values():
        group.sessions[member.member_id] = now.monotonic_ms + limits.session_timeout_ms
        _time_revocation(group, member, now)


def unload(group: ConsumerGroup) -> Effects:
    """Answers the waiting requests of a group that this broker no longer coordinates."""
    return _release(group, Errors.NOT_COORDINATOR)


def store(group: ConsumerGroup) -> Effects:
    """Writes what is not stored, for nobody."""
    return _store(group, lambda _error: []) if group.unstored else []


# -- a member that is or becomes one


def _beat(  # noqa: PLR0917
    group: ConsumerGroup,
    request: HeartbeatRequest,
    now: Moment,
    limits: ConsumerGroupLimits,
    topics: ClusterTopics,
    admits: Admits,
) -> HeartbeatResult:
    before = member_of(group, request, limits)
    member = before if before is not None else ConsumerMember(request.member_id)
    updated = _updated(member, request)
    if updated is not member or before is None:
        _check_room(group, before, updated, topics, admits)
    held = None if before is None else before.assigned
    member = _enter(group, before, updated)
    joins = before is None or before.topics != member.topics
    if joins or group.topics_version != topics.version:
        joins |= _refresh_topics(group, topics)
        if joins:
            group.bump_epoch()
    if group.epoch > group.assignment_epoch:
        assign(group, limits)
    member = _reconcile(group, member, request, now)
    group.sessions[member.member_id] = now.monotonic_ms + limits.session_timeout_ms
    is_full = request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT
        and request.subscribed_names is not None
        and request.owned is not None
    )
    return HeartbeatResult(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=limits.heartbeat_interval_ms,
        assignment=member.assigned if is_full or member.assigned != held else None,
    )


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The member with what the request says of it. The same object if nothing has changed."""
    said: dict[str, Any] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "subscribed_names": request.subscribed_names,
        "server_assignor": request.server_assignor,
        "client_id": request.client_id,
        "client_host": request.client_host,
    }
    if request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT:
        said["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    if member.member_id != request.member_id or (
        member.has_left_for_now() and request.member_epoch == JOIN_EPOCH
    ):
        # A static member has come back.
        said |= {"member_id": request.member_id, "member_epoch": JOIN_EPOCH, "previous_epoch": JOIN_EPOCH}
    changed = {
        name: value for name, value in said.items() if value is not None and getattr(member, name) != value
    }
    return replace(member, **changed) if changed else member


def _enter(group: ConsumerGroup, before: ConsumerMember | None, updated: ConsumerMember) -> ConsumerMember:
    """Puts the member into the group, in the place of the one before."""
    if before is None:
        group.put(updated)
    elif updated.member_id != before.member_id:
        group.replace_static(before.member_id, updated)
    elif updated is not before:
        group.put(updated)
    return updated


def _check_room(
    group: ConsumerGroup,
    before: ConsumerMember | None,
    updated: ConsumerMember,
    topics: ClusterTopics,
    admits: Admits,
) -> None:
    """Raises :class:`KafkaError` if there is no memory for the member, or for the partitions of its topics."""
    new = [
        topics.by_name[name]
        for name in updated.topics
        if name in topics.by_name and not group.is_subscribed(name)
    ]
    known = frozenset[str]() if before is None else before.topics
    growth = partitions_weight(new) + names_weight((), updated.topics) - names_weight((), known)
    if before is None:
        texts = (
            updated.member_id,
            updated.instance_id,
            updated.rack_id,
            updated.client_id,
            updated.client_host,
        )
        growth += names_weight(texts, ())
    if not admits(growth):
        raise KafkaError(
            Errors.GROUP_MAX_SIZE_REACHED, "The broker has no memory left for members of groups."
        )


def _reconcile(
    group: ConsumerGroup, member: ConsumerMember, request: HeartbeatRequest, now: Moment
) -> ConsumerMember:
    """Brings the member one step nearer to its target. Raises :class:`KafkaError` for a fenced one."""
    try:
        after = member.reconciled(
            group.assignment_epoch, group.target_of(member.member_id), request.owned, group.is_free
        )
    except FencedMember:
        raise KafkaError(
            Errors.FENCED_MEMBER_EPOCH, f"The consumer group member is in a unknown state. {MUST_REJOIN}"
        ) from None
    if after != member:
        group.put(after)
        _time_revocation(group, after, now)
    return after


def _time_revocation(group: ConsumerGroup, member: ConsumerMember, now: Moment) -> None:
    if member.state is MemberState.UNREVOKED_PARTITIONS and member.rebalance_timeout_ms >= 0:
        due_ms = now.monotonic_ms + member.rebalance_timeout_ms
        group.revocations[member.member_id] = (member.member_epoch, due_ms)
    else:
        group.revocations.pop(member.member_id, None)


# -- the group


def _refresh_topics(group: ConsumerGroup, topics: ClusterTopics) -> bool:
    """Notes the present partitions of the subscribed topics. Returns whether they have changed."""
    known: dict[str, TopicRecord] = {
        name: topics.by_name[name] for name in sorted(group.subscribed_topics) if name in topics.by_name
    }
    group.topics_version = topics.version
    if known == group.topics:
        return False
    group.set_topics(known)
    return True


def preferred_assignor(group: ConsumerGroup, limits: ConsumerGroupLimits) -> str:
    """The assignor that most members prefer; the default one if none does."""
    wishes = Counter(
        member.server_assignor
        for member in group.members.values()
        if member.server_assignor is not None and member.server_assignor in limits.assignors
    )
    return min(wishes, key=lambda name: (-wishes[name], name), default=limits.assignors[0])


def assign(group: ConsumerGroup, limits: ConsumerGroupLimits) -> None:
    """Computes the targets of the group's epoch, with the assignor that most members prefer."""
    ids = {topic.name: topic.topic_id for topic in group.topics.values()}
    members = {
        member_id: AssigneeSpec(
            member.instance_id,
            frozenset(ids[topic] for topic in member.topics if topic in ids),
            group.target_of(member_id),
        )
        for member_id, member in group.members.items()
    }
    partitions = {topic.topic_id: topic.partitions for topic in group.topics.values()}
    targets = ASSIGNORS[preferred_assignor(group, limits)](members, partitions)
    for member_id in group.members:
        group.set_target(member_id, targets.get(member_id, NOTHING))
    group.set_assignment_epoch(group.epoch)


# -- a member that leaves


def _leave(group: ConsumerGroup, request: HeartbeatRequest) -> HeartbeatResult:
    member = leaving_member(group, request)
    if request.member_epoch == STATIC_LEAVE_EPOCH and request.instance_id is not None:
        # It keeps its place and its partitions until its session ends.
        group.put(replace(member, member_epoch=STATIC_LEAVE_EPOCH, pending_revocation=NOTHING))
        group.revocations.pop(member.member_id, None)
    else:
        _fence(group, member)
    return HeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)


def _fence(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Removes a member. The others get its partitions with their next heartbeats."""
    group.remove(member.member_id)
    known = {name: topic for name, topic in group.topics.items() if group.is_subscribed(name)}
    if known != group.topics:
        group.set_topics(known)
    group.bump_epoch()


# -- answers


def _answer(group: ConsumerGroup, request: HeartbeatRequest, result: HeartbeatResult) -> Effects:
    """Answers when the records are stored."""
    if group.unstored:
        return _store(
            group,
            lambda error: [
                Reply(request.respond, result if error is Errors.NONE else HeartbeatResult(error))
            ],
        )
    if not group.storing:
        return [Reply(request.respond, result)]
    group.waiting.append((request.respond, result))
    return []


def _store(group: ConsumerGroup, then: Callable[[Errors], Effects]) -> Effects:
    """Writes what is not stored, in several batches if it is much. ``then`` gets the first error.

    The batches need not be written together. By the epochs a target that is stored in part is computed again, and
    no partition is assigned that another member has.
    """
    batches = _batches(group.take_unstored())
    group.storing += len(batches)
    errors: list[Errors] = []

    def appended(batch: Records) -> AppendDone:
        def stored(error: Errors, _offset: int, _now: Moment) -> Effects:
            group.storing -= 1
            errors.append(error)
            if error is not Errors.NONE:
                group.give_back(batch)
            effects: Effects = []
            if len(errors) == len(batches):
                first = next((one for one in errors if one is not Errors.NONE), Errors.NONE)
                effects += then(_append_error(first))
            if error is not Errors.NONE or not group.storing:
                effects += _release(group, _append_error(error))
            return effects

        return stored

    return [Append(tuple(batch.items()), appended(batch)) for batch in batches]


def _batches(records: Records) -> list[Records]:
    batches: list[Records] = [{}]
    size = 0
    for key, value in records.items():
        more = len(key) + len(value or b"")
        if batches[-1] and size + more > _BATCH_BYTES:
            batches.append({})
            size = 0
        batches[-1][key] = value
        size += more
    return batches


def _release(group: ConsumerGroup, error: Errors) -> Effects:
    """Answers those that wait for records of others."""
    waiting, group.waiting = group.waiting, []
    return [
        Reply(respond, result if error is Errors.NONE else HeartbeatResult(error))
        for respond, result in waiting
    ]


def _append_error(error: Errors) -> Errors:
    """A consumer takes no other error for a passing one."""
    mapped = store_error(error)
    return Errors.COORDINATOR_NOT_AVAILABLE if mapped is Errors.REBALANCE_IN_PROGRESS else mapped
