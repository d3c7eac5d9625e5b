"""The cost guard's counts: what is dearer, what is said about it, and how they are kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.guard import callgrind, counts
from bench.guard.callgrind import REQUESTS, ROUNDS, cheapest
from bench.guard.counts import Count, Verdict, advice, judge, judge_all, load, render, save
from bench.guard.stage import StageError

EXPECTED = Count(100_000, 16.5)


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (Count(102_900, 16.5), Verdict.STEADY),
        (Count(103_100, 16.5), Verdict.DEARER),
        (Count(97_100, 16.5), Verdict.STEADY),
        (Count(96_900, 16.5), Verdict.CHEAPER),
        (Count(100_000, 16.75), Verdict.STEADY),
        (Count(100_000, 17.5), Verdict.DEARER),
        (Count(90_000, 17.5), Verdict.DEARER),
        (Count(100_000, 15.5), Verdict.CHEAPER),
    ],
)
def test_three_hundredths_more_or_one_system_call_in_sixteen_more_is_dearer(count, expected) -> None:
    assert judge("fetch", count, EXPECTED).verdict is expected


def test_a_workload_without_a_baseline_and_a_baseline_without_its_workload_fail_the_check() -> None:
    findings = {one.name: one.verdict for one in judge_all({"new": EXPECTED}, {"old": EXPECTED})}
    assert findings == {"new": Verdict.NEW, "old": Verdict.GONE}
    assert all(verdict.fails for verdict in findings.values())


def test_of_a_part_the_rest_is_not_missed() -> None:
    findings = judge_all({"one": EXPECTED}, {"one": EXPECTED, "other": EXPECTED}, partial=True)
    assert [one.verdict for one in findings] == [Verdict.STEADY]


def test_a_gain_is_told_and_fails_nothing() -> None:
    finding = judge("fetch", Count(50_000, 16.5), EXPECTED)
    assert not finding.verdict.fails
    assert "cheaper than the baseline: fetch" in advice([finding])[0]


def test_a_regression_is_one_line_that_says_what_to_do() -> None:
    (line,) = advice([judge("fetch", Count(134_000, 16.5), EXPECTED)])
    assert "dearer than the baseline: fetch." in line
    assert "--profile fetch" in line
    assert "`make perf-baseline` and commit bench/guard/counts.json with the reason" in line


def test_the_table_has_a_line_a_workload_and_colours_when_asked() -> None:
    findings = judge_all(
        {"fetch": Count(150_000, 16.5), "new": EXPECTED}, {"fetch": EXPECTED, "old": EXPECTED}
    )
    plain = render(findings, colour=False)
    assert "\033" not in plain
    assert [line.split()[0] for line in plain.splitlines()] == ["workload", "fetch", "new", "old"]
    assert "+50.0%" in plain
    assert "\033[1;31mDEARER" in render(findings, colour=True)


def test_the_cheapest_round_counts_for_each_of_its_requests() -> None:
    rounds = [(REQUESTS * 1000, REQUESTS * 9)] * (ROUNDS - 1) + [(REQUESTS * 1200, REQUESTS * 8)]
    assert cheapest(rounds) == Count(1000, 8.0)


def test_counts_are_kept_by_python_and_by_code(tmp_path: Path) -> None:
    path = tmp_path / "counts.json"
    save("python", "Python 3.11", {"fetch": EXPECTED}, path)
    save("compiled", "Python 3.11", {"fetch": Count(1, 1.0)}, path)
    save("python", "Python 3.13", {"fetch": Count(2, 2.0)}, path)
    save("python", "Python 3.11", {"heartbeat": EXPECTED}, path)
    assert load("python", "Python 3.11", path) == {"heartbeat": EXPECTED}
    assert load("compiled", "Python 3.11", path) == {"fetch": Count(1, 1.0)}
    assert load("compiled", "Python 3.13", path) is None
    assert [
        line.count("instructions") for line in path.read_text().splitlines() if "instructions" in line
    ] == [1, 1, 1]


def test_the_committed_counts_are_of_the_same_workloads_for_both_codes() -> None:
    python, compiled = (load(code, "Python 3.11.2, GCC 12.2.0, x86_64") for code in ("python", "compiled"))
    assert python is not None
    assert compiled is not None
    assert list(python) == list(compiled)
    assert len(python) == 11
    assert all(compiled[name].instructions < one.instructions for name, one in python.items())


def test_without_valgrind_nothing_is_counted_and_it_is_said_how_to_get_it(monkeypatch) -> None:
    monkeypatch.setattr(callgrind.shutil, "which", lambda _: None)
    with pytest.raises(StageError, match="apt-get install valgrind"):
        callgrind.count()


def test_a_round_in_which_nothing_was_counted_is_an_error(tmp_path: Path) -> None:
    empty = tmp_path / "out.1-01"
    empty.write_text("summary: 0\ntotals: 0\n")
    with pytest.raises(StageError, match="counted nothing"):
        callgrind._round(empty)


def test_this_python_has_a_name_by_version_compiler_and_machine() -> None:
    assert len(counts.build().split(", ")) == 3
