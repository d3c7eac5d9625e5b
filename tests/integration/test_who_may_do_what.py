"""Every API with an authorizer: what a principal is denied, with which error, and which ACL permits it.

Hosts tell who asks: the broker and its administrator come from 127.0.0.1, the guest from 127.0.0.2.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.framing import response_body_offset
from broker.security.acls import CLUSTER_NAME, AclOperation, PatternType, Permission, ResourceType
from rig.brokers import HOST, unused_port
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until
from tests.support.valid_requests import World, fields, some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

GUEST_HOST = "127.0.0.2"
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTION = ResourceType.TRANSACTIONAL_ID
NOT_ASKED = -(1 << 31)
REFUSALS = {
    Errors.TOPIC_AUTHORIZATION_FAILED,
    Errors.GROUP_AUTHORIZATION_FAILED,
    Errors.CLUSTER_AUTHORIZATION_FAILED,
    Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
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


class GuardedBroker(LandlineStandalone):
    """A standalone broker with an authorizer, and a second listener whose users authenticate."""

    sasl_port: int


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    """First everybody may do everything: that is how its host gets its ACLs. Then nobody may without one."""
    data_dir = tmp_path_factory.mktemp("guarded") / "data"
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
        "group.initial.rebalance.delay.ms": 0,
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


@pytest.fixture(scope="module")
def admin(broker: LandlineStandalone) -> Iterator[RawClient]:
    with RawClient(HOST, broker.port) as client:
        yield client


@pytest.fixture
def guest(broker: LandlineStandalone) -> Iterator[RawClient]:
    with RawClient(HOST, broker.port, from_host=GUEST_HOST) as client:
        yield client


@contextmanager
def logged_in(broker: GuardedBroker, user: str) -> Iterator[RawClient]:
    """A connection of this user from the guest's host."""
    with RawClient(HOST, broker.sasl_port, from_host=GUEST_HOST) as client:
        client.ask(ApiKey.SASL_HANDSHAKE, 1, {"mechanism": "PLAIN"})
        token = f"\0{user}\0{PASSWORDS[user]}".encode()
        assert client.ask(ApiKey.SASL_AUTHENTICATE, 2, {"auth_bytes": token}).error_code == Errors.NONE
        yield client


@pytest.fixture
def member(broker: GuardedBroker) -> Iterator[RawClient]:
    with logged_in(broker, "member") as client:
        yield client


@pytest.fixture(scope="module")
def world(broker: LandlineStandalone, admin: RawClient) -> World:
    """A topic with a record, and a group with an offset."""
    with urllib.request.urlopen(f"{broker.http_url}/status") as answer:
        epoch = json.load(answer)["broker_epoch"]
    made = World(broker_epoch=epoch, host=HOST, port=broker.port)
    answer = admin.create_topic(made.topic)
    assert answer.error_code == Errors.NONE
    made = dataclasses.replace(made, topic_id=answer.topic_id)
    assert admin.produce(made.topic, 0, some_records(b"first")).error_code == Errors.NONE
    wait_until(lambda: commit(admin, made) == Errors.NONE, what="the group's coordinator serves")
    return made


def commit(client: RawClient, world: World) -> int:
    client.ask(ApiKey.FIND_COORDINATOR, 2, fields(ApiKey.FIND_COORDINATOR, 2, world))
    answer = client.ask(ApiKey.OFFSET_COMMIT, 7, fields(ApiKey.OFFSET_COMMIT, 7, world))
    return int(answer.topics[0].partitions[0].error_code)


@contextmanager
def granted(
    admin: RawClient,
    acls: Sequence[Acl],
    how: PatternType = PatternType.LITERAL,
    principal: str = ANONYMOUS,
) -> Iterator[None]:
    """The guest may do this for as long as it lasts."""
    rows = [acl_row(acl, GUEST_HOST, how, principal) for acl in acls]
    for result in admin.ask(ApiKey.CREATE_ACLS, 3, {"creations": rows}).results:
        assert result.error_code == Errors.NONE, result.error_message
    try:
        yield
    finally:
        (result,) = admin.ask(ApiKey.DELETE_ACLS, 3, {"filters": [acl_filter(GUEST_HOST)]}).filter_results
        assert len(result.matching_acls) == len(set(acls))


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


