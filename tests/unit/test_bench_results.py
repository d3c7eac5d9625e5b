"""The benchmark's sums: ratios round by round, whichever way is better, with ties called ties."""

from __future__ import annotations

import json

import pytest

from bench import plot, raw, report
from bench.results import Better, Metric, Sample, Verdict, compare

RATE = Metric("rate", "produce", "MiB/s", Better.HIGHER)
START = Metric("start", "start", "s", Better.LOWER, goal=0.5)


def samples(metric: str, ours: list[float], theirs: list[float]) -> list[Sample]:
    pairs = zip(ours, theirs, strict=True)
    return [
        Sample(metric, target, number, value)
        for number, pair in enumerate(pairs)
        for target, value in zip(("L", "K"), pair, strict=True)
    ]


def test_a_higher_rate_is_an_advantage() -> None:
    (found,) = compare([RATE], samples("rate", [200, 300, 100], [100, 100, 100]), "L", "K")
    assert found.advantage is not None
    assert (found.advantage.least, found.advantage.median, found.advantage.greatest) == (1, 2, 3)
    assert found.verdict is Verdict.AHEAD


def test_a_shorter_time_is_an_advantage() -> None:
    (found,) = compare([START], samples("start", [0.4], [2.0]), "L", "K")
    assert found.advantage is not None
    assert found.advantage.median == pytest.approx(5)
    assert found.goal_met is True


def test_a_missed_goal_and_a_defeat_are_told() -> None:
    (found,) = compare([START], samples("start", [4.0], [2.0]), "L", "K")
    assert found.goal_met is False
    assert found.verdict is Verdict.BEHIND


@pytest.mark.parametrize("ours", [80.0, 100.0, 125.0])
def test_a_small_difference_is_a_tie(ours) -> None:
    (found,) = compare([RATE], samples("rate", [ours], [100.0]), "L", "K")
    assert found.verdict is Verdict.TIE


def test_one_target_alone_has_no_verdict() -> None:
    (found,) = compare([RATE], [Sample("rate", "L", 0, 5.0)], "L", "K")
    assert found.verdict is None
    assert found.advantage is None


def test_reports_hold_every_figure(tmp_path) -> None:
    given = [*samples("rate", [200, 300], [100, 100]), *samples("start", [0.4, 0.6], [2, 2])]
    found = compare([RATE, START], given, "L", "K")
    text = report.markdown(found, ["L", "K"], {"cpus": "2"}, "x.png")
    assert (
        "| produce | MiB/s | 250 (200 to 300) | 100 (100 to 100) | 2.50 (2.00 to 3.00) | ahead |  |" in text
    )
    assert "met (under 0.5)" in text
    report.write_json(tmp_path / "r.json", given, found, {"cpus": "2"})
    assert len(json.loads((tmp_path / "r.json").read_text())["samples"]) == len(given)
    assert plot.draw(tmp_path / "r.png", found)
    assert (tmp_path / "r.png").stat().st_size > 1000


@pytest.mark.parametrize("size", [1, 16 * 1024, 128 * 1024])
def test_a_prepared_batch_fits_its_size_and_holds_whole_records(size) -> None:
    batch = raw.encode_batch(size, now_ms=1)
    assert batch.records == max(1, (size - 61) // 1034)
    assert len(batch.data) <= max(size, 1200)
