"""JoinGroup: who may join, under which member id, and whether this starts a rebalance. Pure. Handles versions
0 to 9 (KIP-62, KIP-394 member ids, KIP-345 static members, KIP-814 skipped assignments).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from broker.coordinator.group.append_errors import store_error
from broker.coordinator.group.group import Group
from broker.coordinator.group.member import Member
from broker.coordinator.group.memory import Admits, admits_all
from broker.coordinator.group.messages import (
    NO_MEMBER_ID,
    Effects,
    GroupLimits,
    JoinRequest,
    JoinResult,
    Moment,
    Reply,
    SyncResult,
)
from broker.coordinator.group.rebalance import (
    answer_join,
    answer_sync,
    maybe_prepare_rebalance,
    prepare_rebalance,
    store_group,
    try_complete_join,
)
from broker.coordinator.group.states import GroupState
from broker.coordinator.group.weights import assignments_weight, member_weight, pending_weight, words_weight
from broker.protocol.errors import Errors

_WITHOUT_CURRENT_MEMBERS: Final = (GroupState.EMPTY, GroupState.DEAD)


def join(
    group: Group, request: JoinRequest, now: Moment, limits: GroupLimits, admits: Admits = admits_all
) -> Effects:
    """Decides on one JoinGroup. Its answer may come at once, with the next generation, or after a record
    is stored.

    If there is no memory for the member, the error is GROUP_MAX_SIZE_REACHED, as for ``group.max.size``.
    Clients give up on this error, whereas they would keep retrying a retriable error without a pause. A
    member whose metadata does not grow is never refused.
    """
    if not _has_room(group, request.member_id, limits):
        group.remove(request.member_id)
        effects = _refuse(request, Errors.GROUP_MAX_SIZE_REACHED)
    elif group.state is GroupState.DEAD:
        effects = _refuse(request, Errors.COORDINATOR_NOT_AVAILABLE)
    elif not group.supports(request.protocol_type, request.protocols):
        effects = _refuse(request, Errors.INCONSISTENT_GROUP_PROTOCOL)
    elif not admits(_growth(group, request)):
        effects = _refuse(request, Errors.GROUP_MAX_SIZE_REACHED)
    elif request.member_id == NO_MEMBER_ID:
        effects = _join_new(group, request, now, limits)
    else:
        effects = _join_known(group, request, now, limits)
    return effects + try_complete_join(group, now)


def _has_room(group: Group, member_id: str, limits: GroupLimits) -> bool:
    """Checks ``group.max.size``. While members join, it counts those that have joined, otherwise
    all members.
    """
    if group.state in _WITHOUT_CURRENT_MEMBERS:
        return True
    member = group.members.get(member_id)
    if group.is_rebalancing:
        has_joined = member is not None and member.awaiting_join is not None
        return has_joined or group.awaiting_join_count < limits.max_size
    return member is not None or len(group.members) < limits.max_size


def _growth(group: Group, request: JoinRequest) -> int:
    """How much the group's weight grows if the request is granted; 0 if it will be refused for
    another reason.
    """
    instance_id = request.group_instance_id
    holder = (
        group.static_members.get(instance_id or "")
        if request.member_id == NO_MEMBER_ID
        else request.member_id
    )
    member = group.members.get(holder or "")
    if member is not None:
        return member.weight_with(words_weight(request.protocols)) - member.weight
    if request.member_id == NO_MEMBER_ID:
        if request.require_known_member_id and instance_id is None:
            return pending_weight(request.new_member_id)
        return weight_of(request)
    return weight_of(request) if request.member_id in group.pending_members else 0


def weight_of(request: JoinRequest) -> int:
    """The weight of the member that the request creates."""
    member_id = request.member_id or request.new_member_id
    names = (member_id, request.group_instance_id, request.client_id, request.client_host)
    return member_weight(names, words_weight(request.protocols)) + assignments_weight(1, 0)


def _join_new(group: Group, request: JoinRequest, now: Moment, limits: GroupLimits) -> Effects:
    member_id = request.new_member_id
    if request.group_instance_id is not None:
        holder = group.static_members.get(request.group_instance_id)
        if holder is not None:
            return _replace_static(group, holder, request, now, limits)
    elif request.require_known_member_id:
        if len(group.pending_members) >= limits.max_pending_members:
            return _refuse(request, Errors.GROUP_MAX_SIZE_REACHED)
        group.add_pending_member(member_id, now.monotonic_ms + request.session_timeout_ms)
        return [Reply(request.respond, JoinResult(member_id, Errors.MEMBER_ID_REQUIRED))]
    return _add(group, member_id, request, now, limits)


def _join_known(group: Group, request: JoinRequest, now: Moment, limits: GroupLimits) -> Effects:
    if request.member_id in group.pending_members:
        if request.group_instance_id is not None:
            return _refuse(request, Errors.UNKNOWN_MEMBER_ID)
        return _add(group, request.member_id, request, now, limits)
    error = group.identity_error(request.member_id, request.group_instance_id)
    if error is not None:
        return _refuse(request, error)
    member = group.members[request.member_id]
    if _knows_generation(group, member, request):
        return [Reply(request.respond, group.join_result(member))]
    return _update(group, member, request) + maybe_prepare_rebalance(group, now, limits)


def _knows_generation(group: Group, member: Member, request: JoinRequest) -> bool:
    """Whether nothing has changed for this member: the answer was lost, so it gets the current
    generation again.

    A leader that rejoins a stable group requests a rebalance, because its topic metadata has changed.
    """
    if member.protocols != request.protocols:
        return False
    if group.state is GroupState.STABLE:
        return not group.is_leader(member.member_id)
    return group.state is GroupState.COMPLETING_REBALANCE


def _add(group: Group, member_id: str, request: JoinRequest, now: Moment, limits: GroupLimits) -> Effects:
    if not group.members:
        group.protocol_type = request.protocol_type
    if group.is_rebalancing and group.generation_id == 0:
        group.new_member_added = True
    member = Member.from_request(member_id, request)
    group.add(member, request.respond)
    group.await_new_member(member, now)
    return maybe_prepare_rebalance(group, now, limits)


def _update(group: Group, member: Member, request: JoinRequest) -> Effects:
    """Updates the member from the request. An earlier join that still waits is answered
    with REBALANCE_IN_PROGRESS.
    """
    superseded = answer_join(group, member, JoinResult(member.member_id, Errors.REBALANCE_IN_PROGRESS))
    group.set_protocols(member, request.protocols)
    member.rebalance_timeout_ms = request.rebalance_timeout_ms
    member.session_timeout_ms = request.session_timeout_ms
    group.await_join(member, request.respond)
    return superseded


@dataclass(frozen=True, slots=True)
class _Before:
    """A static member's values before it was replaced, to restore them if the replacement cannot
    be stored.
    """

    member_id: str
    leader_id: str | None
    protocols: tuple[tuple[str, bytes], ...]
    rebalance_timeout_ms: int
    session_timeout_ms: int


def _replace_static(
    group: Group, old_id: str, request: JoinRequest, now: Moment, limits: GroupLimits
) -> Effects:
    """Replaces a static member that restarted. It gets a new member id, and users of the old id are fenced.

    In a stable group whose selected protocol does not change, there is no rebalance: the new id is stored and
    the member gets the current generation.
    """
    old = group.members[old_id]
    before = _Before(old_id, group.leader_id, old.protocols, old.rebalance_timeout_ms, old.session_timeout_ms)
    effects = answer_join(group, old, JoinResult(old_id, Errors.FENCED_INSTANCE_ID))
    effects += answer_sync(old, SyncResult(Errors.FENCED_INSTANCE_ID))
    member = group.rename(old_id, request.new_member_id)
    effects += _update(group, member, request)
    group.extend_session(member, now)
    if group.state is GroupState.COMPLETING_REBALANCE:
        # The leader may already be assigning partitions to the old id.
        return effects + prepare_rebalance(group, now, limits)
    if group.state is not GroupState.STABLE:
        return effects
    if group.select_protocol() != group.protocol_name:
        return effects + maybe_prepare_rebalance(group, now, limits)
    return effects + _store_replacement(group, member, request, before)


def _store_replacement(group: Group, member: Member, request: JoinRequest, before: _Before) -> Effects:
    def stored(error: Errors, _offset: int, now: Moment) -> Effects:
        if member.awaiting_join is not request.respond or group.state is not GroupState.STABLE:
            return []  # a rebalance started meanwhile and answers the request, or has done so
        if error is not Errors.NONE:
            return _undo_replacement(group, member, before, store_error(error), now)
        group.extend_session(member, now)
        if request.supports_skipping_assignment:
            leads = group.is_leader(member.member_id)
            return answer_join(group, member, group.join_result(member, skip=leads))
        # Before version 9 a replaced leader must not learn that it leads. It would send an assignment, which
        # a stable group ignores.
        return answer_join(group, member, group.join_result(member, leader_id=before.leader_id))

    return store_group(group, group.assignments(), stored)


def _undo_replacement(group: Group, member: Member, before: _Before, error: Errors, now: Moment) -> Effects:
    effects = answer_join(
        group,
        member,
        JoinResult(
            NO_MEMBER_ID,
            error,
            group.generation_id,
            group.protocol_type,
            group.protocol_name,
            before.leader_id or "",
        ),
    )
    group.set_protocols(member, before.protocols)
    member.rebalance_timeout_ms = before.rebalance_timeout_ms
    member.session_timeout_ms = before.session_timeout_ms
    group.rename(member.member_id, before.member_id)
    group.extend_session(member, now)
    return effects


def _refuse(request: JoinRequest, error: Errors) -> Effects:
    return [Reply(request.respond, JoinResult(request.member_id, error))]
