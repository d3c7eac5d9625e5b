"""Computes summaries and ratios from samples. Pure: knows no broker, no file and no terminal."""

from __future__ import annotations

import enum
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

TIE_LOW, TIE_HIGH = 0.8, 1.25
"""Neighbours on a small machine change figures by this much: a ratio between these is a tie."""


class Better(enum.Enum):
    """The direction in which a figure is better."""

    LOWER = "lower"
    HIGHER = "higher"


class Verdict(enum.Enum):
    """The first target's result compared with another's."""

    AHEAD = "ahead"
    TIE = "tie"
    BEHIND = "behind"


class GoalState(enum.Enum):
    """The state of a goal. LEVEL: a tie if the goal is not to be behind."""

    MET = "met"
    LEVEL = "met (a tie)"
    MISSED = "missed"


@dataclass(frozen=True, slots=True)
class Goal:
    """A promise of Landline for a figure: a ``value`` in its unit, to be ``times`` better than Kafka 3.9.1,
    or both.
    """

    value: float | None = None
    times: float | None = None


@dataclass(frozen=True, slots=True)
class Metric:
    """One figure that every target has. A ``detail`` is shown in a table at the end of the report."""

    key: str
    title: str
    unit: str
    better: Better
    goal: Goal | None = None
    detail: bool = False


@dataclass(frozen=True, slots=True)
class Sample:
    """One figure of one target in one round."""

    metric: str
    target: str
    round_number: int
    value: float


@dataclass(frozen=True, slots=True)
class Failure:
    """A workload that failed for one target in one round."""

    workload: str
    metrics: tuple[str, ...]
    target: str
    round_number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Spread:
    """The lowest, median and highest value of a figure over the rounds."""

    least: float
    median: float
    greatest: float
    count: int


@dataclass(frozen=True, slots=True)
class Comparison:
    """One metric of all targets. ``advantages``: how many times better ours is than each other target's."""

    metric: Metric
    spreads: dict[str, Spread]
    advantages: dict[str, Spread]
    verdict: Verdict | None
    goal: GoalState | None


def compare(
    metrics: Iterable[Metric], samples: Sequence[Sample], ours: str, theirs: Sequence[str]
) -> list[Comparison]:
    """Returns one comparison per metric; verdicts and goals are against the first of ``theirs``."""
    by_metric: dict[str, list[Sample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric, []).append(sample)
    return [_comparison(metric, by_metric.get(metric.key, []), ours, theirs) for metric in metrics]


def _comparison(metric: Metric, samples: Sequence[Sample], ours: str, theirs: Sequence[str]) -> Comparison:
    spreads = {
        target: _spread([sample.value for sample in samples if sample.target == target])
        for target in dict.fromkeys(sample.target for sample in samples)
    }
    advantages = {
        their: _spread(found) for their in theirs if (found := _advantages(metric, samples, ours, their))
    }
    first = advantages.get(theirs[0]) if theirs else None
    return Comparison(metric, spreads, advantages, _verdict(first), _goal(metric, spreads.get(ours), first))


def _advantages(metric: Metric, samples: Sequence[Sample], ours: str, theirs: str) -> list[float]:
    """The ratio of ours to theirs in each round."""
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


def _goal(metric: Metric, ours: Spread | None, advantage: Spread | None) -> GoalState | None:
    """The worse of a goal's two parts; None while one of them is unknown."""
    goal = metric.goal
    if goal is None:
        return None
    parts: list[GoalState | None] = []
    if goal.times is not None:
        parts.append(_held_against(goal.times, advantage))
    if goal.value is not None:
        parts.append(_within(goal.value, metric.better, ours))
    order = (GoalState.MISSED, None, GoalState.LEVEL, GoalState.MET)
    return min(parts, key=order.index, default=None)


def _held_against(times: float, advantage: Spread | None) -> GoalState | None:
    if advantage is None:
        return None
    if advantage.median >= times:
        return GoalState.MET
    return GoalState.LEVEL if times == 1 and advantage.median >= TIE_LOW else GoalState.MISSED


def _within(value: float, better: Better, ours: Spread | None) -> GoalState | None:
    if ours is None:
        return None
    met = ours.median <= value if better is Better.LOWER else ours.median >= value
    return GoalState.MET if met else GoalState.MISSED
