"""SyncGroup, Heartbeat, LeaveGroup and the check for commits: what a member does between rebalances. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from broker.coordinator.group.append_errors import store_error
from broker.coordinator.group.consumer.checks import commit_error
from broker.coordinator.group.group import Group
from broker.coordinator.group.memory import Admits, admits_all
from broker.coordinator.group.messages import (
    NO_MEMBER_ID,
    Effects,
    GroupLimits,
    MemberIdentity,
    Moment,
    Reply,
    SyncRequest,
    SyncResult,
)
from broker.coordinator.group.rebalance import (
    answer_sync,
    maybe_prepare_rebalance,
    received_sync,
    remove_member,
    reset_assignments,
    set_assignments,
    store_group,
    sync_result,
    try_complete_join,
)
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors

_HEARTBEAT_ANSWERS: Final[Mapping[GroupState, Errors]] = {
    # A consumer may send heartbeats as soon as its JoinGroup is answered.
    GroupState.COMPLETING_REBALANCE: Errors.NONE,
    GroupState.STABLE: Errors.NONE,
    GroupState.PREPARING_REBALANCE: Errors.REBALANCE_IN_PROGRESS,
}


def sync(
    group: Group, request: SyncRequest, now: Moment, limits: GroupLimits, admits: Admits = admits_all
) -> Effects:
    """Handles a SyncGroup. Members wait for the leader's assignment, which becomes valid once it is stored.
    If there is no memory for it, or it cannot be stored, the members join again.
    """
    error = _sync_error(group, request)
    if error is not None:
        return [Reply(request.respond, SyncResult(error))]
    member = group.members[request.member_id]
    received_sync(group, member.member_id)
    if group.state is GroupState.STABLE:
        group.extend_session(member, now)
        return [Reply(request.respond, sync_result(group, member))]
    effects: Effects = answer_sync(
        member, SyncResult(Errors.REBALANCE_IN_PROGRESS)
    )  # its own earlier attempt
    member.awaiting_sync = request.respond
    if group.is_leader(member.member_id) and not admits(group.growth_by(request.assignments)):
        effects += reset_assignments(group, Errors.COORDINATOR_NOT_AVAILABLE, now)
        effects += maybe_prepare_rebalance(group, now, limits)
    elif group.is_leader(member.member_id):
        effects += _store_assignments(group, request, limits)
    return effects


def _sync_error(group: Group, request: SyncRequest) -> Errors | None:
    if group.state is GroupState.DEAD:
        return Errors.COORDINATOR_NOT_AVAILABLE
    error = group.identity_error(request.member_id, request.group_instance_id)
    if error is not None:
        return error
    if request.generation_id != group.generation_id:
        return Errors.ILLEGAL_GENERATION
    if request.protocol_type is not None and request.protocol_type != group.protocol_type:
        return Errors.INCONSISTENT_GROUP_PROTOCOL
    if request.protocol_name is not None and request.protocol_name != group.protocol_name:
        return Errors.INCONSISTENT_GROUP_PROTOCOL
    if group.is_rebalancing:
        return Errors.REBALANCE_IN_PROGRESS
    return None


def _store_assignments(group: Group, request: SyncRequest, limits: GroupLimits) -> Effects:
    assignments = {member_id: request.assignments.get(member_id, b"") for member_id in group.members}
    generation_id = group.generation_id

    def stored(error: Errors, _offset: int, now: Moment) -> Effects:
        if group.state is not GroupState.COMPLETING_REBALANCE or group.generation_id != generation_id:
            return []  # another rebalance has started and has answered the waiting members
        if error is Errors.NONE:
            return set_assignments(group, assignments, now)
        effects = reset_assignments(group, store_error(error), now)
        return effects + maybe_prepare_rebalance(group, now, limits)

    return store_group(group, assignments, stored)


def heartbeat(
    group: Group, member_id: str, group_instance_id: str | None, generation_id: int, now: Moment
) -> Errors:
    """Extends the member's session. REBALANCE_IN_PROGRESS makes the member join again."""
    if group.state is GroupState.DEAD:
        return Errors.COORDINATOR_NOT_AVAILABLE
    error = group.identity_error(member_id, group_instance_id)
    if error is not None:
        return error
    if generation_id != group.generation_id:
        return Errors.ILLEGAL_GENERATION
    group.extend_session(group.members[member_id], now)
    return _HEARTBEAT_ANSWERS[group.state]


def leave(
    group: Group, leaving: Sequence[MemberIdentity], now: Moment, limits: GroupLimits
) -> tuple[list[Errors], Effects]:
    """Returns one error per identity, in order. An administrator removes static members by instance
    id only.
    """
    errors: list[Errors] = []
    effects: Effects = []
    for identity in leaving:
        error, more = _leave_one(group, identity, now, limits)
        errors.append(error)
        effects += more
    return errors, effects


def _leave_one(
    group: Group, identity: MemberIdentity, now: Moment, limits: GroupLimits
) -> tuple[Errors, Effects]:
    member_id = identity.member_id
    if member_id == NO_MEMBER_ID:
        member_id = group.static_members.get(identity.group_instance_id or "", NO_MEMBER_ID)
    if member_id in group.pending_members:
        group.remove(member_id)
        return Errors.NONE, try_complete_join(group, now)
    error = group.identity_error(member_id, identity.group_instance_id)
    if error is not None:
        return error, []
    return Errors.NONE, remove_member(group, group.members[member_id], now, limits)


def check_transactional_commit(
    group: Group, member_id: str, group_instance_id: str | None, generation_id: int
) -> Errors:
    """Whether a producer may commit the group's offsets in its transaction. Producers that know no members and
    generations may always (KIP-447). It is no sign of life of the member.
    """
    if group.state is GroupState.DEAD:
        return Errors.COORDINATOR_NOT_AVAILABLE
    if generation_id < 0 and member_id == NO_MEMBER_ID and group_instance_id is None:
        return Errors.NONE
    if group.consumer is not None:
        return commit_error(group.consumer, member_id, generation_id, transactional=True)
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return Errors.NONE
    error = group.identity_error(member_id, group_instance_id)
    if error is not None:
        return error
    return Errors.NONE if generation_id == group.generation_id else Errors.ILLEGAL_GENERATION


def check_commit(
    group: Group, member: MemberIdentity, generation_id: int, now: Moment, *, knows_epochs: bool = True
) -> Errors:
    """Whether a member may commit offsets. A valid commit also extends its session.

    Without a generation anyone may commit while the group is empty: administrators, and consumers that assign
    partitions themselves.
    """
    if group.state is GroupState.DEAD:
        return Errors.COORDINATOR_NOT_AVAILABLE
    if group.consumer is not None:
        return commit_error(group.consumer, member.member_id, generation_id, knows_epochs=knows_epochs)
    if generation_id < 0 and group.state is GroupState.EMPTY:
        return Errors.NONE
    error = group.identity_error(member.member_id, member.group_instance_id)
    if error is not None:
        return error
    if generation_id != group.generation_id:
        return Errors.ILLEGAL_GENERATION
    if group.state is GroupState.COMPLETING_REBALANCE:
        return Errors.REBALANCE_IN_PROGRESS
    group.extend_session(group.members[member.member_id], now)
    return Errors.NONE
