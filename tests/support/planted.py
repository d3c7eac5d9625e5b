"""Plants one anomaly into a legal history, a function per kind; each returns None if the history has no place
for it.

A planted history differs from a legal one only by this, so a checker that reports another kind is wrong.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, TypeVar

from chaos.anomalies import AnomalyKind
from chaos.history import (
    Acked,
    Assigned,
    Committed,
    Event,
    Failed,
    GroupOffset,
    HighWatermark,
    History,
    Polled,
    Sent,
    Stored,
    StoredRange,
)
from tests.support.legal_histories import GROUP, READER

E = TypeVar("E")
Plant = Callable[[random.Random, History], History | None]


def some(rng: random.Random, found: Sequence[E]) -> E | None:
    """One of them, if there is any."""
    return rng.choice(found) if found else None


def _events(history: History, kind: type[E], condition: Callable[[E], bool] = lambda _: True) -> list[E]:
    return [event for event in history.of_type(kind) if condition(event)]


def with_events(history: History, events: Sequence[Event]) -> History:
    """The history with these events too, in order of time."""
    return _with(history, [*history.events, *events])


def _with(history: History, events: Sequence[Event]) -> History:
    return History(sorted(events, key=lambda event: event.at_s), history.idempotent)


def without(history: History, *gone: Event) -> History:
    """By identity: equal events differ only in their times."""
    dropped = {id(event) for event in gone}
    return History([event for event in history.events if id(event) not in dropped], history.idempotent)


def _place(event: Any) -> tuple[str, int, int]:
    return event.topic, event.partition, event.offset


def _stored_acks(history: History) -> list[tuple[Stored, Acked]]:
    """Records that are at their acknowledged place."""
    acks = {ack.record_id: ack for ack in history.of_type(Acked)}
    pairs = [(stored, acks.get(stored.record_id)) for stored in history.of_type(Stored)]
    return [(stored, ack) for stored, ack in pairs if ack is not None and _place(ack) == _place(stored)]


def _renamed(history: History, names: Mapping[tuple[str, int, int], str]) -> list[Event]:
    """The events with other records at some places of the log."""
    return [
        replace(event, record_id=names[_place(event)])
        if isinstance(event, Stored | Polled) and _place(event) in names
        else event
        for event in history.events
    ]


def lost(rng: random.Random, history: History) -> History | None:
    """An acknowledged record is not in the final log."""
    records = list(history.of_type(Stored))
    once = [
        pair for pair in _stored_acks(history) if sum(s.record_id == pair[0].record_id for s in records) == 1
    ]
    pair = some(rng, once)
    return None if pair is None else without(history, pair[0])


def phantom(rng: random.Random, history: History) -> History | None:
    """A record that nobody sent."""
    stored = some(rng, _events(history, Stored))
    if stored is None:
        return None
    gone = [
        e for e in history.events if isinstance(e, Sent | Acked | Failed) and e.record_id == stored.record_id
    ]
    return without(history, *gone)


def duplicate(rng: random.Random, history: History) -> History | None:
    """An idempotent producer's record is also at the place of another, later one."""
    stored = _events(history, Stored)
    once = [e for e in stored if e.record_id.partition("-")[0] in history.idempotent]
    first = some(rng, once)
    if first is None:
        return None
    second = some(
        rng,
        [
            e
            for e in stored
            if (e.topic, e.partition) == (first.topic, first.partition) and e.offset > first.offset
        ],
    )
    if second is None or _place_count(stored, second.record_id) > 1 or _read_elsewhere(history, second):
        return None
    renamed = _renamed(history, {_place(second): first.record_id})
    gone = {second.record_id}
    return _with(
        history, [e for e in renamed if not (isinstance(e, Sent | Acked | Failed) and e.record_id in gone)]
    )


def _read_elsewhere(history: History, record: Stored) -> bool:
    """As a copy that retention has removed since."""
    return any(
        polled.record_id == record.record_id and _place(polled) != _place(record)
        for polled in history.of_type(Polled)
    )


def _place_count(stored: Sequence[Stored], record: str) -> int:
    return sum(event.record_id == record for event in stored)


def reordered(rng: random.Random, history: History) -> History | None:
    """Two records of an idempotent producer have swapped places, and their acknowledgements match."""
    by_log: dict[tuple[str, int, str], list[tuple[Stored, Acked]]] = {}
    for stored, ack in _stored_acks(history):
        if ack.producer in history.idempotent:
            by_log.setdefault((stored.topic, stored.partition, ack.producer), []).append((stored, ack))
    pair = some(rng, [pair for found in by_log.values() for pair in pairwise(found)])
    if pair is None:
        return None
    (one, one_ack), (two, two_ack) = pair
    events = _renamed(history, {_place(one): two.record_id, _place(two): one.record_id})
    swapped = _told_late(history, (one_ack, two.offset), (two_ack, one.offset))
    return _with(history, [swapped.get(id(event), event) for event in events])


