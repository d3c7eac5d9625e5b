"""The cost test's table: what is judged dear, what is said about it, and that everything the broker serves is in it."""

from __future__ import annotations

import pytest

from bench.cost import table
from bench.cost.asked import FEW, MANY, SOME, TOO_MANY, Asked, pairs, request, without_arrays
from bench.cost.asking import Outcome, Taken
from bench.cost.table import Line, judge
from broker.protocol import codec
from broker.protocol.api_keys import APIS
from broker.server.admission import RULES, Place

EXPECTED = Line(cpu=10.0, out=20.0, kept=1.0, outcome="answered")


def taken(cpu: float = 10.0, out: float = 20.0, kept: float = 1.0, outcome=Outcome.ANSWERED) -> Taken:
    """What a request of a thousand elements took, told as the table does."""
    return Taken(cpu, round(1000 * out), round(1000 * kept), outcome, cpu_us=100 * cpu)


@pytest.mark.parametrize(
    ("found", "wrong"),
    [
        (taken(), []),
        (taken(cpu=29), []),
        (taken(cpu=29.1), ["CPU"]),
        (taken(out=56), []),
        (taken(out=56.1), ["answer"]),
        (taken(kept=2.5), []),
        (taken(kept=2.6), ["kept"]),
        (taken(cpu=1, out=1, kept=0), []),
        (taken(outcome=Outcome.CLOSED), ["closed, was answered"]),
        (taken(cpu=30, kept=9, outcome=Outcome.REFUSED), ["CPU", "kept", "refused, was answered"]),
    ],
)
def test_a_request_is_dear_above_so_many_times_the_table_and_a_floor(found, wrong) -> None:
    assert judge("fetch v17 topics", 1000, 18_000, EXPECTED, found).wrong == wrong


def test_what_is_in_no_table_fails() -> None:
    assert judge("fetch v17 topics", 1000, 18_000, None, taken()).wrong == ["not in the table"]


def test_of_two_tries_the_less_counts_in_each() -> None:
    assert taken(cpu=1, kept=3).least(taken(cpu=2, out=10)) == taken(cpu=1, out=10)


def test_a_table_is_kept_as_it_was_written_in_order(tmp_path) -> None:
    lines = {("b v1 x", 1000): EXPECTED, ("a v1 x", 10_000): EXPECTED, ("a v1 x", 1000): EXPECTED}
    table.save(lines, tmp_path / "table.json")
    assert table.load(tmp_path / "table.json") == lines
    assert [line[1] for line in (tmp_path / "table.json").read_text().splitlines()[1:-1]] == ["a", "b"]
    assert table.load(tmp_path / "none.json") == {}


def test_what_is_dear_is_shown_alone_and_what_to_do_is_said() -> None:
    findings = [
        judge("fetch v17 topics", 1000, 18_000, EXPECTED, taken(cpu=99)),
        judge("produce v11 topics", 1000, 18_000, EXPECTED, taken()),
    ]
    shown = table.render(findings, colour=True)
    assert "fetch v17 topics" in shown
    assert "\033[1;31mCPU\033[0m" in shown
    assert "produce" not in shown
    assert "produce" in table.render(findings[1:], colour=False)
    assert "1 of 2 requests" in table.advice(findings, [])[0]
    assert "make the dear ones cheap" in table.advice(findings, [])[1]
    assert "metadata v0 x" in table.advice(findings[1:], ["metadata v0 x"])[1]


def test_the_committed_table_has_what_is_asked_and_nothing_else() -> None:
    assert set(table.load()) == {(str(asked), count) for asked, count in pairs()}


def test_every_api_and_version_is_asked_unless_it_takes_no_array() -> None:
    asked = {(each.api, each.version) for each, _ in pairs()}
    for api in APIS.values():
        if api.name not in without_arrays():
            assert (api.name, api.max_version) in asked
    assert without_arrays() == {
        "add_offsets_to_txn",
        "allocate_producer_ids",
        "api_versions",
        "controlled_shutdown",
        "describe_acls",
        "describe_cluster",
        "end_txn",
        "expire_delegation_token",
        "heartbeat",
        "init_producer_id",
        "renew_delegation_token",
        "sasl_authenticate",
        "sasl_handshake",
    }
    assert {count for _, count in pairs()} == {FEW, SOME, MANY, TOO_MANY}
    assert {count for _, count in pairs(share=True)} == {FEW, SOME}


@pytest.mark.parametrize(
    "asked", [Asked("metadata", 12, "topics", alike=False), Asked("metadata", 1, "topics")]
)
def test_a_request_has_the_elements_that_it_says(asked: Asked) -> None:
    frame = request(asked, FEW)
    body = codec.encode(
        asked.key,
        asked.version,
        "request",
        {
            "topics": [],
            "allow_auto_topic_creation": False,
            "include_topic_authorized_operations": False,
        },
    )
    decoded = codec.decode(asked.key, asked.version, "request", frame[len(request(asked, 0)) - len(body) :])
    assert len(decoded.topics) == FEW
    assert len({topic.name for topic in decoded.topics}) == (1 if asked.alike else FEW)


def test_many_are_decoded_and_too_many_are_not() -> None:
    of_clients = [rule for rule in RULES.values() if not rule.for_brokers]
    assert all(rule.place(1, MANY + 3) is not Place.REFUSED for rule in of_clients)
    assert all(rule.place(1, TOO_MANY) is Place.REFUSED for rule in of_clients)
