"""The znodes of ACLs are Kafka's, to the byte where Kafka always writes them so."""

from __future__ import annotations

import json

import pytest

from broker.security import acl_znodes
from broker.security.acls import (
    AccessControlEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)
from broker.zookeeper.znodes import BadZnodeError

# As Apache Kafka 3.9.1 wrote it (kafka-acls.sh --add --allow-principal User:bob --operation Read --topic t1).
KAFKAS = (
    b'{"acls":[{"principal":"User:bob","permissionType":"Allow","host":"*","operation":"Read"}],"version":1}'
)
BOB_READS = AccessControlEntry("User:bob", "*", AclOperation.READ, Permission.ALLOW)


def pattern(kind: ResourceType, name: str, how: PatternType = PatternType.LITERAL) -> ResourcePattern:
    return ResourcePattern(kind, name, how)


@pytest.mark.parametrize(
    ("kind", "how", "path"),
    [
        (ResourceType.TOPIC, PatternType.LITERAL, "/kafka-acl/Topic/n"),
        (ResourceType.TRANSACTIONAL_ID, PatternType.LITERAL, "/kafka-acl/TransactionalId/n"),
        (ResourceType.DELEGATION_TOKEN, PatternType.LITERAL, "/kafka-acl/DelegationToken/n"),
        (ResourceType.GROUP, PatternType.PREFIXED, "/kafka-acl-extended/prefixed/Group/n"),
    ],
)
def test_each_pattern_has_kafkas_path(kind, how, path) -> None:
    assert acl_znodes.acl_path(pattern(kind, "n", how)) == path


def test_every_path_that_kafka_creates_at_start_is_created() -> None:
    kinds = ("Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User")
    expected = {f"{root}/{kind}" for root in ("/kafka-acl", "/kafka-acl-extended/prefixed") for kind in kinds}
    assert {*acl_znodes.PATHS} == expected | {"/kafka-acl-changes", "/kafka-acl-extended-changes"}


def test_an_entry_is_written_as_kafka_writes_it() -> None:
    assert acl_znodes.encode_acls([BOB_READS]) == KAFKAS


def test_what_kafka_wrote_is_read() -> None:
    assert acl_znodes.decode_acls("/kafka-acl/Topic/t1", KAFKAS) == {BOB_READS}


@pytest.mark.parametrize("operation", [each for each in AclOperation if each > AclOperation.ANY])
def test_every_operation_comes_back(operation) -> None:
    entry = AccessControlEntry("User:a:b", "10.0.0.1", operation, Permission.DENY)
    data = acl_znodes.encode_acls([entry])
    assert acl_znodes.decode_acls("/p", data) == {entry}


def test_old_names_in_capitals_are_read() -> None:
    row = {"principal": "User:a", "permissionType": "DENY", "operation": "DESCRIBE_CONFIGS", "host": "*"}
    data = json.dumps({"version": 1, "acls": [row]}).encode()
    (entry,) = acl_znodes.decode_acls("/p", data)
    assert entry == AccessControlEntry("User:a", "*", AclOperation.DESCRIBE_CONFIGS, Permission.DENY)


def test_an_empty_znode_has_no_entries() -> None:
    assert acl_znodes.decode_acls("/p", b"") == frozenset()


@pytest.mark.parametrize(
    "data",
    [
        b"x",
        b"[]",
        b'{"version":2,"acls":[]}',
        b'{"version":1}',
        b'{"version":1,"acls":[{}]}',
        b'{"version":1,"acls":[1]}',
        KAFKAS.replace(b"Read", b"Reed"),
        KAFKAS.replace(b"Allow", b"Any"),
        KAFKAS.replace(b"User:bob", b"bob"),
    ],
)
def test_acls_that_are_not_understood_are_an_error_because_they_may_be_denials(data) -> None:
    with pytest.raises(BadZnodeError, match="/kafka-acl/Topic/t1"):
        acl_znodes.decode_acls("/kafka-acl/Topic/t1", data)


def test_a_literal_change_is_plain_text_as_kafkas() -> None:
    changed = pattern(ResourceType.TRANSACTIONAL_ID, "a:b")
    assert acl_znodes.encode_change(changed) == b"TRANSACTIONAL_ID:a:b"
    assert acl_znodes.decode_change(PatternType.LITERAL, "/p", b"TRANSACTIONAL_ID:a:b") == changed
    assert acl_znodes.decode_change(PatternType.LITERAL, "/p", b"Topic:t") == pattern(ResourceType.TOPIC, "t")


def test_a_prefixed_change_is_kafkas_json() -> None:
    changed = pattern(ResourceType.TOPIC, "orders-", PatternType.PREFIXED)
    data = b'{"version":1,"resourceType":"TOPIC","name":"orders-","patternType":"PREFIXED"}'
    assert acl_znodes.encode_change(changed) == data
    assert acl_znodes.decode_change(PatternType.PREFIXED, "/p", data) == changed


@pytest.mark.parametrize(
    ("how", "data"),
    [
        (PatternType.LITERAL, b"t"),
        (PatternType.LITERAL, b"\xff:t"),
        (PatternType.LITERAL, b"Any:t"),
        (PatternType.PREFIXED, b"TOPIC:t"),
        (PatternType.PREFIXED, b'{"version":2,"resourceType":"TOPIC","name":"o","patternType":"PREFIXED"}'),
        (PatternType.PREFIXED, b'{"version":1,"resourceType":"TOPIC","name":"o","patternType":"MATCH-"}'),
    ],
)
def test_a_change_that_is_not_understood_is_an_error(how, data) -> None:
    with pytest.raises(BadZnodeError, match="/p"):
        acl_znodes.decode_change(how, "/p", data)
