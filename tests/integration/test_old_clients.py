"""Clients from before Kafka 0.11: Produce 0 to 2, Fetch 0 to 3, ListOffsets 0, and messages of magic 0 and 1."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import kafka
import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.record.batch import Record, build_batch, read_header, read_records
from broker.record.message_set import each_message, wrapped, write_message
from rig.brokers import HOST, BrokerProcess
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.conftest import PEERS
from tests.support import transaction_requests as transactions
from tests.support.peers import Peer, PeerKind
from tests.support.times import NOW_MS
from tests.support.transaction_requests import COMMIT, UNCOMMITTED, in_transaction
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

GZIP = 1
OLD_PRODUCE = (0, 1, 2)
OLD_FETCH = (0, 1, 2, 3)
KAFKA_PYTHON = [(0, 8, 2), (0, 9), (0, 10, 0), (0, 10, 1)]
_names = count()


@pytest.fixture(scope="module", params=PEERS, ids=lambda kind: kind.value)
def broker(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    """Landline alone; with ``PEERS=all`` Kafka too, which answers the same but for what is marked."""
    folder: Path = tmp_path_factory.mktemp("old-clients")
    config: dict[str, object] = {
        "auto.create.topics.enable": "false",
        "transaction.partition.verification.enable": "false",
    }
    if request.param is PeerKind.LANDLINE:
        with LandlineStandalone(folder / "data", config) as running:
            yield running
            assert "traceback=" not in running.log_text()
    else:
        with Peer(request.param, zookeeper, folder).cluster(config=config) as cluster:
            yield cluster.brokers[1]


@pytest.fixture
def landline(broker: BrokerProcess) -> None:
    """For what Landline does otherwise than Kafka (docs/design.md, old clients)."""
    if not isinstance(broker, LandlineStandalone):
        pytest.skip("an intended difference")


@pytest.fixture
def client(broker: BrokerProcess) -> Iterator[RawClient]:
    with RawClient(HOST, broker.port) as raw:
        yield raw


def make_topic(client: RawClient, **configs: str) -> str:
    name = f"old-{next(_names)}"
    row = client.create_topic(name, configs={key.replace("_", "."): value for key, value in configs.items()})
    assert row.error_code == Errors.NONE, row
    await_leaders(client, name)
    return name


def await_leaders(client: RawClient, topic: str, partitions: int = 1) -> None:
    """A Kafka broker is told of its partitions after it has answered."""

    def led() -> bool:
        rows = [{"partition_index": n, "timestamp": -1} for n in range(partitions)]
        fields = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": topic, "partitions": rows}]}
        found = client.ask(ApiKey.LIST_OFFSETS, 4, fields).topics[0].partitions
        return all(row.error_code == Errors.NONE for row in found)

    wait_until(led, what=f"leaders of {topic}")


def messages(magic: int, *values: bytes, codec_id: int = 0) -> bytes:
    """A message set as kafka-python writes it for old brokers."""
    builder = LegacyRecordBatchBuilder(magic, codec_id, 1 << 20)
    for number, value in enumerate(values):
        builder.append(number, NOW_MS + number, b"key", value)
    return bytes(builder.build())


def message(magic: int, value: bytes, attributes: int = 0) -> bytes:
    out = bytearray()
    write_message(out, magic, 0, NOW_MS, None, value, attributes)
    return bytes(out)


def produced(client: RawClient, topic: str, data: bytes, version: int = 2, acks: int = -1) -> Any:
    return client.produce(topic, 0, data, version=version, acks=acks)


@pytest.mark.parametrize("codec_id", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", OLD_PRODUCE)
def test_old_messages_are_stored_as_a_batch(
    version: int, magic: int, codec_id: int, client: RawClient
) -> None:
    topic = make_topic(client)
    for expected in (0, 2):
        answer = produced(client, topic, messages(magic, b"one", b"two", codec_id=codec_id), version)
        assert (answer.error_code, answer.base_offset) == (Errors.NONE, expected)
    stored = client.fetch(topic, 0, 0).records
    header = read_header(stored)
    assert (header.magic, header.codec_id, header.record_count, header.producer_id) == (2, codec_id, 2, -1)
    records = read_records(stored)
    assert [(record.offset, record.key, record.value) for record in records] == [
        (n, b"key", (b"one", b"two")[n % 2]) for n in range(4)
    ]
    assert [record.timestamp for record in records] == [NOW_MS + n % 2 if magic else -1 for n in range(4)]


def test_messages_without_time_get_the_brokers_on_a_topic_of_append_time(client: RawClient) -> None:
    topic = make_topic(client, message_timestamp_type="LogAppendTime")
    answer = produced(client, topic, messages(0, b"one"), 2)
    (record,) = read_records(client.fetch(topic, 0, 0).records)
    assert record.timestamp == answer.log_append_time.timestamp() * 1000
    assert record.timestamp > NOW_MS


def test_the_topics_codec_is_that_of_its_batches(client: RawClient) -> None:
    topic = make_topic(client, compression_type="zstd")
    assert produced(client, topic, messages(1, b"one", b"two", codec_id=GZIP)).error_code == Errors.NONE
    stored = client.fetch(topic, 0, 0).records
    assert read_header(stored).codec_id == 4
    assert [record.value for record in read_records(stored)] == [b"one", b"two"]


@pytest.mark.parametrize("version", OLD_PRODUCE)
def test_a_batch_in_an_old_request_is_appended_as_it_is(version: int, client: RawClient) -> None:
    topic = make_topic(client)
    assert produced(client, topic, some_records(b"new"), version).base_offset == 0
    assert [record.value for record in read_records(client.fetch(topic, 0, 0).records)] == [b"new"]


@pytest.mark.parametrize(
    ("data", "error"),
    [
        (message(1, b"v")[:-1] + b"w", Errors.CORRUPT_MESSAGE),
        (messages(1, b"v", codec_id=GZIP) * 2, Errors.INVALID_RECORD),
        (
            wrapped(wrapped(message(1, b"v"), 1, 1, 0, 0, append_time=False), 1, 1, 0, 0, append_time=False),
            87,
        ),
        (message(0, b"v") + message(1, b"v"), Errors.INVALID_RECORD),
        (message(1, bytes(2 << 20)), Errors.MESSAGE_TOO_LARGE),
        (b"", Errors.NONE),
        (message(1, b"cut")[:-1], Errors.NONE),  # as in Kafka: an incomplete message is none
    ],
    ids=["crc", "two wrappers", "wrapper in wrapper", "magics", "large", "empty", "cut"],
)
@pytest.mark.parametrize("version", OLD_PRODUCE)
def test_bad_messages_get_their_code_and_nothing_is_appended(
    version: int, data: bytes, error: Errors, client: RawClient
) -> None:
    topic = make_topic(client)
    answer = produced(client, topic, data, version)
    assert (answer.error_code, answer.base_offset) == (error, -1)
    assert client.end_offset(topic) == 0
    assert client.is_open()


LIMIT = 1000


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("size", "number", "fits"),
    [
        (20, 20, True),  # the messages are more bytes than the limit, the batch is not
        (20, 60, False),  # neither is
        (LIMIT - 34, 1, False),  # the batch has more bytes than the message
        (LIMIT - 80, 1, True),
        (LIMIT - 20, 1, False),
    ],
)
def test_the_limit_is_for_each_message_and_for_the_batch_they_become(
    size: int, number: int, fits: bool, magic: int, client: RawClient
) -> None:
    topic = make_topic(client, max_message_bytes=str(LIMIT))
    data = b"".join(message(magic, bytes(size)) for _ in range(number))
    answer = produced(client, topic, data)
    assert answer.error_code == (Errors.NONE if fits else Errors.MESSAGE_TOO_LARGE)
    assert client.end_offset(topic) == (number if fits else 0)


@pytest.mark.parametrize("codec_id", [0, GZIP])
@pytest.mark.parametrize(
    ("compression_type", "values", "fits"),
    [
        ("gzip", [bytes(100)] * 30, True),
        ("gzip", [bytes(LIMIT - 50)] * 9, True),
        ("gzip", [os.urandom(100)] * 9 + [os.urandom(LIMIT)], False),
        ("gzip", [os.urandom(200) for _ in range(9)], False),
        ("uncompressed", [bytes(100)] * 30, False),
        ("uncompressed", [bytes(100)] * 3, True),
    ],
)
@pytest.mark.parametrize("magic", [0, 1])
def test_the_limit_is_for_the_batch_in_the_topics_codec(
    magic: int, compression_type: str, values: list[bytes], fits: bool, codec_id: int, client: RawClient
) -> None:
    topic = make_topic(client, max_message_bytes=str(LIMIT), compression_type=compression_type)
    data = messages(magic, *values, codec_id=codec_id)
    answer = produced(client, topic, data)
    assert answer.error_code == (Errors.NONE if fits else Errors.MESSAGE_TOO_LARGE)
    assert client.end_offset(topic) == (len(values) if fits else 0)


@pytest.mark.parametrize(("compression_type", "fits"), [("uncompressed", False), ("producer", True)])
def test_the_limit_is_for_a_new_clients_batch_in_the_topics_codec_too(
    compression_type: str, fits: bool, client: RawClient
) -> None:
    topic = make_topic(client, max_message_bytes=str(LIMIT), compression_type=compression_type)
    data = build_batch([Record(None, bytes(100), (), NOW_MS)] * 30, compression="gzip")
    answer = produced(client, topic, data, 9)
    assert answer.error_code == (Errors.NONE if fits else Errors.MESSAGE_TOO_LARGE)
    assert client.end_offset(topic) == (30 if fits else 0)


def test_a_compacted_topic_refuses_a_message_without_key(client: RawClient) -> None:
    topic = make_topic(client, cleanup_policy="compact")
    assert produced(client, topic, message(1, b"no key")).error_code == Errors.INVALID_RECORD
    assert produced(client, topic, messages(1, b"keyed")).error_code == Errors.NONE


def test_an_unknown_partition_is_refused_beside_a_good_one(client: RawClient) -> None:
    topic = make_topic(client)
    good = {"index": 0, "records": messages(0, b"v")}
    elsewhere = {"index": 7, "records": messages(0, bytes(100), bytes(100))}
    assert codes(client, {"name": topic, "partition_data": [good, elsewhere]}) == [
        [0, Errors.UNKNOWN_TOPIC_OR_PARTITION]
    ]
    assert client.end_offset(topic) == 1


@pytest.mark.usefixtures("landline")
def test_a_partition_that_is_named_twice_is_refused_beside_a_good_one(client: RawClient) -> None:
    """Kafka appends the last one and answers once."""
    good, twice = make_topic(client), make_topic(client)
    row = {"index": 0, "records": messages(0, b"v")}
    found = codes(
        client, {"name": good, "partition_data": [row]}, {"name": twice, "partition_data": [row, row]}
    )
    assert found == [[0], [Errors.INVALID_REQUEST] * 2]
    assert (client.end_offset(good), client.end_offset(twice)) == (1, 0)


def codes(client: RawClient, *topics: dict[str, Any]) -> list[list[int]]:
    response = client.ask(ApiKey.PRODUCE, 1, {"acks": 1, "timeout": 1000, "topic_data": list(topics)})
    return [[row.error_code for row in topic.partition_responses] for topic in response.responses]


def test_without_acks_there_is_no_response_and_a_refusal_closes_the_connection(client: RawClient) -> None:
    topic = make_topic(client)

    def send(data: bytes) -> None:
        row = {"name": topic, "partition_data": [{"index": 0, "records": data}]}
        body = codec.encode(ApiKey.PRODUCE, 0, "request", {"acks": 0, "timeout": 0, "topic_data": [row]})
        client.send(request_frame(ApiKey.PRODUCE, 0, body))

    send(messages(0, b"v"))
    assert client.end_offset(topic) == 1
    send(message(1, b"v")[:-1] + b"w")
    assert client.await_close() == b""


# --- fetching


def fetched(client: RawClient, topic: str, version: int, offset: int = 0, **more: Any) -> Any:
    """The partition's response to a fetch that waits for nothing."""
    row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20, **more}
    fields = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": topic, "partitions": [row]}],
        "forgotten_topics_data": [],
    }
    return client.ask(ApiKey.FETCH, version, fields).responses[0].partitions[0]


