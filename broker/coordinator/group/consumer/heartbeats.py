"""ConsumerGroupHeartbeat (KIP-848): joining, the way to the next assignment, leaving, and the ends of sessions. Pure.

Every request is checked, changes the group, and is answered when its records are stored. Requests that change
nothing wait only for records that are being written.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from broker.coordinator.group.consumer.answers import answer, store
from broker.coordinator.group.consumer.assignors import ASSIGNORS, NOTHING, AssigneeSpec
from broker.coordinator.group.consumer.checks import MUST_REJOIN, leaving_member, member_of
from broker.coordinator.group.consumer.group import ConsumerGroup
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
    MatchedAt,
    RegexMatch,
)
from broker.coordinator.group.consumer.records import TopicRecord
from broker.coordinator.group.consumer.unstored import PendingAnswer
from broker.coordinator.group.consumer.weights import classic_weight, names_weight, partitions_weight
from broker.coordinator.group.memory import Admits, admits_all
from broker.coordinator.group.messages import Effects, Moment, Reply
from broker.protocol.errors import Errors, KafkaError


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
            result = beat(group, request, now, limits, topics, admits=admits)
    except KafkaError as error:
        refusal = HeartbeatResult(error.error_code, error.message)
        return [Reply(request.respond, refusal), *store(group.unstored)]
    return answer(group.unstored, PendingAnswer(request.respond, result, HeartbeatResult))


def on_time(group: ConsumerGroup, now: Moment) -> Effects:
    """Removes the members whose sessions have ended, and those that have not revoked or joined again in time: all in
    one step, with one epoch and one write, however many they are.
    """
    late = group.take_late(now.monotonic_ms)
    if not late:
        return []
    remove(group, *late)
    return store(group.unstored)


def start(group: ConsumerGroup, now: Moment, limits: ConsumerGroupLimits) -> None:
    """Starts all sessions, and the time to revoke, of a group that was read from the log."""
    for member in group.members.values():
        extend_session(group, member, now, limits)
        _time_revocation(group, member, now)


# -- a member that is or becomes one


def beat(
    group: ConsumerGroup,
    request: HeartbeatRequest,
    now: Moment,
    limits: ConsumerGroupLimits,
    topics: ClusterTopics,
    *,
    admits: Admits = admits_all,
) -> HeartbeatResult:
    """Changes the group by the heartbeat of a member that stays or joins. Raises :class:`KafkaError`."""
    before = member_of(group, request, limits)
    held = None if before is None else before.assigned
    member = advance(group, before, request, now, limits=limits, topics=topics, admits=admits)
    is_full = request.member_epoch == JOIN_EPOCH or (
        request.rebalance_timeout_ms != NO_REBALANCE_TIMEOUT
        and (request.subscribed_names is not None or request.subscribed_regex is not None)
        and request.owned is not None
    )
    return HeartbeatResult(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=limits.heartbeat_interval_ms,
        assignment=member.assigned if is_full or member.assigned != held else None,
    )


def advance(
    group: ConsumerGroup,
    before: ConsumerMember | None,
    request: HeartbeatRequest,
    now: Moment,
    *,
    limits: ConsumerGroupLimits,
    topics: ClusterTopics,
    admits: Admits,
) -> ConsumerMember:
    """Takes what the request says of the member ``before`` (None: a new one), computes the assignment if that is due,
    and brings the member one step nearer to it. Raises :class:`KafkaError`.
    """
    member = before if before is not None else ConsumerMember(request.member_id)
    updated = _updated(member, request)
    if updated.subscribed_regex != member.subscribed_regex:
        updated = replace(
            updated, matched_names=_matched_names(group, updated.subscribed_regex, request.match)
        )
    if updated is not member or before is None:
        _check_room(group, before, updated, topics, admits)
    member = _enter(group, before, updated)
    # From now on it is removed if it is silent, whatever happens below.
    if member.member_id not in group.sessions:
        group.sessions.set(member.member_id, now.monotonic_ms + limits.session_timeout_ms)
    if member is not before:
        if member.subscribed_regex and member.subscribed_regex not in group.regexes:
            seen = _seen(member.subscribed_regex, request.match)
            group.set_regex(member.subscribed_regex, member.matched_names, seen, now.wall_ms)
        group.drop_unused_regexes()
    joins = before is None or before.topics != member.topics
    joins |= _take_match(group, request.match, now)
    if joins or group.topics_version != topics.version:
        joins |= _refresh_topics(group, topics)
        member = group.members[member.member_id]
        if joins:
            group.bump_epoch()
    if group.epoch > group.assignment_epoch:
        assign(group, limits)
    member = _reconcile(group, member, request, now)
    extend_session(group, member, now, limits)
    return member


def extend_session(
    group: ConsumerGroup, member: ConsumerMember, now: Moment, limits: ConsumerGroupLimits
) -> None:
    """Extends the session after a sign of life. Classic members choose its length."""
    timeout_ms = limits.session_timeout_ms if member.classic is None else member.classic.session_timeout_ms
    group.sessions.set(member.member_id, now.monotonic_ms + timeout_ms)


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The member with what the request says of it. The same object if nothing has changed."""
    said: dict[str, Any] = {
        "instance_id": request.instance_id,
        "rack_id": request.rack_id,
        "subscribed_names": request.subscribed_names,
        "subscribed_regex": request.subscribed_regex,
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
    if member.classic != request.classic:
        changed["classic"] = request.classic
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
    growth += classic_weight(updated.classic) - classic_weight(None if before is None else before.classic)
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
        group.begin_revocation(member, now.monotonic_ms + member.rebalance_timeout_ms)
    else:
        group.end_revocation(member.member_id)


# -- the group


def _matched_names(group: ConsumerGroup, regex: str | None, match: RegexMatch | None) -> frozenset[str]:
    """The topics of a regular expression that is new to the member. Raises :class:`KafkaError` if nobody knows them.

    Without a match the group had them before it was locked. If the last member with them has gone since, the next
    heartbeat matches.
    """
    if not regex:
        return frozenset()
    known = group.regexes.get(regex)
    if match is None or match.regex != regex:
        return frozenset() if known is None else known
    if match.refusal is None:
        return match.names
    if known is None:
        raise match.refusal
    return known


def _seen(regex: str, match: RegexMatch | None) -> MatchedAt | None:
    return None if match is None or match.regex != regex else match.seen


def _take_match(group: ConsumerGroup, match: RegexMatch | None, now: Moment) -> bool:
    """Takes what the member's regular expression matches now. True if that is different for a member.

    One that has become too dear, because there are too many topics now, keeps those that it has.
    """
    if match is None or match.regex not in group.regexes:
        return False
    before = group.regexes[match.regex]
    names = before if match.refusal is not None else match.names
    group.set_regex(match.regex, names, match.seen, now.wall_ms)
    return names != before


def present_topics(group: ConsumerGroup, topics: ClusterTopics) -> dict[str, TopicRecord]:
    """The subscribed topics that there are."""
    return {name: topics.by_name[name] for name in sorted(group.subscribed_topics) if name in topics.by_name}


def _refresh_topics(group: ConsumerGroup, topics: ClusterTopics) -> bool:
    """Notes the present partitions of the subscribed topics. Returns whether they have changed."""
    known = present_topics(group, topics)
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
        group.end_revocation(member.member_id)
    else:
        remove(group, member)
    return HeartbeatResult(member_id=request.member_id, member_epoch=request.member_epoch)


def remove(group: ConsumerGroup, *members: ConsumerMember) -> None:
    """Removes members. The others get their partitions when they ask next."""
    for member in members:
        group.remove(member.member_id)
    group.drop_unused_regexes()
    if any(name in group.topics and not group.is_subscribed(name) for one in members for name in one.topics):
        known = {name: topic for name, topic in group.topics.items() if group.is_subscribed(name)}
        group.set_topics(known)
    group.bump_epoch()
