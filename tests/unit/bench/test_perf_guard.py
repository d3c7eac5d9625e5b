"""The cost guard's judgement: what is noise, what is a regression, and what is said about it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from bench.guard import table, verdict
from bench.guard.measure import Cost, Samples, low_quantile, slice_cost
from bench.guard.reference import ReferenceCost
from bench.guard.verdict import (
    Baseline,
    Baselines,
    Expected,
    Finding,
    Verdict,
    judge,
    judge_all,
    renewed,
    settle,
)

EXPECTED = Expected(ratio=1.0, tolerance=0.15)
BASELINE = Baseline("cpu", "3.11", {"fetch": EXPECTED})


def cost(ratio: float) -> Cost:
    return Cost(100 * ratio, ratio)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [
        (0.84, Verdict.FASTER),
        (0.86, Verdict.STEADY),
        (1.14, Verdict.STEADY),
        (1.16, Verdict.SLOWER),
        (1.3, Verdict.SLOWER),
    ],
)
def test_a_cost_is_judged_by_the_workloads_tolerance(ratio, expected) -> None:
    assert judge("fetch", [cost(ratio)], EXPECTED).verdict is expected


def test_the_measurement_nearest_to_the_baseline_counts() -> None:
    assert judge("fetch", [cost(1.4), cost(1.1)], EXPECTED).verdict is Verdict.STEADY
    assert judge("fetch", [cost(0.7), cost(0.95)], EXPECTED).verdict is Verdict.STEADY
    assert judge("fetch", [cost(1.4), cost(1.3)], EXPECTED).factor == pytest.approx(1.3)


def test_a_workload_without_a_baseline_and_a_baseline_without_its_workload_fail_the_check() -> None:
    findings = judge_all({"produce": [cost(1)]}, BASELINE)
    assert [(finding.name, finding.verdict) for finding in findings] == [
        ("produce", Verdict.NEW),
        ("fetch", Verdict.GONE),
    ]
    assert all(finding.verdict.fails for finding in findings)
    assert judge_all({"fetch": [cost(1)]}, BASELINE, partial=True)[0].verdict is Verdict.STEADY


def test_a_gain_is_told_and_fails_nothing() -> None:
    assert not Verdict.FASTER.fails
    assert not Verdict.STEADY.fails
    assert Verdict.SLOWER.fails


class Machine:
    """Gives the ratios in turn, and keeps what was asked."""

    def __init__(self, *ratios: float) -> None:
        self.ratios = list(ratios)
        self.asked: list[Sequence[str] | None] = []

    def __call__(self, only: Sequence[str] | None) -> Mapping[str, Cost]:
        self.asked.append(only)
        return {"fetch": cost(self.ratios.pop(0))}


def test_a_steady_workload_is_measured_once() -> None:
    machine = Machine(1.0)
    assert settle(machine, BASELINE)[0].verdict is Verdict.STEADY
    assert machine.asked == [None]


def test_noise_is_measured_again_before_it_is_called_a_regression() -> None:
    machine = Machine(1.5, 1.02)
    assert settle(machine, BASELINE)[0].verdict is Verdict.STEADY
    assert machine.asked == [None, ["fetch"]]


def test_what_stays_slow_is_called_a_regression_after_three_measurements() -> None:
    finding = settle(Machine(1.5, 1.4, 1.35), BASELINE)[0]
    assert (finding.verdict, finding.attempts) == (Verdict.SLOWER, 3)


def test_a_regression_is_one_line_that_says_what_to_do() -> None:
    (line,) = table.advice([judge("fetch", [cost(1.34)], EXPECTED)], foreign=False)
    assert "dearer than the baseline: fetch 1.34 times" in line
    assert "--profile fetch" in line
    assert "make perf-times PERF_ARGS=--update" in line
    assert "commit bench/guard/baseline*.json with the reason" in line


def test_advice_names_gains_and_a_strange_machine() -> None:
    (line,) = table.advice([judge("fetch", [cost(0.5)], EXPECTED)], foreign=True)
    assert "cheaper than the baseline: fetch 0.50 times" in line
    lines = table.advice([judge("fetch", [cost(2)], EXPECTED)], foreign=True)
    assert any("another CPU" in line for line in lines)
    assert table.advice([judge("fetch", [cost(1)], EXPECTED)], foreign=True) == []


def test_the_table_has_a_line_a_workload_and_colours_when_asked() -> None:
    findings = [
        judge("fetch", [cost(1.5)], EXPECTED),
        Finding("gone", Verdict.GONE, None, EXPECTED, 0),
        judge("new", [cost(1)], None),
    ]
    plain = table.render(findings, BASELINE, colour=False)
    assert "\033" not in plain
    assert plain.splitlines()[1].split() == ["fetch", "150.0", "1.500", "1.000", "+50.0%", "SLOWER"]
    assert len(plain.splitlines()) == 4
    assert "\033[1;31mSLOWER\033[0m" in table.render(findings, BASELINE, colour=True)


def test_on_another_cpu_or_python_the_dearest_counts_and_the_tolerance_is_doubled() -> None:
    known = Baselines((BASELINE, Baseline("dear", "3.11", {"fetch": Expected(1.4, 0.1)})))
    assert known.seen_from("cpu", "3.11.9") == BASELINE
    for cpu_model, python in (("other", "3.11"), ("cpu", "3.12.1")):
        assert known.of(cpu_model, python) is None
        assert known.seen_from(cpu_model, python).workloads["fetch"] == Expected(1.4, 0.2)


def test_a_new_baseline_takes_the_middle_and_keeps_tolerances(tmp_path) -> None:
    before = Baselines((Baseline("cpu", "3.11", {"fetch": Expected(1.0, 0.25), "gone": Expected(3)}),))
    costs = {"fetch": [cost(3), cost(1), cost(2)], "new": [cost(1)]}
    after = renewed(before, costs, "cpu", "3.11.2")
    (own,) = after.machines
    assert own.workloads == {"fetch": Expected(2, 0.25, 200), "new": Expected(1, 0.2, 100)}
    verdict.save(after, tmp_path / "baseline.json")
    assert verdict.load(tmp_path / "baseline.json") == after
    assert verdict.load(tmp_path / "none.json") == Baselines()


def test_a_first_baseline_of_a_machine_leaves_the_others_alone() -> None:
    after = renewed(Baselines((BASELINE,)), {"fetch": [cost(2)]}, "cpu2", "3.11.2")
    assert after.machines == (BASELINE, Baseline("cpu2", "3.11.2", {"fetch": Expected(2, 0.15, 200)}))


def test_what_changed_is_taken_out_of_the_other_machines_and_judged_there_as_on_a_new_one() -> None:
    lines = {"fetch": Expected(3.0, 0.1, 30), "same": Expected(2.0, 0.1, 20), "gone": Expected(1.0)}
    here = Baseline("cpu", "3.11", {**BASELINE.workloads, "same": Expected(1.0, 0.1), "gone": Expected(1.0)})
    costs = {"fetch": [cost(1.5)], "same": [cost(1.05)], "new": [cost(1)]}
    after = renewed(Baselines((Baseline("other", "3.11", lines), here)), costs, "cpu", "3.11.2")
    assert after.machines[0].workloads == {"same": lines["same"]}
    assert after.machines[1].workloads["fetch"].ratio == 1.5
    assert after.seen_from("other", "3.11").workloads == {
        "same": lines["same"],
        "fetch": Expected(1.5, 0.3, 150),
        "new": Expected(1, 0.4, 100),
    }
    again = renewed(after, {"fetch": [cost(2)], "same": [cost(2)], "new": [cost(1)]}, "other", "3.11")
    assert again.machines[1].workloads["fetch"].ratio == 1.5, "it was not taken out here because it was there"
    assert {name: one.tolerance for name, one in again.machines[0].workloads.items()} == {
        "fetch": 0.15,
        "same": 0.1,
        "new": 0.2,
    }


def test_disturbed_slices_do_not_count_unless_hardly_any_is_calm() -> None:
    samples = Samples()
    for _ in range(10):
        samples.add(50, calm=True)
        samples.add(1, calm=False)
    assert samples.cost_ns() == 50
    lost = Samples()
    lost.add(50, calm=True)
    for _ in range(10):
        lost.add(70, calm=False)
    assert lost.cost_ns() == 70


def test_a_slice_is_told_without_its_dearest_requests() -> None:
    assert slice_cost([1, 1, 1, 1000]) == 1
    assert slice_cost([5]) == 5
    assert low_quantile([7]) == 7


def test_a_yardstick_is_blended_of_both_loops() -> None:
    assert ReferenceCost(100, 200).blend(0.25) == 125


@pytest.mark.parametrize("path", [verdict.BASELINE_PATH, verdict.COMPILED_PATH], ids=["Python", "compiled"])
def test_the_committed_baselines_tolerate_less_than_a_third_more(path: Path) -> None:
    machines = verdict.load(path).machines
    assert machines
    for machine in machines:
        assert len(machine.workloads) == 11
        assert all(0 < expected.tolerance <= 0.25 for expected in machine.workloads.values())