def read_elsewhere(data: bytes) -> list[tuple[int, int | None, bytes | None]]:
    """(offset, time, value) as kafka-python reads them."""
    found = []
    records = MemoryRecords(data)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        found += [(record.offset, record.timestamp, record.value) for record in batch]
    return found


@pytest.mark.parametrize("codec", ["none", "gzip"])
@pytest.mark.parametrize("version", OLD_FETCH)
def test_an_old_reader_gets_messages_of_its_magic(version: int, codec: str, client: RawClient) -> None:
    topic = make_topic(client)
    records = [Record(b"k", value, (("header", b"lost"),), NOW_MS) for value in (b"one", b"two")]
    for _ in range(2):
        client.produce(topic, 0, build_batch(records, compression=codec))
    answer = fetched(client, topic, version, 1)
    assert (answer.error_code, answer.high_watermark) == (Errors.NONE, 4)
    time = NOW_MS if version >= 2 else None
    expected = [(n, time, (b"one", b"two")[n % 2]) for n in range(4)]
    assert read_elsewhere(answer.records) == (expected[1:] if codec == "none" else expected)
    assert all(m.magic == (1 if version >= 2 else 0) for m in each_message(memoryview(answer.records)))
    end = fetched(client, topic, version, 4)
    assert (end.error_code, bytes(end.records)) == (Errors.NONE, b"")


