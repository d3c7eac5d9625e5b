"""Computes the content of ``comparison.json`` from runs and steps: pure, and the same bytes for the
same events.

docs/lake.md explains each figure. Everything is sorted by names before it is computed, and the output is
rounded to three decimals. So neither the order of the events nor the number of Spark's partitions affects
it. Times are integers of microseconds until they are written as milliseconds: halves and quarters of them
are exact.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np

SCHEMA_VERSION: Final = 1
CERTAINTY: Final = 0.95
FIT_SCENARIO: Final = "cold-start"
WHOLE_STEPS: Final = frozenset({"Ready", "Run", "Stopped"})
"""Steps that contain other steps: they are not part of the sum."""


@dataclass(frozen=True, slots=True)
class Run:
    """One ``Run`` event of a launcher. Times are microseconds; None: never."""

    run_id: str
    model: str
    scenario: str
    system: str
    hosts: int
    round: int
    first_ready_us: int | None
    all_ready_us: int | None
    recovered_us: int | None
    waited_us: int | None
    unaided_us: int | None
    person_acted: bool
    actions: tuple[str, ...]
    commands: int
    connections: int
    cpu_ms: int


@dataclass(frozen=True, slots=True)
class StepSpread:
    """The time of one step in the runs of one kind: quartiles in microseconds, linear between two values."""

    role: str
    model: str
    system: str
    hosts: int
    step: str
    n: int
    p25_us: float
    median_us: float
    p75_us: float


@dataclass(frozen=True, slots=True)
class Inputs:
    """The input of the comparison. ``dead_letters`` is None if they were not counted."""

    events: int
    duplicates: int
    dead_letters: int | None


# By figure: how to get it from a run, and the divisor from the run's unit to the figure's.
_FIGURES: Final[dict[str, tuple[Callable[[Run], int | None], int]]] = {
    "first_ready_ms": (lambda run: run.first_ready_us, 1000),
    "all_ready_ms": (lambda run: run.all_ready_us, 1000),
    "recovered_ms": (lambda run: run.recovered_us, 1000),
    "unaided_ms": (lambda run: run.unaided_us, 1000),
    "waited_ms": (lambda run: run.waited_us, 1000),
    "commands": (lambda run: run.commands, 1),
    "connections": (lambda run: run.connections, 1),
    "cpu_ms": (lambda run: run.cpu_ms, 1),
}
_FITTED: Final = ("first_ready_ms", "all_ready_ms", "cpu_ms")


def document(
    comparison_id: str, runs: Iterable[Run], steps: Iterable[StepSpread], inputs: Inputs
) -> dict[str, Any]:
    """The content of ``comparison.json``."""
    ordered = sorted(runs, key=lambda run: (*_group_key(run), run.round, run.run_id))
    return {
        "schema": SCHEMA_VERSION,
        "comparison_id": comparison_id,
        "runs": len(ordered),
        "groups": [_group(key, list(members)) for key, members in groupby(ordered, _group_key)],
        "steps": step_table(steps),
        "fits": fits(ordered),
        "inputs": {
            "events": inputs.events,
            "duplicates": inputs.duplicates,
            "dead_letters": inputs.dead_letters,
        },
    }


def to_bytes(content: dict[str, Any]) -> bytes:
    """The file's bytes: sorted keys, one per line."""
    return (
        json.dumps(content, indent=1, sort_keys=True, ensure_ascii=False, allow_nan=False) + "\n"
    ).encode()


def _group_key(run: Run) -> tuple[str, str, str, int]:
    return run.system, run.model, run.scenario, run.hosts


def _group(key: tuple[str, str, str, int], runs: Sequence[Run]) -> dict[str, Any]:
    system, model, scenario, hosts = key
    figures = {name: spread([take(run) for run in runs], unit) for name, (take, unit) in _FIGURES.items()}
    return {
        "system": system,
        "model": model,
        "scenario": scenario,
        "hosts": hosts,
        "rounds": len(runs),
        "figures": figures,
        "person_acted": sum(run.person_acted for run in runs),
        "actions": dict(Counter(action for run in runs for action in run.actions)),
    }


