"""Record batches that a producer must not send: the right code, nothing appended, and the broker goes on."""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from itertools import count
from pathlib import Path

import lz4.frame
import pytest
import zstandard
from crc32c import crc32c

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.record.batch import Record, build_batch, read_records
from broker.record.header import CRC_START, HEADER, HEADER_BYTES, BatchHeader, read_header
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until
from tests.support.times import NOW_MS
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

MAX_MESSAGE_BYTES = 100_000
BOMB_BYTES = 512 * 1024 * 1024
_topic_numbers = count(1)


@pytest.fixture
def topic(client: RawClient) -> str:
    return make_topic(client)


def make_topic(client: RawClient, **configs: str) -> str:
    """A new topic of one partition with one record."""
    name = f"topic-{next(_topic_numbers)}"
    settings = {"max.message.bytes": str(MAX_MESSAGE_BYTES)} | {
        key.replace("_", "."): value for key, value in configs.items()
    }
    assert client.create_topic(name, configs=settings).error_code == Errors.NONE
    first = build_batch([Record(b"key", b"first", (), NOW_MS)])
    assert client.produce(name, 0, first).error_code == Errors.NONE
    return name


def changed(data: bytes | None = None, *, sealed: bool = True, **header_fields: int) -> bytes:
    """A batch with other values in its header, and a CRC that fits them when ``sealed``."""
    data = data or some_records(b"one", b"two", b"three")
    header = read_header(data)._replace(**header_fields)
    return seal(header, data[HEADER_BYTES:]) if sealed else pack(header, data[HEADER_BYTES:])


def pack(header: BatchHeader, records: bytes) -> bytes:
    out = bytearray(HEADER_BYTES) + records
    HEADER.pack_into(out, 0, *header)
    return bytes(out)


def seal(header: BatchHeader, records: bytes) -> bytes:
    unsealed = pack(header, records)
    return pack(header._replace(crc=crc32c(unsealed[CRC_START:])), records)


def flipped(position: int) -> bytes:
    data = bytearray(some_records(b"one", b"two", b"three"))
    data[position] ^= 0x01
    return bytes(data)


def legacy(magic: int) -> bytes:
    """A message of magic 0 or 1, as clients before Kafka 0.11 sent it."""
    value = b"an old message"
    fields = struct.pack(">bb", magic, 0) + (struct.pack(">q", NOW_MS) if magic else b"")
    fields += struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    message = struct.pack(">I", zlib.crc32(fields)) + fields
    # Padded to the size of a v2 header, so that it is the magic that is judged.
    return struct.pack(">qi", 0, len(message)) + message + bytes(HEADER_BYTES)


CORRUPT = Errors.CORRUPT_MESSAGE
INVALID = Errors.INVALID_RECORD
BAD_RECORDS: dict[str, tuple[Callable[[], bytes | None], Errors]] = {
    "null": (lambda: None, INVALID),
    "empty": (lambda: b"", INVALID),
    "a few bytes": (lambda: b"\0" * 11, CORRUPT),
    "half a header": (lambda: some_records()[:40], CORRUPT),
    "cut batch": (lambda: some_records()[:-1], CORRUPT),
    "wrong crc": (lambda: changed(sealed=False, crc=12345), CORRUPT),
    "bit flipped in a record": (lambda: flipped(HEADER_BYTES + 5), CORRUPT),
    "bit flipped in the producer id": (lambda: flipped(45), CORRUPT),
    "magic 0": (lambda: legacy(0), INVALID),
    "magic 1": (lambda: legacy(1), INVALID),
    "magic 3": (lambda: changed(magic=3), CORRUPT),
    "magic -1": (lambda: changed(magic=-1), CORRUPT),
    "negative length": (lambda: changed(length=-1), CORRUPT),
    "most negative length": (lambda: changed(length=-(1 << 31)), CORRUPT),
    "length 0": (lambda: changed(length=0), CORRUPT),
    "length shorter than the header": (lambda: changed(length=48), CORRUPT),
    "overlong length": (lambda: changed(length=90_000), CORRUPT),
    "longest length": (lambda: changed(length=(1 << 31) - 1), CORRUPT),
    "no records": (lambda: changed(record_count=0, last_offset_delta=-1), INVALID),
    "negative record count": (lambda: changed(record_count=-1), INVALID),
    "more records than bytes": (
        lambda: changed(record_count=1_000_000, last_offset_delta=999_999),
        INVALID,
    ),
    "count beyond last offset delta": (lambda: changed(record_count=4), INVALID),
    "last offset delta beyond count": (lambda: changed(last_offset_delta=7), INVALID),
    "negative last offset delta": (lambda: changed(last_offset_delta=-1), INVALID),
    "base offset not zero": (lambda: changed(base_offset=5), INVALID),
    "control batch": (lambda: changed(attributes=0x20), INVALID),
    "transactional": (
        lambda: changed(attributes=0x10, producer_id=1, producer_epoch=0, base_sequence=0),
        Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ),
    "codec 5": (lambda: changed(attributes=5), Errors.UNSUPPORTED_COMPRESSION_TYPE),
    "codec 7": (lambda: changed(attributes=7), Errors.UNSUPPORTED_COMPRESSION_TYPE),
    "append time set by the producer": (lambda: changed(attributes=8), Errors.INVALID_TIMESTAMP),
    "producer id without sequence": (lambda: changed(producer_id=1, producer_epoch=0), INVALID),
    "several batches": (lambda: some_records(b"one") + some_records(b"two"), INVALID),
    "too large": (lambda: some_records(bytes(MAX_MESSAGE_BYTES)), Errors.MESSAGE_TOO_LARGE),
}


