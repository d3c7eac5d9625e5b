"""Samples in, summaries and ratios out. Pure: knows no broker, no file and no terminal."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TIE_LOW, TIE_HIGH = 0.8, 1.25
"""Neighbours on a small machine move figures by as much: a ratio between these is a tie."""


class Better(enum.Enum):
    """Which way a figure should go."""

    LOWER = "lower"
    HIGHER = "higher"


class Verdict(enum.Enum):
    """How the first target stands to the second."""

    AHEAD = "ahead"
    TIE = "tie"
    BEHIND = "behind"


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure that every target has; ``goal`` is Landline's own promise in the same unit.

    A ``detail`` is in the written reports only.
    """

    key: str
    title: str
    unit: str
    better: Better
    goal: float | None = None
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of one target in one round."""

    metric: str
    target: str
    round_number: int
    value: float


@dataclass(frozen=True, slots=True)
class Spread:
    """Least, middle and greatest of a figure over the rounds."""

    least: float
    median: float
    greatest: float
    count: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of all targets. ``advantage`` says how many times better ours is, whichever way is better."""

    metric: Metric
    spreads: dict[str, Spread]
    advantage: Spread | None
    verdict: Verdict | None
    goal_met: bool | None


def compare(metrics: Iterable[Metric], samples: Sequence[Sample], ours: str, theirs: str) -> list[Comparison]:
    """Returns one comparison per metric that has samples."""
    return [
        _comparison(metric, found, ours, theirs)
        for metric in metrics
        if (found := [sample for sample in samples if sample.metric == metric.key])
    ]


def _comparison(metric: Metric, samples: Sequence[Sample], ours: str, theirs: str) -> Comparison:
    spreads = {
        target: _spread([sample.value for sample in samples if sample.target == target])
        for target in dict.fromkeys(sample.target for sample in samples)
    }
    advantages = _advantages(metric, samples, ours, theirs)
    advantage = _spread(advantages) if advantages else None
    goal_met = None
    if metric.goal is not None and ours in spreads:
        median = spreads[ours].median
        goal_met = median <= metric.goal if metric.better is Better.LOWER else median >= metric.goal
    return Comparison(metric, spreads, advantage, _verdict(advantage), goal_met)


def _advantages(metric: Metric, samples: Sequence[Sample], ours: str, theirs: str) -> list[float]:
    """Ours against theirs, round by round."""
    by_round = {(sample.target, sample.round_number): sample.value for sample in samples}
    return [
        value / their_value if metric.better is Better.HIGHER else their_value / value
        for (target, number), value in by_round.items()
        if target == ours and value > 0 and (their_value := by_round.get((theirs, number), 0.0)) > 0
    ]


def _spread(values: Sequence[float]) -> Spread:
    return Spread(min(values), statistics.median(values), max(values), len(values))


def _verdict(advantage: Spread | None) -> Verdict | None:
    if advantage is None:
        return None
    if advantage.median > TIE_HIGH:
        return Verdict.AHEAD
    return Verdict.BEHIND if advantage.median < TIE_LOW else Verdict.TIE
