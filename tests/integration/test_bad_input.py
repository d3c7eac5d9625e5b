"""Whatever a peer sends, the broker answers as Kafka does or hangs up with one log line, and goes on serving."""

from __future__ import annotations

import struct
import time
from contextlib import ExitStack
from itertools import count

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import APIS, ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame, stranger
from rig.wait import wait_until
from tests.support.broker_metrics import waiting_fetches
from tests.support.refusals import Refusals
from tests.support.valid_requests import ALL_VERSIONS, World, body, fields, some_records, version_id

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

MAX_REQUEST_BYTES = 104_857_600
# Up to 87, the last key of Kafka 3.9, those of KRaft, telemetry and share groups: not for clusters with ZooKeeper.
NO_SUCH_KEYS = [key for key in (-32768, -1, *range(89), 1000, 32767) if key not in APIS]
WITH_BODY = [pair for pair in ALL_VERSIONS if body(*pair, World())]
TLS_CLIENT_HELLO = bytes.fromhex("16030100c8010000c40303") + bytes(range(189))
GARBAGE = {
    "http": b"GET /metrics HTTP/1.1\r\nHost: broker:9092\r\n\r\n",
    "tls": TLS_CLIENT_HELLO,
    "ssh": b"SSH-2.0-OpenSSH_9.2p1 Debian-2+deb12u3\r\n",
    "ones": b"\xff" * 512,
    "negative length": struct.pack(">i", -1),
    "most negative length": struct.pack(">i", -(1 << 31)),
    "length of 2 GiB": struct.pack(">i", (1 << 31) - 1),
    "length just above the limit": struct.pack(">i", MAX_REQUEST_BYTES + 1) + b"\0\3\0\1",
    "empty frame": struct.pack(">i", 0),
    "frame of half a header": struct.pack(">ihh", 4, 3, 1),
    "client id longer than the frame": struct.pack(">ihhih", 10, 3, 1, 1, 30_000),
    "client id that is not UTF-8": struct.pack(">ihhih", 12, 3, 1, 1, 2) + b"\xc3\x28",
}
_topic_numbers = count(1)


@pytest.fixture
def topic(client: RawClient) -> str:
    """A new topic of one partition with one record."""
    name = f"topic-{next(_topic_numbers)}"
    assert client.create_topic(name).error_code == Errors.NONE
    assert client.produce(name, 0, some_records(b"first")).error_code == Errors.NONE
    return name


# --- frames and headers


