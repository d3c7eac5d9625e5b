"""Requests of transactional producers, administrators and brokers that none should send."""

from __future__ import annotations

import uuid
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from tests.differential.script import At, Change, Fields, Script, Step, constant
from tests.differential.scripts.shapes import Row, new_topic, per_partition
from tests.differential.scripts.topics import NOBODY

DOUBTED: Final = "doubted"
MISLED: Final = "misled"


def _commit(
    name: str,
    topic: str = DOUBTED,
    partition: int = 0,
    offset: int = 1,
    metadata: str | None = None,
    **more: Any,
) -> Step:
    row = {"partition_index": partition, "committed_offset": offset, "committed_metadata": metadata}
    who = {"transactional_id": "nobodys", "group_id": DOUBTED, "producer_id": 1, "producer_epoch": 0}
    return Step(
        f"commit {name}", ApiKey.TXN_OFFSET_COMMIT, constant(**who, **{**per_partition(topic, **row), **more})
    )


def _adds(name: str, *transactions: Row) -> Step:
    return Step(
        f"add {name}",
        ApiKey.ADD_PARTITIONS_TO_TXN,
        constant(transactions=list(transactions)),
        (4, 5),
        unanswered=not transactions,
    )


def _adds_as_client(name: str, *topics: Row) -> Step:
    who = {"v3_and_below_transactional_id": "nobodys", "v3_and_below_producer_id": 5}
    change = constant(**who, v3_and_below_producer_epoch=0, v3_and_below_topics=list(topics))
    return Step(f"add {name} as a client", ApiKey.ADD_PARTITIONS_TO_TXN, change, range(4))


def _groups(name: str) -> Step:
    return Step(f"groups {name}", ApiKey.LIST_GROUPS, constant(states_filter=[], types_filter=[]), (0, 5))


def _txn(name: str, topics: list[Row] | None = None, verify: bool = True) -> Row:
    rows = [{"name": DOUBTED, "partitions": [0]}] if topics is None else topics
    return {
        "transactional_id": name,
        "producer_id": 5,
        "producer_epoch": 0,
        "verify_only": verify,
        "topics": rows,
    }


_INIT: Final = ApiKey.INIT_PRODUCER_ID
_LIST: Final = ApiKey.LIST_TRANSACTIONS
WRONG_TRANSACTIONS: Final = Script(
    "wrong transactions",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic(DOUBTED, 2)]), (7,)),
        _groups("before"),
        _commit("of an unknown transaction"),
        _groups("after a refused commit"),
        Step("describe the group", ApiKey.DESCRIBE_GROUPS, constant(groups=[DOUBTED]), (0, 5)),
        _commit("of an unknown topic", "nowhere"),
        _commit("of an unknown partition", partition=9),
        _commit("below the first partition", partition=-1),
        _commit("of no offset", offset=-1),
        _commit("below no offset", offset=-7),
        _commit("much metadata", metadata="m" * 5000),
        _commit("of nothing", topics=[]),
        _commit("of a bad name", "a/b"),
        Step("delete the group", ApiKey.DELETE_GROUPS, constant(groups_names=[DOUBTED]), (2,)),
        _groups("at the end"),
        _adds("nothing"),
        _adds_as_client("no partition", {"name": DOUBTED, "partitions": []}),
        _adds_as_client("nothing"),
        _adds("one", _txn("nobodys")),
        _adds("of no name", _txn("")),
        _adds("twice", _txn("nobodys"), _txn("nobodys")),
        _adds("two", _txn("nobodys"), _txn("others")),
        _adds("no topic", _txn("nobodys", [])),
        _adds("no partition", _txn("nobodys", [{"name": DOUBTED, "partitions": []}])),
        _adds("without verifying", _txn("nobodys", verify=False)),
        _adds("an unknown topic", _txn("nobodys", [{"name": "nowhere", "partitions": [0]}])),
        Step(
            "init of an id without a name",
            _INIT,
            constant(transactional_id=None, producer_id=5, producer_epoch=0),
        ),
        Step(
            "init of an id without an epoch",
            _INIT,
            constant(transactional_id=None, producer_id=5, producer_epoch=-1),
        ),
        Step(
            "init of an epoch without an id",
            _INIT,
            constant(transactional_id=None, producer_id=-1, producer_epoch=4),
        ),
        Step(
            "init of an odd time without a name",
            _INIT,
            constant(transactional_id=None, transaction_timeout=-1),
        ),
        Step("init of an odd time", _INIT, constant(transactional_id="odd", transaction_timeout=-1)),
        Step(
            "init of an odd id",
            _INIT,
            constant(transactional_id="odd", producer_id=-5, producer_epoch=-5),
            (3, 4, 5),
        ),
        Step("list an empty state", _LIST, constant(state_filters=[""])),
        Step("list a producer below zero", _LIST, constant(producer_id_filters=[-1])),
        Step("list dead ones", _LIST, constant(state_filters=["Dead"], duration_filter=-5)),
        Step("list of a time below zero", _LIST, constant(duration_filter=-5), (1,)),
    ],
)


