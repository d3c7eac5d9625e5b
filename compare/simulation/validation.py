"""Holds the simulation against the measured runs: what it says of a round that it has not seen, and how wide its band
must be to hold such rounds.

The band of the trials alone is too narrow: it knows only what was drawn from, not what another round or more hosts
bring. Each left-out round is scored by how many times it lies outside that band; the band is widened by the greatest
score of one system's model, from its other rounds and from fewer hosts alike. If rounds are alike, one more lies within
with n chances of n + 1 (conformal prediction): six rounds are the fewest of which that is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from compare.simulation.measured import Measured
from compare.simulation.start import Plan, simulate

TRIALS = 200
LEAST_ROUNDS = 6
"""With fewer a band holds too few rounds left out to be told of many hosts."""


@dataclass(frozen=True, slots=True)
class Check:
    """Simulated beside measured, of the time until all served. ``scores``: of each round, by which factor the trials'
    5 % to 95 % must be widened to hold it (up to 1: they do). ``inside``: rounds within the band that was widened by
    what the other rounds ask for. ``source``: whose steps were drawn from.
    """

    system: str
    model: str
    hosts: int
    source: str
    rounds: int
    measured_ms: float
    simulated_ms: float
    scores: tuple[float, ...]
    inside: int = 0

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
    return [_judged(check, checks) for check in checks]


def widening(checks: Iterable[Check], system: str, model: str, without_round: int | None = None) -> float:
    """By which factor a band is widened at both ends, never narrowed."""
    scores = [
        score
        for check in checks
        if (check.system, check.model) == (system, model)
        for number, score in enumerate(check.scores)
        if number != without_round
    ]
    return max([1.0, *scores])


def has_enough_rounds(checks: Iterable[Check], system: str) -> bool:
    """Whether the bands of a system come from enough rounds left out."""
    rounds = [check.rounds for check in checks if check.system == system]
    return bool(rounds) and min(rounds) >= LEAST_ROUNDS


def _judged(check: Check, checks: Sequence[Check]) -> Check:
    """With how many rounds lie within the band that did not see them."""
    inside = sum(
        score <= widening(checks, check.system, check.model, number)
        for number, score in enumerate(check.scores)
    )
    return Check(
        **{name: getattr(check, name) for name in Check.__slots__ if name != "inside"}, inside=inside
    )


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
    scores = tuple(
        max(low / run.all_ready_ms, run.all_ready_ms / high)
        for run, (low, _, high) in zip(each.runs, spreads, strict=True)
    )
    return Check(
        each.system,
        each.model,
        each.hosts,
        source,
        rounds=len(each.runs),
        measured_ms=median(run.all_ready_ms for run in each.runs),
        simulated_ms=median(middle for _, middle, _ in spreads),
        scores=scores,
    )
