"""Requests of every API, the ACLs that a guest may have, and what an answer says: to ask brokers of two kinds.

There is no table of what each request needs: a broker of the other kind knows.
"""

from __future__ import annotations

import dataclasses
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from broker.protocol import codec
from broker.protocol.api_keys import APIS, OF_CONSUMER_GROUPS, ApiKey
from broker.protocol.errors import Errors
from broker.protocol.framing import response_body_offset
from broker.protocol.primitives import INT16
from broker.record.batch import Record, build_batch
from broker.security.acls import CLUSTER_NAME, SUPPORTED, AclOperation, PatternType, Permission, ResourceType
from rig.brokers import HOST
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until
from tests.support.secured import OWNER, Acl
from tests.support.times import NOW_MS
from tests.support.valid_requests import TRANSACTION, World, fields

NEW_TOPIC, NO_TOPIC, GROUP_TO_JOIN, NEW_TRANSACTION = "topic-new", "topic-gone", "group-new", "tx-new"
REFUSALS: Final = frozenset(
    {
        Errors.TOPIC_AUTHORIZATION_FAILED,
        Errors.GROUP_AUTHORIZATION_FAILED,
        Errors.CLUSTER_AUTHORIZATION_FAILED,
        Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Errors.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    }
)
# An unknown broker is BROKER_NOT_AVAILABLE to Landline and UNKNOWN_SERVER_ERROR to Kafka. Who
# coordinates a transactional id depends on when the topic was created. There the errors named here are compared alone.
_DIFFERENT: Final[Mapping[str, frozenset[Errors]]] = {
    "controlled_shutdown-3": REFUSALS,
    "find_coordinator-4 of a transaction": REFUSALS,
    "init_producer_id-5 of a transaction": REFUSALS,
    "produce-11 in a transaction": frozenset({Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}),
}
# What a coordinator of transactions says when it may depends on whether it has its partitions yet.
_WITH_A_COORDINATOR: Final = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
_KAFKAS_OWN: Final = "__transaction_state"
ALL_DENIED: Final = "denied"
_TOLD: Final = frozenset({"name", "topic", "group_id", "principal_name"})
_TIMES_BELOW_ZERO: Final = frozenset(
    {ApiKey.CREATE_DELEGATION_TOKEN, ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN}
)
_NO_NEEDS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
# No Kafka with ZooKeeper serves them.
_OF_KAFKA_4: Final = OF_CONSUMER_GROUPS


@dataclass(frozen=True)
class Place:
    """The content of one broker, by which a request or an ACL is made: the world, and a token of the owner's."""

    world: World
    sasl_port: int
    token_id: str
    hmac: bytes


Change = Callable[[Place], Mapping[str, Any]]


class Question(NamedTuple):
    """A request; ``change`` has the fields in which it differs from the valid request."""

    key: ApiKey
    version: int
    title: str = ""
    change: Change = lambda _place: {}

    def __str__(self) -> str:
        return f"{self.key.name.lower()}-{self.version} {self.title}".strip()

    def body(self, place: Place) -> Mapping[str, Any]:
        """All fields."""
        changes = _ALWAYS.get(self.key, lambda _place: {})(place)
        return {**fields(self.key, self.version, place.world), **changes, **self.change(place)}


def _constant(**changes: Any) -> Change:
    return lambda _place: changes


def _topic_row(**more: Any) -> dict[str, Any]:
    return {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": [], **more}


def _resource(kind: int, name: str, **more: Any) -> Change:
    return _constant(resources=[{"resource_type": kind, "resource_name": name, **more}])


def _as_a_follower(place: Place) -> Mapping[str, Any]:
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 16, "current_leader_epoch": 0}
    return {"replica_id": 77, "topics": [{"topic": place.world.topic, "partitions": [wanted]}]}


def _in_a_transaction(place: Place) -> Mapping[str, Any]:
    """With a transactional batch: Kafka ignores the id of others."""
    record = Record(None, b"value", (), NOW_MS)
    batch = build_batch([record], producer_id=0, producer_epoch=0, base_sequence=0, transactional=True)
    row = {"name": place.world.topic, "partition_data": [{"index": 0, "records": batch}]}
    return {"transactional_id": TRANSACTION, "topic_data": [row]}