def _of_broker(broker: int | None, epoch: int) -> Change:
    """A broker's request in one of its lives. None is the broker under test."""
    return lambda at: {
        "broker_id": at.world.broker_id if broker is None else broker,
        "broker_epoch": epoch,
    }


def _shutdown(name: str, broker: int | None, epoch: int, versions: tuple[int, ...] = ()) -> Step:
    return Step(f"shutdown {name}", ApiKey.CONTROLLED_SHUTDOWN, _of_broker(broker, epoch), versions)


def _isr(
    name: str, broker: int | None = None, epoch: int = -1, topic_id: uuid.UUID | None = None, **state: Any
) -> Step:
    def change(at: At) -> Fields:
        here = at.world.broker_id
        row = {
            "partition_index": 0,
            "leader_epoch": 0,
            "new_isr": [here],
            "new_isr_with_epochs": [{"broker_id": here, "broker_epoch": -1}],
            "partition_epoch": 0,
            "leader_recovery_state": 0,
            **state,
        }
        topic = {
            "topic_name": at.world.topic if topic_id is None else "nowhere",
            "topic_id": topic_id or at.world.topic_id,
            "partitions": [row],
        }
        return {"broker_id": here if broker is None else broker, "broker_epoch": epoch, "topics": [topic]}

    return Step(f"isr {name}", ApiKey.ALTER_PARTITION, change)


def _ids(name: str, broker: int | None, epoch: int) -> Step:
    return Step(f"ids {name}", ApiKey.ALLOCATE_PRODUCER_IDS, _of_broker(broker, epoch))


def _move(name: str, *topics: Row) -> Step:
    return Step(
        f"move {name}", ApiKey.ALTER_PARTITION_REASSIGNMENTS, constant(topics=list(topics), timeout=5_000)
    )


def _to_dir(name: str, *dirs: Row) -> Step:
    return Step(f"directory {name}", ApiKey.ALTER_REPLICA_LOG_DIRS, constant(dirs=list(dirs)))


def _dir(path: str, topic: str, *partitions: int) -> Row:
    return {"path": path, "topics": [{"name": topic, "partitions": list(partitions)}]}


def _elect(name: str, *topics: Row, kind: int = 0, timeout: int = 5_000) -> Step:
    return Step(
        f"elect {name}",
        ApiKey.ELECT_LEADERS,
        constant(election_type=kind, topic_partitions=list(topics), timeout=timeout),
    )


