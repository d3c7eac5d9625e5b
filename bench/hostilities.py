"""What hostile peers do, by name: of each API the dearest that a client may ask, and what needs no API at all.

``MANY`` elements are as many as Landline decodes (a hundred thousand; a handler thread works at them), ``FEW`` as many
as it serves on its network thread. All name the victim's topic, where an API has a place for one.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import crc32c
import zstandard

from bench.client.connection import Connection
from bench.client.group import await_coordinator
from bench.client.hostile import Deaf, Held, Hostility, IdleSession, Page, Repeated, Storm
from bench.client.requests import RawClientError
from bench.guard import smallest
from bench.targets import Target
from bench.visit import Visit, pause
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.framing import request_prefix, response_body_offset
from tests.support.wire import framed

MANY: Final = 99_000
FEW: Final = 500
CLIENT_ID: Final = "hostile"
GROUPS: Final = 2_000
WIDE: Final = 1_000
IDS_OF_A_SESSION: Final = 50_000
BOMB_BYTES: Final = 32 << 20
HALF_BYTES: Final = 8 << 20
ANSWER_ROOM: Final = 4 << 20
TOPIC_RESOURCE: Final = 2
WAIT_MS: Final = 300_000
NEVER: Final = (1 << 31) - 1
EPOCH_MARK: Final = 0x0BADCAFE
SET_UP_TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Place:
    """Where it happens: the victim's topic and one of the peers' own, and which of the peers does it."""

    topic: str
    own: str
    number: int


def _nothing(_visit: Visit, _topic: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class Row:
    """One way of doing harm. ``prepare`` makes what it needs and returns the name of the peers' own topic."""

    key: str
    title: str
    does: Callable[[Place], Hostility]
    prepare: Callable[[Visit, str], str] = _nothing
    targets: frozenset[Target] = field(default=frozenset({Target.LANDLINE, Target.KAFKA}))


def frame(api_key: ApiKey, version: int, body: bytes) -> bytes:
    """A whole request."""
    return request_prefix(api_key, version, 1, CLIENT_ID, len(body)) + body


