"""Simulates cold starts of any number of members, from the parts of measured ones."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from compare.simulation.measured import Measured, Times
from compare.simulation.push import begin_times

SEED = 20_260_000


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a simulation.

    ``lanes``: simultaneous pushes, None for as many as members. ``failure``: the share of connections that
    fail; each is retried ``retries`` times. ``slow``: the share of members that take ``slow_factor`` times as
    long once launched.
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
    """The results, one entry per trial.

    ``all_ready_ms`` excludes members that no connection reached; it is infinite if that is all of them.
    """

    first_ready_ms: Times
    all_ready_ms: Times
    left_out: Times
    connections: Times

    def spread(self) -> tuple[float, float, float]:
        """The 5 % quantile, the median and the 95 % quantile of the time until all serve."""
        low, middle, high = np.percentile(self.all_ready_ms, [5, 50, 95])
        return float(low), float(middle), float(high)


def simulate(measured: Measured, plan: Plan, trials: int, seed: int = SEED) -> Outcome:
    """Simulates the start of ``plan.members`` members ``trials`` times. The same arguments give the
    same outcome.
    """
    random = np.random.default_rng(seed)
    drawn = _draw(measured, (trials, plan.members), random)
    tail = drawn.tail_ms
    if plan.slow:
        slowed = (drawn.occupied_ms + tail) * plan.slow_factor - drawn.occupied_ms
        tail = np.where(random.random(tail.shape) < plan.slow, slowed, tail)
    if measured.model == "independent":
        none = np.zeros(trials)
        return Outcome(tail.min(axis=1), tail.max(axis=1), none, none)
    failures = _failures(plan, tail.shape, random)
    occupied = drawn.occupied_ms
    for attempt in range(1, plan.retries + 2):
        occupied = occupied + np.where(failures >= attempt, random.choice(plan.failing_ms, tail.shape), 0.0)
    lanes = 1 if measured.model == "push-sequential" else plan.lanes or plan.members
    ready = drawn.prologue_ms + begin_times(occupied, drawn.spacing_ms, lanes) + occupied + tail
    reached = failures <= plan.retries
    return Outcome(
        np.where(reached, ready, np.inf).min(axis=1),
        np.where(reached.any(axis=1), np.where(reached, ready, 0.0).max(axis=1), np.inf),
        (~reached).sum(axis=1).astype(np.float64),
        np.minimum(failures + 1, plan.retries + 1).sum(axis=1),
    )


@dataclass(frozen=True, slots=True)
class _Drawn:
    """The measured parts for simulated starts: a row per start, a column per member; the prologue has
    one column.
    """

    prologue_ms: Times
    spacing_ms: Times
    occupied_ms: Times
    tail_ms: Times


def _draw(measured: Measured, shape: tuple[int, int], random: np.random.Generator) -> _Drawn:
    """Draws from all measured members.

    What a round's members have in common (a busy machine, an election that they all wait for) is drawn once
    per start, as one round's median. The difference of a member from it is drawn once per member.
    """
    runs = measured.runs
    medians = np.array([(np.median(run.occupied_ms), np.median(run.tail_ms)) for run in runs])
    both = [np.stack([run.occupied_ms, run.tail_ms]) for run in runs]
    apart = np.concatenate(
        [each - middle[:, None] for each, middle in zip(both, medians, strict=True)], axis=1
    )
    round_numbers = random.integers(len(runs), size=shape[0])
    chosen = random.integers(apart.shape[1], size=shape)
    occupied, tail = medians[round_numbers].T[:, :, None] + apart[:, chosen]
    spacings = np.concatenate([run.spacing_ms[1:] for run in runs])
    spacing = random.choice(spacings, shape) if len(spacings) else np.zeros(shape)
    spacing[:, 0] = 0.0
    occupied = np.maximum(occupied, 0.0)
    prologues = np.array([run.prologue_ms for run in runs])
    # A process may serve before its command returns, but not before its launch began.
    return _Drawn(prologues[round_numbers][:, None], spacing, occupied, np.maximum(tail, -occupied))


def _failures(plan: Plan, shape: tuple[int, ...], random: np.random.Generator) -> Times:
    """The number of connections to each member that fail before one succeeds; above the retries:
    none succeeds.
    """
    if not plan.failure:
        return np.zeros(shape)
    return np.asarray(random.geometric(1 - plan.failure, shape) - 1, dtype=np.float64)
