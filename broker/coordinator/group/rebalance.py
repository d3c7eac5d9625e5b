"""The rebalance: how a group gets from one generation to the next, including timeouts. Pure.

Kafka's GroupCoordinator uses delayed operations. Here the group keeps its deadlines, and :func:`on_time`
handles those that have passed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.coordinator.group.consumer import answers, heartbeats
from broker.coordinator.group.group import Group
from broker.coordinator.group.member import Member
from broker.coordinator.group.messages import (
    NEVER_MS,
    NO_MEMBER_ID,
    Append,
    AppendDone,
    Effects,
    GroupLimits,
    JoinResult,
    Moment,
    Reply,
    SyncResult,
)
from broker.coordinator.group.records import encode_group_key, encode_group_value
from broker.coordinator.group.states import GroupState
from broker.protocol.errors import Errors

# How long to wait again if nobody joined. Members may say that they need no time, and then the timer would not rest.
_LEAST_WAIT_MS: Final = 1_000


def maybe_prepare_rebalance(group: Group, now: Moment, limits: GroupLimits) -> Effects:
    return prepare_rebalance(group, now, limits) if group.can_rebalance else []


def prepare_rebalance(group: Group, now: Moment, limits: GroupLimits) -> Effects:
    """Starts a rebalance, in which all members must join again. The first rebalance of an empty group waits
    for more members (KIP-134).
    """
    effects: Effects = []
    if group.state is GroupState.COMPLETING_REBALANCE:
        effects = reset_assignments(group, Errors.REBALANCE_IN_PROGRESS, now)
    group.sync_deadline_ms = None
    if group.state is GroupState.EMPTY:
        delay_ms = limits.initial_rebalance_delay_ms
        group.initial_delay_left_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    else:
        delay_ms = group.rebalance_timeout_ms
        group.initial_delay_left_ms = None
    group.transition_to(GroupState.PREPARING_REBALANCE, now)
    _set_join_deadline(group, now.monotonic_ms + delay_ms)
    return effects + try_complete_join(group, now)


def try_complete_join(group: Group, now: Moment) -> Effects:
    """Completes the join phase if all members have joined. The initial delay always lasts its full time."""
    if group.is_rebalancing and group.initial_delay_left_ms is None and group.all_have_joined:
        return _complete_join(group, now)
    return []


def remove_member(group: Group, member: Member, now: Moment, limits: GroupLimits) -> Effects:
    """Removes a member that left or whose session expired. Its waiting requests are answered."""
    effects = answer_join(group, member, JoinResult(NO_MEMBER_ID, Errors.UNKNOWN_MEMBER_ID))
    effects += answer_sync(member, SyncResult(Errors.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)
    if group.is_rebalancing:
        return effects + try_complete_join(group, now)
    return effects + maybe_prepare_rebalance(group, now, limits)


def on_time(group: Group, now: Moment, limits: GroupLimits) -> Effects:
    """Handles every deadline that has passed and sets ``wake_at_ms`` to the next one."""
    effects = _expire_pending_members(group, now)
    effects += _expire_sessions(group, now, limits)
    if group.join_deadline_ms is not None and group.join_deadline_ms <= now.monotonic_ms:
        effects += _on_join_deadline(group, now, limits)
    if group.sync_deadline_ms is not None and group.sync_deadline_ms <= now.monotonic_ms:
        effects += _on_sync_deadline(group, now, limits)
    group.compute_wake()
    if group.consumer is not None:
        effects += heartbeats.on_time(group.consumer, now)
        group.wake_by(group.consumer.next_deadline_ms())
    return effects


def unload(group: Group, now: Moment) -> Effects:
    """Unloads a group that this broker no longer coordinates: waiting requests are answered, and deadlines
    are removed.
    """
    effects: Effects = []
    for member in group.members.values():
        effects += answer_join(group, member, JoinResult(member.member_id, Errors.NOT_COORDINATOR))
        effects += answer_sync(member, SyncResult(Errors.NOT_COORDINATOR))
    for unstored in (group.leftover, None if group.consumer is None else group.consumer.unstored):
        effects += [] if unstored is None else answers.unload(unstored)
    group.transition_to(GroupState.DEAD, now)
    group.join_deadline_ms = group.sync_deadline_ms = None
    group.wake_at_ms = NEVER_MS
    return effects


def store_group(group: Group, assignments: Mapping[str, bytes], then: AppendDone) -> Effects:
    """An append of the group's current record. Tombstones of a consumer group that it was come before it."""
    record = (encode_group_key(group.group_id), encode_group_value(group.to_record(assignments)))
    leftover = group.leftover
    if leftover is None:
        return [Append((record,), then)]
    if record[0] in leftover.noted:
        # The tombstone of an earlier classic group. It comes first: Kafka reads no tombstone of a consumer group's
        # member while the group is a classic one.
        leftover.noted = {record[0]: leftover.noted.pop(record[0]), **leftover.noted}

    def stored(error: Errors, offset: int, now: Moment) -> Effects:
        if group.leftover is leftover and leftover.is_done:
            group.leftover = None
        return then(error, offset, now)

    return answers.store_before(leftover, record, stored)


