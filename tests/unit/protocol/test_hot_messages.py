"""The hand-written Produce and Fetch messages, held against kio's in every version."""

from __future__ import annotations

import io
import tempfile
import uuid
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.protocol import codec, framing, produce_messages
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.fetch_messages import (
    FetchedPartition,
    WantedPartition,
    encode_converted,
    encode_fetch_response,
    encode_follower_fetch,
    parse_fetch_response,
)
from broker.protocol.fetch_requests import FetchRequest, TopicKey, parse_fetch_request
from broker.protocol.leader_tags import NodeEndpoint
from broker.protocol.primitives import INT32
from broker.protocol.produce_messages import (
    PartitionResponse,
    ProduceRequest,
    encode_one_response,
    encode_produce_response,
    parse_produce_request,
)
from broker.utils.file_region import FileRegion

PRODUCE_VERSIONS = range(APIS[ApiKey.PRODUCE].min_version, APIS[ApiKey.PRODUCE].max_version + 1)
FETCH_VERSIONS = range(APIS[ApiKey.FETCH].min_version, APIS[ApiKey.FETCH].max_version + 1)
TOPIC_ID = uuid.UUID(int=77)
LEADERS = [NodeEndpoint(2, "two.example", 9092, "é"), NodeEndpoint(3, "3" * 200, 1)]


