"""Encoded record batches (magic 2, base offset 0): by default of 1 KiB records, optionally compressed."""

from __future__ import annotations

import enum
import gzip
import random
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import crc32c
import lz4.frame
import zstandard
from cramjam import snappy

RECORD_BYTES = 1024
BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
BATCH_OVERHEAD = 61
CRC_STARTS_AT = 21
SNAPPY_HEAD = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
SNAPPY_BLOCK = 32 * 1024
PLAIN_VALUE = bytes(range(256))


class Codec(enum.Enum):
    """A compression type; the value is its number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


@dataclass(frozen=True, slots=True)
class Batch:
    """An encoded batch. ``record_bytes`` is the size of its records before compression."""

    data: bytes
    records: int
    record_bytes: int


def encode_batch(
    target_bytes: int,
    now_ms: int | None = None,
    record_bytes: int = RECORD_BYTES,
    codec: Codec = Codec.NONE,
) -> Batch:
    """Returns a batch of at most ``target_bytes`` (before compression) with as many records as fit."""
    records: list[bytes] = []
    size = BATCH_OVERHEAD
    source = random.Random(0)
    while True:
        record = _record(len(records), _value(record_bytes, codec, source))
        if size + len(record) > target_bytes and records:
            break
        records.append(record)
        size += len(record)
    return _seal(records, int(time.time() * 1000) if now_ms is None else now_ms, codec)


def _value(size: int, codec: Codec, source: random.Random) -> bytes:
    """A record's value. A value to be compressed is log lines, which compress to about a third."""
    if codec is Codec.NONE:
        return (PLAIN_VALUE * (size // len(PLAIN_VALUE) + 1))[:size]
    lines = b"".join(
        f'{{"at":{source.randrange(10**12)},"host":"host-{source.randrange(40)}","level":"info","request":'
        f'"{source.randbytes(12).hex()}","message":"served","took_us":{source.randrange(10**5)}}}\n'.encode()
        for _ in range(size // 80 + 1)
    )
    return lines[:size]


def _record(delta: int, value: bytes) -> bytes:
    body = b"\x00\x00" + _varint(delta) + _varint(-1) + _varint(len(value)) + value + _varint(0)
    return _varint(len(body)) + body


def _varint(number: int) -> bytes:
    """Zigzag, as in record batches."""
    zigzag = (number << 1) ^ (number >> 63)
    out = bytearray()
    while zigzag > 0x7F:
        out.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    out.append(zigzag)
    return bytes(out)


def _lz4(body: bytes) -> bytes:
    """Kafka only reads LZ4 frames of independent blocks."""
    return bytes(lz4.frame.compress(body, block_linked=False, store_size=False))


def _snappy(body: bytes) -> bytes:
    """In the framing of snappy-java, in blocks of 32 KiB, as Kafka's producer writes it."""
    framed = bytearray(SNAPPY_HEAD)
    for start in range(0, len(body), SNAPPY_BLOCK):
        block = bytes(snappy.compress_raw(body[start : start + SNAPPY_BLOCK]))
        framed += struct.pack(">i", len(block)) + block
    return bytes(framed)


_COMPRESS: dict[Codec, Callable[[bytes], bytes]] = {
    Codec.NONE: bytes,
    Codec.GZIP: gzip.compress,
    Codec.SNAPPY: _snappy,
    Codec.LZ4: _lz4,
    Codec.ZSTD: lambda body: zstandard.ZstdCompressor().compress(body),
}


def _seal(records: Sequence[bytes], now_ms: int, codec: Codec) -> Batch:
    plain = b"".join(records)
    body = _COMPRESS[codec](plain)
    last = len(records) - 1
    length = BATCH_OVERHEAD - 12 + len(body)
    attributes = codec.value
    head = BATCH_HEADER.pack(0, length, -1, 2, 0, attributes, last, now_ms, now_ms, -1, -1, -1, len(records))
    unsigned = head + body
    crc = crc32c.crc32c(unsigned[CRC_STARTS_AT:])
    data = unsigned[:17] + struct.pack(">I", crc) + unsigned[CRC_STARTS_AT:]
    return Batch(data, len(records), len(plain))