@pytest.mark.parametrize(("make", "error"), BAD_RECORDS.values(), ids=BAD_RECORDS.keys())
def test_bad_records_get_their_code_and_nothing_is_appended(
    make: Callable[[], bytes | None], error: Errors, client: RawClient, topic: str
) -> None:
    answer = client.produce(topic, 0, make())
    assert Errors(int(answer.error_code)) is error
    assert answer.error_message
    assert answer.base_offset == -1
    assert client.end_offset(topic) == 1
    assert client.produce(topic, 0, some_records(b"good")).base_offset == 1


def test_bytes_behind_a_batch_spoil_it(client: RawClient, topic: str) -> None:
    answer = client.produce(topic, 0, some_records() + b"junk")
    assert answer.error_code == CORRUPT
    assert client.end_offset(topic) == 1


def test_bad_batch_leaves_one_line_that_says_what_is_wrong(
    client: RawClient, topic: str, broker: LandlineStandalone
) -> None:
    def refused_with_a_line() -> bool:
        client.produce(topic, 0, changed(sealed=False, crc=1))
        lines = [line for line in broker.log_text().splitlines() if " produce_refused " in line]
        return any(f"{topic}-0" in line and "CORRUPT_MESSAGE" in line and "CRC" in line for line in lines)

    # One a second at most: a producer may repeat its mistake as fast as it can.
    wait_until(refused_with_a_line, what="a line about the refusal")


def test_good_partitions_of_a_request_are_written_beside_a_bad_one(client: RawClient) -> None:
    good, bad = make_topic(client), make_topic(client)
    rows = [
        {"name": good, "partition_data": [{"index": 0, "records": some_records()}]},
        {"name": bad, "partition_data": [{"index": 0, "records": changed(sealed=False, crc=1)}]},
    ]
    response = client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": rows})
    errors = {topic.name: topic.partition_responses[0].error_code for topic in response.responses}
    assert errors == {good: Errors.NONE, bad: CORRUPT}
    assert (client.end_offset(good), client.end_offset(bad)) == (2, 1)


@pytest.mark.parametrize("split", [False, True], ids=["in one topic row", "in two topic rows"])
def test_partition_named_twice_is_refused_for_one_answer_cannot_acknowledge_two_writes(
    split: bool, client: RawClient, topic: str
) -> None:
    once = {"index": 0, "records": some_records(b"one")}
    twice = {"index": 0, "records": some_records(b"two")}
    rows = (
        [{"name": topic, "partition_data": [once]}, {"name": topic, "partition_data": [twice]}]
        if split
        else [{"name": topic, "partition_data": [once, twice]}]
    )
    response = client.ask(ApiKey.PRODUCE, 9, {"acks": -1, "timeout": 10_000, "topic_data": rows})
    answers = [row for found in response.responses for row in found.partition_responses]
    assert [row.error_code for row in answers] == [Errors.INVALID_REQUEST] * 2
    assert client.end_offset(topic) == 1


@pytest.mark.parametrize("acks", [7, -2, 2, 32767])
def test_unknown_acks_are_refused(acks: int, client: RawClient, topic: str) -> None:
    answer = client.produce(topic, 0, some_records(), acks=acks)
    assert answer.error_code == Errors.INVALID_REQUIRED_ACKS
    assert client.end_offset(topic) == 1


def test_refusal_without_acks_closes_the_connection(client: RawClient, broker: LandlineStandalone) -> None:
    data = {"index": 0, "records": some_records()}
    asked = {"acks": 0, "timeout": 0, "topic_data": [{"name": "nowhere", "partition_data": [data]}]}
    client.send(request_frame(ApiKey.PRODUCE, 9, codec.encode(ApiKey.PRODUCE, 9, "request", asked)))
    assert client.await_close() == b""


