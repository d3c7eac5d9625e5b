"""Which quota applies to a client, as a table, and who shares it."""

from __future__ import annotations

import itertools

import pytest

from broker.quotas.entities import DEFAULT, QuotaEntity, entity_at
from broker.quotas.precedence import QuotaTable, Scope

# Kafka's order, the most specific first.
ORDER = [
    "users/alice/clients/app",
    "users/alice/clients/<default>",
    "users/alice",
    "users/<default>/clients/app",
    "users/<default>/clients/<default>",
    "users/<default>",
    "clients/app",
    "clients/<default>",
]


def table(*paths: str) -> QuotaTable:
    """Quotas whose values are their places in the order."""
    made = QuotaTable()
    for path in paths:
        entity = entity_at(path)
        assert entity is not None
        made.update(entity, float(ORDER.index(path) + 1))
    return made


def applies(quotas: QuotaTable, user: str = "alice", client_id: str = "app") -> float | None:
    return quotas.bound(quotas.scope(user, client_id))


@pytest.mark.parametrize("count", [1, 2, 3, 7, 8])
def test_of_any_quotas_the_most_specific_one_applies(count: int) -> None:
    for paths in itertools.combinations(ORDER, count):
        assert applies(table(*paths)) == ORDER.index(paths[0]) + 1, paths


@pytest.mark.parametrize(
    ("user", "client_id", "place"),
    [
        ("alice", "app", 1),
        ("alice", "other", 2),
        ("bob", "app", 4),
        ("bob", "other", 5),
        ("alice", "", 3),
        ("bob", "", 6),
    ],
)
def test_with_all_quotas_set_each_client_has_the_one_of_its_names(
    user: str, client_id: str, place: int
) -> None:
    assert applies(table(*ORDER), user, client_id) == place


@pytest.mark.parametrize(
    ("path", "first", "second", "shared"),
    [
        ("users/alice", ("alice", "a"), ("alice", "b"), True),
        ("users/<default>", ("bob", "a"), ("bob", "b"), True),
        ("users/<default>", ("bob", "a"), ("eve", "a"), False),
        ("clients/<default>", ("bob", "a"), ("eve", "a"), True),
        ("clients/<default>", ("bob", "a"), ("bob", "b"), False),
        ("users/<default>/clients/<default>", ("bob", "a"), ("bob", "b"), False),
    ],
)
def test_clients_share_what_their_quota_does_not_tell_apart(
    path: str, first: tuple[str, str], second: tuple[str, str], shared: bool
) -> None:
    for others in ((), ("clients/app", "users/alice", "users/alice/clients/app")):
        quotas = table(path, *(other for other in others if other != path))
        assert (quotas.scope(*first) == quotas.scope(*second)) is shared


def test_a_removed_quota_gives_way_to_the_next() -> None:
    quotas = table("users/alice", "clients/app")
    assert applies(quotas) == 3
    assert quotas.update(QuotaEntity("alice", None), None)
    assert applies(quotas) == 7
    assert not quotas.update(QuotaEntity("alice", None), None)
    assert quotas.enabled


def test_without_a_quota_nothing_applies() -> None:
    quotas = QuotaTable()
    assert not quotas.enabled
    assert applies(quotas) is None
    assert quotas.scope("alice", "app") == Scope("", "app")


def test_a_client_that_calls_itself_default_is_not_the_default() -> None:
    quotas = QuotaTable()
    quotas.update(QuotaEntity(None, DEFAULT), 5.0)
    quotas.update(QuotaEntity(None, "%3Cdefault%3E"), 1.0)
    assert applies(quotas, client_id=DEFAULT) == 1
    assert applies(quotas, client_id="other") == 5


@pytest.mark.parametrize(
    ("path", "user", "client_id"),
    [
        ("clients/<default>", "alice", ""),
        ("users/<default>", "", "app"),
        ("users/<default>", "", ""),
        ("users/<default>/clients/<default>", "alice", ""),
        ("users/alice/clients/<default>", "alice", ""),
        ("users/<default>/clients/<default>", "", "app"),
        ("users/<default>/clients/<default>", "", ""),
    ],
)
def test_a_client_without_a_name_does_not_escape_the_default(path: str, user: str, client_id: str) -> None:
    assert applies(table(path), user, client_id) == ORDER.index(path) + 1
