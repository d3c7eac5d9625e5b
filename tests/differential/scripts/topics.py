"""Topics: their creation, growth, deletion and metadata."""

from __future__ import annotations

import uuid
from typing import Final

from broker.protocol.api_keys import ApiKey
from tests.differential.normalise import topic_id
from tests.differential.plain import Plain
from tests.differential.script import At, Change, Fields, Script, Step, constant
from tests.differential.scripts.shapes import Row, assigned, new_topic

NOBODY: Final = 4711
"""A broker that does not exist."""
UNKNOWN: Final = uuid.UUID(int=4711)


def _create(name: str, *rows: Row, **more: object) -> Step:
    return Step(name, ApiKey.CREATE_TOPICS, constant(topics=list(rows), timeout=10_000, **more))


def _made(at: At) -> Fields:
    return {"topics": [new_topic(at.name("made"), 2, configs={"retention.ms": "60000"})]}


def _assigned_here(at: At) -> Fields:
    here = [at.world.broker_id]
    return {"topics": [assigned(at.name("assigned"), here, here)]}


def _badly_assigned(at: At) -> Fields:
    here = at.world.broker_id
    return {
        "topics": [
            assigned("twice-the-same", [here, here]),
            assigned("with-a-gap", [here], first=1),
            assigned("of-unequal-size", [here], []),
            {**assigned("with-a-number-too", [here]), "num_partitions": 1},
            {**assigned("with-a-factor-too", [here]), "replication_factor": 1},
        ]
    }


def _to_nobody(at: At) -> Fields:
    here = at.world.broker_id
    rows = [
        assigned(at.name("to-nobody"), [NOBODY]),
        assigned(at.name("partly-nobody"), [here], [NOBODY]),
        assigned(at.name("nobody-beside"), [here, NOBODY]),
        assigned(at.name("below-zero"), [-1]),
    ]
    return {"topics": rows, "validate_only": True}


CREATION = Script(
    "creation of topics",
    [
        Step("create", ApiKey.CREATE_TOPICS, _made),
        Step("create again", ApiKey.CREATE_TOPICS, _made),
        Step("with an assignment", ApiKey.CREATE_TOPICS, _assigned_here),
        Step("with wrong assignments", ApiKey.CREATE_TOPICS, _badly_assigned),
        # Only to look: Kafka cannot delete what nobody has, and did not end the deletion of another topic beside it.
        Step("to nobody", ApiKey.CREATE_TOPICS, _to_nobody, range(1, 8)),
        _create("with bad names", *(new_topic(name) for name in ("", ".", "..", "a/b", "a b", "x" * 250))),
        _create(
            "with wrong numbers",
            new_topic("no-partition", 0),
            new_topic("less-than-none", -2),
            new_topic("no-replica", 1, 0),
            new_topic("two-replicas", 1, 2),
            new_topic("less-replicas-than-none", 1, -2),
        ),
        Step(
            "with the broker's numbers",
            ApiKey.CREATE_TOPICS,
            lambda at: {"topics": [new_topic(at.name("default"), -1, -1)]},
        ),
        _create(
            "with wrong configs",
            new_topic("unknown-key", configs={"no.such.key": "1"}),
            new_topic("not-a-number", configs={"retention.ms": "long"}),
            new_topic("too-small", configs={"segment.bytes": "1"}),
            new_topic("not-in-the-list", configs={"cleanup.policy": "burn"}),
            new_topic("no-value", configs={"retention.ms": None}),
            new_topic("null-and-value", configs={"retention.ms": "1", "cleanup.policy": None}),
            new_topic("contradiction", configs={"max.compaction.lag.ms": "1", "min.compaction.lag.ms": "2"}),
        ),
        _create(
            "the same twice in a request", new_topic("twice"), new_topic("twice"), new_topic("once-only", 0)
        ),
        _create("no topic at all"),
        Step(
            "only to look",
            ApiKey.CREATE_TOPICS,
            lambda at: {"topics": [new_topic("looked-at", 2), *_made(at)["topics"]], "validate_only": True},
            range(1, 8),
        ),
        Step(
            "with a dot",
            ApiKey.CREATE_TOPICS,
            lambda at: {"topics": [new_topic(f"with.dot-{at.round}")]},
        ),
        Step(
            "with a line in the dot's place",
            ApiKey.CREATE_TOPICS,
            lambda at: {"topics": [new_topic(f"with_dot-{at.round}")]},
        ),
        _create("an internal name", new_topic("__consumer_offsets")),
        _create("the name of KRaft's log", new_topic("__cluster_metadata")),
        Step(
            "the name of KRaft's log, to look at",
            ApiKey.CREATE_TOPICS,
            constant(topics=[new_topic("__cluster_metadata")], validate_only=True),
            range(1, 8),
        ),
        Step(
            "without waiting",
            ApiKey.CREATE_TOPICS,
            lambda at: {"topics": [new_topic(at.name("hurried"))], "timeout": 0},
        ),
        Step("metadata of all", ApiKey.METADATA, constant(topics=None), range(1, 13)),
    ],
)


