"""Every API with an authorizer: what a principal is denied, with which error, and which ACL permits it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from broker.protocol.api_keys import APIS, OF_CONSUMER_GROUPS, ApiKey
from broker.protocol.errors import Errors
from broker.security.acls import CLUSTER_NAME, ResourceType
from rig.brokers import HOST
from rig.raw_client import RawClient
from tests.support.guarded_broker import (
    ANONYMOUS,
    CLUSTER,
    GROUP,
    GUEST_HOST,
    MEMBER,
    NEW_TOPIC,
    TOPIC,
    TRANSACTION,
    Acl,
    GuardedBroker,
    Op,
    acl_row,
    granted,
    guarded_broker,
    logged_in,
    topic_named,
)
from tests.support.valid_requests import World, fields

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
REFUSALS = {
    Errors.TOPIC_AUTHORIZATION_FAILED,
    Errors.GROUP_AUTHORIZATION_FAILED,
    Errors.CLUSTER_AUTHORIZATION_FAILED,
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}


def codes(entity: Any) -> list[int]:
    """All error codes of a response."""
    if isinstance(entity, tuple):
        return [code for one in entity for code in codes(one)]
    if not dataclasses.is_dataclass(entity):
        return []
    found = []
    for each in dataclasses.fields(entity):
        value = getattr(entity, each.name)
        if each.name.endswith("error_code"):
            found.append(int(value))
        else:
            found += codes(value)
    return found


def refusals(response: Any) -> set[Errors]:
    return {Errors(code) for code in codes(response)} & REFUSALS


@dataclass(frozen=True)
class Case:
    """A request, the ACLs that it needs, and the error that each of them avoids."""

    key: ApiKey
    version: int
    needs: Sequence[tuple[Acl, Errors]]
    title: str = ""
    change: Callable[[World], Mapping[str, Any]] = field(default=lambda _world: {})

    def __str__(self) -> str:
        return f"{self.key.name.lower()}-{self.version}-{self.title}"

    def body(self, world: World) -> Mapping[str, Any]:
        return {**fields(self.key, self.version, world), **self.change(world)}


def on_topic(operation: Op, name: str = "topic") -> tuple[Acl, Errors]:
    return (TOPIC, name, operation), Errors.TOPIC_AUTHORIZATION_FAILED


def on_group(operation: Op, name: str = "group") -> tuple[Acl, Errors]:
    return (GROUP, name, operation), Errors.GROUP_AUTHORIZATION_FAILED


def of_transaction(operation: Op, name: str) -> tuple[Acl, Errors]:
    return (TRANSACTION, name, operation), Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def on_cluster(operation: Op, error: Errors = Errors.CLUSTER_AUTHORIZATION_FAILED) -> tuple[Acl, Errors]:
    return (CLUSTER, CLUSTER_NAME, operation), error


def resource(kind: int, name: str, **more: Any) -> Callable[[World], Mapping[str, Any]]:
    return lambda _world: {"resources": [{"resource_type": kind, "resource_name": name, **more}]}


BY_CLUSTER = Errors.TOPIC_AUTHORIZATION_FAILED
ON_TRANSACTION = (
    (TRANSACTION, "tx", Op.WRITE),
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
BROKER_SETTING = [{"name": "background.threads", "config_operation": 1, "value": None}]
CASES = [
    *(Case(ApiKey.PRODUCE, version, [on_topic(Op.WRITE)]) for version in (3, 11)),
    *(Case(ApiKey.FETCH, version, [on_topic(Op.READ)]) for version in (4, 12, 17)),
    Case(
        ApiKey.FETCH,
        12,
        [on_cluster(Op.CLUSTER_ACTION, Errors.TOPIC_AUTHORIZATION_FAILED)],
        "of a follower",
        lambda _world: {"replica_id": 1},
    ),
    *(Case(ApiKey.LIST_OFFSETS, version, [on_topic(Op.DESCRIBE)]) for version in (1, 9)),
    *(Case(ApiKey.METADATA, version, [on_topic(Op.DESCRIBE)]) for version in (1, 12)),
    Case(
        ApiKey.METADATA,
        12,
        [on_topic(Op.DESCRIBE)],
        "by id",
        lambda world: {"topics": [{"name": None, "topic_id": world.topic_id}]},
    ),
    Case(
        ApiKey.METADATA,
        12,
        [on_topic(Op.DESCRIBE, "new-a"), on_topic(Op.CREATE, "new-a")],
        "of a new topic",
        lambda _world: topic_named("new-a"),
    ),
    Case(
        ApiKey.METADATA,
        12,
        [on_topic(Op.DESCRIBE, "new-b"), on_cluster(Op.CREATE, BY_CLUSTER)],
        "of a new topic by whoever creates all",
        lambda _world: topic_named("new-b"),
    ),
    *(Case(ApiKey.OFFSET_COMMIT, version, [on_group(Op.READ), on_topic(Op.READ)]) for version in (2, 9)),
    *(
        Case(ApiKey.OFFSET_FETCH, version, [on_group(Op.DESCRIBE), on_topic(Op.DESCRIBE)])
        for version in (1, 5, 8)
    ),
    *(Case(ApiKey.FIND_COORDINATOR, version, [on_group(Op.DESCRIBE)]) for version in (0, 3, 4)),
    Case(ApiKey.JOIN_GROUP, 9, [on_group(Op.READ, "joined-by-version-9")]),
    Case(ApiKey.HEARTBEAT, 4, [on_group(Op.READ)]),
    *(Case(ApiKey.LEAVE_GROUP, version, [on_group(Op.READ)]) for version in (0, 5)),
    Case(ApiKey.SYNC_GROUP, 5, [on_group(Op.READ)]),
    *(Case(ApiKey.CONSUMER_GROUP_HEARTBEAT, version, [on_group(Op.READ)]) for version in (0, 1)),
    Case(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        0,
        [on_group(Op.READ), on_topic(Op.DESCRIBE)],
        "with topics",
        lambda world: {"subscribed_topic_names": [world.topic]},
    ),
    *(Case(ApiKey.CONSUMER_GROUP_DESCRIBE, version, [on_group(Op.DESCRIBE)]) for version in (0, 1)),
    Case(ApiKey.DESCRIBE_GROUPS, 5, [on_group(Op.DESCRIBE)]),
    Case(ApiKey.DELETE_GROUPS, 2, [on_group(Op.DELETE, "no-group-2")]),
    Case(ApiKey.OFFSET_DELETE, 0, [on_group(Op.DELETE), on_topic(Op.READ)]),
    Case(
        ApiKey.CREATE_TOPICS,
        7,
        [on_topic(Op.CREATE, "made-a"), on_topic(Op.DESCRIBE_CONFIGS, "made-a")],
        "",
        lambda _world: {"topics": [{"name": "made-a", **NEW_TOPIC}], "validate_only": True},
    ),
    Case(
        ApiKey.CREATE_TOPICS,
        4,
        [on_cluster(Op.CREATE, BY_CLUSTER)],
        "by whoever creates all",
        lambda _world: {"topics": [{"name": "made-b", **NEW_TOPIC}], "validate_only": True},
    ),
    Case(ApiKey.DELETE_TOPICS, 3, [on_topic(Op.DELETE, "deleted-by-version-3")]),
    Case(ApiKey.DELETE_RECORDS, 2, [on_topic(Op.DELETE)]),
    Case(ApiKey.CREATE_PARTITIONS, 3, [on_topic(Op.ALTER, "extended-by-version-3")]),
    Case(ApiKey.DESCRIBE_CONFIGS, 4, [on_topic(Op.DESCRIBE_CONFIGS)]),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        [on_cluster(Op.DESCRIBE_CONFIGS)],
        "of a broker",
        resource(4, "0", configuration_keys=["num.io.threads"]),
    ),
    Case(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        [on_cluster(Op.DESCRIBE_CONFIGS)],
        "of loggers",
        resource(8, "0", configuration_keys=None),
    ),
    Case(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, [on_topic(Op.ALTER_CONFIGS)]),
    Case(ApiKey.ALTER_CONFIGS, 2, [on_topic(Op.ALTER_CONFIGS)]),
    Case(
        ApiKey.ALTER_CONFIGS,
        2,
        [on_cluster(Op.ALTER_CONFIGS)],
        "of a broker",
        resource(4, "0", configs=[{"name": "log.retention.ms", "value": "5"}]),
    ),
    Case(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        [on_cluster(Op.ALTER_CONFIGS)],
        "of a broker",
        resource(4, "0", configs=BROKER_SETTING),
    ),
    *(Case(ApiKey.DESCRIBE_LOG_DIRS, version, [on_cluster(Op.DESCRIBE)]) for version in (3, 4)),
    *(Case(ApiKey.ELECT_LEADERS, version, [on_cluster(Op.ALTER)]) for version in (0, 2)),
    Case(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, [on_cluster(Op.ALTER)]),
    Case(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, [on_cluster(Op.ALTER)]),
    Case(ApiKey.UPDATE_FEATURES, 1, [on_cluster(Op.ALTER)]),
    Case(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, [on_cluster(Op.DESCRIBE)]),
    Case(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, [on_topic(Op.DESCRIBE)]),
    Case(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, [on_cluster(Op.CLUSTER_ACTION, BY_CLUSTER)], "of a follower"),
    Case(ApiKey.INIT_PRODUCER_ID, 5, [on_cluster(Op.IDEMPOTENT_WRITE)]),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        5,
        [((TOPIC, "any-at-all", Op.WRITE), Errors.CLUSTER_AUTHORIZATION_FAILED)],
        "by whoever writes a topic",
    ),
    Case(
        ApiKey.INIT_PRODUCER_ID,
        5,
        [of_transaction(Op.WRITE, "tx")],
        "of a transaction",
        lambda _world: {"transactional_id": "tx"},
    ),
    *(
        Case(ApiKey.ADD_PARTITIONS_TO_TXN, version, [ON_TRANSACTION, on_topic(Op.WRITE)])
        for version in (0, 3)
    ),
    *(
        Case(ApiKey.ADD_PARTITIONS_TO_TXN, version, [on_cluster(Op.CLUSTER_ACTION)], "of a leader")
        for version in (4, 5)
    ),
    *(Case(ApiKey.ADD_OFFSETS_TO_TXN, version, [ON_TRANSACTION, on_group(Op.READ)]) for version in (0, 4)),
    *(Case(ApiKey.END_TXN, version, [ON_TRANSACTION]) for version in (0, 4)),
    Case(
        ApiKey.DESCRIBE_TRANSACTIONS,
        0,
        [((TRANSACTION, "tx", Op.DESCRIBE), Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)],
    ),
    *(Case(ApiKey.WRITE_TXN_MARKERS, version, [on_cluster(Op.CLUSTER_ACTION)]) for version in (0, 1)),
    Case(
        ApiKey.PRODUCE,
        11,
        [of_transaction(Op.WRITE, "tx"), on_topic(Op.WRITE)],
        "of a transaction",
        lambda _world: {"transactional_id": "tx"},
    ),
    Case(ApiKey.WRITE_TXN_MARKERS, 1, [on_cluster(Op.ALTER)], "of an administrator"),
    Case(
        ApiKey.TXN_OFFSET_COMMIT,
        4,
        [of_transaction(Op.WRITE, "t"), on_group(Op.READ), on_topic(Op.READ)],
    ),
    Case(ApiKey.DESCRIBE_PRODUCERS, 0, [on_topic(Op.READ)]),
    Case(ApiKey.LEADER_AND_ISR, 7, [on_cluster(Op.CLUSTER_ACTION)]),
    Case(ApiKey.STOP_REPLICA, 4, [on_cluster(Op.CLUSTER_ACTION)]),
    Case(ApiKey.UPDATE_METADATA, 8, [on_cluster(Op.CLUSTER_ACTION)]),
    Case(ApiKey.CONTROLLED_SHUTDOWN, 3, [on_cluster(Op.CLUSTER_ACTION)]),
    Case(ApiKey.ALTER_PARTITION, 3, [on_cluster(Op.CLUSTER_ACTION)]),
    Case(ApiKey.ALLOCATE_PRODUCER_IDS, 0, [on_cluster(Op.CLUSTER_ACTION)]),
    *(Case(ApiKey.DESCRIBE_ACLS, version, [on_cluster(Op.DESCRIBE)]) for version in range(4)),
    *(Case(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, [on_cluster(Op.DESCRIBE_CONFIGS)]) for version in (0, 1)),
    *(Case(ApiKey.ALTER_CLIENT_QUOTAS, version, [on_cluster(Op.ALTER_CONFIGS)]) for version in (0, 1)),
    Case(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, [on_cluster(Op.DESCRIBE)]),
    Case(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, [on_cluster(Op.ALTER)]),
    *(Case(ApiKey.DELETE_ACLS, version, [on_cluster(Op.ALTER)]) for version in range(4)),
    Case(
        ApiKey.CREATE_ACLS,
        3,
        [on_cluster(Op.ALTER)],
        "",
        lambda _world: {"creations": [acl_row((GROUP, "", Op.READ), "*")]},
    ),
]
NEW_TOKEN = {
    "owner_principal_type": "User",
    "owner_principal_name": "owner",
    "renewers": [],
    "max_lifetime": -1,
}
# Of clients that have authenticated. What is asked for one's own tokens needs nothing.
CASES_OF_MEMBERS = [
    Case(
        ApiKey.CREATE_DELEGATION_TOKEN,
        3,
        [
            (
                (ResourceType.USER, "User:owner", Op.CREATE_TOKENS),
                Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
            )
        ],
        "of another owner",
        lambda _world: NEW_TOKEN,
    ),
]
WITHOUT_NEEDS = {
    ApiKey.API_VERSIONS,
    ApiKey.SASL_HANDSHAKE,
    ApiKey.SASL_AUTHENTICATE,
    ApiKey.RENEW_DELEGATION_TOKEN,
    ApiKey.EXPIRE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_DELEGATION_TOKEN,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.LIST_GROUPS,
    ApiKey.LIST_TRANSACTIONS,
}


def test_every_api_is_in_the_table_or_needs_nothing() -> None:
    assert {case.key for case in [*CASES, *CASES_OF_MEMBERS]} | WITHOUT_NEEDS == set(ApiKey)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_request_is_refused_until_the_last_of_its_needs_is_granted(
    case: Case, admin: RawClient, guest: RawClient, world: World
) -> None:
    check(case, admin, guest, world, ANONYMOUS)


@pytest.mark.parametrize("case", CASES_OF_MEMBERS, ids=str)
def test_a_request_of_a_member_is_refused_until_the_last_of_its_needs_is_granted(
    case: Case, admin: RawClient, member: RawClient, world: World
) -> None:
    check(case, admin, member, world, MEMBER)


def check(case: Case, admin: RawClient, guest: RawClient, world: World, principal: str) -> None:
    body = case.body(world)
    acls: list[Acl] = []
    for acl, error in case.needs:
        with granted(admin, acls, principal=principal):
            assert refusals(guest.ask(case.key, case.version, body)) == {error}
        acls.append(acl)
    with granted(admin, acls, principal=principal):
        response = guest.ask(case.key, case.version, body)
    assert refusals(response) == set()
    assert guest.is_open()


def test_tokens_of_others_are_described_to_whom_may_and_changed_by_their_owners_and_renewers(
    admin: RawClient, broker: GuardedBroker, member: RawClient
) -> None:
    with logged_in(broker, "owner") as owner:
        own = {**NEW_TOKEN, "owner_principal_type": None, "owner_principal_name": None}
        made = owner.ask(ApiKey.CREATE_DELEGATION_TOKEN, 3, own)
        assert made.error_code == Errors.NONE

        def seen() -> bool:
            answer = member.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, {"owners": None})
            assert answer.error_code == Errors.NONE
            return made.token_id in {token.token_id for token in answer.tokens}

        assert not seen()
        for acl in (
            (ResourceType.USER, "User:owner", Op.DESCRIBE_TOKENS),
            (ResourceType.DELEGATION_TOKEN, made.token_id, Op.DESCRIBE),
        ):
            with granted(admin, [acl], principal=MEMBER):
                assert seen()
        assert not seen()
        renewing, ending = (
            {"hmac": made.hmac, "renew_period": -1},
            {"hmac": made.hmac, "expiry_time_period": -1},
        )
        for key, fields in (
            (ApiKey.RENEW_DELEGATION_TOKEN, renewing),
            (ApiKey.EXPIRE_DELEGATION_TOKEN, ending),
        ):
            assert member.ask(key, 2, fields).error_code == Errors.DELEGATION_TOKEN_OWNER_MISMATCH
            assert owner.ask(key, 2, fields).error_code == Errors.NONE


def test_consumer_groups_that_are_turned_off_are_no_question_of_rights(tmp_path: Path) -> None:
    with (
        guarded_broker(tmp_path / "data", group_coordinator_rebalance_protocols="classic") as guarded,
        RawClient(HOST, guarded.port, from_host=GUEST_HOST) as guest,
    ):
        for key in sorted(OF_CONSUMER_GROUPS):
            for version in range(APIS[key].max_version + 1):
                answer = guest.ask(key, version, fields(key, version, World()))
                assert set(codes(answer)) == {Errors.UNSUPPORTED_VERSION}
