"""The change of a group without members between the classic and the consumer protocol (KIP-848). Pure."""

from __future__ import annotations

from collections.abc import Callable

from broker.coordinator.group.append_errors import store_error
from broker.coordinator.group.consumer.group import ConsumerGroup
from broker.coordinator.group.group import Group, GroupState
from broker.coordinator.group.messages import Append, Effects, JoinRequest, JoinResult, Moment, Reply
from broker.coordinator.group.records import encode_group_key
from broker.protocol.errors import Errors


def to_consumer(group: Group) -> ConsumerGroup | None:
    """The consumer group that a classic group without members becomes; None for one with members.

    The tombstone of the classic group is written with its first records.
    """
    if group.state is not GroupState.EMPTY:
        return None
    for member_id in list(group.pending_members):
        group.forget_pending(member_id)
    consumer = group.consumer = ConsumerGroup(group.group_id)
    if group.generation_id > 0:
        consumer.unstored[encode_group_key(group.group_id)] = None
        group.generation_id = 0
    group.protocol_type = None
    return consumer


def to_classic(group: Group, request: JoinRequest, join: Callable[[Moment], Effects]) -> Effects:
    """Handles a JoinGroup for a consumer group. Without members it becomes a classic group as soon as its tombstones
    are stored, and ``join`` follows. Otherwise the two protocols do not agree.
    """
    consumer = group.consumer
    if group.state is GroupState.DEAD or consumer is None:
        return _refuse(request, Errors.COORDINATOR_NOT_AVAILABLE)
    if consumer.members:
        return _refuse(request, Errors.INCONSISTENT_GROUP_PROTOCOL)
    if consumer.storing:
        return _refuse(request, Errors.REBALANCE_IN_PROGRESS)
    consumer.end()
    records = consumer.take_unstored()
    consumer.storing += 1

    def stored(error: Errors, _offset: int, now: Moment) -> Effects:
        consumer.storing -= 1
        if error is not Errors.NONE:
            consumer.give_back(records)
            return _refuse(request, store_error(error))
        if group.state is GroupState.DEAD:
            return _refuse(request, Errors.NOT_COORDINATOR)
        if consumer.members or group.consumer is not consumer:
            # Members have come meanwhile. Their records are in the log after the tombstones.
            return _refuse(request, Errors.REBALANCE_IN_PROGRESS)
        group.consumer = None
        return join(now)

    return [Append(tuple(records.items()), stored)]


def _refuse(request: JoinRequest, error: Errors) -> Effects:
    return [Reply(request.respond, JoinResult(request.member_id, error))]
