"""The administration of a cluster: elections, moves, directories, quotas, credentials, ACLs, features."""

from __future__ import annotations

from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from tests.differential.script import At, Change, Fields, Script, Step, constant
from tests.differential.scripts.shapes import new_topic
from tests.differential.scripts.topics import NOBODY

TOPIC: Final = "moved"
_NOWHERE: Final = [{"path": "nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]


def _elect(kind: int, partitions: list[int], topic: str = TOPIC) -> Change:
    rows = [{"topic": topic, "partitions": partitions}]
    return constant(election_type=kind, topic_partitions=rows, timeout=5_000)


def _move(*replicas: int | None, topic: str = TOPIC, partition: int = 0, cancel: bool = False) -> Change:
    """To replicas on these brokers; None is the broker under test."""

    def change(at: At) -> Fields:
        ids = [at.world.broker_id if each is None else each for each in replicas]
        row = {"partition_index": partition, "replicas": None if cancel else ids}
        return {"topics": [{"name": topic, "partitions": [row]}], "timeout": 5_000}

    return change


def _moves(*partitions: int, topic: str = TOPIC) -> Change:
    return constant(topics=[{"name": topic, "partition_indexes": list(partitions)}], timeout=5_000)


def _dirs(*partitions: int, topic: str = TOPIC) -> Change:
    return constant(topics=[{"topic": topic, "partitions": list(partitions)}])


MOVES: Final = Script(
    "elections and moves",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic(TOPIC, 2)]), (7,)),
        Step("elect the preferred", ApiKey.ELECT_LEADERS, _elect(0, [0, 1])),
        Step("elect an unclean one", ApiKey.ELECT_LEADERS, _elect(1, [0]), (1, 2)),
        Step("elect of an unknown kind", ApiKey.ELECT_LEADERS, _elect(7, [0]), (1, 2)),
        Step("elect in an unknown partition", ApiKey.ELECT_LEADERS, _elect(0, [9])),
        Step("elect in an unknown topic", ApiKey.ELECT_LEADERS, _elect(0, [0], "nowhere")),
        Step(
            "elect in none",
            ApiKey.ELECT_LEADERS,
            constant(election_type=0, topic_partitions=[], timeout=5_000),
        ),
        Step("move to where it is", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(None)),
        Step("move to nobody", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(NOBODY)),
        Step("move to nobody too", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(None, NOBODY)),
        Step(
            "move to nobody in an unknown partition",
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            _move(NOBODY, partition=9),
        ),
        Step(
            "move to nobody of an unknown topic",
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            _move(NOBODY, topic="nowhere"),
        ),
        Step("move below zero", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(-1)),
        Step("move to none", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move()),
        Step("move to the same twice", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(None, None)),
        Step("move an unknown partition", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(None, partition=9)),
        Step("move of an unknown topic", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(None, topic="nowhere")),
        Step("cancel no move", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(cancel=True)),
        Step("cancel nowhere", ApiKey.ALTER_PARTITION_REASSIGNMENTS, _move(topic="nowhere", cancel=True)),
        Step("list moves", ApiKey.LIST_PARTITION_REASSIGNMENTS, _moves(0, 9)),
        Step(
            "list moves of an unknown topic", ApiKey.LIST_PARTITION_REASSIGNMENTS, _moves(0, topic="nowhere")
        ),
        Step("list all moves", ApiKey.LIST_PARTITION_REASSIGNMENTS, constant(topics=None)),
        Step("directories of a topic", ApiKey.DESCRIBE_LOG_DIRS, _dirs(0, 1, 9)),
        Step("directories of an unknown topic", ApiKey.DESCRIBE_LOG_DIRS, _dirs(0, topic="nowhere")),
        Step("directories of no topic", ApiKey.DESCRIBE_LOG_DIRS, constant(topics=[])),
        Step("move to an unknown directory", ApiKey.ALTER_REPLICA_LOG_DIRS),
        Step("move to a relative directory", ApiKey.ALTER_REPLICA_LOG_DIRS, constant(dirs=_NOWHERE)),
        Step("cluster", ApiKey.DESCRIBE_CLUSTER),
        Step(
            "cluster with operations",
            ApiKey.DESCRIBE_CLUSTER,
            constant(include_cluster_authorized_operations=True),
        ),
        Step("cluster of controllers", ApiKey.DESCRIBE_CLUSTER, constant(endpoint_type=2), (1,)),
        Step("cluster of an unknown kind", ApiKey.DESCRIBE_CLUSTER, constant(endpoint_type=9), (1,)),
    ],
)


def _quota(name: str, *ops: tuple[str, float | None], **entity: str | None) -> Step:
    rows = [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in ops]
    kinds = [{"entity_type": kind.replace("_", "-"), "entity_name": each} for kind, each in entity.items()]
    change = constant(entries=[{"entity": kinds, "ops": rows}], validate_only=False)
    return Step(name, ApiKey.ALTER_CLIENT_QUOTAS, change)


def _quotas(name: str, *components: tuple[str, int, str | None], strict: bool = False) -> Step:
    rows = [{"entity_type": kind, "match_type": how, "match": match} for kind, how, match in components]
    return Step(name, ApiKey.DESCRIBE_CLIENT_QUOTAS, constant(components=rows, strict=strict))


