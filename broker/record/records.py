"""The records inside a batch: varints, keys, values, headers. Only for who must look inside.

Coordinators, the cleaner, time look-ups and tests use it; the produce and fetch paths never do. Every length
that the bytes claim is checked against what is there before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

Bytes = bytes | bytearray | memoryview


class RecordFormatError(ValueError):
    """The records do not parse."""


class Record(NamedTuple):
    """One record. ``offset`` and ``timestamp`` (ms) are absolute; a None value is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = -1
    offset: int = 0


def encode_varint(value: int, out: bytearray) -> None:
    """Appends ``value`` as a zigzag varint."""
    encoded = (value << 1) ^ (value >> 63)
    while encoded > 0x7F:
        out.append((encoded & 0x7F) | 0x80)
        encoded >>= 7
    out.append(encoded)


def decode_varint(data: Bytes, position: int) -> tuple[int, int]:
    """The zigzag varint at ``position`` and the position after it. Raises RecordFormatError."""
    shift = value = 0
    try:
        while True:
            byte = data[position]
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return (value >> 1) ^ -(value & 1), position
            shift += 7
            if shift > 63:
                raise RecordFormatError("varint is longer than 10 bytes")
    except IndexError:
        raise RecordFormatError("varint ends early") from None


def encode_records(records: Sequence[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The body of a batch: each record relative to ``base_offset`` and ``base_timestamp``."""
    out = bytearray()
    for record in records:
        body = bytearray(b"\x00")
        encode_varint(record.timestamp - base_timestamp, body)
        encode_varint(record.offset - base_offset, body)
        _encode_bytes(record.key, body)
        _encode_bytes(record.value, body)
        encode_varint(len(record.headers), body)
        for name, value in record.headers:
            _encode_bytes(name.encode(), body)
            _encode_bytes(value, body)
        encode_varint(len(body), out)
        out += body
    return bytes(out)


def decode_records(
    body: Bytes, count: int, base_offset: int, base_timestamp: int, append_time_ms: int | None = None
) -> Iterator[Record]:
    """``count`` records of a decompressed body; ``append_time_ms`` overrides their timestamps when given."""
    position = 0
    for _ in range(count):
        start, end = _record_bounds(body, position)
        timestamp_delta, position = decode_varint(body, start + 1)
        offset_delta, position = decode_varint(body, position)
        key, position = _decode_bytes(body, position, end)
        value, position = _decode_bytes(body, position, end)
        headers, position = _decode_headers(body, position, end)
        if position != end:
            raise RecordFormatError(f"record ends at {position}, not at {end} as its length says")
        timestamp = base_timestamp + timestamp_delta if append_time_ms is None else append_time_ms
        yield Record(key, value, headers, timestamp, base_offset + offset_delta)
    if position != len(body):
        raise RecordFormatError(f"{len(body) - position} bytes follow the {count} records of the batch")


def scan_keys(body: Bytes, count: int) -> Iterator[tuple[int, int, int]]:
    """``(offset delta, timestamp delta, key length or -1)`` of each record, without copying any of it."""
    position = 0
    for _ in range(count):
        start, end = _record_bounds(body, position)
        timestamp_delta, position = decode_varint(body, start + 1)
        offset_delta, position = decode_varint(body, position)
        key_length, position = decode_varint(body, position)
        if key_length > end - position:
            raise RecordFormatError(f"key claims {key_length} bytes, {end - position} are left")
        yield offset_delta, timestamp_delta, key_length
        position = end
    if position != len(body):
        raise RecordFormatError(f"{len(body) - position} bytes follow the {count} records of the batch")


def _record_bounds(body: Bytes, position: int) -> tuple[int, int]:
    length, start = decode_varint(body, position)
    if length < 6 or length > len(body) - start:
        raise RecordFormatError(f"record claims {length} bytes, {len(body) - start} are left")
    return start, start + length


def _encode_bytes(value: Bytes | None, out: bytearray) -> None:
    if value is None:
        out.append(1)  # -1 in zigzag
    else:
        encode_varint(len(value), out)
        out += value


def _decode_bytes(body: Bytes, position: int, end: int) -> tuple[bytes | None, int]:
    length, position = decode_varint(body, position)
    if length < 0:
        return None, position
    if length > end - position:
        raise RecordFormatError(f"field claims {length} bytes, {end - position} are left")
    return bytes(body[position : position + length]), position + length


def _decode_headers(body: Bytes, position: int, end: int) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, position = decode_varint(body, position)
    if count < 0 or count > end - position:
        raise RecordFormatError(f"record claims {count} headers in {end - position} bytes")
    headers = []
    for _ in range(count):
        name, position = _decode_bytes(body, position, end)
        if name is None:
            raise RecordFormatError("a record header has no key")
        value, position = _decode_bytes(body, position, end)
        headers.append((name.decode("utf-8", "surrogateescape"), value))
    return tuple(headers), position