def _produce_body(version: int) -> bytes:
    topics = [
        {
            "name": "orders",
            "partition_data": [{"index": 3, "records": b"abc"}, {"index": 4, "records": None}],
        },
        {"name": "é", "partition_data": []},
    ]
    fields = {"transactional_id": None, "acks": -1, "timeout": 1500, "topic_data": topics}
    return codec.encode(ApiKey.PRODUCE, version, "request", fields)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_request_is_read_as_kio_writes_it(version: int) -> None:
    body = bytearray(_produce_body(version))
    request = parse_produce_request(memoryview(body), version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (None, -1, 1500)
    (orders, partitions), (accented, none) = request.topics
    assert (orders, accented, none) == ("orders", "é", [])
    assert [(index, records and bytes(records)) for index, records in partitions] == [(3, b"abc"), (4, None)]


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_every_truncation_of_a_produce_request_is_refused(version: int) -> None:
    body = _produce_body(version)
    for size in range(len(body)):
        with pytest.raises(ProtocolError):
            parse_produce_request(memoryview(body[:size]), version)


@pytest.mark.parametrize("version", range(9, PRODUCE_VERSIONS.stop))
@pytest.mark.parametrize("place", ["transactional_id", "name"])
def test_names_in_a_produce_request_are_no_longer_than_kafka_reads(place: str, version: int) -> None:
    def read(size: int) -> ProduceRequest:
        text = "é" * (size // 2) + "x" * (size % 2)
        asked = {"transactional_id": None, "name": "t", place: text}
        topics = [{"name": asked["name"], "partition_data": [{"index": 0, "records": bytes(40_000)}]}]
        fields = {
            "transactional_id": asked["transactional_id"],
            "acks": 1,
            "timeout": 1,
            "topic_data": topics,
        }
        body = codec.encode(ApiKey.PRODUCE, version, "request", fields)
        return parse_produce_request(memoryview(body), version)

    request = read(32_767)
    assert "é" * 16_383 + "x" in {request.transactional_id, request.topics[0][0]}
    with pytest.raises(ProtocolError, match="a string of 32768 bytes announced"):
        read(32_768)


@pytest.mark.parametrize("version", range(12, FETCH_VERSIONS.stop))
def test_names_in_a_fetch_request_are_no_longer_than_kafka_reads(version: int) -> None:
    def read(size: int) -> FetchRequest:
        partition = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1}
        name = {"topic": "x" * size} if version == 12 else {"topic_id": TOPIC_ID}
        topics = [{**name, "partitions": [partition]}]
        fields = {"topics": topics, "forgotten_topics_data": [], "max_wait": 0, "min_bytes": 0}
        fields |= {"rack_id": "r" if version == 12 else "x" * size}
        fields |= {"replica_id": -1} if version < 15 else {}
        return parse_fetch_request(
            memoryview(codec.encode(ApiKey.FETCH, version, "request", fields)), version
        )

    request = read(32_767)
    assert "x" * 32_767 in {request.rack, request.topics[0][0]}
    with pytest.raises(ProtocolError, match="a string of 32768 bytes announced"):
        read(32_768)


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
def test_produce_response_is_read_by_kio(version: int) -> None:
    good = PartitionResponse(Errors.NONE, 10, -1, 2)
    bad = PartitionResponse(Errors.NOT_LEADER_OR_FOLLOWER, message="moved", leader=(2, 5))
    body = encode_produce_response(version, [("t", [(0, good), (1, bad)])], 7, LEADERS)
    decoded = codec.decode(ApiKey.PRODUCE, version, "response", body)
    first, second = decoded.responses[0].partition_responses
    assert (first.base_offset, first.error_code) == (10, 0)
    if version >= 1:
        assert codec.to_ms(decoded.throttle_time) == 7
    assert second.error_code == Errors.NOT_LEADER_OR_FOLLOWER
    if version >= 8:
        assert second.error_message == "moved"
    if version >= 10:
        assert (second.current_leader.leader_id, second.current_leader.leader_epoch) == (2, 5)
        nodes = decoded.node_endpoints
        assert [(node.node_id, node.host, node.port, node.rack) for node in nodes] == LEADERS


@pytest.mark.parametrize("version", PRODUCE_VERSIONS)
@pytest.mark.parametrize("throttle_ms", [0, 7])
@pytest.mark.parametrize(
    "outcome",
    [
        PartitionResponse(Errors.NONE, 10, -1, 2),
        PartitionResponse(Errors.NOT_LEADER_OR_FOLLOWER, leader=(2, 5)),
        PartitionResponse(Errors.INVALID_RECORD, message="bad", record_errors=((3, "worse"),)),
    ],
)
def test_the_response_for_one_partition_has_the_same_bytes_as_one_of_several(
    version: int, throttle_ms: int, outcome: PartitionResponse
) -> None:
    for topic in ("t", "é" * 100):
        expected = encode_produce_response(version, [(topic, [(4, outcome)])], throttle_ms)
        assert encode_one_response(version, topic, 4, outcome, throttle_ms) == expected


_TEXTS = st.none() | st.text(max_size=200)
_INT32S = st.integers(-(1 << 31), (1 << 31) - 1)
_INT64S = st.integers(-(1 << 63), (1 << 63) - 1)
_SHORT_OUTCOMES = st.builds(
    PartitionResponse, st.just(Errors.NONE) | st.sampled_from(Errors), _INT64S, _INT64S, _INT64S
)
_OUTCOMES = st.builds(
    PartitionResponse,
    st.just(Errors.NONE) | st.sampled_from(Errors),
    _INT64S,
    _INT64S,
    _INT64S,
    message=_TEXTS,
    leader=st.none() | st.tuples(_INT32S, _INT32S),
    record_errors=st.lists(st.tuples(_INT32S, _TEXTS), max_size=3),
)


@given(
    version=st.sampled_from(PRODUCE_VERSIONS),
    topic=st.text(max_size=200),
    index=_INT32S,
    outcome=_OUTCOMES | _SHORT_OUTCOMES,
    throttle_ms=st.just(0) | st.integers(0, (1 << 31) - 1),
)
def test_any_response_for_one_partition_has_the_same_bytes_as_one_of_several(
    version: int, topic: str, index: int, outcome: PartitionResponse, throttle_ms: int
) -> None:
    expected = encode_produce_response(version, [(topic, [(index, outcome)])], throttle_ms)
    assert encode_one_response(version, topic, index, outcome, throttle_ms) == expected


@pytest.fixture
def file() -> io.FileIO:
    with tempfile.TemporaryFile(buffering=0) as temporary:
        temporary.write(b"0123456789")
        yield temporary


def _fetched(file: io.FileIO, version: int) -> dict[TopicKey, Sequence[FetchedPartition]]:
    plain = FetchedPartition(0, Errors.NONE, 10, 9, 1, records=FileRegion(file, 2, 5))
    diverging = FetchedPartition(1, Errors.NONE, 4, 4, 0, diverging=(3, 44))
    moved = FetchedPartition(2, Errors.NOT_LEADER_OR_FOLLOWER, leader=(2, 8))
    elsewhere = FetchedPartition(3, Errors.NONE, 10, 9, 1, preferred=7)
    keys: tuple[TopicKey, TopicKey] = (TOPIC_ID, uuid.UUID(int=1)) if version >= 13 else ("t", "empty")
    return {keys[0]: (plain, diverging, moved, elsewhere), keys[1]: ()}


def _bytes(payload: list[bytes | FileRegion]) -> bytes:
    return b"".join(
        p if isinstance(p, bytes) else b"0123456789"[p.position : p.position + p.size] for p in payload
    )


@pytest.mark.parametrize("version", range(4))
def test_fetch_response_with_converted_records_is_read_by_kio(version: int) -> None:
    rows = [
        (FetchedPartition(0, Errors.NONE, 10), b"messages"),
        (FetchedPartition(1, Errors.NONE, 4), b""),
        (FetchedPartition(2, Errors.UNSUPPORTED_VERSION), b""),
    ]
    frame = _bytes(encode_converted(version, 99, {"t": rows, "empty": []}))
    assert INT32.unpack_from(frame) == (len(frame) - 4,)
    offset = framing.response_body_offset(ApiKey.FETCH, version, memoryview(frame)[4:])
    decoded = codec.decode(ApiKey.FETCH, version, "response", frame[4 + offset :])
    assert [(p.partition_index, p.error_code, p.high_watermark) for p in decoded.responses[0].partitions] == [
        (0, 0, 10),
        (1, 0, 4),
        (2, Errors.UNSUPPORTED_VERSION, -1),
    ]
    assert [bytes(p.records) for p in decoded.responses[0].partitions] == [b"messages", b"", b""]


@pytest.mark.parametrize("version", FETCH_VERSIONS)
def test_fetch_response_is_read_by_kio(version: int, file: io.FileIO) -> None:
    frame = _bytes(
        encode_fetch_response(version, 99, _fetched(file, version), session_id=5, endpoints=LEADERS)
    )
    assert INT32.unpack_from(frame) == (len(frame) - 4,)
    offset = framing.response_body_offset(ApiKey.FETCH, version, memoryview(frame)[4:])
    decoded = codec.decode(ApiKey.FETCH, version, "response", frame[4 + offset :])
    plain, diverging, moved, elsewhere = decoded.responses[0].partitions
    assert (plain.high_watermark, bytes(plain.records)) == (10, b"23456")
    if version >= 4:
        assert plain.last_stable_offset == 9
    assert moved.error_code == Errors.NOT_LEADER_OR_FOLLOWER
    assert decoded.responses[1].partitions == ()
    if version >= 11:
        assert (plain.preferred_read_replica, elsewhere.preferred_read_replica) == (-1, 7)
    if version >= 12:
        assert (diverging.diverging_epoch.epoch, diverging.diverging_epoch.end_offset) == (3, 44)
        assert (moved.current_leader.leader_id, moved.current_leader.leader_epoch) == (2, 8)
    if version >= 16:
        nodes = decoded.node_endpoints
        assert [(node.node_id, node.host, node.port, node.rack) for node in nodes] == LEADERS


def test_a_topic_that_was_asked_for_by_no_id_is_answered_with_none() -> None:
    unknown = FetchedPartition(0, Errors.UNKNOWN_TOPIC_ID)
    frame = _bytes(encode_fetch_response(17, 99, {"": (unknown,)}))
    (received,) = parse_fetch_response(memoryview(frame)[4 + 5 :]).partitions
    assert (received.topic_id, received.error) == (uuid.UUID(int=0), Errors.UNKNOWN_TOPIC_ID)


def test_follower_reads_what_the_leader_wrote(file: io.FileIO) -> None:
    frame = _bytes(encode_fetch_response(17, 99, _fetched(file, 17), session_id=5, endpoints=LEADERS))
    received = parse_fetch_response(memoryview(frame)[4 + 5 :])
    plain, diverging, moved, _elsewhere = received.partitions
    assert (plain.topic_id, plain.partition, plain.high_watermark, bytes(plain.records)) == (
        TOPIC_ID,
        0,
        10,
        b"23456",
    )
    assert diverging.diverging == (3, 44)
    assert moved.error == Errors.NOT_LEADER_OR_FOLLOWER
    for size in range(len(frame) - 9):
        with pytest.raises(ProtocolError):
            parse_fetch_response(memoryview(frame)[9 : 9 + size])


def test_follower_fetch_request_is_read_by_kio() -> None:
    topics = [(TOPIC_ID, [WantedPartition(0, 3, 100, 2, 5), WantedPartition(7, 4, 0, -1, 0)])]
    body = encode_follower_fetch(
        2, 99, topics, max_wait_ms=500, min_bytes=1, max_bytes=1 << 20, partition_max_bytes=1 << 16
    )
    decoded = codec.decode(ApiKey.FETCH, 17, "request", body)
    assert (decoded.replica_state.replica_id, decoded.replica_state.replica_epoch) == (2, 99)
    assert (codec.to_ms(decoded.max_wait), decoded.session_epoch) == (500, -1)
    first, second = decoded.topics[0].partitions
    assert (first.fetch_offset, first.last_fetched_epoch, first.current_leader_epoch) == (100, 2, 3)
    assert (second.partition, second.partition_max_bytes) == (7, 1 << 16)


@given(
    topic=st.text(max_size=140),
    partition=st.integers(0, 2**31 - 1),
    records=st.one_of(st.none(), st.binary(max_size=300)),
    acks=st.sampled_from([-1, 0, 1]),
    version=st.sampled_from([9, 11]),
    cut=st.integers(0, 40),
    flip=st.one_of(st.none(), st.tuples(st.integers(0, 400), st.integers(0, 255))),
)
def test_what_is_read_the_short_way_is_what_the_long_way_reads(
    topic: str,
    partition: int,
    records: bytes | None,
    acks: int,
    version: int,
    cut: int,
    flip: tuple[int, int] | None,
) -> None:
    fields = {
        "transactional_id": None,
        "acks": acks,
        "timeout": 3000,
        "topic_data": [{"name": topic, "partition_data": [{"index": partition, "records": records}]}],
    }
    body = bytearray(codec.encode(ApiKey.PRODUCE, version, "request", fields))
    if flip is not None and flip[0] < len(body):
        body[flip[0]] = flip[1]
        body = body[: len(body) - cut]
    short = produce_messages._usual_request(memoryview(body))
    if short is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(produce_messages, "_usual_request", lambda _body: None)
        long = parse_produce_request(memoryview(body), version)
    assert (long.transactional_id, long.acks, long.timeout_ms, long.topics) == (
        short.transactional_id,
        short.acks,
        short.timeout_ms,
        short.topics,
    )


def test_a_usual_request_is_read_the_short_way() -> None:
    topics = [{"name": "orders", "partition_data": [{"index": 3, "records": bytes(20_000)}]}]
    fields = {"transactional_id": None, "acks": -1, "timeout": 3000, "topic_data": topics}
    body = memoryview(codec.encode(ApiKey.PRODUCE, 9, "request", fields))
    short = produce_messages._usual_request(body)
    assert short is not None
    assert (short.acks, short.timeout_ms, short.topics) == (-1, 3000, [("orders", [(3, bytes(20_000))])])
