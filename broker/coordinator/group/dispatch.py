"""The requests of classic members, to a classic group or to a consumer group (KIP-848). Pure.

A member that joins may change the group from one kind to the other; :mod:`.migration` says when.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from broker.coordinator.group import joining, membership, rebalance
from broker.coordinator.group.consumer import classic
from broker.coordinator.group.consumer.answers import answer
from broker.coordinator.group.consumer.messages import ClusterTopics
from broker.coordinator.group.consumer.unstored import PendingAnswer
from broker.coordinator.group.group import Group
from broker.coordinator.group.memory import Admits, admits_all
from broker.coordinator.group.messages import (
    Effects,
    GroupLimits,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    Moment,
    Reply,
    SyncRequest,
    SyncResult,
)
from broker.coordinator.group.migration import MembersEvent, MigrationStep, maybe_downgrade, replace, step
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors

LeaveCallback = Callable[[Errors, list[Errors]], None]


def join(
    group: Group,
    request: JoinRequest,
    now: Moment,
    limits: GroupLimits,
    topics: Callable[[], ClusterTopics],
    *,
    admits: Admits = admits_all,
) -> Effects:
    if (
        group.consumer is not None
        and step(group, MembersEvent.CLASSIC_JOINS, limits) is MigrationStep.REPLACE
    ):
        replace(group, group.consumer)
    if group.consumer is None:
        return joining.join(group, request, now, limits, admits)
    if group.state is GroupState.DEAD:
        return [Reply(request.respond, JoinResult(request.member_id, Errors.COORDINATOR_NOT_AVAILABLE))]
    effects = classic.join(group.consumer, request, now, limits.consumers, topics(), admits=admits)
    group.wake_by(group.consumer.next_deadline_ms())
    return effects + maybe_downgrade(group, now, limits)


def on_time(group: Group, now: Moment, limits: GroupLimits) -> Effects:
    """Handles the deadlines that have passed. The member that is removed may be the last of the consumer protocol."""
    return rebalance.on_time(group, now, limits) + maybe_downgrade(group, now, limits)


def sync(
    group: Group, request: SyncRequest, now: Moment, limits: GroupLimits, admits: Admits = admits_all
) -> Effects:
    if group.consumer is None:
        return membership.sync(group, request, now, limits, admits)
    if group.state is GroupState.DEAD:
        return [Reply(request.respond, SyncResult(Errors.COORDINATOR_NOT_AVAILABLE))]
    effects = classic.sync(group.consumer, request, now, limits.consumers)
    group.wake_by(group.consumer.next_deadline_ms())
    return effects


def heartbeat(
    group: Group,
    identity: MemberIdentity,
    generation_id: int,
    now: Moment,
    limits: GroupLimits,
    *,
    topics: Callable[[], ClusterTopics],
) -> Errors:
    if group.consumer is None or group.state is GroupState.DEAD:
        member_id, instance_id = identity
        return membership.heartbeat(group, member_id, instance_id, generation_id, now)
    error = classic.heartbeat(group.consumer, identity, generation_id, now, limits.consumers, topics=topics())
    awaited_ms = group.consumer.awaited.get(identity.member_id)
    if awaited_ms is not None:
        group.wake_by(awaited_ms)
    return error


def leave(
    group: Group, leaving: Sequence[MemberIdentity], respond: LeaveCallback, now: Moment, limits: GroupLimits
) -> Effects:
    if group.consumer is None or group.state is GroupState.DEAD:
        errors, effects = membership.leave(group, leaving, now, limits)
        return [*effects, Reply(lambda result: respond(Errors.NONE, result), errors)]
    errors = classic.leave(group.consumer, leaving)
    return answer(
        group.consumer.unstored,
        PendingAnswer(lambda result: respond(*result), (Errors.NONE, errors), lambda error: (error, [])),
    )