def _live_brokers(place: Place) -> Mapping[str, Any]:
    """Both listeners: a broker that is told of one alone would know no address of its own for the other."""
    world = place.world
    listeners = {("PLAINTEXT", 0): world.port, ("SASL_PLAINTEXT", 2): place.sasl_port}
    endpoints = [
        {"host": HOST, "port": port, "listener": name, "security_protocol": code}
        for (name, code), port in listeners.items()
    ]
    return {"live_brokers": [{"id_": world.broker_id, "endpoints": endpoints, "rack": None}]}


_ALWAYS: Final[Mapping[ApiKey, Change]] = {
    ApiKey.UPDATE_METADATA: _live_brokers,
    ApiKey.JOIN_GROUP: _constant(group_id=GROUP_TO_JOIN),
    ApiKey.CREATE_TOPICS: _constant(topics=[_topic_row(name=NEW_TOPIC)], validate_only=True),
    ApiKey.DELETE_TOPICS: _constant(
        topic_names=[NO_TOPIC], topics=[{"name": NO_TOPIC, "topic_id": uuid.UUID(int=0)}]
    ),
    ApiKey.CREATE_PARTITIONS: _constant(topics=[{"name": NO_TOPIC, "count": 2, "assignments": None}]),
    ApiKey.DELETE_GROUPS: _constant(groups_names=["group-gone"]),
    ApiKey.DESCRIBE_CONFIGS: _resource(2, "topic", configuration_keys=["retention.ms"]),
    ApiKey.RENEW_DELEGATION_TOKEN: lambda place: {"hmac": place.hmac},
    ApiKey.EXPIRE_DELEGATION_TOKEN: lambda place: {"hmac": place.hmac},
}
# From version 4 on a member without an id is only given one: earlier ones would wait for each other.
_VERSIONS: Final[Mapping[ApiKey, Sequence[int]]] = {
    ApiKey.JOIN_GROUP: (4, 9),
    ApiKey.UPDATE_METADATA: (5, 8),
    ApiKey.CREATE_TOPICS: (1, 7),  # version 0 cannot only look whether it could
}
_OWNERS_TOKEN: Final = _constant(
    owner_principal_type="User", owner_principal_name=OWNER, renewers=[], max_lifetime=-1
)
_OF_THE_CLUSTER: Final = {"include_cluster_authorized_operations": True}
_OF_ALL: Final = {**_OF_THE_CLUSTER, "include_topic_authorized_operations": True}
_VARIANTS: Final = (
    Question(ApiKey.PRODUCE, 11, "in a transaction", _in_a_transaction),
    Question(ApiKey.FETCH, 12, "of a follower", _as_a_follower),
    Question(
        ApiKey.METADATA,
        12,
        "by id",
        lambda place: {"topics": [{"name": None, "topic_id": place.world.topic_id}]},
    ),
    Question(ApiKey.METADATA, 9, "of all topics", _constant(topics=None)),
    Question(ApiKey.METADATA, 10, "with operations", _constant(**_OF_ALL)),
    Question(
        ApiKey.METADATA,
        4,
        "of no topic",
        _constant(topics=[{"name": NO_TOPIC}], allow_auto_topic_creation=False),
    ),
    Question(ApiKey.DESCRIBE_CLUSTER, 1, "with operations", _constant(**_OF_THE_CLUSTER)),
    Question(ApiKey.DESCRIBE_GROUPS, 5, "with operations", _constant(include_authorized_operations=True)),
    Question(
        ApiKey.OFFSET_FETCH,
        8,
        "of all topics",
        lambda place: {"groups": [{"group_id": place.world.group, "topics": None}]},
    ),
    Question(
        ApiKey.OFFSET_COMMIT,
        9,
        "of no topic",
        lambda place: {
            "topics": [
                {
                    "name": NO_TOPIC,
                    "partitions": [{"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}],
                }
            ]
        },
    ),
    Question(
        ApiKey.FIND_COORDINATOR, 4, "of a transaction", _constant(key_type=1, coordinator_keys=[TRANSACTION])
    ),
    Question(ApiKey.INIT_PRODUCER_ID, 5, "of a transaction", _constant(transactional_id=NEW_TRANSACTION)),
    Question(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, "of a follower", _constant(replica_id=77)),
    Question(
        ApiKey.CREATE_PARTITIONS,
        3,
        "of a topic",
        lambda place: {
            "topics": [{"name": place.world.topic, "count": 2, "assignments": None}],
            "validate_only": True,
        },
    ),
    Question(
        ApiKey.DELETE_TOPICS, 6, "by id", _constant(topics=[{"name": None, "topic_id": uuid.UUID(int=7)}])
    ),
    Question(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        "of a broker",
        lambda place: _resource(4, str(place.world.broker_id), configuration_keys=["log.dirs"])(place),
    ),
    Question(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        "of all brokers",
        _resource(4, "", configs=[{"name": "background.threads", "config_operation": 1, "value": None}]),
    ),
    Question(ApiKey.CREATE_DELEGATION_TOKEN, 3, "of another owner", _OWNERS_TOKEN),
    Question(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, "of all owners", _constant(owners=None)),
    Question(
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
        3,
        "of another owner",
        _constant(owners=[{"principal_type": "User", "principal_name": OWNER}]),
    ),
    Question(ApiKey.DESCRIBE_LOG_DIRS, 4, "of all topics", _constant(topics=None)),
)


def questions() -> list[Question]:
    """Every API in its oldest and its newest version, and what else an ACL decides."""
    plain = [
        Question(api.key, version)
        for api in APIS.values()
        if api.key not in _NO_NEEDS | _OF_KAFKA_4
        for version in sorted(set(_VERSIONS.get(api.key, (api.min_version, api.max_version))))
    ]
    return [*plain, *_VARIANTS]


class Rule(NamedTuple):
    """What the guest may do."""

    title: str
    acls: Callable[[Place], Sequence[Acl]]

    def __str__(self) -> str:
        return self.title


_NAMES: Final[Mapping[ResourceType, Callable[[Place], Sequence[str]]]] = {
    ResourceType.TOPIC: lambda place: (place.world.topic, NEW_TOPIC, NO_TOPIC),
    ResourceType.GROUP: lambda place: (place.world.group, GROUP_TO_JOIN, "group-gone"),
    ResourceType.CLUSTER: lambda _place: (CLUSTER_NAME,),
    ResourceType.TRANSACTIONAL_ID: lambda _place: (TRANSACTION, NEW_TRANSACTION),
    ResourceType.DELEGATION_TOKEN: lambda place: (place.token_id,),
    ResourceType.USER: lambda _place: (f"User:{OWNER}",),
}
_EVERYTHING: Final = tuple(
    Acl(kind, CLUSTER_NAME if kind is ResourceType.CLUSTER else "*", AclOperation.ALL) for kind in _NAMES
)


def rules() -> Iterator[Rule]:
    """For each operation on each type of resource: allowed by name, allowed by prefix, and all but it."""
    yield Rule("nothing", lambda _place: ())
    yield Rule("everything", lambda _place: _EVERYTHING)
    yield Rule("everything elsewhere", lambda _place: [acl._replace(host="10.1.2.3") for acl in _EVERYTHING])
    yield Rule(
        "everything of everybody", lambda _place: [acl._replace(principal="User:*") for acl in _EVERYTHING]
    )
    yield Rule("another prefix", lambda _place: [
        Acl(kind, "zz", AclOperation.ALL, PatternType.PREFIXED) for kind in _NAMES if kind is not ResourceType.CLUSTER
    ])  # fmt: skip
    for kind in _NAMES:
        for operation in (*SUPPORTED[kind], AclOperation.ALL):
            yield Rule(f"{kind.text} {operation.text} allowed", _allowed(kind, operation))
            yield Rule(f"{kind.text} {operation.text} {ALL_DENIED}", _denied(kind, operation))
            if kind is not ResourceType.CLUSTER:
                yield Rule(f"{kind.text} {operation.text} prefixed", _prefixed(kind, operation))


def _allowed(kind: ResourceType, operation: AclOperation) -> Callable[[Place], Sequence[Acl]]:
    return lambda place: [Acl(kind, name, operation) for name in _NAMES[kind](place)]


def _prefixed(kind: ResourceType, operation: AclOperation) -> Callable[[Place], Sequence[Acl]]:
    """The prefix is all but the last letter of the shortest name: no name begins with less."""

    def acls(place: Place) -> Sequence[Acl]:
        shortest = min(_NAMES[kind](place), key=len)
        return [Acl(kind, shortest[:-1], operation, PatternType.PREFIXED)]

    return acls


def _denied(kind: ResourceType, operation: AclOperation) -> Callable[[Place], Sequence[Acl]]:
    def acls(place: Place) -> Sequence[Acl]:
        return [
            *_EVERYTHING,
            *(acl._replace(permission_type=Permission.DENY) for acl in _allowed(kind, operation)(place)),
        ]

    return acls


def await_services(client: RawClient, world: World) -> None:
    """Waits for the group's coordinator and for producer ids. An administrator asks; offset 1 is committed."""

    def commits() -> bool:
        client.ask(ApiKey.FIND_COORDINATOR, 2, fields(ApiKey.FIND_COORDINATOR, 2, world))
        answer = client.ask(ApiKey.OFFSET_COMMIT, 7, fields(ApiKey.OFFSET_COMMIT, 7, world))
        return bool(answer.topics[0].partitions[0].error_code == Errors.NONE)

    def has_ids() -> bool:
        answer = client.ask(ApiKey.INIT_PRODUCER_ID, 1, fields(ApiKey.INIT_PRODUCER_ID, 1, world))
        return bool(answer.error_code == Errors.NONE)

    wait_until(commits, 60, what="the group's coordinator serves")
    wait_until(has_ids, 60, what="there are producer ids")


def told(client: RawClient, question: Question, place: Place) -> list[str]:
    """What the client is told. Kafka answers times below zero, which the codec refuses: of those the error alone."""
    key, version, _, _ = question
    if key not in _TIMES_BELOW_ZERO:
        return outcome(client.ask(key, version, question.body(place)))
    body = codec.encode(key, version, "request", question.body(place))
    client.send(request_frame(key, version, body))
    frame = memoryview(client.receive_frame())
    (error,) = INT16.unpack_from(frame, response_body_offset(key, version, frame))
    return [f"error_code={error}"]


def outcome(answer: Any) -> list[str]:
    """Every error code, name and set of operations in an answer. If all of it has an error, then that alone:
    Kafka repeats it for each element, Landline does not.
    """
    error = getattr(answer, "error_code", Errors.NONE)
    return [f"error_code={int(error)}"] if error != Errors.NONE else sorted(set(_told(answer, "")))


def refusals(lines: Iterable[str]) -> set[Errors]:
    """The denials in an outcome."""
    codes = (line.partition("error_code=")[2] for line in lines)
    return {Errors(int(code)) for code in codes if code} & REFUSALS


def agree(question: Question, theirs: Sequence[str], ours: Sequence[str]) -> bool:
    """Whether Kafka and Landline decided the same."""
    compared = REFUSALS if question.key in _WITH_A_COORDINATOR else _DIFFERENT.get(str(question))
    if compared is not None:
        return refusals(theirs) & compared == refusals(ours) & compared
    return theirs == ours


def _told(value: Any, where: str) -> Iterator[str]:
    if isinstance(value, tuple):
        for one in value:
            yield from _told(one, where)
    elif dataclasses.is_dataclass(value):
        for each in dataclasses.fields(value):
            found = getattr(value, each.name)
            if each.name.endswith(("error_code", "authorized_operations")):
                yield f"{where}{each.name}={int(found)}"
            elif each.name in _TOLD and found != _KAFKAS_OWN:
                yield f"{where}{each.name}={found}"
            else:
                yield from _told(found, f"{where}{each.name}.")
