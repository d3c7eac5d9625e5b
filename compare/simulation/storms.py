"""What members share, measured with many: ZooKeeper's sessions and the controller's requests, as stages of
a start.

``storms.json`` (``python -m compare.storm``) has the duration of each storm by the number of members. Between
two measured numbers a stage's time is interpolated linearly between their logarithms. Below the lowest number
it is proportional. Above the highest number it is unknown, and nothing is simulated.
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
"""The descriptions of the storms that brokers go through."""


@dataclass(frozen=True, slots=True)
class Stage:
    """One storm: medians in milliseconds by the number of members, ascending."""

    name: str
    members: tuple[int, ...]
    took_ms: tuple[float, ...]

    @property
    def most(self) -> int:
        """The highest number of members that was measured."""
        return self.members[-1]

    def at(self, members: int) -> float:
        """The time in milliseconds for this number of members. Raises ValueError above the highest
        measured number.
        """
        if members > self.most:
            raise ValueError(f"the storm {self.name} was measured with {self.most} members, not {members}")
        if members <= self.members[0]:
            return self.took_ms[0] * members / self.members[0]
        logs = np.interp(np.log(members), np.log(self.members), np.log(self.took_ms))
        return float(np.exp(logs))


@dataclass(frozen=True, slots=True)
class Storms:
    """The stages of brokers; empty unless each storm was measured."""

    stages: tuple[Stage, ...] = ()

    @property
    def most(self) -> int:
        """The highest number of members that was measured for every stage; 0: not measured."""
        return min((stage.most for stage in self.stages), default=0)

    def at(self, members: int) -> float:
        """The time of all stages one after another, in milliseconds; 0 if none was measured."""
        return sum(stage.at(members) for stage in self.stages)


def storms_of(records: Sequence[Mapping[str, Any]]) -> Storms:
    """Parses the records of ``storms.json``. Raises KeyError, TypeError or ValueError."""
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
    """The storms in the directory; none if the file is missing. Raises ``Unreadable``."""
    path = directory / STORMS_FILE
    if not path.exists():
        return Storms()
    content = read_json(path)
    try:
        return storms_of(content["storms"])
    except (KeyError, TypeError, ValueError) as error:
        raise Unreadable(f"{path}: not storms: {error!r}") from error
