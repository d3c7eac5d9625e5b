"""Rules for consumers: they see every record once in order, none above the high watermark, and finally
all. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import TypeVar

from chaos.anomalies import Anomaly, AnomalyKind, at
from chaos.facts import Facts, Partition
from chaos.history import Acked, HighWatermark, Polled

T = TypeVar("T", Polled, Acked, HighWatermark)
Passed = tuple[str, Partition]
"""A group (or a consumer without one), and the partition in which it skipped a record."""


def known_offsets(facts: Facts) -> dict[Partition, list[int]]:
    """Offsets that are known to have a record, ascending: from the final log, else from polls
    and acknowledgements.
    """
    known: dict[Partition, set[int]] = defaultdict(set)
    for key, polls in facts.read.items():
        if key not in facts.ranges:
            known[key].update(polls)
    for ack in facts.acked.values():
        if ack.offset is not None and (ack.topic, ack.partition) not in facts.ranges:
            known[ack.topic, ack.partition].add(ack.offset)
    for key, records in facts.final.items():
        known[key].update(records)
    return {key: sorted(offsets) for key, offsets in known.items()}


def poll_order(runs: Iterable[Sequence[Polled]], known: Mapping[Partition, list[int]]) -> Iterator[Anomaly]:
    """Steps back, and steps over a record, within one assignment."""
    for run in runs:
        offsets = known.get((run[0].topic, run[0].partition), [])
        for before, after in pairwise(run):
            # The usual step, to the next offset, needs no lookup.
            if after.offset != before.offset + 1:
                yield from _step(before, after, offsets)


def _step(before: Polled, after: Polled, known: list[int]) -> Iterator[Anomaly]:
    when = f"{at(before.at_s)} and {at(after.at_s)}"
    if after.offset <= before.offset:
        detail = f"{after.consumer} was handed offset {after.offset} after {before.offset}, {when}"
        yield _about(AnomalyKind.NONMONOTONIC_POLL, after, detail)
        return
    following = bisect_right(known, before.offset)
    if following < len(known) and known[following] < after.offset:
        step = f"from offset {before.offset} to {after.offset}, {when}"
        detail = f"{after.consumer} went {step}, but {known[following]} holds a record"
        yield _about(AnomalyKind.SKIPPED, after, detail)


def never_read(
    facts: Facts, known: Mapping[Partition, list[int]], skipped: Iterable[Anomaly]
) -> Iterator[Anomaly]:
    """Records of the final log that no member of a group read, although the group read to its end."""
    passed = {
        (anomaly.topic, anomaly.partition) for anomaly in skipped if anomaly.kind is AnomalyKind.SKIPPED
    }
    read: dict[Passed, set[int]] = defaultdict(set)
    for polled in facts.polls:
        group = facts.groups.get(polled.consumer, polled.consumer)
        read[group, (polled.topic, polled.partition)].add(polled.offset)
    for group, key in _expected(facts):
        seen = read.get((group, key), set())
        missing = [offset for offset in known.get(key, ()) if offset not in seen]
        if missing:
            yield from _missing(facts, group, key, missing, last=max(seen, default=-1), told=key in passed)


def _expected(facts: Facts) -> Iterator[tuple[str, Partition]]:
    """Every group with every partition of its topics that has a final log; a consumer without a group with
    its partitions.
    """
    chosen: set[tuple[str, Partition]] = set()
    for consumer, topic, partition in facts.assignments:
        group = facts.groups[consumer]
        for key in facts.ranges:
            if key == (topic, partition) or (group != consumer and key[0] == topic):
                chosen.add((group, key))
    yield from sorted(chosen)


def _missing(
    facts: Facts, group: str, key: Partition, missing: list[int], *, last: int, told: bool
) -> Iterator[Anomaly]:
    known = facts.ranges[key]
    over = [offset for offset in missing if offset < last]
    if over and not told:
        first = facts.final[key][over[0]]
        detail = f"{group} read to offset {last} and passed over {len(over)} records from offset {over[0]} on"
        yield Anomaly(AnomalyKind.SKIPPED, first, key[1], detail, key[0], known.at_s)
    if missing[-1] > last:
        first = facts.final[key][missing[len(over)]]
        behind = len(missing) - len(over)
        detail = f"{group} read to offset {last} only, {behind} records below the end {known.end} are missing"
        yield Anomaly(AnomalyKind.UNREAD, first, key[1], detail, key[0], known.at_s)


def above_high_watermark(facts: Facts, named: Collection[str] = ()) -> Iterator[Anomaly]:
    """Polls that the final log does not have, and records above a high watermark that was reported later.

    A record that is already ``named`` for its transaction is expected not to be in the final log.
    """
    seen: set[tuple[Partition, int, str]] = set()
    for polled in facts.polls:
        key = (polled.topic, polled.partition)
        known = facts.ranges.get(key)
        if known is None or polled.offset < known.start:
            continue
        record = polled.record_id
        if (
            facts.final[key].get(polled.offset) == record
            or _is_lost(facts, record)
            or record not in facts.sent
            or record in named
        ):
            continue
        if (key, polled.offset, record) not in seen:
            seen.add((key, polled.offset, record))
            detail = f"{polled.consumer} read it at offset {polled.offset} {at(polled.at_s)}"
            story = f"{detail}, but {facts.holds(key, polled.offset)}"
            yield _about(AnomalyKind.READ_ABOVE_HW, polled, story)
    yield from _above_told(facts)


def _is_lost(facts: Facts, record: str) -> bool:
    """Whether it was acknowledged and is nowhere: LOST is reported for it already, whichever consumer
    read it.
    """
    return record in facts.acked and record not in facts.places


def _above_told(facts: Facts) -> Iterator[Anomaly]:
    marks = _by_partition(facts.watermarks)
    polls = _by_partition(polled for polled in facts.polls if marks)
    acks = _by_partition(ack for ack in facts.acked.values() if marks and ack.offset is not None)
    for key, told in marks.items():
        yield from _first_above(AnomalyKind.READ_ABOVE_HW, polls.get(key, []), told)
        yield from _first_above(AnomalyKind.ACKED_ABOVE_HW, acks.get(key, []), told)
        yield from _went_back(told)


def _by_partition(events: Iterable[T]) -> dict[Partition, list[T]]:
    found: dict[Partition, list[T]] = defaultdict(list)
    for event in events:
        found[event.topic, event.partition].append(event)
    return found


def _first_above(
    kind: AnomalyKind, events: Sequence[Polled] | Sequence[Acked], marks: Sequence[HighWatermark]
) -> Iterator[Anomaly]:
    """For each mark, the event known before it was requested that is highest above it."""
    in_time: list[Polled | Acked] = sorted(events, key=lambda event: event.at_s)
    position = 0
    highest: Polled | Acked | None = None
    for mark in sorted(marks, key=lambda mark: mark.began_s):
        while position < len(in_time) and in_time[position].at_s <= mark.began_s:
            event = in_time[position]
            if highest is None or (event.offset or 0) > (highest.offset or 0):
                highest = event
            position += 1
        if highest is not None and (highest.offset or 0) >= mark.offset:
            what = "read" if kind is AnomalyKind.READ_ABOVE_HW else "acknowledged"
            told = f"the high watermark asked for {at(mark.began_s)} was {mark.offset}"
            detail = f"{what} at offset {highest.offset} {at(highest.at_s)}, but {told}"
            yield Anomaly(kind, highest.record_id, mark.partition, detail, mark.topic, mark.at_s)


def _went_back(marks: Sequence[HighWatermark]) -> Iterator[Anomaly]:
    for before, after in pairwise(sorted(marks, key=lambda mark: mark.began_s)):
        if after.began_s >= before.at_s and after.offset < before.offset:
            detail = f"the high watermark was {before.offset} {at(before.at_s)} and {after.offset} {at(after.at_s)}"
            yield Anomaly(AnomalyKind.NONMONOTONIC_END, "", after.partition, detail, after.topic, after.at_s)


def _about(kind: AnomalyKind, polled: Polled, detail: str) -> Anomaly:
    return Anomaly(kind, polled.record_id, polled.partition, detail, polled.topic, polled.at_s)
