"""Batches: what is built can be read, what is damaged is noticed, what is claimed is not believed."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from broker.protocol.errors import Errors, KafkaError
from broker.record import compression
from broker.record.batch import (
    Record,
    build_batch,
    crc_is_valid,
    iter_batches,
    iter_records,
    read_header,
    read_records,
    replace_body,
)
from broker.record.compression import CODEC_NAMES, CompressionError, compress, decompress
from broker.record.header import (
    HEADER_BYTES,
    increment_sequence,
    set_log_append_time,
    set_offset_and_epoch,
)
from broker.record.records import RecordFormatError, decode_varint, encode_varint

RECORDS = [
    Record(b"k1", b"v" * 300, (("h", b"x"), ("n", None)), 1_000),
    Record(None, b"", (), 990),
    Record(b"k3", None, (), 2_000_000_000_000),
    Record(b"", b"\x00" * 70_000, (), -1),
]


@pytest.mark.parametrize("codec", CODEC_NAMES)
def test_records_come_back_from_a_batch_of_every_codec(codec):
    data = build_batch(RECORDS, base_offset=40, compression=codec)
    expected = [record._replace(offset=40 + n) for n, record in enumerate(RECORDS)]
    assert read_records(data) == expected
    assert read_header(data).codec_id == CODEC_NAMES.index(codec)


def test_header_says_what_the_batch_was_built_with():
    data = build_batch(
        RECORDS,
        base_offset=7,
        leader_epoch=3,
        producer_id=99,
        producer_epoch=2,
        base_sequence=(1 << 31) - 2,
        transactional=True,
    )
    header = read_header(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (7, 10, 11)
    assert (header.leader_epoch, header.producer_id, header.producer_epoch) == (3, 99, 2)
    assert header.base_sequence == 2147483646
    assert header.last_sequence == 1  # wrapped
    assert header.is_transactional
    assert not header.is_control
    assert header.max_timestamp == 2_000_000_000_000
    assert header.size_bytes == len(data)


def test_sequences_wrap_from_the_highest_int32_to_zero():
    assert increment_sequence(2147483647, 1) == 0
    assert increment_sequence(0, -1) == 2147483647
    assert increment_sequence(-1, 1) == 0


def test_setting_offset_and_epoch_in_place_leaves_the_checksum_valid():
    data = memoryview(bytearray(build_batch(RECORDS)))
    set_offset_and_epoch(data, 0, 123, read_header(data).length, 9)
    header = read_header(data)
    assert (header.base_offset, header.leader_epoch, header.size_bytes) == (123, 9, len(data))
    assert crc_is_valid(data, header)


def test_append_time_is_stamped_under_a_new_checksum_and_overrides_records():
    data = memoryview(bytearray(build_batch(RECORDS)))
    header = set_log_append_time(data, 0, read_header(data), 5_000)
    assert header == read_header(data)
    assert crc_is_valid(data, header)
    assert {record.timestamp for record in read_records(data)} == {5_000}


def test_one_flipped_bit_after_the_crc_field_is_noticed():
    good = build_batch(RECORDS[:2])
    for position in range(21, len(good)):
        data = bytearray(good)
        data[position] ^= 0x10
        assert not crc_is_valid(memoryview(data), read_header(data))


def test_batches_are_walked_until_an_incomplete_one():
    one, two = build_batch(RECORDS[:1]), build_batch(RECORDS[1:2], base_offset=1)
    assert [h.base_offset for h in iter_batches(memoryview(one + two))] == [0, 1]
    for cut in (1, HEADER_BYTES - 1, HEADER_BYTES, len(two) - 1):
        assert [h.base_offset for h in iter_batches(memoryview(one + two[:cut]))] == [0]


@pytest.mark.parametrize("length", [-(1 << 31), -1, 0, 48, 1 << 30])
def test_walking_stops_at_a_length_that_cannot_be(length):
    data = bytearray(build_batch(RECORDS[:1]))
    struct.pack_into(">i", data, 8, length)
    assert list(iter_batches(memoryview(data))) == []


def test_control_records_are_read_only_when_asked_for():
    marker = build_batch(
        [Record(b"\0\0\0\1", b"\0\0\0\0\0\7", (), 5)], control=True, producer_id=1, producer_epoch=0
    )
    assert read_records(marker) == []
    assert len(read_records(marker, include_control=True)) == 1


def test_recompressing_keeps_the_records_byte_for_byte():
    data = build_batch(RECORDS, compression="gzip", producer_id=4, producer_epoch=1, base_sequence=8)
    header = read_header(data)
    body = decompress(header.codec_id, data[HEADER_BYTES:])
    for codec in range(5):
        again = replace_body(header, body, codec)
        assert read_header(again).codec_id == codec
        assert read_header(again).producer_id == 4
        assert read_records(again) == read_records(data)


def test_a_record_count_beyond_the_body_is_refused():
    data = bytearray(build_batch(RECORDS[:2]))
    struct.pack_into(">i", data, 57, 1_000_000_000)
    with pytest.raises(KafkaError) as raised:
        iter_records(memoryview(data), read_header(data))
    assert raised.value.error_code is Errors.CORRUPT_MESSAGE


def test_damaged_bodies_raise_and_never_hang_or_crash():
    random.seed(5)
    for codec in CODEC_NAMES:
        good = build_batch(RECORDS, compression=codec)
        for _ in range(200):
            data = bytearray(good)
            for _ in range(3):
                data[random.randrange(HEADER_BYTES, len(data))] = random.randrange(256)
            try:
                found = len(iter_records(memoryview(data), read_header(data)))
            except KafkaError as error:
                found = error.error_code
            assert found in (len(RECORDS), Errors.CORRUPT_MESSAGE)


@pytest.mark.parametrize("value", [0, -1, 1, 63, -64, 64, 300, -(1 << 63), (1 << 63) - 1])
def test_varints_round_trip(value):
    out = bytearray()
    encode_varint(value, out)
    assert decode_varint(out, 0) == (value, len(out))


def test_records_of_every_short_length_survive_the_round_trip():
    written = [Record(bytes(n), None if n % 3 else bytes(2 * n), timestamp=5 + n) for n in range(300)]
    batch = memoryview(build_batch(written, base_offset=7))
    assert iter_records(batch, read_header(batch)) == [
        record._replace(offset=7 + n) for n, record in enumerate(written)
    ]


def test_endless_and_cut_varints_are_refused():
    for data in (b"\xff" * 20, b"\x80", b""):
        with pytest.raises(RecordFormatError):
            decode_varint(data, 0)


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_decompression_stops_at_the_allowed_size(codec):
    bomb = compress(codec, bytes(10_000_000))
    assert len(bomb) < 1_000_000
    with pytest.raises(CompressionError, match="decompress to more than"):
        decompress(codec, bomb, 1_000_000)
    assert len(decompress(codec, bomb, 10_000_000)) == 10_000_000


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_cut_compressed_data_is_refused(codec):
    data = compress(codec, random.Random(1).randbytes(50_000))
    with pytest.raises(CompressionError):
        decompress(codec, data[: len(data) // 2])


def test_snappy_is_read_raw_and_in_xerial_framing_and_a_false_length_is_refused():
    from cramjam import snappy

    assert decompress(2, bytes(snappy.compress_raw(b"abc" * 99))) == b"abc" * 99
    framed = compress(2, b"abc" * 50_000)
    assert framed[:8] == b"\x82SNAPPY\x00"
    assert decompress(2, framed) == b"abc" * 50_000
    with pytest.raises(CompressionError, match="claims"):
        decompress(2, framed[:16] + struct.pack(">i", 1 << 30) + framed[20:])


def test_gzip_of_several_members_is_read_whole():
    assert decompress(1, zlib_gzip(b"one") + zlib_gzip(b"two")) == b"onetwo"


def test_zstd_of_several_frames_is_read_whole():
    parts = [random.Random(n).randbytes(3000) for n in range(3)]
    assert decompress(4, b"".join(compress(4, part) for part in parts)) == b"".join(parts)


def zlib_gzip(data: bytes) -> bytes:
    compressor = zlib.compressobj(wbits=31)
    return compressor.compress(data) + compressor.flush()


def test_lz4_frames_have_independent_blocks_as_kafka_wants():
    frame = compress(3, bytes(200_000))
    assert frame[:4] == b"\x04\x22\x4d\x18"
    assert frame[4] & 0x20


def test_unknown_codec_is_refused():
    for codec in (5, 6, 7):
        with pytest.raises(CompressionError, match="unknown"):
            decompress(codec, b"x")
        with pytest.raises(CompressionError, match="unknown"):
            compress(codec, b"x")
    assert compression.CODEC_IDS["uncompressed"] == 0
