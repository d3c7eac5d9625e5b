"""The hand-written reader of Fetch requests, held against kio's writer in every version."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import ProtocolError
from broker.protocol.fetch_messages import WantedPartition, encode_follower_fetch
from broker.protocol.fetch_requests import FINAL_EPOCH, NO_SESSION, FetchRequest, parse_fetch_request

VERSIONS = range(APIS[ApiKey.FETCH].min_version, APIS[ApiKey.FETCH].max_version + 1)
MAX_BYTES_FROM = 3
ISOLATION_FROM = 4
TOPIC_IDS_FROM = 13
RACKS_FROM = 11

INT32_MAX = 2**31 - 1
int32 = st.integers(-(2**31), INT32_MAX)
int64 = st.integers(-(2**63), 2**63 - 1)
partitions = st.lists(st.tuples(int32, int32, int64, int32, int64, int32), max_size=3)
names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=200)
topic_ids = st.uuids().filter(lambda value: value.int != 0)
follower = st.tuples(st.integers(-1, 5), st.integers(-1, 2**40))


@st.composite
def requests(draw: st.DrawFn, version: int) -> FetchRequest:
    keys = topic_ids if version >= TOPIC_IDS_FROM else names
    replica_id, replica_epoch = draw(follower)
    return FetchRequest(
        replica_id,
        replica_epoch if version >= 15 else -1,
        draw(st.integers(0, 2**31 - 1)),
        draw(int32),
        draw(int32) if version >= MAX_BYTES_FROM else INT32_MAX,
        draw(st.integers(0, 1)) if version >= ISOLATION_FROM else 0,
        draw(int32) if version >= 7 else NO_SESSION,
        draw(int32) if version >= 7 else FINAL_EPOCH,
        [
            (key, [_as_of(version, each) for each in draw(partitions)])
            for key in draw(st.lists(keys, max_size=3))
        ],
        [(key, draw(st.lists(int32, max_size=3))) for key in draw(st.lists(keys, max_size=2))]
        if version >= 7
        else [],
        version >= TOPIC_IDS_FROM,
        draw(st.just("") | names) if version >= RACKS_FROM else "",
    )


def _as_of(version: int, asked: tuple[int, ...]) -> Any:
    index, epoch, offset, last_epoch, start, most = asked
    return (
        index,
        epoch if version >= 9 else -1,
        offset,
        last_epoch if version >= 12 else -1,
        start if version >= 5 else -1,
        most,
    )


def written(request: FetchRequest, version: int) -> bytes:
    topic = "topic_id" if version >= TOPIC_IDS_FROM else "topic"
    rows = ("partition", "current_leader_epoch", "fetch_offset", "last_fetched_epoch", "log_start_offset")
    fields = {
        "replica_id": request.replica_id,
        "replica_state": {"replica_id": request.replica_id, "replica_epoch": request.replica_epoch},
        "max_wait": request.max_wait_ms,
        "min_bytes": request.min_bytes,
        "max_bytes": request.max_bytes,
        "isolation_level": request.isolation_level,
        "session_id": request.session_id,
        "session_epoch": request.session_epoch,
        "topics": [
            {
                topic: key,
                "partitions": [
                    dict(zip((*rows, "partition_max_bytes"), row, strict=True)) for row in partitions
                ],
            }
            for key, partitions in request.topics
        ],
        "forgotten_topics_data": [
            {topic: key, "partitions": partitions} for key, partitions in request.forgotten
        ],
        "rack_id": request.rack,
    }
    return codec.encode(ApiKey.FETCH, version, "request", fields)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_request_is_read_as_kio_writes_it(version: int, data: st.DataObject) -> None:
    request = data.draw(requests(version))
    assert parse_fetch_request(memoryview(written(request, version)), version) == request


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_request_that_is_cut_short_is_refused(version: int, data: st.DataObject) -> None:
    body = written(data.draw(requests(version)), version)
    size = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(ProtocolError):
        parse_fetch_request(memoryview(body[:size]), version)


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=60, deadline=None)
@given(body=st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(version: int, body: bytes) -> None:
    try:
        parse_fetch_request(memoryview(body), version)
    except ProtocolError:
        return


@pytest.mark.parametrize("version", VERSIONS)
def test_what_stands_behind_a_request_is_ignored(version: int) -> None:
    by_id = version >= TOPIC_IDS_FROM
    rack = "r1" if version >= RACKS_FROM else ""
    most = 1 << 20 if version >= MAX_BYTES_FROM else INT32_MAX
    request = FetchRequest(-1, -1, 500, 1, most, 0, NO_SESSION, FINAL_EPOCH, [], [], by_id, rack)
    body = written(request, version) + b"\0\0\0"
    assert parse_fetch_request(memoryview(body), version) == request


def test_tagged_fields_that_nobody_knows_are_skipped() -> None:
    request = FetchRequest(3, 9, 500, 1, 1 << 20, 0, NO_SESSION, FINAL_EPOCH, [], [], True, "r1")
    body = written(request, 17)
    count, rest = body[-16], body[-15:]
    assert count == 1
    with_unknown = body[:-16] + b"\x02\x00\x02ab" + rest  # tag 0, two bytes, before ReplicaState
    assert parse_fetch_request(memoryview(with_unknown), 17) == request


def test_landlines_own_followers_are_understood() -> None:
    topic_id = uuid.UUID(int=7)
    body = encode_follower_fetch(
        2,
        11,
        [(topic_id, [WantedPartition(4, 3, 100, 2, 50)])],
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1 << 20,
        partition_max_bytes=1 << 16,
        session_id=5,
        session_epoch=6,
        forgotten=[(topic_id, [8, 9])],
    )
    asked = [(topic_id, [(4, 3, 100, 2, 50, 1 << 16)])]
    assert parse_fetch_request(memoryview(body), 17) == FetchRequest(
        2, 11, 500, 1, 1 << 20, 0, 5, 6, asked, [(topic_id, [8, 9])], True
    )
