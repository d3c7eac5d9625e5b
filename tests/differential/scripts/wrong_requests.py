"""Requests that no client should send: odd numbers, names given twice, and nothing where something must be."""

from __future__ import annotations

import uuid
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from tests.differential.script import At, Change, Fields, Script, Step, constant
from tests.differential.scripts.records import fetched, with_more
from tests.differential.scripts.shapes import Row, batch, new_topic, per_partition, produced

TOPIC: Final = "misread"
NAMES: Final = "misnamed"
_NO_ID: Final = uuid.UUID(int=0)
_LATEST: Final = per_partition(TOPIC, partition_index=0, timestamp=-1)


def _fetch(name: str, change: Change, versions: range | tuple[int, ...]) -> Step:
    return Step(f"fetch {name}", ApiKey.FETCH, change, versions)


def _of(**more: Any) -> Change:
    """Fetch of the topic, with other fields for its partition."""
    return fetched(TOPIC, **more)


def _twice(at: At) -> Fields:
    """The topic in two rows."""
    return {"topics": _of()(at)["topics"] * 2}


def _partition_twice(at: At) -> Fields:
    (row,) = _of()(at)["topics"]
    return {"topics": [{**row, "partitions": row["partitions"] * 2}]}


def _without_id(at: At) -> Fields:
    (row,) = _of()(at)["topics"]
    return {"topics": [{**row, "topic_id": _NO_ID}]}


def _list(name: str, **changes: Any) -> Step:
    return Step(f"list {name}", ApiKey.LIST_OFFSETS, constant(**{**_LATEST, **changes}))


def _end(name: str, partition: int = 0, epoch: int = 0, current: int = -1, **more: Any) -> Step:
    row = per_partition(TOPIC, "topic", partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    return Step(f"end {name}", ApiKey.OFFSET_FOR_LEADER_EPOCH, constant(**row, **more))


_SOME: Final = (3, 4, 11, 17)
WRONG_READS: Final = Script(
    "wrong reads",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic(TOPIC, 2)]), (7,)),
        Step("write", ApiKey.PRODUCE, constant(**produced(TOPIC, batch(b"1", b"2"))), (9,)),
        _fetch("by an unknown isolation", with_more(_of(), isolation_level=7), range(4, 18)),
        _fetch("by an isolation below zero", with_more(_of(), isolation_level=-1), (4, 17)),
        _fetch(
            "nothing readable by an unknown isolation",
            with_more(fetched("nowhere"), isolation_level=7),
            (4, 12, 17),
        ),
        _fetch("nothing by an unknown isolation", constant(topics=[], isolation_level=7), (4, 12, 17)),
        _fetch("no bytes", with_more(_of(), max_bytes=0), _SOME),
        _fetch("less than no bytes", with_more(_of(), max_bytes=-1), range(3, 18)),
        _fetch("at least less than none", with_more(_of(), min_bytes=-1), _SOME),
        _fetch("no bytes of the partition", _of(partition_max_bytes=0), (0, 2, *_SOME)),
        _fetch("less than no bytes of the partition", _of(partition_max_bytes=-1), range(18)),
        _fetch("less than no bytes at the end", _of(partition_max_bytes=-1, offset=2), (0, 4, 17)),
        _fetch("less than no bytes behind the end", _of(partition_max_bytes=-1, offset=3), (0, 4, 17)),
        _fetch(
            "less than no bytes of what is committed",
            with_more(_of(partition_max_bytes=-1), isolation_level=1),
            (4, 17),
        ),
        _fetch("as an unknown kind of reader", with_more(_of(), replica_id=-3), (0, 3, 4, 12, 14)),
        _fetch("with a log start", _of(log_start_offset=7), (5, 17)),
        _fetch("of an epoch below none", _of(current_leader_epoch=-7), range(9, 18)),
        _fetch("after an epoch below none", _of(last_fetched_epoch=-7), range(12, 18)),
        _fetch("near a rack", with_more(_of(), rack_id="r"), (11, 17)),
        _fetch("a topic twice", _twice, (0, *_SOME)),
        _fetch("a partition twice", _partition_twice, (0, *_SOME)),
        _fetch("without an id", _without_id, range(13, 18)),
        _list("by an unknown isolation", isolation_level=7),
        _list(
            "an unknown topic by an unknown isolation",
            isolation_level=7,
            **per_partition("nowhere", partition_index=0, timestamp=-1),
        ),
        _list(
            "the start by an unknown isolation",
            isolation_level=7,
            **per_partition(TOPIC, partition_index=0, timestamp=-2),
        ),
        _list("as a debugging consumer", replica_id=-2),
        _list("as an unknown kind of reader", replica_id=-3),
        _list(
            "of an epoch below none",
            **per_partition(TOPIC, partition_index=0, timestamp=-1, current_leader_epoch=-5),
        ),
        _list("a time without a meaning", **per_partition(TOPIC, partition_index=0, timestamp=-9)),
        _list("below the first partition", **per_partition(TOPIC, partition_index=-1, timestamp=-1)),
        _list("nothing", topics=[]),
        _end("as a debugging consumer", replica_id=-2),
        _end("as an unknown kind of reader", replica_id=-3),
        _end("below the first partition", partition=-1),
        _end("of an epoch below none", epoch=-7),
        _end("knowing an epoch below none", current=-7),
    ],
)


