"""The figures of a comparison, without Spark."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from pathlib import Path

import pytest

from compare.report.verdicts import LEAST_ROUNDS
from pipeline.comparison import (
    Inputs,
    Run,
    StepSpread,
    document,
    fits,
    median_interval,
    spread,
    step_table,
    to_bytes,
)
from tests.support import comparison_oracle, lifecycle_events

SAMPLE = Path(__file__).parents[2] / "data" / "comparison.json"
RUN = Run(
    "r1", "independent", "cold-start", "landline", 3, 1, 900, 1900, None, None, None, False, (), 0, 0, 40
)
STEP = StepSpread("broker", "independent", "landline", 3, "Bind", 4, 1000.0, 2000.25, 3000.0)


def test_quartiles_stand_between_two_values_and_times_are_milliseconds() -> None:
    found = spread([1000, 2000, 4000, 8000], 1000)
    assert (found["min"], found["p25"], found["median"], found["p75"], found["max"]) == (1, 1.75, 3, 5, 8)
    assert found["mean"] == 3.75
    assert found["values"] == [1, 2, 4, 8]


def test_what_was_never_reached_is_counted_and_in_no_other_number() -> None:
    found = spread([None, 5000, None], 1000)
    assert (found["n"], found["never"], found["median"], found["values"]) == (1, 2, 5, [5])
    assert (found["ci_low"], found["ci_high"]) == (None, None)
    nothing = spread([None, None])
    assert (nothing["n"], nothing["never"], nothing["values"]) == (0, 2, [])
    assert nothing["median"] is nothing["ci_low"] is None


def test_interval_of_the_median_does_not_know_the_order() -> None:
    values = [random.Random(3).randrange(10_000) for _ in range(15)]
    low, high = interval_of(values)
    assert min(values) <= low <= sorted(values)[7] <= high <= max(values)
    assert median_interval(sorted(values, reverse=True)) == (low, high)


def interval_of(values: list[int]) -> tuple[int, int]:
    found = median_interval(values)
    assert found is not None
    return found


@pytest.mark.parametrize(("count", "ranks"), [(6, (1, 6)), (8, (1, 8)), (9, (2, 8)), (20, (6, 15))])
def test_interval_of_the_median_is_the_narrowest_pair_of_ranks_that_is_so_certain(
    count: int, ranks: tuple[int, int]
) -> None:
    assert median_interval(list(range(1, count + 1))) == ranks


def test_no_interval_is_told_of_fewer_rounds_than_can_be_so_certain() -> None:
    assert median_interval([1, 2, 3, 4, 5]) is None


def test_with_the_least_rounds_the_interval_holds_the_median_and_equal_ways_are_hardly_told_apart() -> None:
    chance, trials, covered, apart = random.Random(11), 4000, 0, 0
    for _ in range(trials):
        one, two = ([int(1e6 * chance.lognormvariate(0, 0.1)) for _ in range(LEAST_ROUNDS)] for _ in range(2))
        (low, high), (other_low, other_high) = interval_of(one), interval_of(two)
        covered += low <= 1e6 <= high
        apart += high < other_low or other_high < low
    assert covered / trials >= 0.94
    assert apart / trials <= 0.01


def test_line_is_found_where_runs_stand_on_one() -> None:
    runs = [
        replace(RUN, run_id=f"r{hosts}{number}", hosts=hosts, all_ready_us=500_000 + 250_000 * hosts)
        for hosts in (2, 3, 5)
        for number in range(2)
    ]
    line = next(fit for fit in fits(runs) if fit["figure"] == "all_ready_ms")
    assert (line["a_ms"], line["b_ms"], line["r2"], line["n"]) == (500, 250, 1, 6)


def test_no_line_goes_through_one_number_of_hosts() -> None:
    assert fits([RUN, replace(RUN, run_id="r2", all_ready_us=5)]) == []


def test_other_scenarios_bend_no_line() -> None:
    cold = [replace(RUN, run_id=f"r{hosts}", hosts=hosts) for hosts in (2, 3)]
    crash = [replace(RUN, run_id="c", hosts=4, scenario="crash", all_ready_us=10**9)]
    assert fits(cold + crash) == fits(cold)


def test_shares_are_of_the_parts_of_a_start_and_not_of_its_whole() -> None:
    ready = replace(STEP, step="Ready", median_us=9000.0)
    other = replace(STEP, step="Process", median_us=6000.75)
    table = {row["step"]: row for row in step_table([ready, STEP, other])}
    assert table["Ready"]["share"] is None
    assert (table["Bind"]["share"], table["Process"]["share"]) == (0.25, 0.75)
    assert table["Bind"]["median_ms"] == 2.0


def test_shares_are_apart_for_each_number_of_hosts_and_model() -> None:
    steps = [STEP, replace(STEP, hosts=4), replace(STEP, model="push-parallel")]
    assert [row["share"] for row in step_table(steps)] == [1, 1, 1]


def test_actions_are_counted_and_runs_are_in_their_rounds_order() -> None:
    runs = [
        replace(RUN, run_id="b", round=2, person_acted=True, actions=("push again",), all_ready_us=7000),
        replace(RUN, run_id="a", round=1, person_acted=True, actions=("push again", "bring it back")),
        replace(RUN, run_id="c", round=3),
    ]
    (group,) = document("x", runs, [], Inputs(3, 0, None))["groups"]
    assert group["figures"]["all_ready_ms"]["values"] == [1.9, 7, 1.9]
    assert (group["rounds"], group["person_acted"]) == (3, 2)
    assert group["actions"] == {"bring it back": 1, "push again": 2}


@pytest.mark.parametrize("seed", range(3))
def test_bytes_are_the_same_in_any_order(seed: int) -> None:
    runs = [
        replace(RUN, run_id=f"r{n}", round=n, hosts=2 + n % 3, all_ready_us=1000 * n + 7) for n in range(30)
    ]
    steps = [replace(STEP, step=f"s{n}", median_us=n / 3) for n in range(9)]
    first = to_bytes(document("x", runs, steps, Inputs(1, 0, 0)))
    chance = random.Random(seed)
    chance.shuffle(runs)
    chance.shuffle(steps)
    assert to_bytes(document("x", runs, steps, Inputs(1, 0, 0))) == first


def test_sample_that_other_tests_read_is_what_its_events_give() -> None:
    values = lifecycle_events.messages(lifecycle_events.events())
    expected = comparison_oracle.comparison(values, "sample", dead_letters=0)
    assert json.loads(SAMPLE.read_bytes()) == expected
    assert to_bytes(expected) == SAMPLE.read_bytes()
