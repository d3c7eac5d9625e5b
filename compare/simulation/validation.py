"""Holds the simulation against the measured runs: what it says of a round that it has not seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from compare.simulation.measured import Measured
from compare.simulation.start import Plan, simulate

TRIALS = 200


@dataclass(frozen=True, slots=True)
class Check:
    """Simulated beside measured, of the time until all served. ``inside``: measured rounds that lie within the
    simulation's 5 % to 95 %. ``source``: whose steps were drawn from.
    """

    system: str
    model: str
    hosts: int
    source: str
    rounds: int
    measured_ms: float
    simulated_ms: float
    inside: int

    @property
    def error(self) -> float:
        """By which share of the measured median the simulated one is too long (below 0: too short)."""
        return (self.simulated_ms - self.measured_ms) / self.measured_ms


def validate(measured: Sequence[Measured]) -> list[Check]:
    """Each measured number of hosts from its other rounds, and from a smaller number of hosts where there is one."""
    checks = []
    for each in measured:
        if len(each.runs) > 1:
            checks.append(_from_other_rounds(each))
        smaller = [
            other
            for other in measured
            if (other.system, other.model) == (each.system, each.model) and other.hosts < each.hosts
        ]
        if smaller:
            checks.append(_from_fewer_hosts(each, max(smaller, key=lambda other: other.hosts)))
    return checks


def _from_other_rounds(each: Measured) -> Check:
    spreads = [
        simulate(each.without(index), Plan(len(run.tail_ms)), TRIALS).spread()
        for index, run in enumerate(each.runs)
    ]
    return _check(each, "other rounds", spreads)


def _from_fewer_hosts(each: Measured, smaller: Measured) -> Check:
    spread = simulate(smaller, Plan(each.members), TRIALS).spread()
    return _check(each, f"{smaller.hosts} host{'s' * (smaller.hosts > 1)}", [spread] * len(each.runs))


def _check(each: Measured, source: str, spreads: Sequence[tuple[float, float, float]]) -> Check:
    inside = sum(
        low <= run.all_ready_ms <= high for run, (low, _, high) in zip(each.runs, spreads, strict=True)
    )
    return Check(
        each.system,
        each.model,
        each.hosts,
        source,
        rounds=len(each.runs),
        measured_ms=median(run.all_ready_ms for run in each.runs),
        simulated_ms=median(middle for _, middle, _ in spreads),
        inside=inside,
    )