_RATE: Final = ("producer_byte_rate", 1e9)
QUOTAS: Final = Script(
    "quotas",
    [
        _quota("of a client", _RATE, ("consumer_byte_rate", 2e9), client_id="c"),
        _quota("of a user", _RATE, user="u"),
        _quota("of a user's client", _RATE, user="u", client_id="c"),
        _quota("of every client", _RATE, client_id=None),
        _quota("of an address", ("connection_creation_rate", 1e6), ip="127.9.9.9"),
        _quota("of no address", ("connection_creation_rate", 1e6), ip="not an address"),
        _quota("of an address and a user", ("connection_creation_rate", 1e6), ip="127.9.9.9", user="u"),
        _quota("of an unknown key", ("no_such_rate", 1.0), client_id="c"),
        _quota("of an address's key for a client", ("connection_creation_rate", 1.0), client_id="c"),
        _quota("of no value", ("producer_byte_rate", -1.0), client_id="c"),
        _quota("of half a number", ("producer_byte_rate", 1.5), client_id="c"),
        _quota("of an unknown kind", _RATE, animal="c"),
        _quota("of nobody", _RATE),
        _quota("of an empty name", _RATE, client_id=""),
        _quota("twice", _RATE, _RATE, client_id="c"),
        _quotas("list one", ("client-id", 0, "c"), strict=True),
        _quotas("list what names one", ("client-id", 0, "c")),
        _quotas("list the default", ("client-id", 1, None)),
        _quotas("list all clients", ("client-id", 2, None)),
        _quotas("list users and clients", ("user", 2, None), ("client-id", 2, None)),
        _quotas("list all"),
        _quotas("list addresses", ("ip", 2, None)),
        _quotas("list an unknown kind", ("animal", 2, None)),
        _quotas("list by an unknown match", ("user", 9, None)),
        _quotas("list a kind twice", ("user", 2, None), ("user", 2, None)),
        _quotas("list addresses and users", ("ip", 2, None), ("user", 2, None)),
        _quotas("list no name", ("user", 0, None)),
        _quota("taken away", ("consumer_byte_rate", None), client_id="c"),
        _quota("taken away again", ("consumer_byte_rate", None), client_id="c"),
        _quotas("list one at the end", ("client-id", 0, "c"), strict=True),
    ],
)
_SCRAM: Final = {
    "mechanism": 1,
    "iterations": 4096,
    "salt": b"0123456789abcdef",
    "salted_password": bytes(32),
}


def _scram(name: str, *deleted: tuple[str, int], made: dict[str, Any] | None = None) -> Step:
    deletions = [{"name": user, "mechanism": mechanism} for user, mechanism in deleted]
    change = constant(deletions=deletions, upsertions=[made] if made else [])
    return Step(name, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, change)


def _users(name: str, *users: str) -> Step:
    change = constant(users=[{"name": user} for user in users])
    return Step(name, ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, change)


CREDENTIALS: Final = Script(
    "credentials",
    [
        _scram("make", made={"name": "walter", **_SCRAM}),
        _scram("few iterations", made={"name": "walter", **_SCRAM, "iterations": 10}),
        _scram("many iterations", made={"name": "walter", **_SCRAM, "iterations": 1 << 20}),
        _scram("an unknown mechanism", made={"name": "walter", **_SCRAM, "mechanism": 9}),
        _scram("no name", made={"name": "", **_SCRAM}),
        _scram("take away what is not there", ("walter", 2), ("nobody", 1)),
        _scram("take an unknown mechanism away", ("walter", 9)),
        _scram("the same twice", ("walter", 1), made={"name": "walter", **_SCRAM}),
        _scram("nothing"),
        _users("describe", "walter", "nobody"),
        _users("describe one twice", "walter", "walter"),
        _users("describe no name", ""),
        Step("describe all", ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, constant(users=None)),
        _scram("take away", ("walter", 1)),
        _users("describe at the end", "walter"),
        Step("make a token", ApiKey.CREATE_DELEGATION_TOKEN),
        Step("renew a token", ApiKey.RENEW_DELEGATION_TOKEN),
        Step("expire a token", ApiKey.EXPIRE_DELEGATION_TOKEN),
        Step("describe all tokens", ApiKey.DESCRIBE_DELEGATION_TOKEN, constant(owners=None)),
    ],
)


def _find(name: str, key_type: int, *keys: str, versions: range = range(1, 7)) -> Step:
    change = constant(key_type=key_type, key=keys[0], coordinator_keys=keys)
    return Step(name, ApiKey.FIND_COORDINATOR, change, versions)


def _feature(name: str, feature: str, level: int, **more: Any) -> Step:
    def change(at: At) -> Fields:
        how = {"upgrade_type": 1} if at.version else {"allow_downgrade": False}
        return {"feature_updates": [{"feature": feature, "max_version_level": level, **how, **more}]}

    return Step(name, ApiKey.UPDATE_FEATURES, change)


FINDING: Final = Script(
    "coordinators, versions and features",
    [
        _find("a group's", 0, "g"),
        _find("a transaction's", 1, "t"),
        _find("several", 0, "g", "h", "i", versions=range(4, 7)),
        _find("of no name", 0, ""),
        _find("of an unknown kind", 9, "g"),
        _find("of a share group", 2, "g:AAAAAAAAAAAAAAAAAAAAAA:0"),
        Step("versions", ApiKey.API_VERSIONS),
        Step("a client without a name", ApiKey.API_VERSIONS, constant(client_software_name=""), (3, 4)),
        Step("a client with a bad name", ApiKey.API_VERSIONS, constant(client_software_name="a b"), (3, 4)),
        Step(
            "a client with a bad version", ApiKey.API_VERSIONS, constant(client_software_version="-"), (3, 4)
        ),
        _feature("an unknown feature", "no.such.feature", 1),
        _feature("no level", "metadata.version", 0),
        Step("no feature", ApiKey.UPDATE_FEATURES, constant(feature_updates=[])),
        Step("a mechanism", ApiKey.SASL_HANDSHAKE),
    ],
)
