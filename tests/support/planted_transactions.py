"""Plants one anomaly of transactions into a legal history, a function per kind, as ``planted`` does for others."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import replace

from chaos.anomalies import AnomalyKind
from chaos.history import (
    COMMITTED,
    UNKNOWN,
    Acked,
    Ended,
    Event,
    Fenced,
    GroupOffset,
    History,
    Polled,
    Sent,
    Stored,
    StoredRange,
    Wrote,
)
from chaos.transactions import Transaction, gather_transactions
from tests.support.legal_transactions import COPIER, READER, TARGET
from tests.support.planted import Plant, some, with_events, without

JUST = 1e-6


def _stored(history: History) -> dict[str, Stored]:
    return {stored.record_id: stored for stored in history.of_type(Stored)}


def _some_of(rng: random.Random, history: History, *outcomes: str, records: int = 1) -> Transaction | None:
    """A transaction with a visible record that its producer asked to commit, and at least so many in all."""
    stored = _stored(history)
    found = [
        each
        for each in gather_transactions(history).each()
        if each.outcome in outcomes
        and len(each.records) >= records
        and each.ending is not None
        and any(record.record_id in stored for record in each.records)
    ]
    return some(rng, found)


def _appended(history: History, record: Wrote, *more: Event) -> History:
    """The record is also at the end of the log, and the reader reads it there."""
    (known,) = (
        each
        for each in history.of_type(StoredRange)
        if (each.topic, each.partition) == (record.topic, record.partition)
    )
    end_s = max(event.at_s for event in history.events)
    extra: list[Event] = [
        *more,
        Polled(READER, record.partition, known.end, record.record_id, record.topic, end_s + 1),
        replace(known, end=known.end + 1),
        Stored(record.partition, known.end, record.record_id, record.topic, end_s + 2),
    ]
    return with_events(without(history, known), extra)


def _aborted(rng: random.Random, history: History) -> Wrote | None:
    found = [each for each in gather_transactions(history).each() if each.ended and not each.may_commit]
    return some(rng, [record for each in found for record in each.records])


def aborted_read(rng: random.Random, history: History) -> History | None:
    """A consumer reads a record of an aborted transaction."""
    record = _aborted(rng, history)
    if record is None:
        return None
    at_s = max(event.at_s for event in history.events)
    read = Polled("other", record.partition, 0, record.record_id, record.topic, at_s + 1)
    return with_events(history, [read])


def aborted_stored(rng: random.Random, history: History) -> History | None:
    """A record of an aborted transaction of the copier is visible in the log, and is read."""
    aborted = _aborted(rng, history)
    return None if aborted is None or aborted.topic != TARGET else _again(history, aborted, copy_of="")


def _again(history: History, other: Wrote, copy_of: str) -> History:
    """The same transaction wrote one more record, which is the last of all: only its being there is wrong."""
    end_s = max(event.at_s for event in history.events)
    record = replace(other, record_id="copier-again", copy_of=copy_of)
    return _appended(history, record, record, Sent(COPIER, record.record_id, TARGET, end_s))


def undecided_read(rng: random.Random, history: History) -> History | None:
    """A consumer reads a record just before its producer asks to commit it."""
    transaction, stored = _some_of(rng, history, COMMITTED, UNKNOWN), _stored(history)
    if transaction is None or transaction.ending is None:
        return None
    record = next(stored[each.record_id] for each in transaction.records if each.record_id in stored)
    at_s = transaction.ending.at_s - JUST
    read = Polled("other", record.partition, record.offset, record.record_id, record.topic, at_s)
    return with_events(history, [read])


def torn(rng: random.Random, history: History) -> History | None:
    """One record of a transaction whose end nobody knows is not there, the others are."""
    transaction = _some_of(rng, history, UNKNOWN, records=2)
    cut = any(known.start > 0 for known in history.of_type(StoredRange))
    if transaction is None or cut:
        return None
    gone = rng.choice(transaction.records).record_id
    return without(
        history, *(e for e in history.events if isinstance(e, Stored | Polled) and e.record_id == gone)
    )


def zombie(rng: random.Random, history: History) -> History | None:
    """A transaction is committed after its producer was fenced."""
    transaction = _some_of(rng, history, COMMITTED, UNKNOWN)
    if transaction is None or transaction.ending is None:
        return None
    fence = Fenced(transaction.producer, "a later one", transaction.ending.at_s - JUST)
    return with_events(history, [fence])


def zombie_told(rng: random.Random, history: History) -> History | None:
    """A producer is told that it committed, after it was fenced, though nothing is visible."""
    found = gather_transactions(history)
    zombies = [
        (each, each.ended)
        for each in found.each()
        if each.ended is not None and found.fence_of(each) is not None
    ]
    chosen = some(rng, zombies)
    if chosen is None:
        return None
    told = replace(chosen[1], outcome=COMMITTED)
    return with_events(without(history, chosen[1]), [told])


def not_copied(rng: random.Random, history: History) -> History | None:
    """No transaction has a copy of a record."""
    stored = _stored(history)
    copies = [each for each in history.of_type(Wrote) if each.copy_of in stored]
    chosen = some(rng, copies)
    if chosen is None or any(known.start > 0 for known in history.of_type(StoredRange)):
        return None
    gone = {each.record_id for each in copies if each.copy_of == chosen.copy_of}
    events = [
        e
        for e in history.events
        if isinstance(e, Wrote | Sent | Acked | Stored | Polled) and e.record_id in gone
    ]
    return without(history, *events)


def copied_twice(rng: random.Random, history: History) -> History | None:
    """A committed transaction has a second copy of a record."""
    stored = _stored(history)
    committed = {e.transaction for e in history.of_type(Ended) if e.outcome == COMMITTED}
    copies = [
        each
        for each in history.of_type(Wrote)
        if each.copy_of in stored and each.record_id in stored and each.transaction in committed
    ]
    first = some(rng, copies)
    return None if first is None else _again(history, first, first.copy_of)


def aborted_offset(rng: random.Random, history: History) -> History | None:
    """The group's offset is above everything that was committed."""
    sent = {each.partition for each in history.of_type(Wrote) if each.copy_of}
    told = some(rng, [each for each in history.of_type(GroupOffset) if each.partition in sent])
    if told is None:
        return None
    return with_events(without(history, told), [replace(told, offset=told.offset + 1 + rng.randrange(9))])


PLANTS: Mapping[str, tuple[AnomalyKind, Plant]] = {
    "aborted-read": (AnomalyKind.ABORTED_READ, aborted_read),
    "aborted-stored": (AnomalyKind.ABORTED_READ, aborted_stored),
    "undecided-read": (AnomalyKind.UNDECIDED_READ, undecided_read),
    "torn": (AnomalyKind.TORN, torn),
    "zombie": (AnomalyKind.ZOMBIE, zombie),
    "zombie-told": (AnomalyKind.ZOMBIE, zombie_told),
    "not-copied": (AnomalyKind.NOT_COPIED, not_copied),
    "copied-twice": (AnomalyKind.COPIED_TWICE, copied_twice),
    "aborted-offset": (AnomalyKind.ABORTED_OFFSET, aborted_offset),
}