def set_assignments(group: Group, assignments: Mapping[str, bytes], now: Moment) -> Effects:
    """Called when the leader's assignment is stored. The generation is complete, and all waiting members get
    their assignment.
    """
    group.assign(assignments)
    group.transition_to(GroupState.STABLE, now)
    effects: Effects = []
    for member in group.members.values():
        effects += _sync_done(group, member, sync_result(group, member), now)
    return effects


def reset_assignments(group: Group, error: Errors, now: Moment) -> Effects:
    effects: Effects = []
    for member in group.members.values():
        member.assignment = b""
        effects += _sync_done(group, member, SyncResult(error), now)
    return effects


def sync_result(group: Group, member: Member) -> SyncResult:
    return SyncResult(Errors.NONE, group.protocol_type, group.protocol_name, member.assignment)


def received_sync(group: Group, member_id: str) -> None:
    """Notes that the member sent SyncGroup. When all members have, the sync deadline is removed."""
    group.pending_sync.pop(member_id, None)
    if not group.pending_sync:
        group.sync_deadline_ms = None


def answer_join(group: Group, member: Member, result: JoinResult) -> Effects:
    respond = group.take_join(member)
    return [] if respond is None else [Reply(respond, result)]


def answer_sync(member: Member, result: SyncResult) -> Effects:
    respond, member.awaiting_sync = member.awaiting_sync, None
    return [] if respond is None else [Reply(respond, result)]


def _sync_done(group: Group, member: Member, result: SyncResult, now: Moment) -> Effects:
    effects = answer_sync(member, result)
    if effects:
        group.extend_session(member, now)
    return effects


def _complete_join(group: Group, now: Moment) -> Effects:
    """Completes the join phase. Dynamic members that did not rejoin are removed; static members stay until
    their session ends.
    """
    for member in [m for m in group.members.values() if m.awaiting_join is None and not m.is_static]:
        group.remove(member.member_id)
    group.initial_delay_left_ms = None
    if group.members and not group.elect_joined_leader():
        _set_join_deadline(group, now.monotonic_ms + max(group.rebalance_timeout_ms, _LEAST_WAIT_MS))
        return []
    group.join_deadline_ms = None
    group.next_generation(now)
    if not group.members:
        return store_group(group, {}, _nothing_follows)
    effects: Effects = []
    for member in group.members.values():
        effects += answer_join(group, member, group.join_result(member))
        group.extend_session(member, now)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    group.sync_deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
    group.wake_by(group.sync_deadline_ms)
    return effects


def _on_join_deadline(group: Group, now: Moment, limits: GroupLimits) -> Effects:
    left_ms = group.initial_delay_left_ms
    if left_ms and group.new_member_added:
        group.new_member_added = False
        delay_ms = min(limits.initial_rebalance_delay_ms, left_ms)
        group.initial_delay_left_ms = left_ms - delay_ms
        _set_join_deadline(group, now.monotonic_ms + delay_ms)
        return []
    return _complete_join(group, now)


def _on_sync_deadline(group: Group, now: Moment, limits: GroupLimits) -> Effects:
    """Removes members that joined but never sent SyncGroup: nobody reads the partitions assigned to them."""
    effects: Effects = []
    for member_id in group.pending_sync.copy():
        member = group.members[member_id]
        effects += answer_join(group, member, JoinResult(NO_MEMBER_ID, Errors.UNKNOWN_MEMBER_ID))
        group.remove(member_id)
    group.sync_deadline_ms = None
    return effects + maybe_prepare_rebalance(group, now, limits)


def _expire_pending_members(group: Group, now: Moment) -> Effects:
    late = [m for m, deadline_ms in group.pending_members.items() if deadline_ms <= now.monotonic_ms]
    for member_id in late:
        group.forget_pending(member_id)
    return try_complete_join(group, now) if late else []


def _expire_sessions(group: Group, now: Moment, limits: GroupLimits) -> Effects:
    effects: Effects = []
    for member in list(group.members.values()):
        if member.deadline_ms is None or member.deadline_ms > now.monotonic_ms:
            continue
        if group.members.get(member.member_id) is not member:
            continue  # removed by a rebalance that an earlier expiry started
        if member.is_kept_alive:
            member.deadline_ms = None
        else:
            effects += remove_member(group, member, now, limits)
    return effects


def _set_join_deadline(group: Group, deadline_ms: int) -> None:
    group.join_deadline_ms = deadline_ms
    group.wake_by(deadline_ms)


def _nothing_follows(_error: Errors, _offset: int, _now: Moment) -> Effects:
    return []
