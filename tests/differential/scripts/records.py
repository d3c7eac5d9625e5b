"""Records: produced, fetched, looked up, deleted; and what leaders say to those who know another epoch."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final

from broker.protocol.api_keys import ApiKey
from broker.record.batch import NO_SEQUENCE
from tests.differential.script import At, Change, Fields, Script, Step, constant
from tests.differential.scripts.shapes import Row, batch, new_topic, per_partition, produced
from tests.differential.scripts.topics import NOBODY, UNKNOWN
from tests.support.times import NOW_MS
from tests.support.valid_requests import World, fields

TOPIC: Final = "written"
_SMALL: Final = new_topic("small", configs={"max.message.bytes": "100"})
_COMPACTED: Final = new_topic("compacted", configs={"cleanup.policy": "compact"})
_STAMPED: Final = new_topic("stamped", configs={"message.timestamp.type": "LogAppendTime"})


def _produce(
    name: str,
    records: bytes | None,
    topic: str = TOPIC,
    partition: int = 0,
    versions: range | tuple[int, ...] = (),
    **more: Any,
) -> Step:
    return Step(name, ApiKey.PRODUCE, constant(**produced(topic, records, partition, **more)), versions)


def _corrupt(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 0xFF])


def _sequence(number: int, epoch: int = 0, pid: int = 7000, **options: Any) -> bytes:
    return batch(b"numbered", producer_id=pid, producer_epoch=epoch, base_sequence=number, **options)


def _to_two(_at: At) -> Fields:
    rows = [{"index": partition, "records": batch(b"to-%d" % partition)} for partition in (0, 1, 9)]
    names = [TOPIC, "nowhere"]
    return {"topic_data": [{"name": name, "partition_data": rows} for name in names]}


def _partly_transactional(_at: At) -> Fields:
    rows = [
        {"index": 0, "records": batch(b"plain")},
        {"index": 9, "records": _sequence(0, pid=7003, transactional=True)},
    ]
    return {"topic_data": [{"name": TOPIC, "partition_data": rows}]}


PRODUCE = Script(
    "produce",
    [
        Step(
            "make",
            ApiKey.CREATE_TOPICS,
            constant(topics=[new_topic(TOPIC, 2), _SMALL, _COMPACTED, _STAMPED]),
            (7,),
        ),
        _produce("one record", batch(b"one")),
        _produce("without waiting for others", batch(b"one"), acks=1),
        *(
            _produce(f"compressed by {name}", batch(b"x" * 100, compression=name))
            for name in ("gzip", "snappy", "lz4")
        ),
        _produce("compressed by zstd", batch(b"x" * 100, compression="zstd")),
        Step("several partitions, some unknown", ApiKey.PRODUCE, _to_two),
        _produce("to an unknown topic", batch(b"one"), "nowhere"),
        _produce("to a bad name", batch(b"one"), "a/b"),
        _produce("to an unknown partition", batch(b"one"), partition=9),
        _produce("to a partition below zero", batch(b"one"), partition=-1),
        _produce("with wrong acks", batch(b"one"), acks=2),
        _produce("too much", batch(b"x" * 200), "small"),
        _produce("no key where one is needed", batch(b"one"), "compacted"),
        _produce("no keys where they are needed", batch(b"one", b"two"), "compacted", versions=range(3, 12)),
        _produce("a key where one is needed", batch(b"one", key=b"k"), "compacted"),
        _produce("at the log's time", batch(b"one"), "stamped"),
        _produce("a wrong checksum", _corrupt(batch(b"one"))),
        _produce("two batches", batch(b"one") + batch(b"two")),
        _produce("half a batch", batch(b"one")[:-5]),
        _produce("less than a header", b"\0" * 10),
        _produce("no bytes", b""),
        _produce("a control batch", batch(b"\0\0\0\0\0\0", key=b"\0\0\0\1", control=True)),
        _produce("as a replica would number it", batch(b"one", base_offset=77, leader_epoch=9)),
        _produce("a sequence that does not begin", _sequence(5), versions=(9,)),
        _produce("a sequence's begin", _sequence(0, pid=7001), versions=(9,)),
        _produce("the same again", _sequence(0, pid=7001), versions=(3, 9, 11)),
        _produce("a gap", _sequence(5, pid=7001), versions=(9, 11)),
        _produce("a newer epoch", _sequence(0, 1, pid=7001), versions=(9,)),
        _produce("an older epoch", _sequence(1, 0, pid=7001), versions=(3, 9, 10, 11)),
        _produce("a newer epoch in the middle", _sequence(3, 2, pid=7001), versions=(9,)),
        _produce("an id without a sequence", _sequence(NO_SEQUENCE, pid=7002), versions=(9,)),
        _produce("in no transaction", _sequence(0, pid=7003, transactional=True), versions=(9, 11)),
        *(
            _produce(f"in no transaction, {name}", _sequence(0, pid=7003, transactional=True), *where, **more)
            for name, where, more in (
                ("to an unknown topic", ("nowhere",), {}),
                ("to an unknown partition", (TOPIC, 9), {}),
                ("with wrong acks", (), {"acks": 2}),
            )
        ),
        Step("in no transaction, partly", ApiKey.PRODUCE, _partly_transactional, range(3, 12)),
        _produce(
            "in an unknown transaction",
            _sequence(0, pid=7003, transactional=True),
            versions=(9, 11),
            transactional_id="unknown",
        ),
    ],
)


def _ids(at: At) -> dict[str, uuid.UUID]:
    return {row["name"]: uuid.UUID(row["topic_id"]) for row in at.seen["make"]["topics"]}


def fetched(topic: str = TOPIC, partition: int = 0, offset: int = 0, **more: Any) -> Change:
    """Fetch of one partition, by the name of its topic or by the id that CreateTopics ("make") answered. A ``{}`` in
    the name is the number of the round.
    """

    def change(at: At) -> Fields:
        name = topic.format(at.round)
        row = {
            "topic": name,
            "topic_id": _ids(at).get(name, UNKNOWN),
            "partitions": [
                {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 16, **more}
            ],
        }
        return {"topics": [row]}

    return change


def with_more(change: Change, **more: Any) -> Change:
    """The same with other fields of the whole request."""
    return lambda at: {**change(at), **more}


def _listed(timestamp: int, topic: str = "read", partition: int = 0, **more: Any) -> Change:
    return constant(**per_partition(topic, partition_index=partition, timestamp=timestamp, **more))


def _epoch(epoch: int, topic: str = "read", partition: int = 0, current: int = -1) -> Change:
    return constant(
        **per_partition(topic, "topic", partition=partition, current_leader_epoch=current, leader_epoch=epoch)
    )


_FETCHES: Final[tuple[tuple[str, Change], ...]] = (
    ("from the start", fetched("read")),
    ("from the middle", fetched("read", offset=2)),
    ("from the end", fetched("read", offset=6)),
    ("behind the end", fetched("read", offset=7)),
    ("below zero", fetched("read", offset=-1)),
    ("of an empty partition", fetched("read", 1)),
    ("of an unknown topic", fetched("nowhere")),
    ("of an unknown partition", fetched("read", 9)),
    ("of a newer epoch", fetched("read", current_leader_epoch=5)),
    ("of the right epoch", fetched("read", current_leader_epoch=0)),
    ("little", fetched("read", partition_max_bytes=1)),
    ("little in all", with_more(fetched("read"), max_bytes=1)),
    ("as a stranger's replica", with_more(fetched("read", current_leader_epoch=0), replica_id=NOBODY)),
    ("as a debugging consumer", with_more(fetched("read"), replica_id=-2)),
    ("what is committed", with_more(fetched("read"), isolation_level=1)),
    ("nothing", constant(topics=[])),
)
_LISTS: Final[tuple[tuple[str, Change], ...]] = (
    *((f"timestamp {time}", _listed(time)) for time in (-1, -2, -3, -4, -5, -6, 0)),
    ("a time in the middle", _listed(NOW_MS + 1)),
    ("a time to come", _listed(NOW_MS + 3_600_000)),
    ("of an unknown topic", _listed(-1, "nowhere")),
    ("of an unknown partition", _listed(-1, partition=9)),
    ("of an empty partition", _listed(-1, partition=1)),
    ("the time in an empty partition", _listed(-3, partition=1)),
    ("of a newer epoch", _listed(-1, current_leader_epoch=5)),
    ("of the right epoch", _listed(-1, current_leader_epoch=0)),
    ("what is stable", with_more(_listed(-1), isolation_level=1)),
    ("as a stranger's replica", with_more(_listed(-1), replica_id=NOBODY)),
    (
        "a partition twice",
        constant(topics=per_partition("read", partition_index=0, timestamp=-1)["topics"] * 2),
    ),
)
_EPOCHS: Final[tuple[tuple[str, Change], ...]] = (
    ("of epoch 0", _epoch(0)),
    ("of a newer epoch", _epoch(5)),
    ("of no epoch", _epoch(-1)),
    ("of an unknown topic", _epoch(0, "nowhere")),
    ("of an unknown partition", _epoch(0, partition=9)),
    ("knowing a newer epoch", _epoch(0, current=5)),
    ("knowing the right epoch", _epoch(0, current=0)),
)


def _steps(prefix: str, key: ApiKey, named: tuple[tuple[str, Change], ...]) -> list[Step]:
    return [Step(f"{prefix} {name}", key, change) for name, change in named]


def _read(name: str) -> Step:
    return Step(name, ApiKey.PRODUCE, constant(**produced("read", batch(b"one", b"two", b"three"))), (9,))


READING = Script(
    "reading",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic("read", 2)]), (7,)),
        _read("first batch"),
        _read("second batch"),
        *_steps("fetch", ApiKey.FETCH, _FETCHES),
        Step(
            "fetch by a diverging epoch", ApiKey.FETCH, fetched("read", last_fetched_epoch=5), range(12, 18)
        ),
        *_steps("list", ApiKey.LIST_OFFSETS, _LISTS),
        *_steps("end", ApiKey.OFFSET_FOR_LEADER_EPOCH, _EPOCHS),
    ],
)


def _delete(name: str, offset: int, topic: str = "shortened", partition: int = 0) -> Step:
    change = constant(**per_partition(topic, partition_index=partition, offset=offset))
    return Step(f"delete {name}", ApiKey.DELETE_RECORDS, change)


SHORTENING = Script(
    "deletion of records",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic("shortened"), _COMPACTED]), (7,)),
        Step("write", ApiKey.PRODUCE, constant(**produced("shortened", batch(b"1", b"2", b"3", b"4"))), (9,)),
        _delete("one", 1),
        _delete("the same again", 1),
        _delete("less than is deleted", 0),
        _delete("more than there is", 99),
        _delete("below zero", -2),
        _delete("of an unknown topic", 0, "nowhere"),
        _delete("of an unknown partition", 0, partition=9),
        _delete("of a compacted topic", 0, "compacted"),
        _delete("of an internal topic", 0, "__consumer_offsets"),
        Step("fetch what is deleted", ApiKey.FETCH, fetched("shortened")),
        Step("fetch what is left", ApiKey.FETCH, fetched("shortened", offset=1)),
        Step("list the start", ApiKey.LIST_OFFSETS, _listed(-2, "shortened"), (4, 9)),
        Step("list the local start", ApiKey.LIST_OFFSETS, _listed(-4, "shortened"), (8, 9)),
        _delete("all", -1),
        Step("list the start at last", ApiKey.LIST_OFFSETS, _listed(-2, "shortened"), (4, 9)),
        Step("write after that", ApiKey.PRODUCE, constant(**produced("shortened", batch(b"5"))), (9,)),
    ],
)


def _led(topic: str, *, epoch: int, leader: Callable[[World], int]) -> Change:
    """LeaderAndIsr as the controller sends it: the partition has another leader or a newer epoch."""

    def change(at: At) -> Fields:
        asked = fields(ApiKey.LEADER_AND_ISR, 7, at.world)
        state: Row = {**asked["topic_states"][0]["partition_states"][0]}
        state |= {"leader_epoch": epoch, "leader": leader(at.world), "partition_epoch": epoch}
        row = {"topic_name": topic, "topic_id": _ids(at)[topic], "partition_states": [state]}
        return {"topic_states": [row]}

    return change


def _alive(*others: int) -> Change:
    """UpdateMetadata: these brokers are alive too, at a port where nobody listens."""

    def change(at: At) -> Fields:
        own: Row = {**fields(ApiKey.UPDATE_METADATA, 8, at.world)["live_brokers"][0]}
        endpoint = {**own["endpoints"][0], "port": 1}
        rows = [{**own, "id_": other, "endpoints": [endpoint]} for other in others]
        return {"live_brokers": [own, *rows], "topic_states": []}

    return change


_LEADERS_REQUESTS: Final = (
    ("fetch", ApiKey.FETCH, lambda topic, epoch: fetched(topic, current_leader_epoch=epoch)),
    ("list", ApiKey.LIST_OFFSETS, lambda topic, epoch: _listed(-1, topic, current_leader_epoch=epoch)),
    ("end", ApiKey.OFFSET_FOR_LEADER_EPOCH, lambda topic, epoch: _epoch(0, topic, current=epoch)),
)
LEADERSHIP = Script(
    "leadership",
    [
        Step(
            "make",
            ApiKey.CREATE_TOPICS,
            constant(topics=[new_topic("fenced"), new_topic("followed")]),
            (7,),
        ),
        Step("write", ApiKey.PRODUCE, constant(**produced("fenced", batch(b"1"))), (9,)),
        Step(
            "a newer epoch",
            ApiKey.LEADER_AND_ISR,
            _led("fenced", epoch=3, leader=lambda w: w.broker_id),
            (7,),
        ),
        Step(
            "an older epoch",
            ApiKey.LEADER_AND_ISR,
            _led("fenced", epoch=2, leader=lambda w: w.broker_id),
            (7,),
        ),
        Step("write later", ApiKey.PRODUCE, constant(**produced("fenced", batch(b"2"))), (9,)),
        *(
            Step(f"{name} with epoch {epoch}", key, make("fenced", epoch))
            for name, key, make in _LEADERS_REQUESTS
            for epoch in (-1, 0, 3, 4)
        ),
        Step("another broker", ApiKey.UPDATE_METADATA, _alive(NOBODY), (8,)),
        Step(
            "another leader", ApiKey.LEADER_AND_ISR, _led("followed", epoch=1, leader=lambda _: NOBODY), (7,)
        ),
        Step("produce to a follower", ApiKey.PRODUCE, constant(**produced("followed", batch(b"1")))),
        *(
            Step(f"{name} of a follower with epoch {epoch}", key, make("followed", epoch))
            for name, key, make in _LEADERS_REQUESTS
            for epoch in (-1, 0, 1)
        ),
        Step(
            "delete records of a follower",
            ApiKey.DELETE_RECORDS,
            constant(**per_partition("followed", partition_index=0, offset=0), timeout=500),
        ),
        Step(
            "producers of a follower",
            ApiKey.DESCRIBE_PRODUCERS,
            constant(topics=[{"name": "followed", "partition_indexes": [0]}]),
        ),
        Step("no other broker", ApiKey.UPDATE_METADATA, _alive(), (8,)),
    ],
)


def _in_session(change: Change, epoch: int, *, id_: int | None = None, **more: Any) -> Change:
    """Fetch of the session that the first fetch of this round began."""

    def fetch(at: At) -> Fields:
        session = at.seen["begin"]["session_id"] if id_ is None else id_
        return {**change(at), "session_id": session, "session_epoch": epoch, **more}

    return fetch


def _session_step(name: str, change: Change) -> Step:
    return Step(name, ApiKey.FETCH, change, range(7, 18), repeats=False)


_NO_TOPICS: Final = constant(topics=[])
SESSIONS = Script(
    "fetch sessions",
    [
        Step("make", ApiKey.CREATE_TOPICS, lambda at: {"topics": [new_topic(at.name("watched"), 2)]}, (7,)),
        _session_step("begin", _in_session(fetched("watched-{}"), 0, id_=0)),
        _session_step("nothing new", _in_session(_NO_TOPICS, 1)),
        Step("write", ApiKey.PRODUCE, lambda at: produced(at.name("watched"), batch(b"new")), (9,)),
        _session_step("something new", _in_session(_NO_TOPICS, 2)),
        _session_step("another partition", _in_session(fetched("watched-{}", 1), 3)),
        _session_step("an unknown partition", _in_session(fetched("watched-{}", 9), 4)),
        _session_step("a wrong epoch", _in_session(_NO_TOPICS, 77)),
        _session_step("an unknown session", _in_session(_NO_TOPICS, 1, id_=4711)),
        _session_step("the end", _in_session(fetched("watched-{}"), -1)),
        _session_step("after the end", _in_session(_NO_TOPICS, 5)),
    ],
    in_rounds=True,
)