def _group(name: str, topics: list[Row] | None = None, **more: Any) -> Row:
    return {"group_id": name, "member_id": None, "member_epoch": -1, "topics": topics, **more}


def _offsets_of(*partitions: int) -> list[Row]:
    return [{"name": NAMES, "partition_indexes": list(partitions)}]


def _metadata(name: str, *topics: Row, versions: tuple[int, ...]) -> Step:
    return Step(f"metadata {name}", ApiKey.METADATA, constant(topics=list(topics)), versions)


def _producers(name: str, *topics: tuple[str, list[int]]) -> Step:
    rows = [{"name": topic, "partition_indexes": partitions} for topic, partitions in topics]
    return Step(f"producers {name}", ApiKey.DESCRIBE_PRODUCERS, constant(topics=rows))


def _directories(name: str, *topics: list[int]) -> Step:
    rows = [{"topic": NAMES, "partitions": partitions} for partitions in topics]
    return Step(f"directories {name}", ApiKey.DESCRIBE_LOG_DIRS, constant(topics=rows))


WRONG_NAMES: Final = Script(
    "wrong names",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic(NAMES, 2)]), (7,)),
        Step(
            "write",
            ApiKey.PRODUCE,
            constant(**produced(NAMES, batch(b"1", producer_id=7100, producer_epoch=0, base_sequence=0))),
            (9,),
        ),
        _metadata("of neither name nor id", {"name": None, "topic_id": _NO_ID}, versions=(10, 11, 12)),
        _metadata(
            "of neither name nor id and another",
            {"name": NAMES, "topic_id": _NO_ID},
            {"name": None, "topic_id": _NO_ID},
            versions=(12,),
        ),
        _metadata(
            "of a name and an unknown id", {"name": NAMES, "topic_id": uuid.UUID(int=3)}, versions=(12,)
        ),
        Step(
            "coordinators of one name twice",
            ApiKey.FIND_COORDINATOR,
            constant(key_type=0, key="g", coordinator_keys=["g", "h", "g"]),
            (4, 5, 6),
        ),
        Step(
            "coordinator of a kind below zero",
            ApiKey.FIND_COORDINATOR,
            constant(key_type=-1, key="g", coordinator_keys=["g"]),
            range(1, 7),
        ),
        Step(
            "coordinators of no name",
            ApiKey.FIND_COORDINATOR,
            constant(key_type=0, coordinator_keys=[]),
            (4, 5, 6),
        ),
        *(
            Step(f"offsets of {name}", ApiKey.OFFSET_FETCH, constant(groups=groups), (8, 9))
            for name, groups in (
                ("one group twice", [_group("g"), _group("g")]),
                (
                    "one group in parts",
                    [_group("g", _offsets_of(0)), _group("h"), _group("g", _offsets_of(0, 1))],
                ),
                ("one group twice, once all", [_group("g", _offsets_of(0)), _group("g")]),
                ("a group without a name", [_group("")]),
                ("a group as a member", [_group("g", member_id="m", member_epoch=5)]),
                ("no topic", [_group("g", [])]),
                ("a topic in two rows", [_group("g", _offsets_of(0) + _offsets_of(1))]),
                ("a partition twice", [_group("g", _offsets_of(0, 0))]),
                ("a topic in two rows, the same", [_group("g", _offsets_of(0) + _offsets_of(0))]),
                ("no partition", [_group("g", _offsets_of())]),
            )
        ),
        Step("offsets of no group", ApiKey.OFFSET_FETCH, constant(groups=[]), (8, 9), unanswered=True),
        Step(
            "offsets of one group, a partition twice",
            ApiKey.OFFSET_FETCH,
            constant(group_id="g", topics=_offsets_of(0, 0) + _offsets_of(1)),
            range(8),
        ),
        Step("transactions twice", ApiKey.DESCRIBE_TRANSACTIONS, constant(transactional_ids=["x", "y", "x"])),
        Step("no transactions", ApiKey.DESCRIBE_TRANSACTIONS, constant(transactional_ids=[])),
        _producers("below the first partition", (NAMES, [-1])),
        _producers("of a bad name", ("a/b", [0])),
        _producers("of no partition", (NAMES, [])),
        _producers("of a partition twice", (NAMES, [0, 0])),
        _producers("of a topic in two rows", (NAMES, [0]), (NAMES, [1])),
        _producers("of a partition in two rows", (NAMES, [0]), (NAMES, [0])),
        _producers("of an unknown partition twice", (NAMES, [9, 9]), ("nowhere", [0, 0])),
        _producers("of nothing"),
        _directories("of a partition twice", [0, 0]),
        _directories("below the first partition", [-1]),
        _directories("of a topic in two rows", [0], [1]),
        _directories("of no partition", []),
        Step(
            "groups of a state twice",
            ApiKey.LIST_GROUPS,
            constant(states_filter=["Stable", "stable"], types_filter=[]),
            (4, 5),
        ),
        Step(
            "groups of a state of the other kind",
            ApiKey.LIST_GROUPS,
            constant(states_filter=["Assigning"], types_filter=["consumer"]),
            (4, 5),
        ),
        Step(
            "groups of an unknown kind",
            ApiKey.LIST_GROUPS,
            constant(states_filter=[], types_filter=["sheep"]),
            (5,),
        ),
        Step(
            "groups of a share", ApiKey.LIST_GROUPS, constant(states_filter=[], types_filter=["share"]), (5,)
        ),
        Step("groups described twice", ApiKey.DESCRIBE_GROUPS, constant(groups=["g", "h", "g"]), (0, 5)),
        Step("no groups described", ApiKey.DESCRIBE_GROUPS, constant(groups=[]), (0, 5)),
        Step("groups deleted twice", ApiKey.DELETE_GROUPS, constant(groups_names=["g", "h", "g"])),
        Step("no groups deleted", ApiKey.DELETE_GROUPS, constant(groups_names=[])),
        Step("configs of nothing", ApiKey.DESCRIBE_CONFIGS, constant(resources=[])),
        Step(
            "records deleted twice",
            ApiKey.DELETE_RECORDS,
            constant(topics=[{"name": NAMES, "partitions": [{"partition_index": 0, "offset": 0}] * 2}]),
        ),
        Step(
            "records deleted in two rows",
            ApiKey.DELETE_RECORDS,
            constant(topics=[{"name": NAMES, "partitions": [{"partition_index": 0, "offset": 0}]}] * 2),
        ),
        Step(
            "records deleted below",
            ApiKey.DELETE_RECORDS,
            constant(topics=[{"name": NAMES, "partitions": [{"partition_index": 0, "offset": -2}]}]),
        ),
        Step("records deleted nowhere", ApiKey.DELETE_RECORDS, constant(topics=[])),
        Step(
            "records deleted of no partition",
            ApiKey.DELETE_RECORDS,
            constant(topics=[{"name": NAMES, "partitions": []}]),
        ),
    ],
)
