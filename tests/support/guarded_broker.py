"""A broker with an authorizer, whose ACLs a test grants and takes back.

Hosts tell who asks: the broker and its administrator come from 127.0.0.1, the guest from 127.0.0.2.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.security.acls import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceType
from rig.brokers import HOST, unused_port
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient

GUEST_HOST = "127.0.0.2"
Op = AclOperation
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
NEW_TOPIC: Final[Mapping[str, Any]] = {
    "num_partitions": 1,
    "replication_factor": 1,
    "assignments": [],
    "configs": [],
}
PASSWORDS = {"member": "member-secret", "owner": "owner-secret"}
ANONYMOUS, MEMBER = "User:ANONYMOUS", "User:member"
Acl = tuple[ResourceType, str, AclOperation]


def acl_row(
    acl: Acl, host: str, how: PatternType = PatternType.LITERAL, principal: str = ANONYMOUS
) -> dict[str, Any]:
    kind, name, operation = acl
    return {
        "resource_type": kind,
        "resource_name": name,
        "resource_pattern_type": how,
        "principal": principal,
        "host": host,
        "operation": operation,
        "permission_type": Permission.ALLOW,
    }


def acl_filter(host: str | None = None, **changes: Any) -> dict[str, Any]:
    anything = {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}
    names = {"resource_name_filter": None, "principal_filter": None, "host_filter": host}
    return {**anything, **names, **changes}


def topic_named(name: str) -> Mapping[str, Any]:
    """The topics of a Metadata request for this one."""
    return {"topics": [{"name": name, "topic_id": uuid.UUID(int=0)}]}


class GuardedBroker(LandlineStandalone):
    """A standalone broker with an authorizer, and a second listener whose users authenticate."""

    sasl_port: int


@contextmanager
def guarded_broker(data_dir: Path, **more: object) -> Iterator[GuardedBroker]:
    """At first everybody may do everything: that is how its host gets its ACLs. Then nobody may without one. ``more``
    are properties, with ``_`` for dots.
    """
    port, sasl_port = unused_port(), unused_port()
    users = " ".join(f'user_{user}="{password}"' for user, password in PASSWORDS.items())
    config: dict[str, object] = {
        "listeners": f"PLAINTEXT://{HOST}:{port},SASL_PLAINTEXT://{HOST}:{sasl_port}",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        ),
        "delegation.token.secret.key": "signs-tokens",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "offsets.topic.num.partitions": 1,
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.initial.rebalance.delay.ms": 0,
        **{key.replace("_", "."): value for key, value in more.items()},
    }
    everything = [(TOPIC, "*"), (GROUP, "*"), (TRANSACTION, "*"), (CLUSTER, CLUSTER_NAME)]
    rows = [acl_row((kind, name, AclOperation.ALL), HOST) for kind, name in everything]
    opened = LandlineStandalone(data_dir, {**config, "allow.everyone.if.no.acl.found": "true"}, port)
    with opened, RawClient(HOST, opened.port) as client:
        results = client.ask(ApiKey.CREATE_ACLS, 3, {"creations": rows}).results
        assert [result.error_code for result in results] == [Errors.NONE] * 4
    with GuardedBroker(data_dir, config, port) as running:
        running.sasl_port = sasl_port
        yield running
        assert not re.search(r"traceback=|processor_turn_failed|thread_died", running.log_text())


@contextmanager
def logged_in(broker: GuardedBroker, user: str) -> Iterator[RawClient]:
    """A connection of this user from the guest's host."""
    with RawClient(HOST, broker.sasl_port, from_host=GUEST_HOST) as client:
        client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        token = f"\0{user}\0{PASSWORDS[user]}".encode()
        assert client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token}).error_code == Errors.NONE
        yield client


@contextmanager
def granted(
    admin: RawClient,
    acls: Sequence[Acl],
    how: PatternType = PatternType.LITERAL,
    principal: str = ANONYMOUS,
) -> Iterator[None]:
    """Inside, the principal may do this from the guest's host."""
    rows = [acl_row(acl, GUEST_HOST, how, principal) for acl in acls]
    for result in admin.ask(ApiKey.CREATE_ACLS, 3, {"creations": rows}).results:
        assert result.error_code == Errors.NONE, result.error_message
    try:
        yield
    finally:
        (result,) = admin.ask(ApiKey.DELETE_ACLS, 3, {"filters": [acl_filter(GUEST_HOST)]}).filter_results
        assert len(result.matching_acls) == len(set(acls))
