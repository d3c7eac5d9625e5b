"""What hostile peers do, by name: for each API the most expensive request of a client, and attacks without
any API.
"""

from __future__ import annotations

import struct
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import crc32c
import zstandard

from bench.client.batches import encode_batch
from bench.client.hostile import Crowd, Deaf, Held, Hostility, IdleSession, Numbered, Page, Repeated, Storm
from bench.guard.smallest import of_request
from bench.hostile_arrays import Place, Row, array_rows, given, nothing
from bench.preparations import (
    GROUPS,
    MEMBERS,
    WIDE,
    compacted_topic,
    encoded,
    fat_group,
    many_groups,
    rolling_topic,
    wide_topic,
)
from bench.targets import Target
from bench.visit import Visit
from broker.protocol.api_keys import ApiKey
from rig.wire import framed

AGAIN: Final = 100
NEW_GROUPS: Final = 128
CONNECTIONS: Final = 1_000
KEYS_OF_A_CONNECTION: Final = 30
IDS_OF_A_SESSION: Final = 50_000
BOMB_BYTES: Final = 32 << 20
HALF_BYTES: Final = 8 << 20
WAIT_MS: Final = 300_000
NEVER: Final = (1 << 31) - 1
EPOCH_MARK: Final = 0x0BADCAFE


def _flood(
    key: str,
    title: str,
    api_key: ApiKey,
    version: int,
    fields: Mapping[str, Any],
    *,
    prepare: Callable[[Visit, str], str] = nothing,
) -> Row:
    def does(place: Place) -> Hostility:
        return Repeated(
            [encoded(api_key, version, {**of_request(api_key, version, given(place)), **fields})],
            in_flight=64,
        )

    return Row(key, f"{title}, 64 in flight", does, prepare)


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
    """A few kilobytes that decompress to 32 MiB of the smallest records."""
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
    """Each is the first member of its group, in a version that accepts members without an id."""
    mark = "#" * Numbered.DIGITS
    fields = {
        **of_request(ApiKey.JOIN_GROUP, 3, given(place)),
        "group_id": f"{place.topic}-{place.number}-{mark}",
        "member_id": "",
        "protocols": [{"name": "range", "metadata": bytes(900 << 10)}],
    }
    request = encoded(ApiKey.JOIN_GROUP, 3, fields)
    return Numbered(request, request.index(mark.encode()), NEW_GROUPS)


def _fat_groups(place: Place) -> Hostility:
    fields = {"groups": [place.own] * AGAIN, "include_authorized_operations": False}
    return Repeated([encoded(ApiKey.DESCRIBE_GROUPS, 5, fields)])


def _fat_group(place: Place) -> Hostility:
    fields = {"groups": [place.own], "include_authorized_operations": False}
    return Repeated([encoded(ApiKey.DESCRIBE_GROUPS, 5, fields)], in_flight=64)


def _fat_offsets(place: Place) -> Hostility:
    group = {"group_id": place.topic, "member_id": None, "member_epoch": -1, "topics": None}
    return Repeated([encoded(ApiKey.OFFSET_FETCH, 9, {"groups": [group] * AGAIN, "require_stable": False})])


def _crowd(place: Place) -> Hostility:
    keys = [f"{place.topic}-{number}" for number in range(KEYS_OF_A_CONNECTION)]
    fields = {"key_type": 0, "coordinator_keys": keys}
    return Crowd(encoded(ApiKey.FIND_COORDINATOR, 4, fields), CONNECTIONS)


def _rolls(place: Place) -> Hostility:
    data = {"index": place.number, "records": encode_batch(1, record_bytes=100).data}
    topic_data = [{"name": place.own, "partition_data": [data]}]
    return Repeated([encoded(ApiKey.PRODUCE, 7, {"acks": 1, "timeout": 10_000, "topic_data": topic_data})])


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


_LANDLINE: Final = frozenset({Target.LANDLINE})

ROWS: Final[tuple[Row, ...]] = (
    *array_rows(),
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
        prepare=many_groups,
    ),
    Row(
        "metadata-wide",
        f"Metadata of {WIDE:,} partitions and an unknown name",
        _wide_and_unknown,
        wide_topic,
    ),
    Row("all-offsets", f"OffsetFetch of all, {WIDE:,}", _all_offsets, wide_topic),
    Row("fetch-session", f"empty Fetch of a session of {IDS_OF_A_SESSION:,} ids", _session_of_unknown_ids),
    Row("one-waiting-fetch", "a waiting Fetch that names a partition 20,000 times", _one_waiting_fetch),
    Row("waiting-fetches", "508 waiting Fetches on 4 connections", _waiting_fetches),
    Row("bomb", "Produce of 32 MiB in 3 KiB to a compacted topic", _bomb, compacted_topic),
    Row("long-metadata", f"JoinGroup with 900 KiB of metadata to {NEW_GROUPS} groups", _long_metadata),
    Row("fat-groups", f"DescribeGroups of {MEMBERS} members, {AGAIN} times", _fat_groups, fat_group),
    Row("fat-group", f"DescribeGroups of {MEMBERS} members, 64 in flight", _fat_group, fat_group),
    Row("fat-offsets", f"OffsetFetch of a group's {WIDE:,}, {AGAIN} times", _fat_offsets, wide_topic),
    Row(
        "crowd",
        f"{CONNECTIONS:,} connections with {KEYS_OF_A_CONNECTION} FindCoordinator keys each",
        _crowd,
    ),
    Row("rolls", "Produce of one record to the smallest segments there are", _rolls, rolling_topic),
    Row("garbage", "ApiVersions v127 with garbage", _garbage),
    Row("half-frames", "4 halves of Produce requests of 16 MiB", _half_frames),
    Row("storm", "connections, one after the other", _storm),
    Row("storm-of-requests", "connections with one ApiVersions each", _storm_of_requests),
    Row("deaf", "Metadata of all, answers not read", _deaf),
    Row("metrics", "HTTP /metrics", _page("/metrics"), targets=_LANDLINE),
    Row("status", "HTTP /status", _page("/status"), targets=_LANDLINE),
)
