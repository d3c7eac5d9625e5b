"""Two answers are compared field by field; only what the table has is forgiven."""

from __future__ import annotations

import pytest

from broker.protocol.api_keys import ApiKey
from tests.differential.compare import ABSENT, Intended, Ledger, compare

KAFKA = {
    "throttle_time": 0,
    "topics": [{"name": "b", "error_code": "NONE"}, {"name": "a", "error_code": "NONE"}],
}


def found(kafka, landline):
    return [
        (each.path, each.kafka, each.landline)
        for each in compare("script/step", ApiKey.METADATA, 12, kafka, landline)
    ]


def test_equal_answers_have_no_difference() -> None:
    assert found(KAFKA, {**KAFKA}) == []


def test_rows_are_told_apart_by_their_names_not_by_their_places() -> None:
    assert found(KAFKA, {**KAFKA, "topics": KAFKA["topics"][::-1]}) == []


def test_a_field_of_a_row_is_named_by_its_path() -> None:
    other = [{"name": "a", "error_code": "INVALID_CONFIG"}, {"name": "b", "error_code": "NONE"}]
    assert found(KAFKA, {**KAFKA, "topics": other}) == [("topics/a/error_code", "NONE", "INVALID_CONFIG")]


def test_a_row_that_only_one_has_is_a_difference_in_each_field() -> None:
    assert found(KAFKA, {**KAFKA, "topics": KAFKA["topics"][:1]}) == [
        ("topics/a/error_code", "NONE", ABSENT),
        ("topics/a/name", "a", ABSENT),
    ]


def test_rows_of_one_name_are_counted() -> None:
    twice = {"topics": [{"name": "a", "id": 1}, {"name": "a", "id": 2}]}
    assert found(twice, {"topics": [{"name": "a", "id": 1}, {"name": "a", "id": 3}]}) == [
        ("topics/a #1/id", "2", "3")
    ]


def test_quotas_are_told_apart_by_their_entities() -> None:
    def quota(name, value):
        return {"entity": [{"entity_type": "user", "entity_name": name}], "value": value}

    assert found(
        {"entries": [quota("u", 1), quota(None, 2)]}, {"entries": [quota(None, 2), quota("u", 3)]}
    ) == [("entries/user=u/value", "1", "3")]


@pytest.mark.parametrize(("kafka", "landline"), [([], None), ([1, 2], [2, 1]), ("", None), (0, "0 ")])
def test_values_of_another_kind_or_order_differ(kafka, landline) -> None:
    assert found({"each": kafka}, {"each": landline}) == [("each", str(kafka), str(landline))]


def test_partitions_have_no_order() -> None:
    assert found({"partitions": [2, 1]}, {"partitions": [1, 2]}) == []


def test_a_closed_connection_differs_from_an_answer() -> None:
    assert ("connection", "closed", ABSENT) in found({"connection": "closed"}, KAFKA)


FINDINGS = compare(
    "a/b", ApiKey.METADATA, 7, {"error_code": "NONE", "n": 1}, {"error_code": "INVALID", "n": 2}
)


def entry(**changes):
    return Intended(
        **{
            "keys": [ApiKey.METADATA],
            "path": "error_code",
            "kafka": "NONE",
            "landline": "INVALID",
            "why": "because",
            **changes,
        }
    )


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"keys": []},
        {"versions": [6, 7]},
        {"where": "a/*"},
        {"path": "error*"},
        {"kafka": "*", "landline": "*"},
    ],
)
def test_an_entry_forgives_what_it_describes_and_nothing_else(changes) -> None:
    ledger = Ledger([entry(**changes)])
    assert [each.path for each in ledger.unexplained(FINDINGS)] == ["n"]
    assert ledger.unseen() == []


@pytest.mark.parametrize(
    "changes",
    [
        {"keys": [ApiKey.FETCH]},
        {"versions": [6]},
        {"where": "c/*"},
        {"path": "error"},
        {"kafka": "INVALID"},
        {"landline": "NONE"},
    ],
)
def test_an_entry_for_something_else_forgives_nothing_and_stays_unseen(changes) -> None:
    unneeded = entry(**changes)
    ledger = Ledger([unneeded])
    assert ledger.unexplained(FINDINGS) == FINDINGS
    assert ledger.unseen() == [unneeded]


def test_an_entry_that_is_only_sometimes_needed_may_stay_unseen() -> None:
    assert Ledger([entry(path="other", sometimes=True)]).unseen() == []
