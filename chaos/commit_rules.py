"""Rules for groups: a group continues at, or before, the last offset whose commit was acknowledged. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.anomalies import Anomaly, AnomalyKind, at
from chaos.facts import Facts, Partition
from chaos.history import Assigned, Committed, GroupOffset, History, Polled

Of = tuple[str, Partition]
"""A group (or a consumer) and a partition."""


def commits(history: History, facts: Facts) -> Iterator[Anomaly]:
    """Commits that were lost or went back, in order of time: a member assigned after a commit must
    know it.
    """
    state = _Commits(facts.groups)
    for event in history.events:
        if isinstance(event, Polled):
            yield from state.polled(event)
        elif isinstance(event, Committed):
            yield from state.committed(event)
        elif isinstance(event, Assigned):
            state.assigned(event)
        elif isinstance(event, GroupOffset):
            yield from state.at_last(event)


@dataclass(slots=True)
class _Commits:
    groups: dict[str, str]
    best: dict[Of, Committed] = field(default_factory=dict)
    """By group: the highest acknowledged commit."""
    owed: dict[Of, Committed] = field(default_factory=dict)
    """By consumer: the group's commit at the time of its assignment, until its first poll."""

    def _of(self, event: Committed | Assigned) -> Of:
        return self.groups.get(event.consumer, event.consumer), (event.topic, event.partition)

    def assigned(self, event: Assigned) -> None:
        if event.group and (committed := self.best.get(self._of(event))) is not None:
            self.owed[event.consumer, (event.topic, event.partition)] = committed

    def polled(self, event: Polled) -> Iterator[Anomaly]:
        if not self.owed:
            return
        commit = self.owed.pop((event.consumer, (event.topic, event.partition)), None)
        if commit is not None and event.offset < commit.offset:
            # The group continues from here: its next commit is not another finding.
            self.best.pop(self._of(commit), None)
            detail = f"{event.consumer} started at offset {event.offset} {at(event.at_s)}, {_told(commit)}"
            kind = AnomalyKind.COMMIT_LOST
            yield Anomaly(kind, event.record_id, event.partition, detail, event.topic, event.at_s)

    def committed(self, event: Committed) -> Iterator[Anomaly]:
        key = self._of(event)
        best = self.best.get(key)
        if best is None or event.offset >= best.offset:
            self.best[key] = event
        elif event.began_s is not None and event.began_s > best.at_s:
            self.best[key] = event
            detail = f"{event.consumer} committed {event.offset} {at(event.at_s)}, {_told(best)}"
            kind = AnomalyKind.NONMONOTONIC_COMMIT
            yield Anomaly(kind, "", event.partition, detail, event.topic, event.at_s)

    def at_last(self, event: GroupOffset) -> Iterator[Anomaly]:
        best = self.best.get((event.group, (event.topic, event.partition)))
        if best is not None and event.offset < best.offset:
            detail = f"{event.group}'s offset was {event.offset} at last {at(event.at_s)}, {_told(best)}"
            yield Anomaly(AnomalyKind.COMMIT_LOST, "", event.partition, detail, event.topic, event.at_s)


def _told(commit: Committed) -> str:
    return f"the group had committed {commit.offset} ({commit.consumer} {at(commit.at_s)})"