@pytest.mark.parametrize("version", OLD_FETCH)
def test_an_old_reader_is_told_what_a_newer_one_is(version: int, client: RawClient) -> None:
    topic = make_topic(client)
    assert fetched(client, topic, version, 7).error_code == Errors.OFFSET_OUT_OF_RANGE
    assert fetched(client, "nowhere", version).error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION
    assert fetched(client, topic, version, partition=3).error_code == Errors.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("version", [0, 1, 2])
def test_before_version_3_no_more_comes_than_the_limit(
    version: int, client: RawClient, broker: BrokerProcess
) -> None:
    topic = make_topic(client)
    client.produce(topic, 0, some_records(bytes(5000)))
    cut = fetched(client, topic, version, partition_max_bytes=1000).records
    # Kafka sends nothing, and its reader waits forever. From a part the reader sees that its limit is too low.
    assert len(cut) == (1000 if isinstance(broker, LandlineStandalone) else 0)
    assert list(each_message(memoryview(cut))) == []


def test_from_version_3_on_a_message_may_be_larger_than_the_limit(client: RawClient) -> None:
    topic = make_topic(client)
    client.produce(topic, 0, some_records(bytes(5000)))
    assert len(read_elsewhere(fetched(client, topic, 3, partition_max_bytes=1000).records)) == 1