def _named(*names: str, **more: object) -> Change:
    return constant(topics=[{"name": name, "topic_id": uuid.UUID(int=0)} for name in names], **more)


def _by_id(step: str) -> Change:
    return lambda at: {"topics": [{"name": None, "topic_id": topic_id(at.seen[step])}]}


_OPERATIONS: Final = {
    "include_topic_authorized_operations": True,
    "include_cluster_authorized_operations": True,
}
METADATA = Script(
    "metadata",
    [
        Step("make", ApiKey.CREATE_TOPICS, constant(topics=[new_topic("shown", 3)]), (7,)),
        Step("by name", ApiKey.METADATA, _named("shown")),
        Step("of no topic", ApiKey.METADATA, constant(topics=[]), range(1, 13)),
        Step("of an unknown topic", ApiKey.METADATA, _named("nowhere", allow_auto_topic_creation=False)),
        Step("of bad names", ApiKey.METADATA, _named("", "a/b", "..", "x" * 250)),
        Step("of a topic twice", ApiKey.METADATA, _named("shown", "shown")),
        Step("not to be made here", ApiKey.METADATA, _named("not-made", allow_auto_topic_creation=True)),
        Step("by id", ApiKey.METADATA, _by_id("make"), (12,)),
        Step(
            "by an unknown id", ApiKey.METADATA, constant(topics=[{"name": None, "topic_id": UNKNOWN}]), (12,)
        ),
        Step(
            "by id before that was possible",
            ApiKey.METADATA,
            constant(topics=[{"name": "shown", "topic_id": UNKNOWN}]),
            (10, 11),
        ),
        Step("with operations", ApiKey.METADATA, _named("shown", **_OPERATIONS), range(8, 13)),
    ],
)


def _grow(name: str, count: int, assignments: list[Row] | None = None) -> Row:
    return {"name": name, "count": count, "assignments": assignments}


def _grow_assigned(at: At) -> Fields:
    def to(*brokers: list[int]) -> list[Row]:
        return [{"broker_ids": ids} for ids in brokers]

    here = [at.world.broker_id]
    return {
        "topics": [
            _grow(at.name("grown"), 5, to(here, here)),
            _grow("wrong-number", 3, to(here)),
            _grow("to-nobody", 2, to([NOBODY])),
            _grow("of-other-size", 2, to([*here, NOBODY])),
            _grow("twice-the-same", 2, to(here * 2)),
            _grow("to-no-broker", 2, to([])),
        ]
    }