def before_acknowledged(rng: random.Random, history: History) -> History | None:
    """A record precedes one of another producer that was acknowledged before it was sent."""
    sent = {event.record_id: event for event in history.of_type(Sent)}
    marks = _events(history, HighWatermark)
    found = _stored_acks(history)
    rng.shuffle(found)
    for stored, ack in found:
        for later, later_ack in found:
            if (stored.topic, stored.partition) != (
                later.topic,
                later.partition,
            ) or ack.producer == later_ack.producer:
                continue
            # A high watermark reported meanwhile would also contradict the acknowledgement at the
            # later place.
            told = any(ack.at_s <= mark.began_s and mark.offset <= later.offset for mark in marks)
            if ack.at_s < sent[later.record_id].at_s and not told and ack.producer not in history.idempotent:
                events = _renamed(history, {_place(stored): later.record_id, _place(later): stored.record_id})
                swapped = _told_late(history, (later_ack, stored.offset))
                swapped[id(ack)] = replace(ack, offset=later.offset)
                return _with(history, [swapped.get(id(event), event) for event in events])
    return None


def _told_late(history: History, *told: tuple[Acked, int | None]) -> dict[int, Event]:
    """Acknowledgements, by identity, with other offsets, and after all others: no high watermark
    contradicts them.
    """
    end_s = max(event.at_s for event in history.events)
    return {id(ack): replace(ack, offset=offset, at_s=end_s + 1) for ack, offset in told}


def inconsistent_offset(rng: random.Random, history: History) -> History | None:
    """A producer got the offset of another record."""
    stored = _events(history, Stored)
    pair = some(rng, _stored_acks(history))
    if pair is None:
        return None
    ack = pair[1]
    before = [
        e
        for e in stored
        if (e.topic, e.partition) == (ack.topic, ack.partition) and e.offset < pair[0].offset
    ]
    other = some(rng, [e for e in before if e.record_id != ack.record_id])
    if other is None:
        return None
    return _with(history, [replace(ack, offset=other.offset) if e is ack else e for e in history.events])


def nonmonotonic_ack(rng: random.Random, history: History) -> History | None:
    """Two records that retention has removed were acknowledged at each other's offsets."""
    starts = {(e.topic, e.partition): e.start for e in history.of_type(StoredRange)}
    by_log: dict[tuple[str, int, str], list[Acked]] = {}
    for ack in sorted(history.of_type(Acked), key=lambda ack: ack.offset or 0):
        gone = ack.offset is not None and ack.offset < starts[ack.topic, ack.partition]
        if gone and ack.producer in history.idempotent:
            by_log.setdefault((ack.topic, ack.partition, ack.producer), []).append(ack)
    pair = some(rng, [pair for found in by_log.values() for pair in pairwise(found)])
    if pair is None:
        return None
    one, two = pair
    swapped = _told_late(history, (one, two.offset), (two, one.offset))
    return _with(history, [swapped.get(id(event), event) for event in history.events])


def nonmonotonic_poll(rng: random.Random, history: History) -> History | None:
    """A consumer receives a record twice."""
    polled = some(rng, _events(history, Polled))
    if polled is None:
        return None
    return _with(history, [*history.events, replace(polled, at_s=polled.at_s + 1e-6)])


def skipped(rng: random.Random, history: History) -> History | None:
    """The reader skips a record."""
    starts = {(e.topic, e.partition): e.start for e in history.of_type(StoredRange)}
    ends = {(e.topic, e.partition): e.end for e in history.of_type(StoredRange)}
    middle = _events(
        history,
        Polled,
        lambda e: (
            e.consumer == READER and starts[e.topic, e.partition] <= e.offset < ends[e.topic, e.partition] - 1
        ),
    )
    polled = some(rng, middle)
    return None if polled is None else without(history, polled)


def unread(rng: random.Random, history: History) -> History | None:
    """The group never reaches the end of a partition."""
    last = some(rng, _events(history, StoredRange, lambda e: e.end > e.start))
    if last is None:
        return None
    stop = rng.randrange(last.start, last.end)
    gone = _events(
        history,
        Polled,
        lambda e: (
            e.consumer != READER
            and (e.topic, e.partition) == (last.topic, last.partition)
            and e.offset >= stop
        ),
    )
    return without(history, *gone)