def test_internal_topics_are_not_written_by_clients(client: RawClient) -> None:
    def made() -> bool:
        found = client.ask(ApiKey.FIND_COORDINATOR, 2, {"key": "g", "key_type": 0})
        return bool(found.error_code == Errors.NONE)

    wait_until(made, what="the first question for a coordinator has made __consumer_offsets")
    answer = client.produce("__consumer_offsets", 0, some_records())
    assert answer.error_code == Errors.INVALID_TOPIC_EXCEPTION
    assert client.end_offset("__consumer_offsets") == 0


def test_zstd_needs_the_version_that_brought_it(client: RawClient, topic: str) -> None:
    packed = build_batch([Record(None, b"value", (), NOW_MS)], compression="zstd")
    answer = client.produce(topic, 0, packed, version=6)
    assert answer.error_code == Errors.UNSUPPORTED_COMPRESSION_TYPE
    assert client.end_offset(topic) == 1
    assert client.produce(topic, 0, packed, version=7).error_code == Errors.NONE


def test_records_without_keys_are_refused_by_a_compacted_topic(client: RawClient) -> None:
    topic = make_topic(client, cleanup_policy="compact")
    keyed_then_not = build_batch([Record(b"key", b"one", (), NOW_MS), Record(None, b"two", (), NOW_MS)])
    for version in (8, 9):
        answer = client.produce(topic, 0, keyed_then_not, version=version)
        assert answer.error_code == INVALID
        assert [
            (row.batch_index, "key" in row.batch_index_error_message) for row in answer.record_errors
        ] == [(1, True)]
    assert client.end_offset(topic) == 1


# --- zip bombs


def bomb(codec_id: int) -> bytes:
    """A batch of some KB whose records decompress to half a GiB of zeroes."""
    piece = bytes(1 << 20)
    pieces = BOMB_BYTES >> 20
    if codec_id == 1:
        packer = zlib.compressobj(9, zlib.DEFLATED, 31)
        packed = b"".join(packer.compress(piece) for _ in range(pieces)) + packer.flush()
    elif codec_id == 3:
        with lz4.frame.LZ4FrameCompressor() as lz4_packer:
            packed = lz4_packer.begin()
            packed += b"".join(lz4_packer.compress(piece) for _ in range(pieces)) + lz4_packer.flush()
    else:
        zstd_packer = zstandard.ZstdCompressor(level=3).compressobj()
        packed = b"".join(zstd_packer.compress(piece) for _ in range(pieces)) + zstd_packer.flush()
    header = read_header(some_records())
    length = HEADER_BYTES - 12 + len(packed)
    return seal(header._replace(attributes=codec_id, length=length), packed)


@pytest.mark.parametrize("codec_id", [1, 3, 4], ids=["gzip", "lz4", "zstd"])
def test_zip_bomb_is_counted_and_not_held(
    codec_id: int, client: RawClient, broker: LandlineStandalone
) -> None:
    topic = make_topic(client, max_message_bytes="10000000")
    packed = bomb(codec_id)
    before = broker.rss_mb()
    assert client.produce(topic, 0, packed).error_code == Errors.MESSAGE_TOO_LARGE
    assert client.end_offset(topic) == 1
    assert client.is_open()
    assert broker.rss_mb() - before < 30


@pytest.mark.parametrize("codec_id", [1, 3, 4], ids=["gzip", "lz4", "zstd"])
def test_zip_bomb_that_must_be_looked_into_is_refused(
    codec_id: int, client: RawClient, broker: LandlineStandalone
) -> None:
    """A compacted topic needs keys and one with a codec of its own recompresses: both decompress, within bounds."""
    packed = bomb(codec_id)
    for configs in ({"cleanup_policy": "compact"}, {"compression_type": "snappy"}):
        topic = make_topic(client, max_message_bytes="3000000", **configs)
        answer = client.produce(topic, 0, packed)
        assert answer.error_code in {CORRUPT, INVALID, Errors.MESSAGE_TOO_LARGE}
        assert client.end_offset(topic) == 1
        assert peak_mb(broker) < 200


def peak_mb(broker: LandlineStandalone) -> float:
    """The most memory that the broker has ever had resident, in MiB."""
    text = Path(f"/proc/{broker.process.pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", text)
    assert found
    return int(found[1]) / 1024


def test_what_was_refused_is_never_read(client: RawClient, topic: str) -> None:
    for make, _ in BAD_RECORDS.values():
        client.produce(topic, 0, make())
    client.produce(topic, 0, some_records(b"last"))
    records = read_records(client.fetch(topic, 0, 0).records)
    assert [(record.offset, record.value) for record in records] == [(0, b"first"), (1, b"last")]
