"""The whole study: both models grown to ten thousand hosts, then disturbed, with what it rests on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from compare.recorded import Run
from compare.simulation.faults import FaultCosts, fault_costs
from compare.simulation.measured import Measured, measure
from compare.simulation.start import Plan, simulate
from compare.simulation.validation import Check, validate

LARGEST = 10_000
COUNTS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, LARGEST)
LANES = (8, 32, 128)
"""Pushes at a time beside all at once: OpenSSH's server itself turns away more than 10 unauthenticated connections."""
FAILURES = (0.01, 0.05)
RETRIES = (0, 2)
SLOW = (0.001, 0.01)
_DRAWS = 30_000
"""Members drawn for a point, over its trials: small starts are repeated more often."""


@dataclass(frozen=True, slots=True)
class Point:
    """The time until all serve, simulated: the median of the trials, and where 90 % of them lie."""

    members: int
    low_ms: float
    median_ms: float
    high_ms: float


@dataclass(frozen=True, slots=True)
class Curve:
    """One model of one system over the numbers of members. ``lanes``: pushes at a time, None: all at once."""

    system: str
    model: str
    lanes: int | None
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Disturbed:
    """The largest start with something wrong. ``left_out``: members that no connection reached (median)."""

    system: str
    model: str
    lanes: int | None
    what: str
    median_ms: float
    left_out: float
    connections: float


@dataclass(frozen=True, slots=True)
class Study:
    """All that the simulation has to say."""

    measured: tuple[Measured, ...]
    costs: dict[str, FaultCosts]
    checks: tuple[Check, ...]
    curves: tuple[Curve, ...]
    disturbed: tuple[Disturbed, ...]
    largest: int


def study(runs: Sequence[Run], largest: int = LARGEST) -> Study:
    """Simulates what was measured of cold starts; the most hosts measured are what is drawn from."""
    measured = measure(runs)
    widest = {(each.system, each.model): each for each in sorted(measured, key=lambda each: each.hosts)}
    costs = {system: fault_costs(runs, system) for system in sorted({run.system for run in runs})}
    counts = [count for count in COUNTS if count <= largest]
    return Study(
        measured=tuple(measured),
        costs=costs,
        checks=tuple(validate(measured)),
        curves=tuple(_curve(each, lanes, counts) for each in widest.values() for lanes in _lanes(each)),
        disturbed=tuple(
            row for each in widest.values() for row in _disturb(each, costs[each.system], counts[-1])
        ),
        largest=counts[-1],
    )


def _lanes(each: Measured) -> tuple[int | None, ...]:
    return (*LANES, None) if each.model == "push-parallel" else (None,)


def _curve(each: Measured, lanes: int | None, counts: Sequence[int]) -> Curve:
    points = []
    for count in counts:
        low, middle, high = simulate(each, Plan(count, lanes), _trials(count)).spread()
        points.append(Point(count, low, middle, high))
    return Curve(each.system, each.model, lanes, tuple(points))


def _disturb(each: Measured, costs: FaultCosts, members: int) -> list[Disturbed]:
    plans = [("nothing", Plan(members))]
    if each.model != "independent":  # nothing is connected to, nothing fails so
        for how, failing_ms in (("are refused", costs.refused_ms), ("go unanswered", costs.unanswered_ms)):
            for share, again in product(FAILURES, RETRIES) if len(failing_ms) else ():
                tried = f"tried {again} times more" if again else "not tried again"
                plan = Plan(members, failure=share, retries=again, failing_ms=failing_ms)
                plans.append((f"{100 * share:g} % of connections {how}, {tried}", plan))
    plans += [
        (
            f"{100 * share:g} % of hosts take {costs.stands_for_slow:.1f} times as long",
            Plan(members, slow=share, slow_factor=costs.stands_for_slow),
        )
        for share in SLOW
    ]
    return [_disturbed(each, what, plan) for what, plan in plans]


def _disturbed(each: Measured, what: str, plan: Plan) -> Disturbed:
    outcome = simulate(each, plan, _trials(plan.members))
    middle, left_out, connections = (
        float(np.median(values)) for values in (outcome.all_ready_ms, outcome.left_out, outcome.connections)
    )
    return Disturbed(each.system, each.model, plan.lanes, what, middle, left_out, connections)


def _trials(members: int) -> int:
    return max(20, min(200, _DRAWS // members))
