"""Indexes a history once for all rules: by record, by place in a partition, by group.

Pure, one pass over the events; shared by the rules in ``log_rules``, ``read_rules`` and ``commit_rules``.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from chaos.history import (
    Acked,
    Assigned,
    Event,
    Failed,
    GroupOffset,
    HighWatermark,
    History,
    Polled,
    Revoked,
    Sent,
    Stored,
    StoredRange,
)

Partition = tuple[str, int]
"""Topic and partition number."""
Place = tuple[str, int, int]
"""Topic, partition and offset."""


@dataclass(slots=True)
class Facts:
    """A history, indexed for the lookups of the rules."""

    idempotent: frozenset[str]
    sent: dict[str, Sent] = field(default_factory=dict)
    """By record, in the order of sending."""
    acked: dict[str, Acked] = field(default_factory=dict)
    failed: dict[str, Failed] = field(default_factory=dict)
    polls: list[Polled] = field(default_factory=list)
    watermarks: list[HighWatermark] = field(default_factory=list)
    group_offsets: list[GroupOffset] = field(default_factory=list)
    final: dict[Partition, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))
    """The content of the final log: record by offset."""
    ranges: dict[Partition, StoredRange] = field(default_factory=dict)
    """The part of each partition's final log that was read; empty when the history has no final log."""
    read: dict[Partition, dict[int, Polled]] = field(default_factory=lambda: defaultdict(dict))
    """The first poll of each offset."""
    conflicts: list[tuple[Polled, Polled]] = field(default_factory=list)
    """The first poll of an offset, and a poll that got another record there."""
    groups: dict[str, str] = field(default_factory=dict)
    """By consumer. A consumer that no group assigned to is its own group, with its own name."""
    assignments: set[tuple[str, str, int]] = field(default_factory=set)
    """Consumer, topic and partition."""
    places: dict[str, list[Place]] = field(default_factory=dict)
    """Each record's places, ascending: in the final log if that was read, else wherever a consumer
    polled it.
    """

    def is_gone(self, partition: Partition, offset: int) -> bool:
        """Whether retention removed the offset before the final log was read."""
        known = self.ranges.get(partition)
        return known is not None and offset < known.start

    def holds(self, partition: Partition, offset: int) -> str:
        """For a finding's text: what the final log has at the offset."""
        known = self.ranges[partition]
        there = self.final[partition].get(offset)
        holding = f"holds {there}" if there else "holds nothing"
        return f"the final log, {known.start} to {known.end}, {holding} at offset {offset}"


def gather(history: History) -> Facts:
    """Indexes a history."""
    facts = Facts(history.idempotent)
    for event in history.events:
        _note(facts, event)
    facts.places = _places(facts)
    return facts


def _note(facts: Facts, event: Event) -> None:
    match event:
        case Sent():
            facts.sent[event.record_id] = event
        case Acked():
            facts.acked[event.record_id] = event
        case Polled():
            _note_poll(facts, event)
        case Stored():
            facts.final[event.topic, event.partition][event.offset] = event.record_id
        case Failed():
            facts.failed[event.record_id] = event
        case Assigned():
            facts.groups[event.consumer] = event.group or event.consumer
            facts.assignments.add((event.consumer, event.topic, event.partition))
        case StoredRange():
            facts.ranges[event.topic, event.partition] = event
        case HighWatermark():
            facts.watermarks.append(event)
        case GroupOffset():
            facts.group_offsets.append(event)
        case _:
            pass  # Revoked and Committed are for rules about order, transactions for theirs; Trouble is for people.


def _note_poll(facts: Facts, polled: Polled) -> None:
    facts.polls.append(polled)
    first = facts.read[polled.topic, polled.partition].setdefault(polled.offset, polled)
    if first.record_id != polled.record_id:
        facts.conflicts.append((first, polled))


def _places(facts: Facts) -> dict[str, list[Place]]:
    places: dict[str, list[Place]] = defaultdict(list)
    for (topic, partition), records in facts.final.items():
        for offset, record in records.items():
            places[record].append((topic, partition, offset))
    for key, polls in facts.read.items():
        if key not in facts.ranges:
            for offset, polled in polls.items():
                places[polled.record_id].append((*key, offset))
    for _, polled in facts.conflicts:
        place = (polled.topic, polled.partition, polled.offset)
        if place[:2] not in facts.ranges and place not in places[polled.record_id]:
            places[polled.record_id].append(place)
    for found in places.values():
        found.sort()
    return dict(places)


def assignment_runs(history: History) -> list[list[Polled]]:
    """Each consumer's polls of one partition, split where it was reassigned or revoked; in order of
    their starts.
    """
    open_runs: dict[tuple[str, str, int], list[Polled]] = {}
    runs: list[list[Polled]] = []
    for event in history.events:
        if isinstance(event, Polled):
            key = (event.consumer, event.topic, event.partition)
            run = open_runs.get(key)
            if run is None:
                open_runs[key] = run = []
                runs.append(run)
            run.append(event)
        elif isinstance(event, Assigned | Revoked):
            open_runs.pop((event.consumer, event.topic, event.partition), None)
    return runs
