"""What DescribeClientQuotas lists and what AlterClientQuotas writes, without a store."""

from __future__ import annotations

import pytest

from broker.quotas.altered import AlterationError, altered, altered_path, emptied_paths, java_double
from broker.quotas.described import CLIENT_ID, IP, USER, FilterError, Match, described, parse_filter
from broker.quotas.entities import address_of, decoded, encoded, number_of

PATHS = [
    "users/alice",
    "users/<default>",
    "users/alice/clients/app",
    "users/alice/clients/<default>",
    "clients/app",
    "clients/<default>",
    "ips/10.0.0.1",
    "ips/<default>",
]
EXACT, DEFAULT, ANY = Match


def listed(*components: tuple[str, int, str | None], strict: bool = False) -> list[str]:
    asked = parse_filter(components, strict=strict)
    found = []
    for path in PATHS:
        key = "connection_creation_rate" if path.startswith("ips") else "request_percentage"
        entry = described(path, {key: "5"})
        assert entry is not None
        if (asked.of_ips if IP in entry.entity else asked.of_clients) and asked.covers(entry.entity):
            found.append(path)
    return found


def test_a_filter_without_components_lists_everything_or_strictly_nothing() -> None:
    assert listed() == PATHS
    assert listed(strict=True) == []


@pytest.mark.parametrize(
    ("components", "strict", "paths"),
    [
        ([(USER, EXACT, "alice")], False, [0, 2, 3]),
        ([(USER, EXACT, "alice")], True, [0]),
        ([(USER, DEFAULT, None)], False, [1]),
        ([(USER, ANY, None)], True, [0, 1]),
        ([(USER, ANY, None)], False, [0, 1, 2, 3]),
        ([(CLIENT_ID, EXACT, "app")], False, [2, 4]),
        ([(CLIENT_ID, EXACT, "app")], True, [4]),
        ([(CLIENT_ID, DEFAULT, None)], True, [5]),
        ([(USER, EXACT, "alice"), (CLIENT_ID, EXACT, "app")], True, [2]),
        ([(USER, EXACT, "alice"), (CLIENT_ID, DEFAULT, None)], False, [3]),
        ([(USER, ANY, None), (CLIENT_ID, ANY, None)], False, [2, 3]),
        ([(IP, EXACT, "10.0.0.1")], True, [6]),
        ([(IP, DEFAULT, None)], False, [7]),
        ([(IP, ANY, None)], True, [6, 7]),
        ([(USER, EXACT, "nobody")], False, []),
    ],
)
def test_a_filter_lists_what_matches_all_its_components(
    components: list[tuple[str, int, str | None]], strict: bool, paths: list[int]
) -> None:
    assert listed(*components, strict=strict) == [PATHS[place] for place in paths]


@pytest.mark.parametrize(
    ("components", "text"),
    [
        ([("", EXACT, "a")], "no entity type"),
        ([(USER, EXACT, "a"), (USER, ANY, None)], "more than one component for user"),
        ([(USER, EXACT, "a"), (IP, ANY, None)], "cannot be combined"),
        ([(USER, 3, None)], "match type 3"),
        ([(USER, EXACT, None)], "needs a name"),
    ],
)
def test_a_filter_that_cannot_be_is_refused(components: list[tuple[str, int, str | None]], text: str) -> None:
    with pytest.raises(FilterError, match=text) as refusal:
        parse_filter(components, strict=False)
    assert not refusal.value.unsupported


def test_another_entity_type_is_of_another_version() -> None:
    with pytest.raises(FilterError) as refusal:
        parse_filter([("team", EXACT, "a")], strict=False)
    assert refusal.value.unsupported


def test_credentials_of_a_user_are_no_quota() -> None:
    assert described("users/alice", {"SCRAM-SHA-256": "salt=..."}) is None
    entry = described("users/alice", {"SCRAM-SHA-256": "salt=...", "producer_byte_rate": "7"})
    assert entry is not None
    assert entry.values == {"producer_byte_rate": 7}


