"""The benchmark's sums: ratios round by round, whichever way is better, with ties called ties; goals; percentiles."""

from __future__ import annotations

import pytest

from bench.percentiles import percentile, summarise
from bench.report import goal_text
from bench.results import Better, Goal, GoalState, Metric, Sample, Verdict, compare
from bench.targets import Target, peers

RATE = Metric("rate", "produce", "MiB/s", Better.HIGHER)
START = Metric("start", "start", "s", Better.LOWER, Goal(value=0.5))


def samples(metric: str, ours: list[float], theirs: list[float], name: str = "K") -> list[Sample]:
    pairs = zip(ours, theirs, strict=True)
    return [
        Sample(metric, target, number, value)
        for number, pair in enumerate(pairs)
        for target, value in zip(("L", name), pair, strict=True)
    ]


def test_goals_are_against_kafka_whoever_else_was_measured() -> None:
    assert peers(list(Target)) == [Target.KAFKA, Target.KRAFT, Target.PYTHON, Target.KFAKE]
    assert peers([Target.PYTHON, Target.LANDLINE]) == [Target.PYTHON]
    assert peers([Target.LANDLINE]) == []


def test_a_higher_rate_is_an_advantage() -> None:
    (found,) = compare([RATE], samples("rate", [200, 300, 100], [100, 100, 100]), "L", ["K"])
    advantage = found.advantages["K"]
    assert (advantage.least, advantage.median, advantage.greatest) == (1, 2, 3)
    assert found.verdict is Verdict.AHEAD


def test_a_shorter_time_is_an_advantage() -> None:
    (found,) = compare([START], samples("start", [0.4], [2.0]), "L", ["K"])
    assert found.advantages["K"].median == pytest.approx(5)
    assert found.goal is GoalState.MET


def test_a_missed_goal_and_a_defeat_are_told() -> None:
    (found,) = compare([START], samples("start", [4.0], [2.0]), "L", ["K"])
    assert found.goal is GoalState.MISSED
    assert found.verdict is Verdict.BEHIND


@pytest.mark.parametrize("ours", [80.0, 100.0, 125.0])
def test_a_small_difference_is_a_tie(ours) -> None:
    (found,) = compare([RATE], samples("rate", [ours], [100.0]), "L", ["K"])
    assert found.verdict is Verdict.TIE


@pytest.mark.parametrize(
    ("times", "ours", "state"),
    [
        (3, 300.0, GoalState.MET),
        (3, 299.0, GoalState.MISSED),
        (1, 100.0, GoalState.MET),
        (1, 85.0, GoalState.LEVEL),
        (1, 79.0, GoalState.MISSED),
    ],
)
def test_a_goal_in_times_is_held_against_the_first_of_the_others(times, ours, state) -> None:
    metric = Metric("rate", "produce", "MiB/s", Better.HIGHER, Goal(times=times))
    given = [*samples("rate", [ours], [100.0]), Sample("rate", "K4", 0, 1.0)]
    (found,) = compare([metric], given, "L", ["K", "K4"])
    assert found.goal is state
    assert found.advantages["K4"].median == ours


@pytest.mark.parametrize(
    ("ours", "theirs", "state"),
    [
        (10.0, [20.0], GoalState.MET),
        (10.0, [9.0], GoalState.LEVEL),
        (10.0, [5.0], GoalState.MISSED),
        (30.0, [90.0], GoalState.MISSED),
        (30.0, [], GoalState.MISSED),
        (10.0, [], None),
    ],
)
def test_of_a_goal_in_two_parts_the_worse_is_told(ours, theirs, state) -> None:
    metric = Metric("p99", "beside", "ms", Better.LOWER, Goal(value=20, times=1))
    given = [Sample("p99", "L", 0, ours), *[Sample("p99", "K", 0, value) for value in theirs]]
    (found,) = compare([metric], given, "L", ["K"])
    assert found.goal is state
    assert goal_text(Goal(value=20, times=1), Better.LOWER) == "at most 20, not behind"


def test_one_target_alone_has_no_verdict() -> None:
    (found,) = compare([RATE], [Sample("rate", "L", 0, 5.0)], "L", ["K"])
    assert found.verdict is None
    assert found.advantages == {}


def test_a_figure_without_samples_is_still_a_row() -> None:
    (found,) = compare([START], [], "L", ["K"])
    assert (found.spreads, found.verdict, found.goal) == ({}, None, None)


def test_percentiles_are_times_that_were_measured() -> None:
    ordered = [float(number) for number in range(1, 1001)]
    assert percentile(ordered, 0.5) == 500
    assert percentile(ordered, 0.99) == 990
    assert percentile(ordered, 0.999) == 999
    assert percentile([7.0], 0.5) == percentile([7.0], 0.999) == 7


def test_times_are_summed_up_in_any_order() -> None:
    found = summarise([3.0, 1.0, 2.0])
    assert (found.p50, found.p99, found.greatest, found.count) == (2.0, 3.0, 3.0, 3)


def test_no_times_have_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing"):
        summarise([])
