"""State that is expensive to return: requested once, and repeatedly in one request, which needs only a few
more bytes.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Final

from bench.cost.asking import Asking, Taken, middle
from bench.guard.stage import BROKER_ID, Stage, StageError, decode_answer, encode
from bench.guard.workloads.produce import PRODUCE_VERSION, produce_request
from bench.guard.workloads.workload import batch_of, create_topic
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey

GROUP: Final = "fat"
WIDE: Final = "wide"
FULL: Final = "full"
MEMBERS: Final = 900
METADATA_BYTES: Final = 900  # the whole group is one record of the offsets topic
PARTITIONS: Final = 1_000
BATCHES: Final = 64
AGAIN: Final = 20
_BATCH_BYTES: Final = 16 * 1024
_SESSION_MS: Final = 1_800_000
_JOIN_VERSION: Final = 3  # accepts members without an id
_SYNC_VERSION: Final = 3
_BROKER_RESOURCE, _TOPIC_RESOURCE = 4, 2
_TRIES: Final = 9


@dataclass(frozen=True, slots=True)
class State:
    """State on a broker. ``fields`` are those of a request that names it a number of times; ``prepare``
    creates it, once per broker.
    """

    name: str
    api_key: ApiKey
    version: int
    fields: Callable[[int], Mapping[str, Any]]
    prepare: Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Repeats:
    """The cost of one mention, and of each further one: passes of the reference's loop, bytes."""

    once: Taken
    more_cpu: float
    more_bytes: float


def repeats(client: Asking, state: State) -> Repeats:
    """Measures a prepared state: the middle of several tries each, alternating, so that both have the
    same conditions. A try costs too little where only the reference's loop was disturbed, so that the
    least of one may be less than half of the other's.
    """
    frames = [encode(state.api_key, state.version, state.fields(count)) for count in (1, AGAIN)]
    tries = [[client.take(state.api_key, state.version, frame) for frame in frames] for _ in range(_TRIES)]
    once, again = (middle(takes) for takes in zip(*tries, strict=True))
    return Repeats(once, (again.cpu - once.cpu) / (AGAIN - 1), (again.out - once.out) / (AGAIN - 1))


def fat_group(stage: Stage) -> None:
    """A stable group of many members, with nearly a mebibyte of metadata in total."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    leader = stage.connect()
    first = _joined(stage, leader)
    with ExitStack() as stack:
        for _ in range(MEMBERS - 1):
            member = stage.open_socket()
            stack.callback(member.close)
            member.send(encode(ApiKey.JOIN_GROUP, _JOIN_VERSION, _join("")))
            stage.turn()
        # They wait for the first member.
        stage.exchange(leader, encode(ApiKey.JOIN_GROUP, _JOIN_VERSION, _join(first)))
        answer = decode_answer(ApiKey.JOIN_GROUP, _JOIN_VERSION, leader.answer)
        if len(answer.members) != MEMBERS:
            raise StageError(f"{len(answer.members)} of {MEMBERS} members are in the group")
        assignments = [{"member_id": member.member_id, "assignment": b""} for member in answer.members]
        sync = {
            "group_id": GROUP,
            "generation_id": answer.generation_id,
            "member_id": answer.member_id,
            "assignments": assignments,
        }
        stage.exchange(leader, encode(ApiKey.SYNC_GROUP, _SYNC_VERSION, sync))
        decode_answer(ApiKey.SYNC_GROUP, _SYNC_VERSION, leader.answer)


def wide_topic(stage: Stage) -> None:
    """A topic of many partitions, with an offset of the group in each."""
    create_topic(stage, WIDE, PARTITIONS)
    committed = [
        {"partition_index": number, "committed_offset": 1, "committed_metadata": ""}
        for number in range(PARTITIONS)
    ]
    stage.ask(
        ApiKey.OFFSET_COMMIT,
        7,
        {
            "group_id": WIDE,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": WIDE, "partitions": committed}],
        },
    )


def full_topic(stage: Stage) -> None:
    """A topic with a mebibyte of records."""
    create_topic(stage, FULL, 1)
    client = stage.connect()
    request = produce_request(FULL, batch_of(_BATCH_BYTES)[0], -1, 0)
    for _ in range(BATCHES):
        stage.exchange(client, request)
        decode_answer(ApiKey.PRODUCE, PRODUCE_VERSION, client.answer)


def _joined(stage: Stage, leader: Any) -> str:
    stage.exchange(leader, encode(ApiKey.JOIN_GROUP, _JOIN_VERSION, _join("")))
    member_id: str = decode_answer(ApiKey.JOIN_GROUP, _JOIN_VERSION, leader.answer).member_id
    return member_id


def _join(member_id: str) -> Mapping[str, Any]:
    return {
        "group_id": GROUP,
        "session_timeout": _SESSION_MS,
        "rebalance_timeout": _SESSION_MS,
        "member_id": member_id,
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(METADATA_BYTES)}],
    }


def _described_groups(count: int) -> Mapping[str, Any]:
    return {"groups": [GROUP] * count, "include_authorized_operations": False}


def _all_offsets(count: int) -> Mapping[str, Any]:
    group = {"group_id": WIDE, "member_id": None, "member_epoch": -1, "topics": None}
    return {"groups": [group] * count, "require_stable": False}


def _named_topics(count: int) -> Mapping[str, Any]:
    return {
        "topics": [{"topic_id": codec.ZERO_UUID, "name": WIDE}] * count,
        "allow_auto_topic_creation": False,
        "include_topic_authorized_operations": False,
    }


def _configs(resource_type: int, name: str) -> Callable[[int], Mapping[str, Any]]:
    row = {"resource_type": resource_type, "resource_name": name, "configuration_keys": None}
    return lambda count: {"resources": [row] * count, "include_synonyms": True, "include_documentation": True}


def _by_time(count: int) -> Mapping[str, Any]:
    wanted = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": 1}
    return {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": FULL, "partitions": [wanted] * count}],
    }


def _fetched(count: int) -> Mapping[str, Any]:
    wanted = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": 0,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": 1 << 20,
    }
    return {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 0,
        "max_bytes": 64 << 20,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": FULL, "partitions": [wanted] * count}],
        "forgotten_topics_data": [],
    }


STATES: Final[Sequence[State]] = (
    State("a group of many members", ApiKey.DESCRIBE_GROUPS, 5, _described_groups, fat_group),
    State("a group's thousand offsets", ApiKey.OFFSET_FETCH, 9, _all_offsets, wide_topic),
    State("a topic of a thousand partitions", ApiKey.METADATA, 12, _named_topics, wide_topic),
    State(
        "a broker's configs",
        ApiKey.DESCRIBE_CONFIGS,
        4,
        _configs(_BROKER_RESOURCE, str(BROKER_ID)),
        full_topic,
    ),
    State("a topic's configs", ApiKey.DESCRIBE_CONFIGS, 4, _configs(_TOPIC_RESOURCE, FULL), full_topic),
    State("an offset by its time", ApiKey.LIST_OFFSETS, 9, _by_time, full_topic),
    State("a mebibyte of records", ApiKey.FETCH, 12, _fetched, full_topic),
)
