"""The list of decisions, docs/adr/README.md: it has each by its number, and explains missing numbers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ADRS = Path(__file__).resolve().parents[3] / "docs/adr"
LIST = (ADRS / "README.md").read_text(encoding="utf-8")
FILES = sorted(path for path in ADRS.glob("*.md") if path.name != "README.md")


def number_of(path: Path) -> int:
    return int(path.name.split("-")[0])


def test_every_decision_is_listed_once_in_the_order_of_its_number() -> None:
    listed = re.findall(r"^\| \[(\d+)\]\((\S+)\) \| \S.* \|$", LIST, re.MULTILINE)
    assert listed == [(str(number_of(path)), path.name) for path in FILES]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name[:4])
def test_a_decision_begins_with_the_number_of_its_file(path: Path) -> None:
    title = path.read_text(encoding="utf-8").split("\n")[0]
    assert title.startswith(f"# {number_of(path)}. ")


def test_numbers_that_are_missing_are_explained_and_no_other() -> None:
    numbers = {number_of(path) for path in FILES}
    assert len(numbers) == len(FILES)
    _, explained = LIST.split("## Numbers without a decision\n")
    told = re.match(r"\s*([\d, and]+) were never used", explained)
    assert told is not None
    assert {int(number) for number in re.findall(r"\d+", told[1])} == set(range(1, max(numbers))) - numbers
