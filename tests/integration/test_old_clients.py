"""Clients from before Kafka 0.11: Produce 0 to 2 with messages of magic 0 and 1."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.record.batch import read_header, read_records
from broker.record.message_set import wrapped, write_message
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from tests.support.times import NOW_MS
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

GZIP = 1
OLD_PRODUCE = (0, 1, 2)
_names = count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    folder: Path = tmp_path_factory.mktemp("old-clients")
    with LandlineStandalone(folder / "data", {"auto.create.topics.enable": "false"}) as running:
        yield running


@pytest.fixture
def client(broker: LandlineStandalone) -> Iterator[RawClient]:
    with RawClient(HOST, broker.port) as raw:
        yield raw


def make_topic(client: RawClient, **configs: str) -> str:
    name = f"old-{next(_names)}"
    row = client.create_topic(name, configs={key.replace("_", "."): value for key, value in configs.items()})
    assert row.error_code == Errors.NONE, row
    return name


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
        (message(1, b"v", attributes=8), Errors.INVALID_TIMESTAMP),
        (b"", Errors.NONE),
        (message(1, b"cut")[:-1], Errors.NONE),  # as in Kafka: an incomplete message is none
    ],
    ids=["crc", "two wrappers", "wrapper in wrapper", "magics", "large", "append time", "empty", "cut"],
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


def test_a_compacted_topic_refuses_a_message_without_key(client: RawClient) -> None:
    topic = make_topic(client, cleanup_policy="compact")
    assert produced(client, topic, message(1, b"no key")).error_code == Errors.INVALID_RECORD
    assert produced(client, topic, messages(1, b"keyed")).error_code == Errors.NONE


def test_an_unknown_partition_and_a_second_mention_are_refused_beside_a_good_one(client: RawClient) -> None:
    good, twice = make_topic(client), make_topic(client)
    row = {"index": 0, "records": messages(0, b"v")}
    asked = [
        {"name": good, "partition_data": [row, {**row, "index": 7}]},
        {"name": twice, "partition_data": [row, row]},
    ]
    response = client.ask(ApiKey.PRODUCE, 1, {"acks": 1, "timeout": 1000, "topic_data": asked})
    found = [[row.error_code for row in topic.partition_responses] for topic in response.responses]
    assert found == [[0, Errors.UNKNOWN_TOPIC_OR_PARTITION], [Errors.INVALID_REQUEST] * 2]
    assert (client.end_offset(good), client.end_offset(twice)) == (1, 0)


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
