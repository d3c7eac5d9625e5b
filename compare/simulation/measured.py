"""The simulation's input: how long each member's launch took in the measured cold starts.

A run is divided into parts that have the same meaning for any number of hosts:

    run begins --prologue--> first member's launch begins
                             |-- occupied --|-- tail --> it serves
                             |-spacing-| next member's launch begins (parallel)
                             |-- occupied --| next member's launch begins (one after another)

Members that start by themselves have no launch: all their time is tail. Times are in milliseconds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from compare.recorded import Run, Step

Times = NDArray[np.float64]
COLD_START = "cold-start"


@dataclass(frozen=True, slots=True)
class MeasuredRun:
    """The parts of one cold start. ``occupied`` and ``tail`` have an entry per member, in the order
    of launch.

    ``spacing`` is the time from the previous launch's beginning, 0 for the first.
    """

    prologue_ms: float
    spacing_ms: Times
    occupied_ms: Times
    tail_ms: Times
    first_ready_ms: float
    all_ready_ms: float


@dataclass(frozen=True, slots=True)
class Measured:
    """All usable cold starts of one system and model on one number of hosts."""

    system: str
    model: str
    hosts: int
    members: int
    runs: tuple[MeasuredRun, ...]

    def without(self, index: int) -> Measured:
        """All rounds but one: a prediction of that round must not use it."""
        kept = (*self.runs[:index], *self.runs[index + 1 :])
        return Measured(self.system, self.model, self.hosts, self.members, kept)


def measure(runs: Iterable[Run]) -> list[Measured]:
    """The measurements of each system, model and number of hosts, sorted. Skips a run in which not all
    members served.
    """
    found: dict[tuple[str, str, int], list[MeasuredRun]] = defaultdict(list)
    for run in runs:
        if run.scenario == COLD_START and (parts := in_parts(run)) is not None:
            found[run.system, run.model, run.hosts].append(parts)
    return [Measured(*key, len(parts[0].tail_ms), tuple(parts)) for key, parts in sorted(found.items())]


def in_parts(run: Run) -> MeasuredRun | None:
    """The parts of a run; None when not every member served, or its members are unknown."""
    served = served_us(run)
    if run.all_ready_us is None or run.first_ready_us is None or not served:
        return None
    whole = run.first_ready_us / 1000, run.all_ready_us / 1000
    if run.model == "independent":
        tail = np.array(sorted(end - run.start_us for end in served.values())) / 1000
        nothing = np.zeros(len(tail))
        return MeasuredRun(0.0, nothing, nothing, tail, *whole)
    pushes = sorted((push for name in served if (push := _push(run, name))), key=lambda push: push[0])
    if len(pushes) != len(served):
        return None
    begins = np.array([begin for begin, _, _ in pushes], dtype=float)
    ends = np.array([end for _, end, _ in pushes], dtype=float)
    ready = np.array([served[name] for _, _, name in pushes], dtype=float)
    spacing = np.diff(begins, prepend=begins[0])
    if run.model == "push-sequential":
        # The time between two pushes belongs to the first, whether it waited until that member served or not.
        ends = np.append(begins[1:], ends[-1])
        spacing = np.zeros(len(begins))
    prologue = float(begins[0] - run.start_us) / 1000
    return MeasuredRun(prologue, spacing / 1000, (ends - begins) / 1000, (ready - ends) / 1000, *whole)


def served_us(run: Run) -> dict[str, int]:
    """When each member served, on the wall clock: as the launcher saw it or, without that, as the member
    reported it.
    """
    ready = [
        step for step in run.steps if step.name == "Ready" and step.kind == "start" and step.outcome == "ok"
    ]
    own = {step.process: step.end_us for step in _of_members(ready) if step.role != "launcher"}
    launched = {step.process: step.end_us for step in _of_members(ready) if step.role == "launcher"}
    return launched or own


def _of_members(steps: Sequence[Step]) -> list[Step]:
    return [step for step in steps if step.is_of_a_member]


def _push(run: Run, process: str) -> tuple[int, int, str] | None:
    """When a member's push began and when the master was done with it; None without events of
    the launcher.
    """
    own = [step for step in run.steps if step.role == "launcher" and step.process == process]
    begins = [step.start_us for step in own if step.name in {"Connect", "Ready"}]
    ends = [step.end_us for step in own if step.name == "Command"]
    return (min(begins), max(ends), process) if begins and ends else None
