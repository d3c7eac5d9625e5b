"""Random histories of a correct log are clean; any anomaly planted in one is found (Hypothesis)."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import TypeVar

from hypothesis import given
from hypothesis import strategies as st

from tests.support.checker import AnomalyKind, check, summary
from tests.support.history import Acked, Assigned, Committed, Event, History, Polled, Sent, record_id

Log = dict[int, list[str]]
E = TypeVar("E")


def write(rng: random.Random, producers: int, records: int, partitions: int) -> tuple[Log, list[Event]]:
    """Interleaves producers; a correct broker appends each record in order of sending, now and then unacknowledged."""
    log: Log = {partition: [] for partition in range(partitions)}
    events: list[Event] = []
    turns = [name for name in range(producers) for _ in range(records)]
    rng.shuffle(turns)
    sequences = [0] * producers
    for turn in turns:
        record = record_id(f"p{turn}", sequences[turn])
        sequences[turn] += 1
        partition = rng.randrange(partitions)
        events.append(Sent(f"p{turn}", record))
        log[partition].append(record)
        if rng.random() < 0.9:
            told = len(log[partition]) - 1 if rng.random() < 0.9 else None
            events.append(Acked(f"p{turn}", record, partition, told))
    return log, events


def read(rng: random.Random, log: Log, consumers: int) -> list[Event]:
    """Group members read every partition to its end, commit at times, and lose the partition to another at times."""
    events: list[Event] = []
    for partition, ids in log.items():
        position = committed = 0
        owner = ""
        while position < len(ids):
            if not owner or rng.random() < 0.1:
                owner, position = f"c{rng.randrange(consumers)}", committed
                events.append(Assigned(owner, partition))
            events.append(Polled(owner, partition, position, ids[position]))
            position += 1
            if rng.random() < 0.3:
                committed = position
                events.append(Committed(owner, partition, committed))
    return events


@st.composite
def correct_histories(draw: st.DrawFn) -> tuple[History, random.Random]:
    """A history that a correct broker and correct clients would make, and a source of further choices."""
    rng = draw(st.randoms(use_true_random=False))
    producers = draw(st.integers(1, 3))
    log, sent = write(rng, producers, draw(st.integers(1, 30)), draw(st.integers(1, 3)))
    events = [*sent, *read(rng, log, draw(st.integers(1, 3)))]
    return History(events, frozenset(f"p{number}" for number in range(producers))), rng


def some(rng: random.Random, history: History, kind: type[E]) -> E:
    return rng.choice(list(history.of_type(kind)))


def found_kinds(history: History) -> set[AnomalyKind]:
    return {found.kind for found in check(history)}


@given(correct_histories())
def test_a_correct_history_is_clean(case: tuple[History, random.Random]) -> None:
    found = check(case[0])
    assert not found, summary(found)


@given(correct_histories())
def test_a_planted_loss_is_found(case: tuple[History, random.Random]) -> None:
    history, rng = case
    victim = some(rng, history, Sent).record_id
    history.events[:] = [e for e in history.events if not (isinstance(e, Polled) and e.record_id == victim)]
    history.events.append(Acked(victim.partition("-")[0], victim, 0, None))
    assert AnomalyKind.LOST in found_kinds(history)


@given(correct_histories())
def test_a_planted_duplicate_is_found(case: tuple[History, random.Random]) -> None:
    history, rng = case
    victim = some(rng, history, Polled)
    end = 1 + max(e.offset for e in history.of_type(Polled) if e.partition == victim.partition)
    history.events += [Assigned("late", victim.partition), replace(victim, consumer="late", offset=end)]
    assert AnomalyKind.DUPLICATE in found_kinds(history)


@given(correct_histories())
def test_a_planted_reordering_is_found(case: tuple[History, random.Random]) -> None:
    history, _ = case
    history.events += [Sent("p0", "p0-8"), Sent("p0", "p0-9"), Assigned("late", 9)]
    history.events += [Polled("late", 9, 0, "p0-9"), Polled("late", 9, 1, "p0-8")]
    assert found_kinds(history) == {AnomalyKind.REORDERED}


@given(correct_histories())
def test_a_planted_swap_of_neighbours_of_one_producer_is_found(case: tuple[History, random.Random]) -> None:
    history, rng = case
    polled = {(e.partition, e.offset): e.record_id for e in history.of_type(Polled)}
    pairs = [
        (place, (place[0], place[1] + 1))
        for place, record in polled.items()
        if polled.get((place[0], place[1] + 1), "").split("-")[0] == record.split("-")[0]
    ]
    if not pairs:
        return
    one, two = rng.choice(pairs)
    swapped = {one: polled[two], two: polled[one]}
    history.events[:] = [
        replace(e, record_id=swapped.get((e.partition, e.offset), e.record_id))
        if isinstance(e, Polled)
        else e
        for e in history.events
    ]
    assert AnomalyKind.REORDERED in found_kinds(history)


@given(correct_histories())
def test_a_planted_second_value_at_one_offset_is_found(case: tuple[History, random.Random]) -> None:
    history, rng = case
    victim = some(rng, history, Polled)
    history.events += [Sent("p0", "p0-other"), Assigned("late", victim.partition)]
    history.events.append(replace(victim, consumer="late", record_id="p0-other"))
    assert AnomalyKind.INCONSISTENT_OFFSET in found_kinds(history)


@given(correct_histories())
def test_a_planted_step_back_is_found(case: tuple[History, random.Random]) -> None:
    history, rng = case
    place = rng.choice([n for n, event in enumerate(history.events) if isinstance(event, Polled)])
    history.events.insert(place + 1, history.events[place])
    assert AnomalyKind.NONMONOTONIC_POLL in found_kinds(history)


@given(correct_histories())
def test_a_planted_rewind_below_a_commit_is_found(case: tuple[History, random.Random]) -> None:
    history, rng = case
    victim = some(rng, history, Polled)
    history.events += [Committed(victim.consumer, victim.partition, victim.offset + 1)]
    history.events += [Assigned("late", victim.partition), replace(victim, consumer="late")]
    assert AnomalyKind.COMMIT_LOST in found_kinds(history)
