"""The regular expressions of subscriptions match what Python's match, and take linear time where Python's do not."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.coordinator.group.consumer.topic_pattern import InvalidPattern, TopicPattern

NAMES = [
    "",
    "a",
    "b",
    "A",
    "ab",
    "ba",
    "aab",
    "a.b",
    "a-b",
    "a_b",
    "orders",
    "orders-1",
    "Orders.eu",
    "x1",
    "1",
    "-",
    ".",
]

atoms = st.sampled_from(
    [
        "a",
        "b",
        "A",
        "1",
        ".",
        r"\.",
        "-",
        "_",
        "[ab]",
        "[^a]",
        "[a-c]",
        r"[\d_]",
        r"[\w.-]",
        r"\d",
        r"\W",
        r"\S",
        r"\x61",
        "[]a]",
    ]
)
patterns = st.recursive(
    atoms,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("|".join).map("(?:{})".format),
        inner.map("({})".format),
        st.tuples(
            inner.map("(?:{})".format), st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "*?", "+?"])
        ).map("".join),
        inner.map("(?i:{})".format),
        inner.map("^{}$".format),
        inner.map(r"\b{}".format),
        inner.map(r"{}\B".format),
    ),
    max_leaves=8,
)


@given(patterns, st.lists(st.text("abAB1._-", max_size=6)))
def test_a_pattern_matches_what_pythons_matches(pattern, names):
    names = [*names, *NAMES]
    # Python 3.11 has no \B at an empty name.
    expected = {name for name in names if name and re.fullmatch(pattern, name)}
    assert {name for name in TopicPattern(pattern).matching(names) if name} == expected


@given(st.text(max_size=12))
def test_any_text_is_a_pattern_or_refused(text):
    try:
        TopicPattern(text).matching(NAMES)
    except InvalidPattern:
        return


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "[",
        "[a",
        "*",
        "a**",
        "a{2}{2}",
        "a{3,2}",
        "a{1001}",
        "(?=a)",
        r"\1",
        r"(a)\1",
        "[b-a]",
        "\\",
        r"\y",
        "(?<a",
        "[[:no:]]",
    ],
)
def test_what_is_no_expression_of_re2_is_refused(text):
    with pytest.raises(InvalidPattern):
        TopicPattern(text)


@pytest.mark.parametrize(
    ("pattern", "matches"),
    [
        ("orders.*", {"orders", "orders-1"}),
        ("(?i)orders.*", {"orders", "orders-1", "Orders.eu"}),
        (r"\Qa.b\E", {"a.b"}),
        ("[[:upper:]]+", {"A"}),
        ("(?P<one>a)(?<two>b)", {"ab"}),
        ("a{,2}", set()),
        ("é|a", {"a"}),
    ],
)
def test_what_python_does_not_know(pattern, matches):
    assert TopicPattern(pattern).matching(NAMES) == matches


def test_an_expression_that_takes_python_for_ever_takes_no_time():
    assert TopicPattern("(a*)*(a|aa)*b").matching(["a" * 249]) == frozenset()


def test_large_and_expensive_expressions_are_refused():
    with pytest.raises(InvalidPattern, match="too large"):
        TopicPattern("((a{100}){100}){100}")
    assert TopicPattern("".join(("(" * 50, ")", "{1000})" * 49))).matching([""]) == {""}
    with pytest.raises(InvalidPattern, match="nested"):
        TopicPattern("(" * 5_000 + ")" * 5_000)
    costly = TopicPattern("(a|b)*a(a|b){150}|(a|b)*b(a|b){149}")
    names = ["".join("ab"[number >> bit & 1] for bit in range(11)) * 20 for number in range(2_000)]
    with pytest.raises(InvalidPattern, match="too long"):
        costly.matching(names)


def test_a_way_that_is_known_costs_no_step():
    """So the number of topics hardly counts: not even for an expression with thousands of states."""
    names = ["".join("ab"[number * 7919 >> bit % 23 & 1] for bit in range(200)) for number in range(4_000)]
    pattern = TopicPattern("(a|b)*a(a|b){8}")
    once = pattern.matching(names)
    assert 0 < len(once) < len(names)
    assert TopicPattern("(a|b)*a(a|b){8}").matching(names * 20) == once
    with pytest.raises(InvalidPattern, match="too long"):
        TopicPattern("(a|b)*a(a|b){14}").matching(names)
