"""The table of intended differences is the documentation."""

from __future__ import annotations

from tests.differential.differences import COMMAND, OPEN, PAGE, TABLE, page


def test_the_page_is_made_from_the_table():
    assert PAGE.read_text(encoding="utf-8") == page(), COMMAND


def test_each_difference_says_why_and_how():
    for each in (*TABLE, *OPEN):
        assert each.why, each
        assert each.kafka != each.landline or "*" in each.kafka, each


def test_no_difference_stands_there_twice():
    entries = [
        (tuple(each.keys), tuple(each.versions), each.where, each.path, each.kafka)
        for each in (*TABLE, *OPEN)
    ]
    assert len(entries) == len(set(entries))