def on_topic(operation: AclOperation, name: str = "topic") -> tuple[Acl, Errors]:
    return (TOPIC, name, operation), Errors.TOPIC_AUTHORIZATION_FAILED


def on_group(operation: AclOperation, name: str = "group") -> tuple[Acl, Errors]:
    return (GROUP, name, operation), Errors.GROUP_AUTHORIZATION_FAILED


def on_cluster(
    operation: AclOperation, error: Errors = Errors.CLUSTER_AUTHORIZATION_FAILED
) -> tuple[Acl, Errors]:
    return (CLUSTER, CLUSTER_NAME, operation), error


def resource(kind: int, name: str, **more: Any) -> Callable[[World], Mapping[str, Any]]:
    return lambda _world: {"resources": [{"resource_type": kind, "resource_name": name, **more}]}


def named(name: str) -> Callable[[World], Mapping[str, Any]]:
    return lambda _world: {"topics": [{"name": name, "topic_id": uuid.UUID(int=0)}]}


Op = AclOperation
BY_CLUSTER = Errors.TOPIC_AUTHORIZATION_FAILED
BROKER_SETTING = [{"name": "log.cleaner.threads", "config_operation": 1, "value": None}]
NEW_TOPIC = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
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
        named("new-a"),
    ),
    Case(
        ApiKey.METADATA,
        12,
        [on_topic(Op.DESCRIBE, "new-b"), on_cluster(Op.CREATE, BY_CLUSTER)],
        "of a new topic by whoever creates all",
        named("new-b"),
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
    Case(ApiKey.DESCRIBE_GROUPS, 5, [on_group(Op.DESCRIBE)]),
    Case(ApiKey.DELETE_GROUPS, 2, [on_group(Op.DELETE, "no-group-2")]),
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
        [((TRANSACTION, "tx", Op.WRITE), Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)],
        "of a transaction",
        lambda _world: {"transactional_id": "tx"},
    ),
    Case(
        ApiKey.PRODUCE,
        11,
        [((TRANSACTION, "tx", Op.WRITE), Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)],
        "of a transaction",
        lambda _world: {"transactional_id": "tx"},
    ),
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


