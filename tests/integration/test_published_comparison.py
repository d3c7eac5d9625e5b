"""The published comparison: made anew from its data, byte for byte, and claiming no more than it shows."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from compare.report.inputs import read_inputs
from compare.report.publication import BEGIN, END, answer_of, pictures_of
from compare.report.verdicts import LEAST_ROUNDS
from compare.simulation.measured import measure
from compare.simulation.validation import validate

ROOT = Path(__file__).parents[2]
PUBLISHED = ROOT / "docs" / "comparison"
DATA = ROOT / "compare" / "results"

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def inputs():
    return read_inputs(DATA)


@pytest.fixture(scope="module")
def again(tmp_path_factory):
    """The command that the summary names, as written but for its interpreter."""
    target = tmp_path_factory.mktemp("again")
    summary = (PUBLISHED / "README.md").read_text()
    command = ".venv/bin/python -m compare.report --input compare/results --output "
    assert f"`{command}DIR`" in summary
    words = [sys.executable, *command.split()[1:], str(target)]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=250, check=False)
    assert done.returncode == 0, done.stderr
    return target


def test_anybody_makes_the_page_anew_byte_for_byte(again):
    assert (again / "report.html").read_bytes() == (PUBLISHED / "report.html").read_bytes()


def test_the_summary_and_its_pictures_are_those_of_the_page(again):
    summary = (PUBLISHED / "README.md").read_text()
    assert (again / "summary.md").read_text() == summary
    for name in pictures_of(summary):
        assert (again / name).read_bytes() == (PUBLISHED / name).read_bytes()


def test_the_readme_has_the_published_answer(inputs):
    readme = (ROOT / "README.md").read_text()
    assert readme.partition(BEGIN)[2].partition(END)[0].strip() == answer_of(inputs)


def test_intervals_are_told_of_enough_rounds_only(inputs):
    for group in inputs.comparison.groups:
        for figure in group.figures.values():
            assert figure.interval is None or figure.n >= LEAST_ROUNDS


def test_no_sentence_about_many_hosts_leaves_out_what_they_share():
    summary = (PUBLISHED / "README.md").read_text()
    assert not re.search(r"would all serve after [0-9.]+ s", summary)
    told = [line for line in summary.splitlines() if "brokers would need" in line]
    assert told
    assert all("ZooKeeper" in line and "the controller" in line and "at least" in line for line in told)


def test_the_simulations_band_holds_four_of_five_rounds_left_out(inputs):
    checks = validate(measure(inputs.runs))
    assert sum(check.inside for check in checks) / sum(check.rounds for check in checks) >= 0.8