def test_a_topic_without_down_conversion_refuses_old_readers_alone(client: RawClient) -> None:
    topic = make_topic(client, message_downconversion_enable="false")
    assert produced(client, topic, messages(1, b"v")).error_code == Errors.NONE
    for version in OLD_FETCH:
        assert fetched(client, topic, version).error_code == Errors.UNSUPPORTED_VERSION
    assert len(read_records(client.fetch(topic, 0, 0).records)) == 1


@pytest.mark.parametrize("version", [*OLD_FETCH, 4, 9, 10])
def test_readers_before_version_10_get_no_zstd(version: int, client: RawClient) -> None:
    by_producer, by_topic = make_topic(client), make_topic(client, compression_type="zstd")
    batch = build_batch([Record(None, b"v", (), NOW_MS)], compression="zstd")
    for topic in (by_producer, by_topic):
        assert client.produce(topic, 0, batch).error_code == Errors.NONE
    refused = Errors.UNSUPPORTED_COMPRESSION_TYPE
    assert fetched(client, by_topic, version).error_code == (refused if version < 10 else Errors.NONE)
    # As in Kafka, only a conversion looks at the batches.
    assert fetched(client, by_producer, version).error_code == (refused if version < 4 else Errors.NONE)


@pytest.mark.usefixtures("landline")
def test_each_partition_has_its_turn_when_one_of_them_fills_the_answer(client: RawClient) -> None:
    name = f"old-{next(_names)}"
    assert client.create_topic(name, partitions=3).error_code == Errors.NONE
    await_leaders(client, name, 3)
    for partition in range(3):
        for _ in range(3):
            client.produce(name, partition, some_records(bytes(900_000)))
    rows = [{"partition": n, "fetch_offset": 0, "partition_max_bytes": 9 << 20} for n in range(3)]
    fields = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 2 << 20,
        "topics": [{"topic": name, "partitions": rows}],
    }
    seen: set[int] = set()

    def all_seen() -> bool:
        answer = client.ask(ApiKey.FETCH, 2, fields).responses[0].partitions
        assert 900_000 < sum(len(each.records) for each in answer) <= 1 << 20
        seen.update(each.partition_index for each in answer if offsets_in(each))
        return seen == {0, 1, 2}

    wait_until(all_seen, what="records of each partition")