def test_a_prefixed_acl_permits_names_that_begin_so_and_no_others(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    with granted(admin, [(TOPIC, "to", Op.WRITE)], PatternType.PREFIXED):
        assert guest.produce(world.topic, 0, some_records()).error_code == Errors.NONE
        denied = guest.produce("tea", 0, some_records())
        assert denied.error_code == Errors.TOPIC_AUTHORIZATION_FAILED


def test_one_produce_writes_what_it_may_and_is_refused_the_rest(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    data = [{"index": 0, "records": some_records()}]
    body = {"acks": -1, "timeout": 10_000, "topic_data": [
        {"name": "secret", "partition_data": data}, {"name": world.topic, "partition_data": data},
    ]}  # fmt: skip
    with granted(admin, [(TOPIC, world.topic, Op.WRITE)]):
        answer = guest.ask(ApiKey.PRODUCE, 9, body)
    found = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
    assert found == {"secret": Errors.TOPIC_AUTHORIZATION_FAILED, world.topic: Errors.NONE}


def test_a_denied_produce_without_acknowledgement_ends_the_connection(guest: RawClient, world: World) -> None:
    body = {**fields(ApiKey.PRODUCE, 9, world), "acks": 0}
    with pytest.raises((ConnectionError, EOFError)):
        guest.ask(ApiKey.PRODUCE, 9, body)


def all_topics(client: RawClient, version: int = 12, **more: Any) -> Any:
    asked = {"topics": None, "allow_auto_topic_creation": False}
    operations = {
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    return client.ask(ApiKey.METADATA, version, {**asked, **operations, **more})


def test_all_topics_are_those_that_a_principal_may_describe_whatever_others_saw_before(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    seen = {topic.name for topic in all_topics(admin).topics}
    assert world.topic in seen
    assert len(seen) > 1
    assert all_topics(guest).topics == ()
    with granted(admin, [(TOPIC, world.topic, Op.READ)]):
        assert [topic.name for topic in all_topics(guest).topics] == [world.topic]
        assert {topic.name for topic in all_topics(admin).topics} == seen
    assert all_topics(guest).topics == ()


def test_a_topic_that_may_not_be_described_looks_like_one_that_is_not_there(
    guest: RawClient, world: World
) -> None:
    rows = [
        guest.ask(ApiKey.METADATA, 12, {**fields(ApiKey.METADATA, 12, world), **named(name)(world)}).topics[0]
        for name in (world.topic, "never-made")
    ]
    assert [dataclasses.replace(row, name=None) for row in rows] == [
        dataclasses.replace(rows[0], name=None)
    ] * 2


def test_authorized_operations_are_those_of_the_principal(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    asked = {"include_cluster_authorized_operations": True, "include_topic_authorized_operations": True}
    (row,) = [topic for topic in all_topics(admin, 10, **asked).topics if topic.name == world.topic]
    assert row.topic_authorized_operations == sum(1 << code for code in (3, 4, 5, 6, 7, 8, 10, 11))
    with granted(admin, [(TOPIC, world.topic, Op.READ)]):
        answer = all_topics(guest, 10, **asked)
        assert answer.cluster_authorized_operations == 0
        assert answer.topics[0].topic_authorized_operations == 1 << Op.READ | 1 << Op.DESCRIBE
        assert all_topics(guest, 10).topics[0].topic_authorized_operations == NOT_ASKED
    cluster = {"include_cluster_authorized_operations": True}
    everything = sum(1 << code for code in (5, 7, 8, 9, 10, 11, 12))
    answer = admin.ask(ApiKey.DESCRIBE_CLUSTER, 1, cluster)
    assert answer.cluster_authorized_operations == everything
    assert guest.ask(ApiKey.DESCRIBE_CLUSTER, 1, cluster).cluster_authorized_operations == 0
    with granted(admin, [(CLUSTER, CLUSTER_NAME, Op.DESCRIBE)]):
        answer = guest.ask(ApiKey.DESCRIBE_CLUSTER, 1, cluster)
        assert answer.cluster_authorized_operations == 1 << Op.DESCRIBE
    described = {"groups": [world.group], "include_authorized_operations": True}
    with granted(admin, [(GROUP, world.group, Op.DESCRIBE)]):
        (group,) = guest.ask(ApiKey.DESCRIBE_GROUPS, 5, described).groups
        assert group.authorized_operations == 1 << Op.DESCRIBE


def test_groups_are_listed_to_whom_may_describe_them_or_the_cluster(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    def listed() -> list[str]:
        answer = guest.ask(ApiKey.LIST_GROUPS, 4, {"states_filter": []})
        assert answer.error_code == Errors.NONE
        return [row.group_id for row in answer.groups]

    assert listed() == []
    for acl in ((GROUP, world.group, Op.READ), (CLUSTER, CLUSTER_NAME, Op.DESCRIBE)):
        with granted(admin, [acl]):
            assert world.group in listed()


def test_all_offsets_of_a_group_are_those_of_topics_that_may_be_described(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    asked = {"groups": [{"group_id": world.group, "topics": None}], "require_stable": False}

    def topics() -> list[str]:
        (group,) = guest.ask(ApiKey.OFFSET_FETCH, 8, asked).groups
        assert group.error_code == Errors.NONE
        return [topic.name for topic in group.topics]

    with granted(admin, [(GROUP, world.group, Op.DESCRIBE)]):
        assert topics() == []
    with granted(admin, [(GROUP, world.group, Op.DESCRIBE), (TOPIC, world.topic, Op.DESCRIBE)]):
        assert topics() == [world.topic]


def test_a_topic_is_deleted_by_its_id_and_its_name_told_only_to_whom_may_describe_it(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    made = admin.create_topic("to-delete")
    asked = {"topics": [{"name": None, "topic_id": made.topic_id}], "timeout": 10_000}
    (row,) = guest.ask(ApiKey.DELETE_TOPICS, 6, asked).responses
    assert (row.name, row.error_code) == (None, Errors.TOPIC_AUTHORIZATION_FAILED)
    with granted(admin, [(TOPIC, "to-delete", Op.DESCRIBE)]):
        (row,) = guest.ask(ApiKey.DELETE_TOPICS, 6, asked).responses
        assert (row.name, row.error_code) == ("to-delete", Errors.TOPIC_AUTHORIZATION_FAILED)
    with granted(admin, [(TOPIC, "to-delete", Op.DELETE)]):
        (row,) = guest.ask(ApiKey.DELETE_TOPICS, 6, asked).responses
        assert (row.name, row.error_code) == ("to-delete", Errors.NONE)


def test_a_topic_that_may_not_be_altered_does_not_tell_its_partitions_by_what_is_too_many(
    guest: RawClient, world: World
) -> None:
    for name in (world.topic, "not-there"):
        row = {"name": name, "count": 10_001, "assignments": None}
        asked = {"topics": [row], "timeout": 1_000, "validate_only": True}
        (result,) = guest.ask(ApiKey.CREATE_PARTITIONS, 3, asked).results
        assert result.error_code == Errors.TOPIC_AUTHORIZATION_FAILED


def test_the_configs_of_a_created_topic_are_told_to_whom_may_describe_them(
    admin: RawClient, guest: RawClient
) -> None:
    asked = {"topics": [{"name": "quiet", **NEW_TOPIC}], "timeout": 10_000, "validate_only": True}
    with granted(admin, [(TOPIC, "quiet", Op.CREATE)]):
        (row,) = guest.ask(ApiKey.CREATE_TOPICS, 7, asked).topics
    assert (row.error_code, row.topic_config_error_code) == (Errors.NONE, Errors.TOPIC_AUTHORIZATION_FAILED)
    assert (row.num_partitions, row.replication_factor, row.configs) == (-1, -1, ())


def test_a_fetch_session_ends_at_the_next_fetch_after_its_right_did(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 16}
    first = {**fields(ApiKey.FETCH, 12, world), "session_id": 0, "session_epoch": 0}
    first["topics"] = [{"topic": world.topic, "partitions": [wanted]}]
    with granted(admin, [(TOPIC, world.topic, Op.READ)]):
        answer = guest.ask(ApiKey.FETCH, 12, first)
        assert answer.responses[0].partitions[0].error_code == Errors.NONE
        assert answer.session_id
    following = {**first, "topics": [], "session_id": answer.session_id, "session_epoch": 1}
    answer = guest.ask(ApiKey.FETCH, 12, following)
    assert answer.responses[0].partitions[0].error_code == Errors.TOPIC_AUTHORIZATION_FAILED
    assert not answer.responses[0].partitions[0].records


def test_a_fetch_that_waits_gets_nothing_that_was_written_after_its_right_ended(
    admin: RawClient, guest: RawClient, world: World
) -> None:
    partition = {
        "partition": 0,
        "fetch_offset": admin.end_offset(world.topic),
        "partition_max_bytes": 1 << 20,
    }
    asked = {
        **fields(ApiKey.FETCH, 12, world),
        "max_wait": 1_500,
        "min_bytes": 1 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": world.topic, "partitions": [partition]}],
    }
    with granted(admin, [(TOPIC, world.topic, Op.READ)]):
        body = codec.encode(ApiKey.FETCH, 12, "request", asked)
        guest.send(request_frame(ApiKey.FETCH, 12, body))
        time.sleep(0.3)
    assert admin.produce(world.topic, 0, some_records(b"later")).error_code == Errors.NONE
    frame = memoryview(guest.receive_frame())
    assert b"later" not in bytes(frame)
    offset = response_body_offset(ApiKey.FETCH, 12, frame)
    answer = codec.decode(ApiKey.FETCH, 12, "response", frame[offset:])
    assert answer.responses[0].partitions[0].error_code == Errors.TOPIC_AUTHORIZATION_FAILED


# --- the ACL requests


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
    broker: LandlineStandalone, guest: RawClient, world: World
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