def read_above_hw(rng: random.Random, history: History) -> History | None:
    """A reader sees a record at the end of a log that never becomes part of it."""
    known = some(rng, _events(history, StoredRange))
    if known is None:
        return None
    topic, number = known.topic, known.partition
    polls = _events(history, Polled, lambda e: (e.consumer, e.topic, e.partition) == (READER, topic, number))
    seen_s = max((poll.at_s for poll in polls), default=known.at_s - 1e-6)
    extra: list[Event] = [
        Sent("p1", "p1-lost", topic, 1.0),
        Failed("p1", "p1-lost", "timed out", topic, seen_s),
        Polled(READER, number, known.end, "p1-lost", topic, seen_s + 1e-6),
    ]
    return _with(history, [*history.events, *extra])


def acked_above_hw(rng: random.Random, history: History) -> History | None:
    """A high watermark requested after an acknowledgement does not cover it; nobody has read the record
    by then.
    """
    ack = some(rng, _events(history, Acked, lambda ack: ack.offset is not None))
    if ack is None or ack.offset is None:
        return None
    asked_s = ack.at_s + 1e-6
    place = (ack.topic, ack.partition)
    for event in history.events:
        if isinstance(event, Polled | HighWatermark) and event.at_s <= asked_s:
            end = event.offset + isinstance(event, Polled)
            if (event.topic, event.partition) == place and end > ack.offset:
                return None
    told = HighWatermark(ack.partition, ack.offset, asked_s, ack.topic, asked_s + 1e-7)
    return _with(history, [*history.events, told])


def nonmonotonic_end(rng: random.Random, history: History) -> History | None:
    """The high watermark was higher before than finally, above everything that was acknowledged and read."""
    mark = some(rng, _events(history, HighWatermark))
    if mark is None:
        return None
    higher = replace(
        mark, offset=mark.offset + 1_000_000, began_s=mark.began_s - 2e-6, at_s=mark.began_s - 1e-6
    )
    return _with(history, [*history.events, higher])


def commit_lost(rng: random.Random, history: History) -> History | None:
    """The group's final offset is below what was committed."""
    best: dict[tuple[str, int], int] = {}
    for commit in history.of_type(Committed):
        key = (commit.topic, commit.partition)
        best[key] = max(best.get(key, 0), commit.offset)
    told = some(rng, _events(history, GroupOffset, lambda e: (e.topic, e.partition) in best))
    if told is None:
        return None
    lower = rng.randrange(-1, best[told.topic, told.partition])
    return _with(history, [replace(told, offset=lower) if e is told else e for e in history.events])


def restarted_below(rng: random.Random, history: History) -> History | None:
    """A new member starts below what was committed."""
    commit = some(rng, _events(history, Committed))
    if commit is None:
        return None
    at_s = max(event.at_s for event in history.events)
    records = {_place(e): e.record_id for e in history.of_type(Polled)}
    offset = rng.randrange(commit.offset)
    place = (commit.topic, commit.partition)
    extra: list[Event] = [
        Assigned("late", commit.partition, commit.topic, GROUP, at_s + 1),
        Polled("late", commit.partition, offset, records[*place, offset], commit.topic, at_s + 2),
    ]
    return _with(history, [*history.events, *extra])


def nonmonotonic_commit(rng: random.Random, history: History) -> History | None:
    """A commit below another one is accepted."""
    commit = some(rng, _events(history, Committed))
    if commit is None:
        return None
    began_s = commit.at_s + 1e-6
    back = replace(commit, offset=rng.randrange(commit.offset), began_s=began_s, at_s=began_s + 1e-6)
    return _with(history, [*history.events, back])


PLANTS: Mapping[str, tuple[AnomalyKind, Plant]] = {
    "lost": (AnomalyKind.LOST, lost),
    "phantom": (AnomalyKind.PHANTOM, phantom),
    "duplicate": (AnomalyKind.DUPLICATE, duplicate),
    "reordered": (AnomalyKind.REORDERED, reordered),
    "before-acknowledged": (AnomalyKind.REORDERED, before_acknowledged),
    "inconsistent-offset": (AnomalyKind.INCONSISTENT_OFFSET, inconsistent_offset),
    "nonmonotonic-ack": (AnomalyKind.NONMONOTONIC_ACK, nonmonotonic_ack),
    "nonmonotonic-poll": (AnomalyKind.NONMONOTONIC_POLL, nonmonotonic_poll),
    "skipped": (AnomalyKind.SKIPPED, skipped),
    "unread": (AnomalyKind.UNREAD, unread),
    "read-above-hw": (AnomalyKind.READ_ABOVE_HW, read_above_hw),
    "acked-above-hw": (AnomalyKind.ACKED_ABOVE_HW, acked_above_hw),
    "nonmonotonic-end": (AnomalyKind.NONMONOTONIC_END, nonmonotonic_end),
    "commit-lost": (AnomalyKind.COMMIT_LOST, commit_lost),
    "restarted-below": (AnomalyKind.COMMIT_LOST, restarted_below),
    "nonmonotonic-commit": (AnomalyKind.NONMONOTONIC_COMMIT, nonmonotonic_commit),
}
