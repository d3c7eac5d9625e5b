"""The history checker: what producers and consumers saw in, the anomalies in it out. Pure.

The anomalies, after the list that jepsen.tests.kafka made common:

LOST                  acknowledged, never read
DUPLICATE             one id at two places, though its producer is idempotent
REORDERED             within a partition, a producer's records do not stand in the order of sending
INCONSISTENT_OFFSET   one offset with two values, or an acknowledged record read elsewhere only
NONMONOTONIC_POLL     a consumer went back within one assignment of the partition
SKIPPED               a consumer passed over an offset that holds a record, within one assignment
COMMIT_LOST           after a rebalance a partition was read from below an acknowledged commit
PHANTOM               read, never sent

Rules where a client may rightly see more: a record that failed may be in the log or not; a producer that is not
idempotent may write a record twice, then its first place counts for the order; after an assignment a consumer may
read again what its group had not committed.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from tests.support.history import Acked, Assigned, Committed, History, Polled, Sent

Place = tuple[int, int]
"""Partition and offset."""


class AnomalyKind(enum.Enum):
    """What is wrong; the module docstring says when."""

    LOST = "lost"
    DUPLICATE = "duplicate"
    REORDERED = "reordered"
    INCONSISTENT_OFFSET = "inconsistent-offset"
    NONMONOTONIC_POLL = "nonmonotonic-poll"
    SKIPPED = "skipped"
    COMMIT_LOST = "commit-lost"
    PHANTOM = "phantom"


@dataclass(frozen=True, slots=True)
class Anomaly:
    """One finding; ``detail`` tells its story with all its numbers."""

    kind: AnomalyKind
    record_id: str
    partition: int
    detail: str

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.record_id} in partition {self.partition}: {self.detail}"


def check(history: History) -> list[Anomaly]:
    """Returns every anomaly of the history, kind by kind; an empty list is a clean history."""
    places = _places_of_ids(history)
    return [
        *_lost(history, places),
        *_phantoms(history, places),
        *_duplicates(history, places),
        *_reordered(history, places),
        *_inconsistent_offsets(history, places),
        *_poll_order(history),
        *_lost_commits(history),
    ]


def summary(anomalies: Iterable[Anomaly], limit: int = 20) -> str:
    """A text for an assertion: counts by kind, then the first ``limit`` findings."""
    found = list(anomalies)
    counts: dict[str, int] = defaultdict(int)
    for anomaly in found:
        counts[anomaly.kind.value] += 1
    lines = [", ".join(f"{count} {kind}" for kind, count in counts.items()) or "no anomaly"]
    return "\n".join([*lines, *(str(anomaly) for anomaly in found[:limit])])


def _places_of_ids(history: History) -> dict[str, list[Place]]:
    """Where each id was read, in order of partition and offset."""
    places: dict[str, set[Place]] = defaultdict(set)
    for polled in history.of_type(Polled):
        places[polled.record_id].add((polled.partition, polled.offset))
    return {record: sorted(found) for record, found in places.items()}


def _lost(history: History, places: dict[str, list[Place]]) -> Iterator[Anomaly]:
    for ack in history.of_type(Acked):
        if ack.record_id not in places:
            detail = f"acknowledged to {ack.producer} at offset {ack.offset}, never read"
            yield Anomaly(AnomalyKind.LOST, ack.record_id, ack.partition, detail)


def _phantoms(history: History, places: dict[str, list[Place]]) -> Iterator[Anomaly]:
    sent = {event.record_id for event in history.of_type(Sent)}
    for record, found in places.items():
        if record not in sent:
            partition, offset = found[0]
            yield Anomaly(AnomalyKind.PHANTOM, record, partition, f"read at offset {offset}, never sent")


def _duplicates(history: History, places: dict[str, list[Place]]) -> Iterator[Anomaly]:
    for sent in history.of_type(Sent):
        found = places.get(sent.record_id, [])
        if sent.producer in history.idempotent and len(found) > 1:
            detail = f"{sent.producer} is idempotent, read at (partition, offset) {found}"
            yield Anomaly(AnomalyKind.DUPLICATE, sent.record_id, found[0][0], detail)


def _reordered(history: History, places: dict[str, list[Place]]) -> Iterator[Anomaly]:
    last: dict[tuple[str, int], tuple[int, str]] = {}
    for sent in history.of_type(Sent):
        for partition, offset in _first_places(places.get(sent.record_id, [])):
            before_offset, before_id = last.get((sent.producer, partition), (-1, ""))
            if offset < before_offset:
                detail = f"at offset {offset}, but {before_id}, sent earlier, is at {before_offset}"
                yield Anomaly(AnomalyKind.REORDERED, sent.record_id, partition, detail)
            else:
                last[sent.producer, partition] = (offset, sent.record_id)


def _first_places(places: list[Place]) -> Iterator[Place]:
    """The lowest offset in each partition; ``places`` is sorted."""
    seen: set[int] = set()
    for partition, offset in places:
        if partition not in seen:
            seen.add(partition)
            yield partition, offset


def _inconsistent_offsets(history: History, places: dict[str, list[Place]]) -> Iterator[Anomaly]:
    ids: dict[Place, str] = {}
    for polled in history.of_type(Polled):
        first = ids.setdefault((polled.partition, polled.offset), polled.record_id)
        if first != polled.record_id:
            detail = f"offset {polled.offset} was read as {first} and as {polled.record_id}"
            yield Anomaly(AnomalyKind.INCONSISTENT_OFFSET, polled.record_id, polled.partition, detail)
    for ack in history.of_type(Acked):
        found = places.get(ack.record_id)
        if found and ack.offset is not None and (ack.partition, ack.offset) not in found:
            detail = f"acknowledged at offset {ack.offset}, read at (partition, offset) {found}"
            yield Anomaly(AnomalyKind.INCONSISTENT_OFFSET, ack.record_id, ack.partition, detail)


def _poll_order(history: History) -> Iterator[Anomaly]:
    known = _known_offsets(history)
    for run in _assignment_runs(history):
        for before, after in pairwise(run):
            yield from _step(before, after, known[after.partition])


def _step(before: Polled, after: Polled, known: list[int]) -> Iterator[Anomaly]:
    if after.offset <= before.offset:
        detail = f"{after.consumer} was handed offset {after.offset} after {before.offset}"
        yield Anomaly(AnomalyKind.NONMONOTONIC_POLL, after.record_id, after.partition, detail)
        return
    following = bisect_right(known, before.offset)
    if known[following] < after.offset:
        step = f"from offset {before.offset} to {after.offset}"
        detail = f"{after.consumer} went {step}, but {known[following]} holds a record"
        yield Anomaly(AnomalyKind.SKIPPED, after.record_id, after.partition, detail)


def _known_offsets(history: History) -> dict[int, list[int]]:
    """Offsets by partition that are known to hold a record, ascending."""
    known: dict[int, set[int]] = defaultdict(set)
    for event in history.events:
        if isinstance(event, Polled) or (isinstance(event, Acked) and event.offset is not None):
            known[event.partition].add(event.offset)  # type: ignore[arg-type]
    return {partition: sorted(offsets) for partition, offsets in known.items()}


def _assignment_runs(history: History) -> Iterator[list[Polled]]:
    """Each consumer's polls of one partition, cut where it was assigned anew."""
    runs: dict[tuple[str, int], list[Polled]] = defaultdict(list)
    for event in history.events:
        if isinstance(event, Assigned):
            yield runs.pop((event.consumer, event.partition), [])
        elif isinstance(event, Polled):
            runs[event.consumer, event.partition].append(event)
    yield from runs.values()


def _lost_commits(history: History) -> Iterator[Anomaly]:
    committed: dict[int, int] = {}
    owed: dict[tuple[str, int], int] = {}
    for event in history.events:
        if isinstance(event, Committed):
            committed[event.partition] = max(event.offset, committed.get(event.partition, 0))
        elif isinstance(event, Assigned):
            owed[event.consumer, event.partition] = committed.get(event.partition, 0)
        elif isinstance(event, Polled):
            floor = owed.pop((event.consumer, event.partition), 0)
            if event.offset < floor:
                detail = f"{event.consumer} started at offset {event.offset}, the group had committed {floor}"
                yield Anomaly(AnomalyKind.COMMIT_LOST, event.record_id, event.partition, detail)
