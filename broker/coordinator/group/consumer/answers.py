"""Answers that wait until a consumer group's records are stored. Pure."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.coordinator.group.append_errors import store_error
from broker.coordinator.group.consumer.unstored import PendingAnswer, Records, Unstored
from broker.coordinator.group.messages import Append, AppendDone, Effects, Moment, Reply, first_error
from broker.protocol.errors import Errors

# A batch of __consumer_offsets may have a megabyte.
_BATCH_BYTES: Final = 256 * 1024
_LARGE_BYTES: Final = 512 * 1024


def unload(unstored: Unstored) -> Effects:
    """Answers the waiting requests of a group that this broker no longer coordinates."""
    return [Reply(one.respond, one.refused(Errors.NOT_COORDINATOR)) for one in unstored.waited_for(0)]


def store(unstored: Unstored) -> Effects:
    """Writes what is not stored, for nobody."""
    return [*_store(unstored, lambda _error: [])] if unstored.noted else []


def answer(unstored: Unstored, reply: PendingAnswer) -> Effects:
    """Answers when the records are stored."""
    if unstored.noted:
        return [
            *_store(
                unstored,
                lambda error: [
                    Reply(reply.respond, reply.result if error is Errors.NONE else reply.refused(error))
                ],
            )
        ]
    if not unstored.is_storing:
        return [Reply(reply.respond, reply.result)]
    unstored.wait(reply)
    return []


def store_before(unstored: Unstored, record: tuple[bytes, bytes], then: AppendDone) -> Effects:
    """Writes ``record`` behind what is not stored. They are in one batch, so that the log has both or neither, unless
    the record is large.
    """
    if not unstored.noted:
        return [Append((record,), then)]
    *first, last = _store(unstored, lambda _error: [])
    if len(record[1]) > _LARGE_BYTES:
        return [*first, last, Append((record,), then, earlier=last.earlier)]

    def stored(error: Errors, offset: int, now: Moment) -> Effects:
        return last.then(error, offset, now) + then(error, offset, now)

    return [*first, Append((*last.records, record), stored, earlier=last.earlier)]


def _store(unstored: Unstored, then: Callable[[Errors], Effects]) -> list[Append]:
    """Writes what is not stored, in several batches if it is much. ``then`` gets the first error.

    The batches need not be written together: by the epochs a target that is stored in part is computed again, and
    no partition is assigned that another member has. But none is written after one that failed, because Kafka reads
    some records in their order only.
    """
    number, batches = unstored.take(_batches)
    errors: list[Errors] = []

    def appended(batch: Records) -> AppendDone:
        def stored(error: Errors, _offset: int, _now: Moment) -> Effects:
            errors.append(error)
            failed = error is not Errors.NONE
            unstored.finish(number, batch, failed=failed)
            effects: Effects = []
            if len(errors) == len(batches):
                effects += then(_told(first_error(errors)))
            if failed:
                refused = _told(error)
                effects += [Reply(one.respond, one.refused(refused)) for one in unstored.waited_for(number)]
            effects += [Reply(one.respond, one.result) for one in unstored.ready()]
            return effects

        return stored

    return [
        Append(tuple(batch.items()), appended(batch), earlier=lambda: first_error(errors))
        for batch in batches
    ]


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


def _told(error: Errors) -> Errors:
    """A consumer takes no other error for a passing one."""
    mapped = store_error(error)
    return Errors.COORDINATOR_NOT_AVAILABLE if mapped is Errors.REBALANCE_IN_PROGRESS else mapped
