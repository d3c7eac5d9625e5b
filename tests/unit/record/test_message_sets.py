"""Message sets of magic 0 and 1, against kafka-python's writer and reader, and their conversion to batches and back."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from collections.abc import Callable, Iterable, Sequence

import pytest
from kafka.record.legacy_records import LegacyRecordBatchBuilder
from kafka.record.memory_records import MemoryRecords

from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import HEADER_BYTES, Record, build_batch, read_header, read_records, replace_body
from broker.record.compression import compress
from broker.record.conversion import down_converted, up_converted, upgraded
from broker.record.header import LOG_APPEND_TIME_FLAG
from broker.record.message_set import (
    Message,
    begins_old,
    each_inner,
    each_message,
    wrapped,
    write_message,
)
from broker.record.old_lz4 import with_old_checksum, with_right_checksum, xxh32_of_few
from broker.record.validator import AppendOrigin, BatchRules, check_batches
from tests.support.times import NOW_MS

CODECS = ("none", "gzip", "snappy", "lz4")
# Without xxhash and python-snappy, kafka-python knows no others.
KNOWN_ELSEWHERE = [(0, "none"), (0, "gzip"), (1, "none"), (1, "gzip"), (1, "lz4")]
RULES = BatchRules(max_message_bytes=1 << 20)
Fields = tuple[bytes | None, bytes | None]
SOME: Sequence[Fields] = [
    (b"k", b"v"),
    (None, b"no key"),
    (b"tombstone", None),
    (b"", b""),
    (b"k", b"x" * 3000),
]


def by_kafka_python(magic: int, codec: str, fields: Iterable[Fields] = SOME) -> bytes:
    builder = LegacyRecordBatchBuilder(magic, CODECS.index(codec), 1 << 20)
    for number, (key, value) in enumerate(fields):
        assert builder.append(number, NOW_MS + number, key, value) is not None
    return bytes(builder.build())


def read_by_kafka_python(data: bytes) -> list[tuple[int, int | None, bytes | None, bytes | None]]:
    found = []
    records = MemoryRecords(data)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        for record in batch:
            assert record.validate_crc()
            found.append((record.offset, record.timestamp, record.key, record.value))
    return found


def up(data: bytes, rules: BatchRules = RULES) -> list[Record]:
    converted = up_converted(memoryview(data), rules)
    assert converted is not None
    (header,) = check_batches(memoryview(bytearray(converted)), rules, AppendOrigin.CLIENT, NOW_MS, "t-0")
    assert (header.base_offset, header.producer_id) == (0, -1)
    return read_records(converted)


def down(batch: bytes, magic: int, *, first_offset: int = 0, most_bytes: int = 1 << 20) -> bytes:
    return down_converted(
        memoryview(batch), read_header(batch), magic, first_offset=first_offset, most_bytes=most_bytes
    ).messages


def message(
    magic: int = 1, value: bytes | None = b"v", *, attributes: int = 0, timestamp: int = NOW_MS
) -> bytes:
    out = bytearray()
    write_message(out, magic, 0, timestamp, None, value, attributes)
    return bytes(out)


def refusal(data: bytes, rules: BatchRules = RULES) -> Errors:
    with pytest.raises(KafkaError) as refused:
        up_converted(memoryview(data), rules)
    return refused.value.error_code


@pytest.mark.parametrize(("magic", "codec"), KNOWN_ELSEWHERE)
def test_messages_of_another_writer_become_a_batch_of_the_same_records(magic: int, codec: str) -> None:
    records = up(by_kafka_python(magic, codec))
    assert [(record.key, record.value) for record in records] == SOME
    assert [record.timestamp for record in records] == [NOW_MS + n if magic else -1 for n in range(len(SOME))]
    assert [record.offset for record in records] == list(range(len(SOME)))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_plain_message_is_written_byte_for_byte_as_another_writer_does(magic: int) -> None:
    records = [Record(key, value, (), NOW_MS + n) for n, (key, value) in enumerate(SOME)]
    assert down(build_batch(records), magic) == by_kafka_python(magic, "none")


@pytest.mark.parametrize(("magic", "codec"), KNOWN_ELSEWHERE)
def test_another_reader_reads_what_a_batch_becomes(magic: int, codec: str) -> None:
    records = [Record(key, value, (("h", b"lost"),), NOW_MS - n) for n, (key, value) in enumerate(SOME)]
    batch = build_batch(records, base_offset=40, compression=codec)
    assert read_by_kafka_python(down(batch, magic)) == [
        (40 + n, NOW_MS - n if magic else None, key, value) for n, (key, value) in enumerate(SOME)
    ]


@pytest.mark.parametrize(("magic", "codec"), KNOWN_ELSEWHERE)
def test_a_compacted_batch_keeps_its_offsets_in_messages(magic: int, codec: str) -> None:
    records = [Record(b"k", b"v", (), NOW_MS, offset) for offset in (12, 15, 16)]
    batch = build_batch(records, base_offset=10, compression=codec, keep_offsets=True)
    assert [row[0] for row in read_by_kafka_python(down(batch, magic))] == [12, 15, 16]


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4"])
def test_append_time_is_the_time_of_each_message(codec: str) -> None:
    records = [Record(None, b"v", (), 5), Record(None, b"w", (), 9)]
    found = down(build_batch(records, compression=codec, log_append_time_ms=NOW_MS), 1)
    assert [row[1] for row in read_by_kafka_python(found)] == [NOW_MS, NOW_MS]
    assert all(each.is_log_append_time for each in each_message(memoryview(found)))
    assert not any(each.attributes for each in each_message(memoryview(down(build_batch(records), 0))))


def test_magic_0_has_neither_time_nor_its_type() -> None:
    found = down(build_batch([Record(None, b"v", (), 5)], log_append_time_ms=NOW_MS), 0)
    (only,) = each_message(memoryview(found))
    assert (only.timestamp, only.attributes) == (-1, 0)


def test_a_plain_batch_is_converted_from_the_fetched_offset_on_and_up_to_the_limit() -> None:
    batch = build_batch([Record(None, bytes(100), (), NOW_MS)] * 10, base_offset=50)
    found = down(batch, 1, first_offset=53, most_bytes=3 * (34 + 100))
    assert [each.offset for each in each_message(memoryview(found))] == [53, 54, 55]
    least = down(batch, 1, first_offset=53, most_bytes=1)
    assert [each.offset for each in each_message(memoryview(least))] == [53]


def test_a_transaction_marker_becomes_no_message() -> None:
    assert down(build_batch([Record(b"\0\0\0\0", b"", (), NOW_MS)], control=True), 1) == b""


def test_zstd_cannot_be_told_to_old_clients() -> None:
    with pytest.raises(KafkaError) as refused:
        down(build_batch([Record(None, b"v", (), NOW_MS)], compression="zstd"), 1)
    assert refused.value.error_code is Errors.UNSUPPORTED_COMPRESSION_TYPE


def test_an_incomplete_last_message_is_left_out() -> None:
    whole = message()
    assert [record.value for record in up(whole + message(value=b"cut")[:-1])] == [b"v"]
    assert up_converted(memoryview(whole[:-1]), RULES) is None
    assert up_converted(memoryview(b""), RULES) is None


def test_a_time_is_the_clients_and_without_one_the_rules_of_the_topic_judge_its_type() -> None:
    (record,) = up(message(attributes=LOG_APPEND_TIME_FLAG))
    assert record.timestamp == NOW_MS
    converted = up_converted(memoryview(message(attributes=LOG_APPEND_TIME_FLAG, timestamp=-1)), RULES)
    with pytest.raises(KafkaError) as refused:
        check_batches(memoryview(bytearray(converted)), RULES, AppendOrigin.CLIENT, NOW_MS, "t-0")
    assert refused.value.error_code is Errors.INVALID_TIMESTAMP


def sealed(body: bytes) -> bytes:
    """A message of these bytes from the magic on, with the right CRC."""
    return struct.pack(">qiI", 0, len(body) + 4, zlib.crc32(body)) + body


def flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


NULLS = struct.pack(">ii", -1, -1)
WRAPPER = wrapped(message(), 1, 1, 0, NOW_MS, append_time=False)
BAD: dict[str, tuple[Callable[[], bytes], Errors]] = {
    "wrong crc": (lambda: flipped(message(), 20), Errors.CORRUPT_MESSAGE),
    "wrong crc in the wrapper": (lambda: flipped(WRAPPER, 20), Errors.CORRUPT_MESSAGE),
    "wrong crc inside": (
        lambda: wrapped(flipped(message(), 30), 1, 2, 0, NOW_MS, append_time=False),
        Errors.CORRUPT_MESSAGE,
    ),
    "a length below the smallest": (lambda: struct.pack(">qi", 0, 13) + bytes(13), Errors.CORRUPT_MESSAGE),
    "a negative length": (lambda: struct.pack(">qi", 0, -1) + bytes(30), Errors.CORRUPT_MESSAGE),
    "magic 3": (lambda: message() + sealed(b"\3\0" + NULLS), Errors.CORRUPT_MESSAGE),
    "magic 2 after magic 1": (lambda: message() + sealed(b"\2\0" + NULLS), Errors.INVALID_RECORD),
    "both magics": (lambda: message(0) + message(1), Errors.INVALID_RECORD),
    "no room for the time": (lambda: sealed(b"\1\0" + NULLS), Errors.INVALID_RECORD),
    "a key beyond the end": (
        lambda: sealed(b"\0\0" + struct.pack(">ii", 5, -1)),
        Errors.INVALID_RECORD,
    ),
    "a value beyond the end": (
        lambda: sealed(b"\0\0" + struct.pack(">ii", -1, 1 << 30)),
        Errors.INVALID_RECORD,
    ),
    "a wrapper in a wrapper": (
        lambda: wrapped(WRAPPER, 1, 1, 0, NOW_MS, append_time=False),
        Errors.INVALID_RECORD,
    ),
    "another magic inside": (
        lambda: wrapped(message(0), 1, 1, 0, NOW_MS, append_time=False),
        Errors.INVALID_RECORD,
    ),
    "nothing inside": (lambda: wrapped(b"", 1, 1, 0, NOW_MS, append_time=False), Errors.INVALID_RECORD),
    "a wrapper without a value": (lambda: message(value=None, attributes=1), Errors.INVALID_RECORD),
    "no gzip": (lambda: message(value=b"no gzip", attributes=1), Errors.INVALID_RECORD),
    "a few bytes of lz4": (lambda: message(0, value=b"lz4", attributes=3), Errors.INVALID_RECORD),
    "zstd": (lambda: message(value=b"", attributes=4), Errors.INVALID_RECORD),
    "codec 5": (lambda: message(value=b"", attributes=5), Errors.UNSUPPORTED_COMPRESSION_TYPE),
    "two wrappers": (lambda: WRAPPER * 2, Errors.INVALID_RECORD),
    "a wrapper after a plain message": (lambda: message() + WRAPPER, Errors.INVALID_RECORD),
    "a negative time": (lambda: message(timestamp=-2), Errors.INVALID_TIMESTAMP),
}


@pytest.mark.parametrize(("make", "error"), BAD.values(), ids=BAD.keys())
def test_bad_messages_are_refused_with_their_code(make: Callable[[], bytes], error: Errors) -> None:
    assert refusal(make()) is error


def test_a_large_message_is_refused_before_it_is_decompressed() -> None:
    rules = BatchRules(max_message_bytes=500)
    assert refusal(message(value=bytes(600)), rules) is Errors.MESSAGE_TOO_LARGE
    assert refusal(message(value=b"no gzip" * 100, attributes=1), rules) is Errors.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", [1, 2, 3])
def test_a_bomb_is_refused(codec: int) -> None:
    rules = BatchRules(max_message_bytes=8 << 20)
    inside = message(value=bytes(rules.max_inside_bytes))
    assert refusal(wrapped(inside, 1, codec, 0, NOW_MS, append_time=False), rules) is Errors.MESSAGE_TOO_LARGE


def test_many_large_messages_are_refused_before_they_are_copied_several_times() -> None:
    assert refusal(message(value=bytes(1_000_000)) * 40) is Errors.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", CODECS)
def test_times_that_are_too_far_apart_for_64_bits_are_added_up_as_clients_do(codec: str) -> None:
    latest = (1 << 63) - 1
    sent = message(timestamp=-1) + message(timestamp=latest)
    converted = up_converted(memoryview(sent), RULES)
    assert converted is not None
    header = read_header(converted)
    stored = replace_body(header, converted[HEADER_BYTES:], CODECS.index(codec))
    found = [each for outer in each_message(memoryview(down(stored, 1))) for each in plain(outer)]
    assert [each.timestamp for each in found] == [-1, latest]


def plain(outer: Message) -> list[Message]:
    return list(each_inner(outer, 1 << 20)) if outer.codec_id else [outer]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_stored_wrapper_of_many_messages_takes_no_object_for_each(magic: int) -> None:
    inside = bytearray()
    for offset in range(20_000):
        write_message(inside, magic, offset, NOW_MS, None, None)
    outer = wrapped(inside, magic, 1, 19_999, NOW_MS, append_time=False)
    tracemalloc.start()
    try:
        (batch,) = upgraded(each_message(memoryview(outer)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert read_header(batch).record_count == 20_000
    assert most < 4 * len(inside)


def test_the_magic_tells_old_messages_from_batches() -> None:
    assert begins_old(message(0))
    assert begins_old(message(1))
    assert not begins_old(build_batch([Record(None, b"v")]))
    assert not begins_old(b"")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", CODECS)
def test_what_a_batch_becomes_becomes_the_same_batch(magic: int, codec: str) -> None:
    records = [Record(key, value, (), NOW_MS + n if magic else -1) for n, (key, value) in enumerate(SOME)]
    batch = build_batch(records, compression=codec)
    assert up_converted(memoryview(down(batch, magic)), RULES) == batch


@pytest.mark.parametrize(("data", "expected"), [(b"", 0x02CC5D05), (b"a", 0x550D7456), (b"abc", 0x32D153FF)])
def test_the_checksum_of_lz4_frames_has_its_published_values(data: bytes, expected: int) -> None:
    assert xxh32_of_few(data) == expected


def test_lz4_of_magic_0_has_the_old_checksum_and_is_read_with_any() -> None:
    frame = compress(CODECS.index("lz4"), message(0))
    old = with_old_checksum(frame)
    assert old[6] == xxh32_of_few(frame[:6]) >> 8 & 0xFF != frame[6]
    assert with_right_checksum(old) == frame
    (wrapper,) = each_message(memoryview(wrapped(message(0), 0, 3, 0, -1, append_time=False)))
    assert wrapper.value == old
    for value in (frame, old, flipped(frame, 6)):
        assert [record.value for record in up(message(0, value, attributes=3))] == [b"v"]


def test_lz4_of_magic_1_needs_the_right_checksum() -> None:
    frame = compress(CODECS.index("lz4"), message(1))
    assert refusal(message(1, with_old_checksum(frame), attributes=3)) is Errors.INVALID_RECORD