@pytest.mark.parametrize("garbage", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_answered_by_hanging_up_and_one_line(
    garbage: bytes, client: RawClient, broker: LandlineStandalone, refusals: Refusals
) -> None:
    client.send(garbage)
    assert client.await_close() == b""
    (line,) = refusals.expect()
    assert "warning" in line
    assert "peer=127.77." in line
    assert "connection closed" in line
    assert broker.is_ready()


def test_oversized_length_is_refused_naming_the_config(client: RawClient, refusals: Refusals) -> None:
    client.send(struct.pack(">i", MAX_REQUEST_BYTES + 1))
    client.await_close()
    (line,) = refusals.expect()
    assert f"socket.request.max.bytes is {MAX_REQUEST_BYTES}" in line


@pytest.mark.parametrize("key", NO_SUCH_KEYS)
def test_unknown_api_key_is_answered_by_hanging_up_and_one_line(
    key: int, client: RawClient, refusals: Refusals
) -> None:
    client.send(struct.pack(">ihhih", 14, key, 0, 1, 4) + b"test")
    assert client.await_close() == b""
    (line,) = refusals.expect()
    assert f"unknown API key {key}" in line


@pytest.mark.parametrize("key", [key for key in APIS if key != ApiKey.API_VERSIONS], ids=lambda key: key.name)
def test_unsupported_version_is_answered_by_hanging_up_and_one_line(
    key: ApiKey, broker: LandlineStandalone, refusals: Refusals
) -> None:
    api = APIS[key]
    versions = {api.min_version - 1, api.max_version + 1, 32767, -32768}
    for version in versions:
        with RawClient(HOST, broker.port, from_host=stranger()) as client:
            client.send(struct.pack(">ihhih", 14 + 8, key, version, 1, 4) + b"test" + bytes(8))
            assert client.await_close() == b""
    for line in refusals.expect(len(versions)):
        assert f"{api.name} version" in line
        assert "client_id=test" in line


@pytest.mark.parametrize("version", [5, 100, 32767, -1])
def test_unsupported_version_of_api_versions_is_answered_in_version_0(
    version: int, client: RawClient
) -> None:
    client.send(struct.pack(">ihhih", 14 + 3, ApiKey.API_VERSIONS, version, 42, 4) + b"test" + b"\0\0\0")
    correlation_id, error, keys = struct.unpack_from(">ihi", client.receive_frame())
    assert (correlation_id, error) == (42, Errors.UNSUPPORTED_VERSION)
    assert keys >= 1
    assert client.is_open()


def test_nothing_behind_a_refused_request_is_looked_at(
    client: RawClient, topic: str, refusals: Refusals
) -> None:
    unknown = struct.pack(">ihhih", 14, ApiKey.FETCH, 99, 1, 4) + b"test"
    client.send(unknown * 500)
    assert client.await_close() == b""
    refusals.expect(1)


def test_a_peer_that_is_refused_all_the_time_has_one_line_a_second(
    broker: LandlineStandalone, refusals: Refusals
) -> None:
    peer = stranger()
    unknown = struct.pack(">ihhih", 10 + 32_000, ApiKey.FETCH, 99, 1, 32_000) + b"\1" * 32_000
    begun = time.monotonic()
    for _ in range(100):
        with RawClient(HOST, broker.port, from_host=peer) as client:
            client.send(unknown)
            assert client.await_close() == b""
    lines = refusals.lines()
    assert 1 <= len(lines) <= 2 + time.monotonic() - begun
    assert all(len(line) < 3_000 for line in lines)


def test_requests_before_a_refused_one_are_answered(client: RawClient, refusals: Refusals) -> None:
    good = request_frame(ApiKey.API_VERSIONS, 0, b"", correlation_id=5)
    bad = struct.pack(">ihhih", 14, ApiKey.FETCH, 99, 1, 4) + b"test"
    client.send(good + bad)
    assert client.await_close()[4:8] == struct.pack(">i", 5)
    refusals.expect(1)


# --- bodies


@pytest.mark.parametrize("pair", WITH_BODY, ids=version_id)
def test_truncated_body_is_answered_by_hanging_up_and_one_line(
    pair: tuple[ApiKey, int], broker: LandlineStandalone, refusals: Refusals
) -> None:
    whole = body(*pair, World(topic="nothing-of-the-kind"))
    cuts = {0, 1, len(whole) // 3, len(whole) // 2, len(whole) - 1} - {len(whole)}
    for cut in cuts:
        with RawClient(HOST, broker.port, from_host=stranger()) as client:
            client.send(request_frame(*pair, whole[:cut]))
            assert client.await_close() == b"", f"answered when cut to {cut} of {len(whole)} bytes"
    has_client_id = pair != (ApiKey.CONTROLLED_SHUTDOWN, 0)
    for line in refusals.expect(len(cuts)):
        assert ("client_id=raw" in line) is has_client_id
        assert "no request header" not in line
    assert broker.is_ready()


@pytest.mark.parametrize("pair", WITH_BODY, ids=version_id)
def test_lengths_claimed_inside_a_body_are_not_believed(
    pair: tuple[ApiKey, int], broker: LandlineStandalone
) -> None:
    """Every four bytes in turn say 2 GiB: answered or refused, but no such array or string is made."""
    whole = body(*pair, World(topic="nothing-of-the-kind"))
    key, version = pair
    if key in {ApiKey.CREATE_TOPICS, ApiKey.JOIN_GROUP, ApiKey.FETCH, ApiKey.UPDATE_METADATA}:
        positions = [0]  # elsewhere a number may be meant: an epoch, a time to wait
    else:
        positions = list(range(0, len(whole) - 3, 4))
    if key in {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA}:
        positions = positions[-3:]  # not the controller's epoch
    before = broker.rss_mb()
    for position in positions:
        with RawClient(HOST, broker.port) as client:
            claim = b"\x7f\xff\xff\xff"
            client.send(request_frame(key, version, whole[:position] + claim + whole[position + 4 :]))
            client.finish_sending()
            client.await_close()
    assert broker.is_ready()
    assert broker.rss_mb() - before < 10


# --- memory


def test_memory_does_not_follow_announced_lengths(broker: LandlineStandalone) -> None:
    before = broker.rss_mb()
    with ExitStack() as stack:
        for _ in range(200):
            client = stack.enter_context(RawClient(HOST, broker.port))
            client.send(struct.pack(">ihhih", 100_000_000, ApiKey.PRODUCE, 9, 1, -1) + bytes(100))
        assert broker.is_ready()
        grown = broker.rss_mb() - before
    assert grown < 30, f"{grown:.1f} MiB for 200 connections that announced 100 MB each"


def test_memory_of_a_large_request_is_given_back(broker: LandlineStandalone) -> None:
    before = broker.rss_mb()
    with RawClient(HOST, broker.port) as client:
        client.send(struct.pack(">ihhih", 90_000_000, ApiKey.PRODUCE, 9, 1, -1) + bytes(60_000_000))
        assert broker.is_ready()
    wait_until(lambda: broker.rss_mb() - before < 15, what=lambda: f"{broker.rss_mb() - before} MiB more")


def test_requests_sent_byte_by_byte_are_served_and_hold_up_nobody(broker: LandlineStandalone) -> None:
    frame = request_frame(ApiKey.API_VERSIONS, 0, b"", correlation_id=9)
    with ExitStack() as stack:
        slow = [stack.enter_context(RawClient(HOST, broker.port)) for _ in range(20)]
        for position in range(len(frame) - 1):
            for client in slow:
                client.send(frame[position : position + 1])
            assert broker.is_ready()
        for client in slow:
            client.send(frame[-1:])
            assert client.receive_frame()[:4] == struct.pack(">i", 9)


def test_half_a_request_does_not_outlive_the_idle_time(tmp_path) -> None:
    with (
        LandlineStandalone(tmp_path / "data", {"connections.max.idle.ms": 1000}) as broker,
        RawClient(HOST, broker.port) as client,
    ):
        client.send(struct.pack(">ih", 1_000, 3))
        assert client.await_close() == b""
        wait_until(lambda: "idle_connection_closed" in broker.log_text(), what="it is told after the sweep")


def test_answers_do_not_pile_up_for_a_peer_that_does_not_read_them(
    client: RawClient, broker: LandlineStandalone
) -> None:
    """A receive buffer holds thousands of small requests, each of which may ask for a large answer."""
    assert client.create_topic("wide", 500, timeout_ms=60_000).error_code == Errors.NONE
    # With a topic that is not there, so that the answer is made anew each time.
    topics = {"topics": [{"name": "wide"}, {"name": "nowhere"}], "allow_auto_topic_creation": False}
    asked = codec.encode(ApiKey.METADATA, 4, "request", topics)
    number = 2_000
    frames = b"".join(request_frame(ApiKey.METADATA, 4, asked, index) for index in range(number))
    before = broker.rss_mb()
    broker.freeze()  # so that all of it lies there at once
    try:
        client.send(frames)
    finally:
        broker.thaw()
    for _ in range(20):
        assert broker.is_ready()  # others have their turns
        assert broker.rss_mb() - before < 20
    for index in range(number):
        assert client.receive_frame()[:4] == struct.pack(">i", index)
    assert broker.rss_mb() - before < 20


def test_fetches_whose_readers_went_away_are_forgotten(
    client: RawClient, broker: LandlineStandalone, topic: str
) -> None:
    """They could otherwise wait for what they ask, 24 days, and be tried at every append."""
    for_long = {**fields(ApiKey.FETCH, 11, World(topic=topic)), "max_wait": (1 << 31) - 1}
    frame = request_frame(
        ApiKey.FETCH, 11, codec.encode(ApiKey.FETCH, 11, "request", for_long | {"min_bytes": 1 << 30})
    )
    with ExitStack() as readers:
        for _ in range(50):
            readers.enter_context(RawClient(HOST, broker.port)).send(frame * 3)
        wait_until(lambda: waiting_fetches(broker) == 50)  # one for each connection
    wait_until(lambda: waiting_fetches(broker) == 0)
    assert client.produce(topic, 0, some_records(b"second")).error_code == Errors.NONE


# --- what requests ask for


def test_topic_named_a_hundred_thousand_times_is_described_once(client: RawClient, topic: str) -> None:
    row = {"name": topic}
    answer = client.ask(ApiKey.METADATA, 1, {"topics": [row] * 100_000})
    assert [found.name for found in answer.topics] == [topic]


def test_topic_without_name_and_id_is_refused(client: RawClient) -> None:
    row = {"name": None, "topic_id": None}
    answer = client.ask_body(ApiKey.METADATA, 12, metadata_request(12, row))
    assert [row.error_code for row in answer.topics] == [Errors.INVALID_REQUEST]
    assert client.is_open()


@pytest.mark.parametrize("version", [10, 11])
@pytest.mark.parametrize("named", [True, False])
def test_topic_id_is_refused_before_the_version_that_answers_by_id(
    version: int, client: RawClient, *, named: bool
) -> None:
    row: dict[str, object] = {"name": None, "topic_id": None}
    if named:
        row = {"name": "topic", "topic_id": World().topic_id}
    answer = client.ask_body(ApiKey.METADATA, version, metadata_request(version, row))
    assert [found.error_code for found in answer.topics] == [Errors.INVALID_REQUEST]
    assert not answer.brokers


def metadata_request(version: int, row: dict[str, object]) -> bytes:
    """A request for one topic and no operations."""
    asked = {
        "topics": [row],
        "include_topic_authorized_operations": False,
        "include_cluster_authorized_operations": False,
    }
    return codec.encode(ApiKey.METADATA, version, "request", asked)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/../../etc", "x" * 250, "ü", "a\nb", "a\0b"])
def test_bad_topic_names_are_refused(name: str, client: RawClient) -> None:
    assert client.create_topic(name).error_code == Errors.INVALID_TOPIC_EXCEPTION
    (described,) = client.ask(ApiKey.METADATA, 4, {"topics": [{"name": name}]}).topics
    assert described.error_code == Errors.INVALID_TOPIC_EXCEPTION
    assert client.produce(name, 0, some_records()).error_code in {
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize(
    ("partitions", "replicas", "error"),
    [
        (0, 1, Errors.INVALID_PARTITIONS),
        (-2, 1, Errors.INVALID_PARTITIONS),
        (1, 0, Errors.INVALID_REPLICATION_FACTOR),
        (1, 32767, Errors.INVALID_REPLICATION_FACTOR),
        (10_001, 1, Errors.POLICY_VIOLATION),
        ((1 << 31) - 1, 1, Errors.POLICY_VIOLATION),
    ],
)
def test_impossible_numbers_of_partitions_are_refused(
    partitions: int, replicas: int, error: Errors, client: RawClient, topic: str
) -> None:
    assert client.create_topic("no", partitions, replicas).error_code == error


@pytest.mark.parametrize("partitions", [-1, 0, 1, 10_002, (1 << 31) - 1])
def test_impossible_numbers_of_partitions_are_not_added(
    partitions: int, client: RawClient, topic: str
) -> None:
    row = {"name": topic, "count": partitions, "assignments": None}
    asked = {"topics": [row], "timeout": 10_000, "validate_only": False}
    added = client.ask(ApiKey.CREATE_PARTITIONS, 1, asked).results[0]
    assert added.error_code == (Errors.POLICY_VIOLATION if partitions > 10_000 else Errors.INVALID_PARTITIONS)


@pytest.mark.parametrize("partition", [1, 999, -1, (1 << 31) - 1, -(1 << 31)])
def test_partitions_that_are_not_there_are_unknown(partition: int, client: RawClient, topic: str) -> None:
    unknown = Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce(topic, partition, some_records()).error_code == unknown
    assert client.fetch(topic, partition, 0).error_code == unknown
    wanted = {"partition_index": partition, "timestamp": -1}
    asked = {
        "replica_id": -1,
        "isolation_level": 0,
        "topics": [{"name": topic, "partitions": [wanted]}],
    }
    assert client.ask(ApiKey.LIST_OFFSETS, 4, asked).topics[0].partitions[0].error_code == unknown


@pytest.mark.parametrize("offset", [-1, -(1 << 63), 2, (1 << 63) - 1])
def test_fetch_outside_of_the_log_is_out_of_range(offset: int, client: RawClient, topic: str) -> None:
    assert client.fetch(topic, 0, offset).error_code == Errors.OFFSET_OUT_OF_RANGE
    assert client.is_open()


@pytest.mark.parametrize("size", [0, -1, -(1 << 31), (1 << 31) - 1])
def test_fetch_of_odd_sizes_is_answered(size: int, client: RawClient, topic: str) -> None:
    error = Errors.INVALID_REQUEST if size < 0 else Errors.NONE
    answer = client.fetch(topic, 0, 0, partition_max_bytes=size)
    assert answer.error_code == error
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": size}
    asked = {
        "replica_id": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "max_bytes": size,
        "min_bytes": size,
        "max_wait": 0,
    }
    response = client.ask(ApiKey.FETCH, 11, asked)
    assert response.responses[0].partitions[0].error_code == error


def test_fetch_of_an_unknown_topic_id_is_told_so(client: RawClient) -> None:
    asked = fields(ApiKey.FETCH, 17, World())
    response = client.ask(ApiKey.FETCH, 17, asked)
    assert response.responses[0].partitions[0].error_code == Errors.UNKNOWN_TOPIC_ID


def test_unknown_fetch_session_is_told_so(client: RawClient, topic: str) -> None:
    asked = {**fields(ApiKey.FETCH, 11, World(topic=topic)), "session_id": 12345, "session_epoch": 3}
    assert client.ask(ApiKey.FETCH, 11, asked).error_code == Errors.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.JOIN_GROUP, 5),
        (ApiKey.SYNC_GROUP, 3),
        (ApiKey.HEARTBEAT, 3),
        (ApiKey.LEAVE_GROUP, 2),
    ],
    ids=["join", "sync", "heartbeat", "leave"],
)
def test_group_without_a_name_is_refused(key: ApiKey, version: int, client: RawClient) -> None:
    coordinator_ready(client)
    response = client.ask(key, version, {**fields(key, version, World()), "group_id": ""})
    assert response.error_code == Errors.INVALID_GROUP_ID


