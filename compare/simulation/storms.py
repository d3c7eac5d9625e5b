"""What members share, measured with many: ZooKeeper's sessions and the controller's word, as stages of a start.

``storms.json`` (``python -m compare.storm``) has for each storm how long it took with how many members. A stage's time
between two measured numbers lies on the straight line of their logarithms; with fewer than the fewest it is in
proportion; with more than the most it is not known, and nothing is simulated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from compare.recorded import STORMS_FILE, Unreadable, read_json

STAGES = {"zookeeper": "ZooKeeper's sessions", "controller": "the controller's word to each broker"}
"""The storms that brokers go through, in words."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One storm: medians in milliseconds over the numbers of members, ascending."""

    name: str
    members: tuple[int, ...]
    took_ms: tuple[float, ...]

    @property
    def most(self) -> int:
        """The most members that it was measured with."""
        return self.members[-1]

    def at(self, members: int) -> float:
        """Milliseconds with so many members, at most the most measured. Raises ValueError beyond."""
        if members > self.most:
            raise ValueError(f"the storm {self.name} was measured with {self.most} members, not {members}")
        if members <= self.members[0]:
            return self.took_ms[0] * members / self.members[0]
        logs = np.interp(np.log(members), np.log(self.members), np.log(self.took_ms))
        return float(np.exp(logs))


@dataclass(frozen=True, slots=True)
class Storms:
    """The stages of brokers; none where no storm was measured, or not each of them."""

    stages: tuple[Stage, ...] = ()

    @property
    def most(self) -> int:
        """The most members that every stage was measured with; 0: not measured."""
        return min((stage.most for stage in self.stages), default=0)

    def at(self, members: int) -> float:
        """Milliseconds of all stages one after another; 0 where none was measured."""
        return sum(stage.at(members) for stage in self.stages)


def storms_of(records: Sequence[Mapping[str, Any]]) -> Storms:
    """From the records of ``storms.json``. Raises KeyError, TypeError or ValueError."""
    stages = []
    for name in STAGES:
        found: dict[int, list[float]] = {}
        for record in records:
            if record["storm"] == name:
                found.setdefault(int(record["members"]), []).append(1000 * float(record["seconds"]))
        if not found:
            return Storms()
        counts = sorted(found)
        stages.append(Stage(name, tuple(counts), tuple(median(found[count]) for count in counts)))
    return Storms(tuple(stages))


def read_storms(directory: Path) -> Storms:
    """The directory's storms, or none where it has no such file. Raises ``Unreadable``."""
    path = directory / STORMS_FILE
    if not path.exists():
        return Storms()
    content = read_json(path)
    try:
        return storms_of(content["storms"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path}: not storms: {error!r}") from error