_CANCEL: Final = {"name": MISLED, "partitions": [{"partition_index": 0, "replicas": None}]}
WRONG_ADMINISTRATION: Final = Script(
    "wrong administration",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic(MISLED, 2)]), (7,)),
        _shutdown("of an unknown broker", NOBODY, -1),
        _shutdown("of no broker", -1, -1),
        _shutdown("of an earlier life", None, 1, (2, 3)),  # older versions have no epoch
        _isr("as it is"),
        _isr("of an earlier life", epoch=1),
        _isr("of an unknown broker", NOBODY),
        _isr("of an unknown topic", topic_id=uuid.UUID(int=77)),
        _isr("of a later leader", leader_epoch=9),
        _isr("of an earlier leader", leader_epoch=-1),
        _isr("of a later state", partition_epoch=99),
        _isr("of an unknown partition", partition_index=9),
        _isr("of nobody", new_isr=[], new_isr_with_epochs=[]),
        _isr(
            "of an unknown replica",
            new_isr=[NOBODY],
            new_isr_with_epochs=[{"broker_id": NOBODY, "broker_epoch": -1}],
        ),
        _isr("recovering", leader_recovery_state=1),
        _isr("of an unknown recovery", leader_recovery_state=7),
        _ids("for an unknown broker", NOBODY, 1),
        _ids("for no broker", -1, -1),
        _ids("for an earlier life", None, 1),
        _move("nothing"),
        _move("no partition", {"name": MISLED, "partitions": []}),
        _move("a topic in two rows", _CANCEL, _CANCEL),
        _move("a partition twice", {**_CANCEL, "partitions": _CANCEL["partitions"] * 2}),
        _move(
            "another partition in another row",
            _CANCEL,
            {"name": MISLED, "partitions": [{"partition_index": 1, "replicas": None}]},
        ),
        Step(
            "list moves twice",
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            constant(topics=[{"name": MISLED, "partition_indexes": [0, 0]}] * 2, timeout=5_000),
        ),
        Step(
            "list moves of nothing", ApiKey.LIST_PARTITION_REASSIGNMENTS, constant(topics=[], timeout=5_000)
        ),
        _to_dir("to nowhere, an unknown topic", _dir("/nowhere", "nowhere", 0)),
        _to_dir("to nowhere, an unknown partition", _dir("/nowhere", MISLED, 9)),
        _to_dir("to no path", _dir("", MISLED, 0)),
        _to_dir("of a bad name", _dir("/nowhere", "a/b", 0)),
        _to_dir("of nothing"),
        _to_dir("a partition twice", _dir("/nowhere", MISLED, 0, 0)),
        _to_dir("a partition to two", _dir("/nowhere", MISLED, 0), _dir("/elsewhere", MISLED, 0)),
        _to_dir("no partition", _dir("/nowhere", MISLED)),
        _elect("in no partition", {"topic": MISLED, "partitions": []}),
        _elect("in a partition twice", {"topic": MISLED, "partitions": [0, 0]}),
        _elect(
            "in a topic in two rows",
            {"topic": MISLED, "partitions": [0]},
            {"topic": MISLED, "partitions": [0, 1]},
        ),
        _elect("at once", {"topic": MISLED, "partitions": [0]}, timeout=0),
        _elect("below the first partition", {"topic": MISLED, "partitions": [-1]}),
        Step(
            "elect everywhere",
            ApiKey.ELECT_LEADERS,
            constant(election_type=0, topic_partitions=None, timeout=5_000),
        ),
        Step(
            "elect an unclean one everywhere",
            ApiKey.ELECT_LEADERS,
            constant(election_type=1, topic_partitions=None, timeout=5_000),
            (1, 2),
        ),
        Step("create no acls", ApiKey.CREATE_ACLS, constant(creations=[])),
        Step("delete no acls", ApiKey.DELETE_ACLS, constant(filters=[])),
        Step("grow nothing", ApiKey.CREATE_PARTITIONS, constant(topics=[])),
        Step("change no config", ApiKey.INCREMENTAL_ALTER_CONFIGS, constant(resources=[])),
        Step("set no config", ApiKey.ALTER_CONFIGS, constant(resources=[])),
        Step("no quota", ApiKey.ALTER_CLIENT_QUOTAS, constant(entries=[])),
    ],
)