def spread(measured: Sequence[int | None], unit: int = 1) -> dict[str, Any]:
    """A figure of some runs, divided by ``unit``: points in the runs' order, quartiles, mean, interval of
    the median.

    None was never reached: it is counted, and is in no other number. Without any value the numbers are None.
    """
    values = [value for value in measured if value is not None]
    result: dict[str, Any] = {"n": len(values), "never": len(measured) - len(values)}
    names = ("min", "p25", "median", "p75", "max", "mean", "ci_low", "ci_high")
    if not values:
        return result | dict.fromkeys(names) | {"values": []}
    quartiles = np.percentile(values, [0, 25, 50, 75, 100])
    numbers = (*quartiles, math.fsum(values) / len(values), *(median_interval(values) or (None, None)))
    found = {
        name: None if number is None else _rounded(number / unit)
        for name, number in zip(names, numbers, strict=True)
    }
    return result | found | {"values": [_rounded(value / unit) for value in values]}


def median_interval(values: Sequence[int]) -> tuple[int, int] | None:
    """The 95 % interval of the median, from two of the values; None with fewer than six values.

    These are the highest rank below and the lowest above that contain the median with this confidence,
    whatever the distribution. With fewer than six values no interval does.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside, rank = (
        1,
        0,
    )  # of 2**count ways to fall around the median, those with fewer than ``rank + 1`` below it
    while 2 * outside <= (1 - CERTAINTY) * 2**count:
        rank += 1
        outside += math.comb(count, rank)
    return (ordered[rank - 1], ordered[count - rank]) if rank else None


def step_table(steps: Iterable[StepSpread]) -> list[dict[str, Any]]:
    """The steps by name, each with its share of the medians of its role, model, system and number
    of hosts.
    """
    ordered = sorted(steps, key=lambda step: (*_sum_key(step), step.step))
    table = []
    for _key, members in groupby(ordered, _sum_key):
        siblings = list(members)
        whole = math.fsum(step.median_us for step in siblings if step.step not in WHOLE_STEPS)
        table += [_step_row(step, whole) for step in siblings]
    return table


def _sum_key(step: StepSpread) -> tuple[str, str, str, int]:
    return step.system, step.role, step.model, step.hosts


def _step_row(step: StepSpread, whole_us: float) -> dict[str, Any]:
    counted = step.step not in WHOLE_STEPS and whole_us > 0
    return {
        "role": step.role,
        "model": step.model,
        "system": step.system,
        "hosts": step.hosts,
        "step": step.step,
        "n": step.n,
        "median_ms": _rounded(step.median_us / 1000),
        "p25_ms": _rounded(step.p25_us / 1000),
        "p75_ms": _rounded(step.p75_us / 1000),
        "share": _rounded(step.median_us / whole_us) if counted else None,
    }


def fits(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """The growth of the cold start: a least-squares line through all runs, if there are at least two numbers
    of hosts.
    """
    cold = sorted(
        (run for run in runs if run.scenario == FIT_SCENARIO),
        key=lambda run: (run.system, run.model, run.run_id),
    )
    found = []
    for (system, model), members in groupby(cold, lambda run: (run.system, run.model)):
        siblings = list(members)
        for figure in _FITTED:
            take, unit = _FIGURES[figure]
            points = [(run.hosts, value / unit) for run in siblings if (value := take(run)) is not None]
            if line := _line(points):
                found.append(
                    {
                        "system": system,
                        "model": model,
                        "figure": figure,
                        "scenario": FIT_SCENARIO,
                        "form": "a + b*hosts",
                        "n": len(points),
                    }
                    | line
                )
    return found


def _line(points: Sequence[tuple[int, float]]) -> dict[str, float] | None:
    """``a_ms``, ``b_ms`` and ``r2`` of the least squares; None if all points have the same number of hosts.

    ``r2`` is 1 if all points have the same height: the level line misses none.
    """
    if len({hosts for hosts, _value in points}) < 2:
        return None
    mean_x = math.fsum(x for x, _ in points) / len(points)
    mean_y = math.fsum(y for _, y in points) / len(points)
    slope = math.fsum((x - mean_x) * (y - mean_y) for x, y in points) / math.fsum(
        (x - mean_x) ** 2 for x, _ in points
    )
    base = mean_y - slope * mean_x
    missed = math.fsum((y - base - slope * x) ** 2 for x, y in points)
    total = math.fsum((y - mean_y) ** 2 for _, y in points)
    r2 = 1 - missed / total if total > 0 else 1.0
    return {"a_ms": _rounded(base), "b_ms": _rounded(slope), "r2": _rounded(r2)}


def _rounded(number: float) -> float:
    """Three decimals, and no negative zero."""
    return round(float(number), 3) + 0.0