def test_a_batch_larger_than_an_answer_comes_to_a_reader_that_asks_for_so_much(client: RawClient) -> None:
    topic = make_topic(client, max_message_bytes="4000000")
    batch = build_batch([Record(None, os.urandom(2_000_000), (), NOW_MS)], compression="gzip")
    for _ in range(2):
        assert client.produce(topic, 0, batch).error_code == Errors.NONE
    for version in OLD_FETCH:
        records = fetched(client, topic, version, partition_max_bytes=3_000_000).records
        assert [row[0] for row in read_elsewhere(records)] == [0]


def offsets_in(partition: Any) -> list[int]:
    return [message.offset for message in each_message(memoryview(partition.records))]


@pytest.mark.usefixtures("landline")
def test_an_old_reader_waits_behind_a_transaction_marker(client: RawClient) -> None:
    topic = make_topic(client)
    assert transactions.produce(client, topic, in_transaction(b"v", pid=1)).error_code == Errors.NONE
    assert transactions.end(client, topic, 1, COMMIT) is Errors.NONE
    began = time.monotonic()
    answer = transactions.fetch(client, topic, 1, isolation=UNCOMMITTED, version=2, wait_ms=300)
    assert (answer.error_code, bytes(answer.records)) == (Errors.NONE, b"")
    assert time.monotonic() - began >= 0.25
    client.produce(topic, 0, some_records(b"behind"))
    assert [row[0] for row in read_elsewhere(fetched(client, topic, 2, 1).records)] == [2]


def list_offsets(client: RawClient, topic: str, timestamp: int, most: int, partition: int = 0) -> Any:
    row = {"partition_index": partition, "timestamp": timestamp, "max_num_offsets": most}
    fields = {"replica_id": -1, "topics": [{"name": topic, "partitions": [row]}]}
    return client.ask(ApiKey.LIST_OFFSETS, 0, fields).topics[0].partitions[0]


def test_list_offsets_0_tells_where_segments_begin(client: RawClient) -> None:
    topic = make_topic(client, segment_bytes=str(1 << 20))
    for _ in range(4):
        client.produce(topic, 0, some_records(bytes(900_000)))

    def offsets(timestamp: int, most: int) -> list[int]:
        answer = list_offsets(client, topic, timestamp, most)
        assert answer.error_code == Errors.NONE
        return list(answer.old_style_offsets)

    assert offsets(-1, 1) == [4]
    assert offsets(-1, 9) == [4, 3, 2, 1, 0]
    assert offsets(-2, 9) == [0]
    assert offsets(int(time.time() * 1000) + 60_000, 2) == [4, 3]
    assert offsets(1000, 9) == []
    assert list_offsets(client, topic, -1, -1).error_code == Errors.UNKNOWN_SERVER_ERROR
    unknown = list_offsets(client, topic, -1, 1, partition=5)
    assert (unknown.error_code, unknown.old_style_offsets) == (Errors.UNKNOWN_TOPIC_OR_PARTITION, ())


@pytest.mark.parametrize("api_version", KAFKA_PYTHON, ids=lambda version: ".".join(map(str, version)))
@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_as_an_old_client_reads_what_it_wrote(
    codec: str | None, api_version: tuple[int, ...], client: RawClient, broker: BrokerProcess
) -> None:
    topic = make_topic(client)
    # Before Fetch 3 Kafka sends nothing of a batch that is larger than the limit, and the reader waits forever.
    is_small = codec is None and isinstance(broker, LandlineStandalone)
    servers = f"{HOST}:{broker.port}"
    with closing(
        KafkaProducer(
            bootstrap_servers=servers,
            api_version=api_version,
            compression_type=codec,
            enable_idempotence=False,
            acks="all",
        )
    ) as producer:
        for number in range(500):
            producer.send(topic, b"%d" % number, key=b"key")
        producer.flush(30)
    with closing(
        KafkaConsumer(
            bootstrap_servers=servers,
            api_version=api_version,
            group_id=None,
            consumer_timeout_ms=30_000,
            auto_offset_reset="earliest",
            max_partition_fetch_bytes=3000 if is_small else 64_000,
        )
    ) as consumer:
        partition = kafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        assert (consumer.beginning_offsets([partition]), consumer.end_offsets([partition])) == (
            {partition: 0},
            {partition: 500},
        )
        found = [next(consumer) for _ in range(500)]
    assert [(record.offset, record.value) for record in found] == [(n, b"%d" % n) for n in range(500)]
    assert all(record.key == b"key" for record in found)
