"""The ACL requests, and what the audit log says of denials."""

from __future__ import annotations

from typing import Any

import pytest

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.security.acls import PatternType
from rig.raw_client import RawClient
from tests.support.guarded_broker import (
    CLUSTER,
    GROUP,
    GUEST_HOST,
    TOPIC,
    GuardedBroker,
    Op,
    acl_filter,
    acl_row,
    granted,
)
from tests.support.valid_requests import World, some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def test_acls_are_described_by_kafkas_filters(admin: RawClient, world: World) -> None:
    def described(**changes: Any) -> set[tuple[str, int]]:
        answer = admin.ask(ApiKey.DESCRIBE_ACLS, 3, acl_filter(GUEST_HOST, **changes))
        assert answer.error_code == Errors.NONE
        return {(row.resource_name, row.pattern_type) for row in answer.resources for _ in row.acls}

    literal, prefixed = int(PatternType.LITERAL), int(PatternType.PREFIXED)
    for_topics = {"resource_type_filter": TOPIC, "resource_name_filter": "topic"}
    with granted(admin, [(TOPIC, "topic", Op.READ), (TOPIC, "tea", Op.READ), (TOPIC, "*", Op.DESCRIBE)]):
        rows = [
            acl_row((TOPIC, name, Op.WRITE), GUEST_HOST, PatternType.PREFIXED)
            for name in ("to", "topic", "te")
        ]
        admin.ask(ApiKey.CREATE_ACLS, 3, {"creations": rows})
        assert described(**for_topics, pattern_type_filter=PatternType.LITERAL) == {("topic", literal)}
        assert described(**for_topics) == {("topic", literal), ("topic", prefixed)}
        assert described(**for_topics, pattern_type_filter=PatternType.MATCH) == {
            ("topic", literal), ("*", literal), ("topic", prefixed), ("to", prefixed),
        }  # fmt: skip
        assert described(operation=Op.DESCRIBE) == {("*", literal)}
        assert len(described()) == 6
        admin.ask(
            ApiKey.DELETE_ACLS,
            3,
            {"filters": [acl_filter(GUEST_HOST, pattern_type_filter=PatternType.PREFIXED)]},
        )
    answer = admin.ask(ApiKey.DESCRIBE_ACLS, 3, acl_filter(operation=0))
    assert (answer.error_code, answer.resources) == (Errors.INVALID_REQUEST, ())


def test_version_0_knows_literal_patterns_alone(admin: RawClient, world: World) -> None:
    with granted(admin, [(TOPIC, "orders", Op.READ)], PatternType.PREFIXED):
        rows = admin.ask(ApiKey.DESCRIBE_ACLS, 0, acl_filter(GUEST_HOST)).resources
        assert rows == ()
        (result,) = admin.ask(ApiKey.DELETE_ACLS, 0, {"filters": [acl_filter(GUEST_HOST)]}).filter_results
        assert result.matching_acls == ()


def test_a_bad_acl_is_refused_and_its_neighbours_are_made(admin: RawClient, world: World) -> None:
    bad = [
        acl_row((CLUSTER, "other", Op.ALTER), GUEST_HOST),
        acl_row((GROUP, "", Op.READ), GUEST_HOST),
        acl_row((TOPIC, "a/b", Op.READ), GUEST_HOST),
        {**acl_row((TOPIC, "t", Op.READ), GUEST_HOST), "operation": 99},
        {**acl_row((TOPIC, "t", Op.READ), GUEST_HOST), "principal": "nobody"},
    ]
    good = acl_row((TOPIC, "fine", Op.READ), GUEST_HOST)
    answer = admin.ask(ApiKey.CREATE_ACLS, 3, {"creations": [*bad, good]})
    assert [row.error_code for row in answer.results] == [Errors.INVALID_REQUEST] * 5 + [Errors.NONE]
    (result,) = admin.ask(ApiKey.DELETE_ACLS, 3, {"filters": [acl_filter(GUEST_HOST)]}).filter_results
    assert [row.resource_name for row in result.matching_acls] == ["fine"]


def test_a_denial_is_a_line_of_the_audit_log_and_many_are_few_lines(
    broker: GuardedBroker, guest: RawClient, world: World
) -> None:
    def lines() -> list[str]:
        return [line for line in broker.log_text().splitlines() if " denied " in line and "audited" in line]

    for _ in range(200):
        guest.produce("audited", 0, some_records())
    found = lines()
    assert 1 <= len(found) < 20
    for part in (
        "log=audit",
        "principal=User:ANONYMOUS",
        f"host={GUEST_HOST}",
        "operation=Write",
        "Topic:audited",
        "api=produce",
    ):
        assert part in found[0]
    assert not any("sasl" in line for line in found)