_GROWN = ("wrong-number", "to-nobody", "of-other-size", "twice-the-same", "to-no-broker", "grown-0")
_HURRIED = [f"hurried-growth-{number}" for number in range(4)]
GROWTH = Script(
    "more partitions",
    [
        Step(
            "make",
            ApiKey.CREATE_TOPICS,
            constant(
                topics=[new_topic(name) for name in (*_GROWN, "grown-1", "grown-2", "grown-3", *_HURRIED)]
            ),
            (7,),
        ),
        *(
            Step(name, ApiKey.CREATE_PARTITIONS, change)
            for name, change in (
                ("grow", lambda at: {"topics": [_grow(at.name("grown"), 3)]}),
                ("to as many", lambda at: {"topics": [_grow(at.name("grown"), 3)]}),
                ("to fewer", lambda at: {"topics": [_grow(at.name("grown"), 1)]}),
                ("to none", lambda at: {"topics": [_grow(at.name("grown"), 0)]}),
                ("of an unknown topic", constant(topics=[_grow("nowhere", 3)])),
                ("of a bad name", constant(topics=[_grow("a/b", 3)])),
                (
                    "without waiting",
                    lambda at: {"topics": [_grow(at.name("hurried-growth"), 2)], "timeout": 0},
                ),
                ("the same twice", lambda at: {"topics": [_grow(at.name("grown"), 4)] * 2}),
                ("only to look", lambda at: {"topics": [_grow(at.name("grown"), 9)], "validate_only": True}),
                ("with assignments", _grow_assigned),
            )
        ),
        Step("metadata", ApiKey.METADATA, _named(*_GROWN), (12,)),
    ],
)


def _delete(*names: str) -> Change:
    return lambda at: {
        "topic_names": [name.format(at.round) for name in names],
        "topics": [{"name": name.format(at.round), "topic_id": uuid.UUID(int=0)} for name in names],
    }


def _id_is_forgotten(answer: Plain) -> bool:
    """Kafka's controller knows a topic's id for a moment longer than its brokers know the topic."""
    return all(row["error_code"] == "UNKNOWN_TOPIC_ID" for row in answer["responses"])


DELETION = Script(
    "deletion of topics",
    [
        Step("make", ApiKey.CREATE_TOPICS, lambda at: {"topics": [new_topic(at.name("doomed"), 2)]}),
        Step("delete", ApiKey.DELETE_TOPICS, _delete("doomed-{}")),
        Step("delete again", ApiKey.DELETE_TOPICS, _delete("doomed-{}")),
        Step("delete others", ApiKey.DELETE_TOPICS, _delete("nowhere", "a/b", "")),
        Step("delete the same twice", ApiKey.DELETE_TOPICS, _delete("nowhere", "nowhere")),
        Step(
            "delete without waiting",
            ApiKey.DELETE_TOPICS,
            lambda at: {**_delete("hurried-{}")(at), "timeout": 0},
        ),
        Step("delete none", ApiKey.DELETE_TOPICS, _delete()),
        Step("metadata", ApiKey.METADATA, _named("doomed-0", "doomed-6"), (1, 12)),
        Step("make again", ApiKey.CREATE_TOPICS, lambda at: {"topics": [new_topic("again", 3)]}, (7,)),
        Step("delete by id", ApiKey.DELETE_TOPICS, _by_id("make again"), (6,)),
        Step(
            "delete by id again", ApiKey.DELETE_TOPICS, _by_id("make again"), (6,), settles=_id_is_forgotten
        ),
        Step(
            "delete by no name and no id",
            ApiKey.DELETE_TOPICS,
            constant(topics=[{"name": None, "topic_id": uuid.UUID(int=0)}]),
            (6,),
        ),
        Step(
            "delete by name and id",
            ApiKey.DELETE_TOPICS,
            constant(topics=[{"name": "made", "topic_id": UNKNOWN}]),
            (6,),
        ),
        Step("make a last time", ApiKey.CREATE_TOPICS, lambda at: {"topics": [new_topic("again", 1)]}, (7,)),
        Step("metadata of the new one", ApiKey.METADATA, _named("again"), (12,)),
    ],
)
