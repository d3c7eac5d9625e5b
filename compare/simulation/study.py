"""The whole study: both models on many hosts, without and with faults, and the data that it is based on.

Each system has its own reach: the number of members that its storms were measured with, ten thousand at most.
Without storms, or without a band that left-out rounds confirm, it is ten times the most hosts measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from compare.recorded import Run
from compare.simulation.faults import FaultCosts, fault_costs
from compare.simulation.measured import Measured, measure
from compare.simulation.start import Plan, simulate
from compare.simulation.storms import Storms
from compare.simulation.validation import Check, has_enough_rounds, validate, widening

LARGEST = 10_000
FAR = 10
"""The reach without storms and band, as a multiple of the most hosts measured."""
COUNTS = (1, 3, 10, 30, 100, 300, 1_000, 3_000, LARGEST)
LANES = (8, 32, 128)
"""Simultaneous pushes besides all at once: OpenSSH's server itself rejects more than 10
unauthenticated connections.
"""
FAILURES = (0.01, 0.05)
RETRIES = (0, 2)
SLOW = (0.001, 0.01)
STORMED = "landline"
"""The system whose members go through the storms: Spark's master was not measured with many workers."""
_DRAWS = 30_000
"""The number of members drawn for a point, over its trials: small starts are repeated more often."""


@dataclass(frozen=True, slots=True)
class Point:
    """The simulated time until all serve, including what members share.

    It has the median of the trials, and the band that is wide enough for every left-out round. ``shared_ms``
    is the part of the storms.
    """

    members: int
    low_ms: float
    median_ms: float
    high_ms: float
    shared_ms: float


@dataclass(frozen=True, slots=True)
class Curve:
    """One model of one system by the number of members. ``lanes``: simultaneous pushes, None: all at once."""

    system: str
    model: str
    lanes: int | None
    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Disturbed:
    """The largest start with a fault. ``left_out``: members that no connection reached (median)."""

    system: str
    model: str
    lanes: int | None
    what: str
    low_ms: float
    median_ms: float
    high_ms: float
    left_out: float
    connections: float


@dataclass(frozen=True, slots=True)
class Study:
    """All results of the simulation."""

    measured: tuple[Measured, ...]
    costs: dict[str, FaultCosts]
    checks: tuple[Check, ...]
    curves: tuple[Curve, ...]
    disturbed: tuple[Disturbed, ...]
    reach: dict[str, int]
    """The highest simulated number of members of each system."""
    storms: Storms


def study(runs: Sequence[Run], largest: int = LARGEST, storms: Storms | None = None) -> Study:
    """Simulates from the measured cold starts, using those on the most hosts."""
    storms = storms or Storms()
    measured = measure(runs)
    widest = {(each.system, each.model): each for each in sorted(measured, key=lambda each: each.hosts)}
    costs = {system: fault_costs(runs, system) for system in sorted({run.system for run in runs})}
    checks = validate(measured)
    shared = {system: storms if system == STORMED else Storms() for system in costs}
    reach = {
        system: _reach([each for each in widest.values() if each.system == system], checks, most, largest)
        for system, most in ((system, shared[system].most) for system in costs)
        if any(each.system == system for each in widest.values())
    }
    wider = {key: widening(checks, *key) for key in widest}
    curves = [
        _curve(each, lanes, reach[each.system], wider[key], shared[each.system])
        for key, each in widest.items()
        for lanes in _lanes(each)
    ]
    disturbed = [
        row
        for key, each in widest.items()
        for row in _disturb(each, costs[each.system], reach[each.system], wider[key], shared[each.system])
    ]
    return Study(
        tuple(measured), costs, tuple(checks), tuple(curves), tuple(disturbed), reach=reach, storms=storms
    )


def _reach(widest: Sequence[Measured], checks: Sequence[Check], stormed: int, largest: int) -> int:
    near = FAR * max(each.members for each in widest)
    far = max(near, stormed) if has_enough_rounds(checks, widest[0].system) else near
    return min(largest, far)


def _lanes(each: Measured) -> tuple[int | None, ...]:
    return (*LANES, None) if each.model == "push-parallel" else (None,)


def _curve(each: Measured, lanes: int | None, reach: int, wider: float, storms: Storms) -> Curve:
    """The band is that of the model; the time that members share is added as measured."""
    points = []
    for count in _counts(reach):
        low, middle, high = simulate(each, Plan(count, lanes), _trials(count)).spread()
        shared = storms.at(count) if count <= storms.most else 0.0
        points.append(Point(count, low / wider + shared, middle + shared, high * wider + shared, shared))
    return Curve(each.system, each.model, lanes, tuple(points))


def _counts(reach: int) -> list[int]:
    return [*(count for count in COUNTS if count < reach), reach]


def _disturb(
    each: Measured, costs: FaultCosts, members: int, wider: float, storms: Storms
) -> list[Disturbed]:
    plans = [("nothing", Plan(members))]
    if each.model != "independent":  # no connections, so none can fail
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
    shared = storms.at(members) if members <= storms.most else 0.0
    return [_disturbed(each, what, plan, wider, shared) for what, plan in plans]


def _disturbed(each: Measured, what: str, plan: Plan, wider: float, shared_ms: float) -> Disturbed:
    outcome = simulate(each, plan, _trials(plan.members))
    low, middle, high = outcome.spread()
    times = low / wider + shared_ms, middle + shared_ms, high * wider + shared_ms
    left_out, connections = (float(np.median(values)) for values in (outcome.left_out, outcome.connections))
    return Disturbed(each.system, each.model, plan.lanes, what, *times, left_out, connections)


def _trials(members: int) -> int:
    return max(20, min(200, _DRAWS // members))