def coordinator_ready(client: RawClient) -> None:
    """Waits until groups are served."""

    def committed() -> bool:
        client.ask(ApiKey.FIND_COORDINATOR, 2, fields(ApiKey.FIND_COORDINATOR, 2, World()))
        answer = client.ask(ApiKey.HEARTBEAT, 3, fields(ApiKey.HEARTBEAT, 3, World()))
        return bool(answer.error_code == Errors.UNKNOWN_MEMBER_ID)

    wait_until(committed, what="the group's coordinator serves")


def test_huge_ids_of_groups_and_members_are_served_without_a_trace(
    client: RawClient, broker: LandlineStandalone
) -> None:
    coordinator_ready(client)
    before = broker.rss_mb()
    for number in range(50):
        huge = f"{number}" + "g" * 32_000
        asked = {**fields(ApiKey.HEARTBEAT, 3, World()), "group_id": huge, "member_id": huge}
        assert client.ask(ApiKey.HEARTBEAT, 3, asked).error_code == Errors.UNKNOWN_MEMBER_ID
        described = client.ask(ApiKey.DESCRIBE_GROUPS, 2, {"groups": [huge]}).groups[0]
        assert described.group_state == "Dead"
    assert broker.rss_mb() - before < 10


@pytest.mark.parametrize("timeout_ms", [-1, 0, 1, (1 << 31) - 1])
def test_session_timeouts_outside_of_the_limits_are_refused(timeout_ms: int, client: RawClient) -> None:
    coordinator_ready(client)
    asked = {**fields(ApiKey.JOIN_GROUP, 5, World()), "session_timeout": timeout_ms}
    assert client.ask(ApiKey.JOIN_GROUP, 5, asked).error_code == Errors.INVALID_SESSION_TIMEOUT