@pytest.mark.parametrize(
    ("entity", "path"),
    [
        ({USER: "a b"}, "users/a%20b"),
        ({USER: None}, "users/<default>"),
        ({CLIENT_ID: "<default>"}, "clients/%3Cdefault%3E"),
        ({CLIENT_ID: None, USER: "a/b"}, "users/a%2Fb/clients/<default>"),
        ({IP: "10.0.0.1"}, "ips/10.0.0.1"),
    ],
)
def test_an_entity_has_its_path(entity: dict[str, str | None], path: str) -> None:
    assert altered_path(entity) == path


@pytest.mark.parametrize("entity", [{}, {USER: ""}, {"team": "a"}, {USER: "a", IP: "10.0.0.1"}])
def test_an_entity_that_cannot_be_is_refused(entity: dict[str, str | None]) -> None:
    with pytest.raises(AlterationError):
        altered_path(entity)


def test_values_are_written_as_kafka_writes_them() -> None:
    changes = [
        ("producer_byte_rate", 1024.0, False),
        ("request_percentage", 200.0, False),
        ("consumer_byte_rate", 0.0, True),
    ]
    after = altered("users/a", {"consumer_byte_rate": "5", "SCRAM-SHA-256": "x"}, changes)
    assert after == {"producer_byte_rate": "1024", "request_percentage": "200.0", "SCRAM-SHA-256": "x"}


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        ("users/a", "producer_byte_rate", 1.5),
        ("users/a", "producer_byte_rate", -1.0),
        ("users/a", "request_percentage", float("nan")),
        ("users/a", "connection_creation_rate", 1.0),
        ("users/a", "SCRAM-SHA-256", 1.0),
        ("ips/10.0.0.1", "producer_byte_rate", 1.0),
        ("ips/10.0.0.1", "connection_creation_rate", 3e9),
    ],
)
def test_a_value_that_is_no_rate_is_refused(path: str, key: str, value: float) -> None:
    with pytest.raises(AlterationError, match=key):
        altered(path, {}, [(key, value, False)])


def test_credentials_are_not_removed_as_if_they_were_a_quota() -> None:
    with pytest.raises(AlterationError, match="SCRAM-SHA-256"):
        altered("users/a", {"SCRAM-SHA-256": "x"}, [("SCRAM-SHA-256", 0, True)])
    assert altered("users/a", {}, [("no_such_quota", 0, True)]) == {}


def test_with_a_users_last_client_its_empty_parents_go() -> None:
    assert emptied_paths("clients/a") == ["clients/a"]
    assert emptied_paths("users/u/clients/a") == ["users/u/clients/a", "users/u/clients", "users/u"]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0.0"), (12.5, "12.5"), (1e7, "1.0E7"), (12345678.5, "1.23456785E7"), (0.0001, "1.0E-4")],
)
def test_a_double_is_written_as_java_writes_it(value: float, text: str) -> None:
    assert java_double(value) == text
    assert number_of("request_percentage", text) == value


@pytest.mark.parametrize("name", ["alice", "a b", "CN=x,OU=y", "ü~*+", "<default>", "%41"])
def test_a_name_survives_its_encoding(name: str) -> None:
    assert decoded(encoded(name)) == name
    assert encoded(None) == "<default>"
    assert decoded("<default>") is None


def test_names_are_encoded_as_by_kafkas_sanitizer() -> None:
    assert encoded("a.b-c_d*~ /+") == "a.b-c_d%2A%7E%20%2F%2B"


def test_an_address_has_one_form() -> None:
    assert address_of("::ffff:10.0.0.1") == "10.0.0.1"
    assert address_of("2001:DB8::0:1") == "2001:db8::1"


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "x", ""])
def test_a_text_that_is_no_rate_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        number_of("request_percentage", text)


@pytest.mark.parametrize("key", ["producer_byte_rate", "connection_creation_rate"])
@pytest.mark.parametrize("text", ["-1", "1.5", "9" * 20, "9" * 400])
def test_a_whole_number_that_kafkas_type_cannot_have_is_refused(key: str, text: str) -> None:
    with pytest.raises(ValueError, match=r".*"):
        number_of(key, text)
