"""The answers of consumer groups, which wait until the records are stored. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.coordinator.group.append_errors import store_error
from broker.coordinator.group.consumer.group import ConsumerGroup, Records
from broker.coordinator.group.consumer.messages import HeartbeatRequest, HeartbeatResult
from broker.coordinator.group.messages import Append, AppendDone, Effects, Moment, Reply
from broker.protocol.errors import Errors

# A batch of __consumer_offsets may have a megabyte.
_BATCH_BYTES: Final = 256 * 1024


def unload(group: ConsumerGroup) -> Effects:
    """Answers the waiting requests of a group that this broker no longer coordinates."""
    return _release(group, Errors.NOT_COORDINATOR)


def store(group: ConsumerGroup) -> Effects:
    """Writes what is not stored, for nobody."""
    return _store(group, lambda _error: []) if group.unstored else []


def answer(group: ConsumerGroup, request: HeartbeatRequest, result: HeartbeatResult) -> Effects:
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
