"""The benchmark's report: every figure, what failed and why, the goals; as Markdown, JSON and a picture."""

from __future__ import annotations

import json

from bench import plot, report
from bench.report import Report, Section
from bench.results import Better, Failure, Goal, Metric, Sample, compare
from bench.suites import SUITES

RATE = Metric("rate", "produce", "MiB/s", Better.HIGHER, Goal(times=3))
START = Metric("start", "start", "s", Better.LOWER, Goal(value=0.5))
USER = Metric("user", "produce: user", "CPU s/GiB", Better.LOWER, detail=True)


def given_samples() -> list[Sample]:
    values = {"rate": ((200, 300), (100, 100)), "start": ((0.4, 0.6), (2, 2)), "user": ((1, 1), (2, 2))}
    return [
        Sample(metric, target, number, value)
        for metric, pair in values.items()
        for target, rounds in zip(("L", "K"), pair, strict=True)
        for number, value in enumerate(rounds)
    ]


def given_report(failures: tuple[Failure, ...] = ()) -> Report:
    found = compare([RATE, START, USER], given_samples(), "L", ["K", "K4"])
    return Report([Section("Throughput", "a note", found)], ["L", "K", "K4"], {"cpus": "2"}, failures)


def test_markdown_has_a_table_a_suite_and_the_goals() -> None:
    text = report.markdown(given_report(), "x.png")
    assert "## Throughput\n\na note\n" in text
    assert (
        "| produce | MiB/s | 250 (200 to 300) | 100 (100 to 100) |  | 2.50 (2.00 to 3.00) |  | ahead |"
        in text
    )
    assert "| produce | 3 times better | 250 (200 to 300) MiB/s | 2.50 (2.00 to 3.00) | **missed** |" in text
    assert "| start | at most 0.5 | 0.50 (0.40 to 0.60) s |" in text
    assert text.index("## Details") < text.index("produce: user")


def test_what_failed_is_in_its_cell_and_told_with_its_reason() -> None:
    failure = Failure("produce", ("rate", "start"), "K4", 1, "OSError: disk")
    text = report.markdown(given_report((failure,)), None)
    assert "| failed |" in text
    assert "- produce, K4, round 2: OSError: disk" in text


def test_json_holds_every_sample_and_the_picture_is_drawn(tmp_path) -> None:
    given = given_report()
    report.write_json(tmp_path / "r.json", given, given_samples())
    content = json.loads((tmp_path / "r.json").read_text())
    assert len(content["samples"]) == len(given_samples())
    assert content["summary"][0]["goal_state"] == "missed"
    assert plot.draw(tmp_path / "r.png", given)
    assert (tmp_path / "r.png").stat().st_size > 1000


def test_nothing_is_drawn_of_one_target_alone(tmp_path) -> None:
    alone = compare([RATE], [Sample("rate", "L", 0, 5.0)], "L", [])
    assert not plot.draw(tmp_path / "r.png", Report([Section("T", "", alone)], ["L"], {}, []))


def test_every_figure_has_a_name_of_its_own() -> None:
    keys = [metric.key for suite in SUITES for workload in suite.workloads for metric in workload.metrics]
    titles = [(suite.name, workload.title) for suite in SUITES for workload in suite.workloads]
    assert len(keys) == len(set(keys))
    assert len(titles) == len(set(titles))
