"""Simulates cold starts of any number of members, from the parts of measured ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from compare.simulation.measured import Measured, Times
from compare.simulation.push import begin_times

SEED = 20_260_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be simulated. ``lanes``: pushes at a time, None for as many as members. ``failure``: the share of
    connections that fail, each tried again ``retries`` times. ``slow``: the share of members that take ``slow_factor``
    times as long once launched.
    """

    members: int
    lanes: int | None = None
    failure: float = 0.0
    retries: int = 0
    failing_ms: Times = field(default_factory=lambda: np.zeros(1))
    slow: float = 0.0
    slow_factor: float = 1.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """One entry a trial. ``all_ready_ms`` is of all but those left out: members that no connection reached."""

    first_ready_ms: Times
    all_ready_ms: Times
    left_out: Times
    connections: Times

    def spread(self) -> tuple[float, float, float]:
        """The 5 % quantile, the median and the 95 % quantile of the time until all serve."""
        low, middle, high = np.percentile(self.all_ready_ms, [5, 50, 95])
        return float(low), float(middle), float(high)


def simulate(measured: Measured, plan: Plan, trials: int, seed: int = SEED) -> Outcome:
    """Starts ``plan.members`` members ``trials`` times. The same arguments give the same outcome."""
    random = np.random.default_rng(seed)
    pool = _Pool(measured)
    results = np.array([_trial(measured.model, pool, plan, random) for _ in range(trials)])
    return Outcome(*results.T)


class _Pool:
    """Draws from all measured members. What a round's members have in common (a busy machine, an election they all wait
    for) is drawn once a trial, as one round's median; how a member differs from it, once a member.
    """

    def __init__(self, measured: Measured) -> None:
        runs = measured.runs
        self.prologues = np.array([run.prologue_ms for run in runs])
        self.medians = np.array([(np.median(run.occupied_ms), np.median(run.tail_ms)) for run in runs])
        both = [np.stack([run.occupied_ms, run.tail_ms]) for run in runs]
        apart = [each - middle[:, None] for each, middle in zip(both, self.medians, strict=True)]
        self.deviations = np.concatenate(apart, axis=1)
        self.spacings = np.concatenate([run.spacing_ms[1:] for run in runs])

    def draw(self, members: int, random: np.random.Generator) -> tuple[float, Times, Times, Times]:
        """A prologue, and for each member its spacing, how long it occupies the master, and its tail."""
        number = random.integers(len(self.prologues))
        chosen = random.integers(self.deviations.shape[1], size=members)
        occupied, tail = self.medians[number][:, None] + self.deviations[:, chosen]
        spacing = random.choice(self.spacings, members) if len(self.spacings) else np.zeros(members)
        spacing[0] = 0.0
        occupied = np.maximum(occupied, 0.0)
        # A process may serve before its command is back, not before its launch began.
        return float(self.prologues[number]), spacing, occupied, np.maximum(tail, -occupied)


def _trial(
    model: str, pool: _Pool, plan: Plan, random: np.random.Generator
) -> tuple[float, float, float, float]:
    """First ready, all ready, left out, connections."""
    prologue, spacing, occupied, tail = pool.draw(plan.members, random)
    if plan.slow:
        tail = np.where(
            random.random(plan.members) < plan.slow, (occupied + tail) * plan.slow_factor - occupied, tail
        )
    if model == "independent":
        return float(tail.min()), float(tail.max()), 0.0, 0.0
    failures = _failures(plan, random)
    for attempt in range(1, plan.retries + 2):
        occupied = occupied + np.where(failures >= attempt, random.choice(plan.failing_ms, plan.members), 0.0)
    lanes = 1 if model == "push-sequential" else plan.lanes or plan.members
    ready = prologue + begin_times(occupied, spacing, lanes) + occupied + tail
    reached = failures <= plan.retries
    connections = float(np.minimum(failures + 1, plan.retries + 1).sum())
    served = ready[reached] if reached.any() else np.array([np.nan])
    return float(served.min()), float(served.max()), float((~reached).sum()), connections


def _failures(plan: Plan, random: np.random.Generator) -> Times:
    """How many connections to each member fail before one holds; more than the retries: none does."""
    if not plan.failure:
        return np.zeros(plan.members)
    return np.asarray(random.geometric(1 - plan.failure, plan.members) - 1, dtype=np.float64)