def encoded(api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> bytes:
    """A whole request, of its fields."""
    return frame(api_key, version, codec.encode(api_key, version, "request", fields))


def _given(place: Place) -> dict[str, Any]:
    return {
        "acks": -1,
        "group_id": f"hostile-{place.number}",
        "name": place.topic,
        "topic": place.topic,
        "resource_type": TOPIC_RESOURCE,
        "resource_name": place.topic,
        "replica_id": -1,
        "session_epoch": -1,
        "generation_id_or_member_epoch": -1,
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "protocol_type": "consumer",
        "timeout": 1_000,
        "max_bytes": 1 << 20,
        "validate_only": True,
    }


def _array(
    key: str,
    title: str,
    api_key: ApiKey,
    version: int,
    path: smallest.Path,
    count: int,
) -> Row:
    """A row of one request with ``count`` smallest elements."""

    def does(place: Place) -> Hostility:
        element = _UNLIKE.get((api_key, path), _smallest)(place)
        body = smallest.body(api_key, version, path, count, _given(place), element)
        return Repeated([frame(api_key, version, body)])

    return Row(key, f"{title}, {count:,}", does)


def _smallest(_place: Place) -> dict[str, Any]:
    return {}


def _unknown_id(_place: Place) -> dict[str, Any]:
    return {"topic_id": uuid.UUID(int=7)}


def _topics_configs(place: Place) -> dict[str, Any]:
    return {"resource_type": TOPIC_RESOURCE, "resource_name": place.topic}


# Elements of which the smallest is refused at once, or is cheap.
_UNLIKE: Final[Mapping[tuple[ApiKey, smallest.Path], Callable[[Place], dict[str, Any]]]] = {
    (ApiKey.METADATA, ("topics",)): _unknown_id,
    (ApiKey.DESCRIBE_CONFIGS, ("resources",)): _topics_configs,
}


def _flood(
    key: str,
    title: str,
    api_key: ApiKey,
    version: int,
    fields: Mapping[str, Any],
    prepare: Callable[[Visit, str], str] = _nothing,
) -> Row:
    def does(place: Place) -> Hostility:
        return Repeated([encoded(api_key, version, {**_given(place), **fields})], in_flight=64)

    return Row(key, f"{title}, 64 in flight", does, prepare)


def _many_groups(visit: Visit, topic: str) -> str:
    """Commits an offset of each of many groups."""
    port = await_coordinator(visit.broker.port, topic)
    for number in range(GROUPS):
        committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        _ask_until_done(
            port,
            ApiKey.OFFSET_COMMIT,
            7,
            {
                "group_id": f"{topic}-{number}",
                "generation_id_or_member_epoch": -1,
                "member_id": "",
                "topics": [{"name": topic, "partitions": [committed]}],
            },
        )
    return ""


def _wide_topic(visit: Visit, topic: str) -> str:
    """A topic of many partitions, of each of which the group ``topic`` has an offset."""
    wide = visit.fresh_topic(WIDE)
    committed = [
        {"partition_index": number, "committed_offset": 1, "committed_metadata": ""} for number in range(WIDE)
    ]
    _ask_until_done(
        await_coordinator(visit.broker.port, topic),
        ApiKey.OFFSET_COMMIT,
        7,
        {
            "group_id": topic,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "topics": [{"name": wide, "partitions": committed}],
        },
    )
    return wide


def _compacted_topic(visit: Visit, _topic: str) -> str:
    return visit.fresh_topic(10, config={"cleanup.policy": "compact"})


def _ask_until_done(port: int, api_key: ApiKey, version: int, fields: Mapping[str, Any]) -> None:
    """Asks until no partition is answered with an error: a coordinator may still load."""
    end = time.monotonic() + SET_UP_TIMEOUT_S
    connection = Connection(port, ANSWER_ROOM)
    try:
        while True:
            answer = connection.ask(encoded(api_key, version, fields))
            decoded = codec.decode(
                api_key, version, "response", answer[response_body_offset(api_key, version, answer) :]
            )
            errors = {each.error_code for topic in decoded.topics for each in topic.partitions} - {0}
            if not errors:
                return
            if time.monotonic() > end:
                raise RawClientError(f"{api_key.name} was answered with {errors}")
            pause(0.1)
    finally:
        connection.close()


def _wide_and_unknown(place: Place) -> Hostility:
    names = [{"name": place.own}, {"name": "nowhere"}]
    return Repeated([encoded(ApiKey.METADATA, 4, {"topics": names, "allow_auto_topic_creation": False})])


def _all_offsets(place: Place) -> Hostility:
    return Repeated([encoded(ApiKey.OFFSET_FETCH, 5, {"group_id": place.topic, "topics": None})])


def _fetch_fields(place: Place, partitions: int, **instead: int) -> dict[str, Any]:
    wanted = {"partition": 0, "fetch_offset": 0, "log_start_offset": -1, "partition_max_bytes": 1 << 20}
    fields: dict[str, Any] = {
        "replica_id": -1,
        "max_wait": WAIT_MS,
        "min_bytes": NEVER,
        "max_bytes": NEVER,
        "topics": [{"topic": place.topic, "partitions": [wanted] * partitions}],
        "forgotten_topics_data": [],
        "session_epoch": -1,
    }
    return {**fields, **instead}


def _one_waiting_fetch(place: Place) -> Hostility:
    return Held(encoded(ApiKey.FETCH, 11, _fetch_fields(place, 20_000)))


def _waiting_fetches(place: Place) -> Hostility:
    return Held(encoded(ApiKey.FETCH, 11, _fetch_fields(place, 1)) * 127, connections=4)


def _session_of_unknown_ids(_place: Place) -> Hostility:
    wanted = [
        {"partition": number, "fetch_offset": 0, "partition_max_bytes": 1_000}
        for number in range(IDS_OF_A_SESSION)
    ]
    fields = {
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "session_epoch": 0,
        "topics": [{"topic_id": uuid.UUID(int=7), "partitions": wanted}],
        "forgotten_topics_data": [],
    }
    empty = encoded(ApiKey.FETCH, 17, {**fields, "session_epoch": EPOCH_MARK, "topics": []})
    epoch_at = empty.index(struct.pack(">i", EPOCH_MARK))
    return IdleSession(encoded(ApiKey.FETCH, 17, fields), empty, epoch_at)


def _bomb(place: Place) -> Hostility:
    """A few kilobytes that are 32 MiB of the smallest records."""
    record = bytes([12, 0, 0, 0, 0, 1, 0])
    count = BOMB_BYTES // len(record)
    body = zstandard.ZstdCompressor(19).compress(record * count)
    now = int(time.time() * 1000)
    tail = struct.pack(">hiqqqhii", 4, count - 1, now, now, -1, -1, -1, count) + body
    batch = struct.pack(">qiibI", 0, 9 + len(tail), -1, 2, crc32c.crc32c(tail)) + tail
    data = {"index": place.number, "records": batch}
    topic_data = [{"name": place.own, "partition_data": [data]}]
    return Repeated([encoded(ApiKey.PRODUCE, 7, {"acks": -1, "timeout": 10_000, "topic_data": topic_data})])


def _long_metadata(place: Place) -> Hostility:
    return Repeated(
        [
            encoded(
                ApiKey.JOIN_GROUP,
                9,
                {
                    **_given(place),
                    "group_id": f"{place.topic}-{place.number}-{number}",
                    "member_id": "",
                    "protocols": [{"name": "range", "metadata": bytes(900 << 10)}],
                },
            )
            for number in range(8)
        ]
    )


def _half_frames(_place: Place) -> Hostility:
    whole = struct.pack(">i", 2 * HALF_BYTES) + struct.pack(">hhih", 0, 7, 1, 0)
    return Held(whole + bytes(HALF_BYTES), connections=4)


def _garbage(_place: Place) -> Hostility:
    return Repeated([framed(18, 127, 1, bytes(range(256)) * 16)], in_flight=1)


def _storm(_place: Place) -> Hostility:
    return Storm()


def _storm_of_requests(_place: Place) -> Hostility:
    return Storm(framed(18, 0, 1, b""))


def _deaf(_place: Place) -> Hostility:
    return Deaf(encoded(ApiKey.METADATA, 4, {"topics": None, "allow_auto_topic_creation": False}) * 16)


def _page(path: str) -> Callable[[Place], Hostility]:
    return lambda _place: Page(path)


_TOPICS: Final = ("topics", "partitions")
_ARRAYS: Final[tuple[tuple[str, str, ApiKey, int, smallest.Path], ...]] = (
    ("find-coordinator", "FindCoordinator keys", ApiKey.FIND_COORDINATOR, 6, ("coordinator_keys",)),
    ("offset-fetch", "OffsetFetch partitions", ApiKey.OFFSET_FETCH, 7, ("topics", "partition_indexes")),
    ("offset-fetch-groups", "OffsetFetch groups", ApiKey.OFFSET_FETCH, 9, ("groups",)),
    ("offset-commit", "OffsetCommit partitions", ApiKey.OFFSET_COMMIT, 9, _TOPICS),
    ("list-offsets", "ListOffsets by time", ApiKey.LIST_OFFSETS, 9, _TOPICS),
    ("metadata-names", "Metadata unknown names", ApiKey.METADATA, 9, ("topics",)),
    ("metadata-ids", "Metadata unknown ids", ApiKey.METADATA, 12, ("topics",)),
    ("fetch", "Fetch partitions", ApiKey.FETCH, 12, _TOPICS),
    ("produce", "Produce partitions", ApiKey.PRODUCE, 9, ("topic_data", "partition_data")),
    ("join-group", "JoinGroup protocols", ApiKey.JOIN_GROUP, 9, ("protocols",)),
    ("sync-group", "SyncGroup assignments", ApiKey.SYNC_GROUP, 5, ("assignments",)),
    ("leave-group", "LeaveGroup members", ApiKey.LEAVE_GROUP, 5, ("members",)),
    ("delete-groups", "DeleteGroups names", ApiKey.DELETE_GROUPS, 2, ("groups_names",)),
    ("leader-epoch", "OffsetForLeaderEpoch partitions", ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, _TOPICS),
)
# Always on a handler thread.
_ADMIN: Final[tuple[tuple[str, str, ApiKey, int, smallest.Path], ...]] = (
    ("describe-groups", "DescribeGroups names", ApiKey.DESCRIBE_GROUPS, 5, ("groups",)),
    ("list-groups", "ListGroups states", ApiKey.LIST_GROUPS, 5, ("states_filter",)),
    ("create-topics", "CreateTopics, validated", ApiKey.CREATE_TOPICS, 7, ("topics",)),
    ("create-partitions", "CreatePartitions, validated", ApiKey.CREATE_PARTITIONS, 3, ("topics",)),
    ("delete-topics", "DeleteTopics names", ApiKey.DELETE_TOPICS, 6, ("topics",)),
    ("alter-configs", "IncrementalAlterConfigs", ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, ("resources",)),
    (
        "alter-one",
        "IncrementalAlterConfigs of one",
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        ("resources", "configs"),
    ),
    ("describe-log-dirs", "DescribeLogDirs partitions", ApiKey.DESCRIBE_LOG_DIRS, 4, _TOPICS),
    ("elect-leaders", "ElectLeaders partitions", ApiKey.ELECT_LEADERS, 2, ("topic_partitions", "partitions")),
    ("reassign", "AlterPartitionReassignments", ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, _TOPICS),
    (
        "reassignments",
        "ListPartitionReassignments",
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        0,
        ("topics", "partition_indexes"),
    ),
)


_LANDLINE: Final = frozenset({Target.LANDLINE})

ROWS: Final[tuple[Row, ...]] = (
    *(_array(f"{key}-few", title, api, version, path, FEW) for key, title, api, version, path in _ARRAYS),
    *(
        _array(f"{key}-many", title, api, version, path, MANY)
        for key, title, api, version, path in (*_ARRAYS, *_ADMIN)
    ),
    _array(
        "describe-configs",
        "DescribeConfigs of one topic",
        ApiKey.DESCRIBE_CONFIGS,
        4,
        ("resources",),
        1_000,
    ),
    _flood("heartbeat", "Heartbeat", ApiKey.HEARTBEAT, 4, {"generation_id": 1, "member_id": "m"}),
    _flood("producer-ids", "InitProducerId", ApiKey.INIT_PRODUCER_ID, 4, {"transactional_id": None}),
    _flood("api-versions", "ApiVersions", ApiKey.API_VERSIONS, 2, {}),
    _flood(
        "describe-cluster",
        "DescribeCluster",
        ApiKey.DESCRIBE_CLUSTER,
        1,
        {"include_cluster_authorized_operations": False},
    ),
    _flood(
        "list-groups",
        f"ListGroups of {GROUPS:,}",
        ApiKey.LIST_GROUPS,
        4,
        {"states_filter": []},
        _many_groups,
    ),
    Row(
        "metadata-wide",
        f"Metadata of {WIDE:,} partitions and an unknown name",
        _wide_and_unknown,
        _wide_topic,
    ),
    Row("all-offsets", f"OffsetFetch of all, {WIDE:,}", _all_offsets, _wide_topic),
    Row("fetch-session", f"empty Fetch of a session of {IDS_OF_A_SESSION:,} ids", _session_of_unknown_ids),
    Row("one-waiting-fetch", "a waiting Fetch that names a partition 20,000 times", _one_waiting_fetch),
    Row("waiting-fetches", "508 waiting Fetches on 4 connections", _waiting_fetches),
    Row("bomb", "Produce of 32 MiB in 3 KiB to a compacted topic", _bomb, _compacted_topic),
    Row("long-metadata", "JoinGroup with 900 KiB of metadata", _long_metadata),
    Row("garbage", "ApiVersions v127 with garbage", _garbage),
    Row("half-frames", "4 halves of Produce requests of 16 MiB", _half_frames),
    Row("storm", "connections, one after the other", _storm),
    Row("storm-of-requests", "connections with one ApiVersions each", _storm_of_requests),
    Row("deaf", "Metadata of all, answers not read", _deaf),
    Row("metrics", "HTTP /metrics", _page("/metrics"), targets=_LANDLINE),
    Row("status", "HTTP /status", _page("/status"), targets=_LANDLINE),
)
