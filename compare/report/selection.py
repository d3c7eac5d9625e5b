"""Chooses which starts are drawn, and arranges their steps by process. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compare.recorded import MODELS, Run, Step

MOST_PROCESSES = 24
"""A picture with more lines than this is unreadable."""
_ORDER = ("zookeeper", "spark-master", "broker", "spark-worker")
_NO_BAR = {"Ready", "Run", "Stopped"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A step in a timeline, in milliseconds from the beginning of the run."""

    name: str
    begin_ms: float
    end_ms: float
    ok: bool


@dataclass(frozen=True, slots=True)
class Line:
    """One process: its launcher's steps, its own steps, and when it served (empty: it did not)."""

    process: str
    host: str
    launch: tuple[Bar, ...]
    own: tuple[Bar, ...]
    ready_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Timeline:
    """One run, drawn. ``left_out``: the number of processes beyond the limit."""

    run: Run
    lines: tuple[Line, ...]
    left_out: int

    @property
    def end_ms(self) -> float:
        """The end of the last step or mark in the picture."""
        ends = [bar.end_ms for line in self.lines for bar in (*line.launch, *line.own)]
        return max([*ends, *(ready for line in self.lines for ready in line.ready_ms)], default=1.0)


def median_round(runs: Sequence[Run]) -> Run:
    """The run whose time until all serve is the median, the lower of two; a run without that time counts as
    the longest.
    """
    ordered = sorted(runs, key=lambda run: (run.all_ready_us is None, run.all_ready_us or 0, run.round))
    return ordered[(len(ordered) - 1) // 2]


def shown_and_others(runs: Iterable[Run], scenario: str) -> tuple[list[Run], list[Run]]:
    """The median round of each system and model on the most hosts; and that for each smaller number
    of hosts.
    """
    groups: dict[tuple[str, str, str, int], list[Run]] = defaultdict(list)
    for run in runs:
        if run.scenario == scenario:
            groups[run.group].append(run)
    most = {key[:2]: max(other[3] for other in groups if other[:2] == key[:2]) for key in groups}
    shown, others = [], []
    for key, rounds in groups.items():
        middle = median_round(rounds)
        if key[3] == most[key[:2]]:
            shown.append(middle)
        else:
            others.append(middle)
    return sorted(shown, key=_by_model), sorted(others, key=_by_model)


def timeline(run: Run) -> Timeline:
    """The run's starts, process by process: first what members need, then members by their number."""
    by_process: dict[str, list[Step]] = defaultdict(list)
    for step in run.steps:
        if step.kind == "start":
            by_process[step.process].append(step)
    lines = [_line(process, steps, run.start_us) for process, steps in by_process.items()]
    lines = sorted((line for line in lines if line.own or line.launch), key=_by_role)
    return Timeline(run, tuple(lines[:MOST_PROCESSES]), max(0, len(lines) - MOST_PROCESSES))


def _line(process: str, steps: Sequence[Step], begin_us: int) -> Line:
    launch = [step for step in steps if step.role == "launcher"]
    own = [step for step in steps if step.role != "launcher"]
    ready = [step for step in own or launch if step.name == "Ready" and step.outcome == "ok"]
    return Line(
        process,
        (own or launch)[0].host,
        tuple(_bar(step, begin_us) for step in launch if step.name not in _NO_BAR),
        tuple(_bar(step, begin_us) for step in own if step.name not in _NO_BAR),
        tuple((step.end_us - begin_us) / 1000 for step in ready),
    )


def _bar(step: Step, begin_us: int) -> Bar:
    begin, end = ((moment - begin_us) / 1000 for moment in (step.start_us, step.end_us))
    return Bar(step.name, begin, end, step.outcome == "ok")


def _by_role(line: Line) -> tuple[int, list[int], str]:
    role = next((number for number, name in enumerate(_ORDER) if line.process.startswith(name)), len(_ORDER))
    return role, [int(digits) for digits in re.findall(r"\d+", line.process)], line.process


def _by_model(run: Run) -> tuple[str, int, int, int]:
    model = MODELS.index(run.model) if run.model in MODELS else len(MODELS)
    return run.system, model, run.hosts, run.round
