"""Who may do what, as handlers ask it: by any authorizer, even one that fails."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol.api_keys import ApiKey
from broker.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from broker.security.authorizer import Authorizer
from broker.server.access import (
    Access,
    allowed,
    allowed_names,
    authorized_cluster_operations,
    authorized_operations,
    cluster_allowed,
)
from broker.server.apis.table import ROUTES
from broker.server.audit import AuditLog
from tests.support.clocks import ManualClock

TOPIC, CLUSTER = ResourceType.TOPIC, ResourceType.CLUSTER


class Rules(Authorizer):
    """Allows what it is told to."""

    def __init__(self, *permitted: tuple[AclOperation, str]) -> None:
        self.permitted = set(permitted)

    def authorize(self, requester, operation, resource_type, name) -> bool:
        return (operation, name) in self.permitted


class Broken(Authorizer):
    def authorize(self, requester, operation, resource_type, name) -> bool:
        raise ZeroDivisionError("by somebody else")


def request(principal: str = "User:alice", host: str = "10.0.0.1", api: ApiKey = ApiKey.PRODUCE) -> Request:
    connection = ConnectionInfo("c", host, "SASL", principal=principal)
    return Request(api, 9, 1, "tester", memoryview(b""), connection, 0, lambda *_: None)


def guarded(authorizer: Authorizer, clock: ManualClock | None = None) -> Any:
    return SimpleNamespace(access=Access(authorizer, AuditLog(clock or ManualClock())))


FREE = SimpleNamespace(access=None)


def test_without_an_authorizer_everybody_may_do_everything() -> None:
    assert allowed(FREE, request(), AclOperation.WRITE, TOPIC, "t")
    assert cluster_allowed(FREE, request(), AclOperation.CLUSTER_ACTION)
    assert allowed_names(FREE, request(), AclOperation.READ, TOPIC, ["a", "b"]) == {"a", "b"}
    assert authorized_operations(FREE, request(), ResourceType.GROUP, "g") == 1 << 3 | 1 << 6 | 1 << 8
    assert authorized_cluster_operations(FREE, request()) == sum(1 << n for n in (5, 7, 8, 9, 10, 11, 12))


def test_the_authorizer_decides() -> None:
    ctx = guarded(Rules((AclOperation.WRITE, "t"), (AclOperation.DESCRIBE, CLUSTER_NAME)))
    assert allowed(ctx, request(), AclOperation.WRITE, TOPIC, "t")
    assert not allowed(ctx, request(), AclOperation.READ, TOPIC, "t")
    assert allowed_names(ctx, request(), AclOperation.WRITE, TOPIC, ["t", "u"]) == {"t"}
    assert authorized_operations(ctx, request(), TOPIC, "t") == 1 << AclOperation.WRITE
    assert authorized_cluster_operations(ctx, request()) == 1 << AclOperation.DESCRIBE


def test_an_authorizer_that_fails_has_denied() -> None:
    ctx = guarded(Broken())
    with capture_logs() as logs:
        assert not allowed(ctx, request(host="10.9.9.1"), AclOperation.WRITE, TOPIC, "t")
    assert any("ZeroDivisionError" in line.get("reason", "") for line in logs)
    assert any(line["event"] == "denied" for line in logs)
    ctx.access.authorizer.authorize_any = ctx.access.authorizer.authorize
    assert not ctx.access.allows_any(request(), AclOperation.WRITE, TOPIC)


@pytest.mark.parametrize("answer", [None, 0, 1, "x"])
def test_what_an_authorizer_of_somebody_elses_answers_counts_by_its_truth(answer: Any) -> None:
    class Loose(Authorizer):
        def authorize(self, requester, operation, resource_type, name) -> Any:
            return answer

        def authorize_any(self, requester, operation, resource_type) -> Any:
            return answer

    access = guarded(Loose()).access
    assert access.allows(request(), AclOperation.WRITE, TOPIC, "t") is bool(answer)
    assert access.allows_any(request(), AclOperation.WRITE, TOPIC) is bool(answer)


def test_a_denial_is_logged_with_who_what_and_where() -> None:
    with capture_logs() as logs:
        allowed(guarded(Rules()), request(), AclOperation.DESCRIBE_CONFIGS, TOPIC, "orders")
    (line,) = logs
    expected = {
        "event": "denied",
        "log": "audit",
        "principal": "User:alice",
        "host": "10.0.0.1",
        "operation": "DescribeConfigs",
        "resource": "Topic:orders",
        "api": "produce",
    }
    assert expected.items() <= line.items()
    assert "left_out" not in line


def test_what_a_client_did_not_ask_for_by_name_is_not_logged() -> None:
    ctx = guarded(Rules())
    with capture_logs() as logs:
        allowed_names(ctx, request(), AclOperation.READ, TOPIC, ["a", "b"])
        authorized_operations(ctx, request(), TOPIC, "a")
        cluster_allowed(ctx, request(), AclOperation.CREATE, told=False)
    assert logs == []


def test_the_same_denial_has_a_line_a_second_with_the_number_left_out() -> None:
    clock = ManualClock()
    ctx = guarded(Rules(), clock)
    with capture_logs() as logs:
        for _ in range(5):
            allowed(ctx, request(), AclOperation.WRITE, TOPIC, "t")
        allowed(ctx, request(), AclOperation.WRITE, TOPIC, "u")  # another one, at once
        clock.now_ms += 1_000
        allowed(ctx, request(), AclOperation.WRITE, TOPIC, "t")
    assert [(line["resource"], line.get("left_out")) for line in logs] == [
        ("Topic:t", None),
        ("Topic:u", 4),
        ("Topic:t", None),
    ]


def test_many_different_denials_are_few_lines_and_all_are_counted() -> None:
    clock = ManualClock()
    ctx = guarded(Rules(), clock)
    with capture_logs() as logs:
        for number in range(3_000):
            allowed(ctx, request(), AclOperation.WRITE, TOPIC, f"t{number}")
        clock.now_ms += 1_000
        allowed(ctx, request(), AclOperation.WRITE, TOPIC, "last")
    assert len(logs) == 101
    assert logs[-1]["left_out"] == 2_900


@pytest.mark.parametrize("text", ["x" * 40_000, "\x1b[31m" * 10_000])
def test_a_long_name_is_cut(text: str) -> None:
    with capture_logs() as logs:
        allowed(guarded(Rules()), request(principal="User:" + text), AclOperation.WRITE, TOPIC, text)
    assert len(logs[0]["resource"]) < 300
    assert len(logs[0]["principal"]) < 300


ASKED_FOR_ELEMENTS = {
    ApiKey.PRODUCE,
    ApiKey.FETCH,
    ApiKey.LIST_OFFSETS,
    ApiKey.METADATA,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_GROUPS,
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.CREATE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
}
# Whoever authenticated may change the tokens that they own or are renewers of.
OWN_TOKENS = {ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
OPEN_TO_ALL = {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE} | OWN_TOKENS


def test_each_api_asks_the_authorizer_for_the_whole_request_or_its_handler_does_or_it_is_open_to_all() -> (
    None
):
    asked_at_once = {key for key, route in ROUTES.items() if route.need is not None}
    assert asked_at_once.isdisjoint(ASKED_FOR_ELEMENTS | OPEN_TO_ALL)
    assert asked_at_once | ASKED_FOR_ELEMENTS | OPEN_TO_ALL == set(ROUTES)
