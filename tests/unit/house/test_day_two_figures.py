"""The figures of day-two playbooks in docs/operations.md are those that a run has kept."""

import json
import re

import pytest

from tools import move_figures
from tools.day_two_figures import DOCUMENT, main, put_in, table

KEPT = DOCUMENT.parent / "figures"
PLAYBOOKS = DOCUMENT.parents[1] / "playbooks"
# Parts of others, and what is for labs alone.
NOT_RUN_BY_OPERATORS = {"inventory", "security", "quorum", "refused", "compare"}
FIGURES = {
    "name": "x",
    "whole": {"took_s": 1.5, "records": 12345},
    "rows": [{"host": "h1", "longest_gap_s": 0.2}, {"host": "h2", "longest_gap_s": 0.3}],
}


def test_the_tables_in_the_documentation_are_those_of_the_kept_runs():
    for file in sorted(KEPT.glob("*.json")):
        figures = json.loads(file.read_text())
        assert figures["name"] == file.stem
        assert figures["whole"]["lost"] == 0
        assert main(["--check", str(file)]) == 0, f"python -m tools.day_two_figures docs/figures/{file.name}"


def test_each_playbook_was_run_under_load_and_has_its_figures():
    measured = {figure.what for figure in move_figures.read()[1]}
    for file in KEPT.glob("*.json"):
        measured.add(file.stem)  # of one playbook alone, whose rows are hosts
        for row in json.loads(file.read_text())["rows"]:
            measured |= {name.replace("-", "_") for name in re.findall("^`([a-z-]+)`", row.get("what", ""))}
    there = {book.stem for book in PLAYBOOKS.glob("*.yml")}
    assert there - NOT_RUN_BY_OPERATORS - measured == set()


def test_a_table_has_a_line_for_each_row_and_its_units():
    assert table(FIGURES).splitlines() == [
        "| host | longest wait of an `acks=all` producer |",
        "| --- | --- |",
        "| h1 | 0.2 s |",
        "| h2 | 0.3 s |",
        "",
        "The whole run: took: 1.5 s, records acknowledged: 12,345.",
    ]


def test_a_table_takes_the_place_of_the_one_before_and_of_nothing_else():
    text = "a\n<!-- figures: x -->\nold\n<!-- end of figures: x -->\nb\n"
    written = put_in(text, FIGURES)
    assert written.startswith("a\n<!-- figures: x -->\n| host |")
    assert written.endswith("12,345.\n<!-- end of figures: x -->\nb\n")
    assert put_in(written, FIGURES) == written
    with pytest.raises(ValueError, match="no markers for the figures x"):
        put_in("nothing", FIGURES)
