"""Checks the simulation against measured runs: its prediction for a left-out round, and the necessary
band width.

The band of the trials alone is too narrow. It only knows the data that it draws from, not what another round
or more hosts bring. Each left-out round has a score: the factor by which it is outside that band. The band is
widened by the highest score of the system's model, from its other rounds and from fewer hosts alike. If
rounds are alike, one more round is inside with a probability of n / (n + 1) (conformal prediction). This is
claimed from six rounds on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from compare.simulation.measured import Measured
from compare.simulation.start import Plan, simulate

TRIALS = 200
LEAST_ROUNDS = 6
"""With fewer rounds a band is based on too few left-out rounds for a claim about many hosts."""


@dataclass(frozen=True, slots=True)
class Check:
    """The simulated and the measured time until all served.

    ``scores``: for each round the factor by which the trials' 5 % to 95 % band must be widened to contain it
    (up to 1: it does). ``inside``: the number of rounds within the band that was widened by the other rounds'
    scores. ``source``: the data that were drawn from.
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
        """The relative error of the simulated median (below 0: too short)."""
        return (self.simulated_ms - self.measured_ms) / self.measured_ms


def validate(measured: Sequence[Measured]) -> list[Check]:
    """Checks each measured number of hosts from its other rounds and, if there is one, from a smaller number
    of hosts.
    """
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
    """The factor by which a band is widened at both ends; at least 1."""
    scores = [
        score
        for check in checks
        if (check.system, check.model) == (system, model)
        for number, score in enumerate(check.scores)
        if number != without_round
    ]
    return max([1.0, *scores])


def has_enough_rounds(checks: Iterable[Check], system: str) -> bool:
    """Whether the bands of a system are based on enough left-out rounds."""
    rounds = [check.rounds for check in checks if check.system == system]
    return bool(rounds) and min(rounds) >= LEAST_ROUNDS


def _judged(check: Check, checks: Sequence[Check]) -> Check:
    """The check with the number of rounds that are within the band that did not use them."""
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
