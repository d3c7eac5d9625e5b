"""The records inside a batch: varints, keys, values and headers.

Coordinators, the cleaner, timestamp look-ups and tests read records with it, and a leader checks clients'
records. Every length in the data is checked against the available bytes before it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.record.header import NO_TIMESTAMP

Bytes = bytes | bytearray | memoryview
LEAST_LENGTH: Final = (
    6  # of a record, after its length: attributes, two deltas, two lengths, the number of headers
)
LONG_MAX: Final = (1 << 63) - 1
NULL_LENGTH: Final = 1  # -1 as a varint
_NULL: Final = bytes((NULL_LENGTH,))
# The varints from 0 to 255: nearly all lengths, and all deltas in a small batch.
_SHORT: Final = tuple(bytes((n << 1,) if n < 64 else ((n << 1) & 0x7F | 0x80, n >> 6)) for n in range(256))
_MORE: Final = 0x80  # from this value on, another byte of the varint follows


class RecordFormatError(ValueError):
    """The records cannot be parsed."""


class Record(NamedTuple):
    """A record of a batch. ``offset`` and ``timestamp`` (ms) are absolute; a value of None is a tombstone."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp: int = NO_TIMESTAMP
    offset: int = 0


def as_long(value: int) -> int:
    """The value as Java's arithmetic has it in 64 bits, so that a client's odd timestamps stay what others read."""
    if -LONG_MAX <= value <= LONG_MAX:
        return value
    return ((value + LONG_MAX + 1) & (1 << 64) - 1) - LONG_MAX - 1


def encode_varint(value: int, out: bytearray) -> None:
    """Appends ``value`` as a zigzag varint."""
    encoded = (value << 1) ^ (value >> 63)
    while encoded > 0x7F:
        out.append((encoded & 0x7F) | 0x80)
        encoded >>= 7
    out.append(encoded)


def _varint(value: int) -> bytes:
    """``value`` as a zigzag varint."""
    if 0 <= value < len(_SHORT):
        return _SHORT[value]
    out = bytearray()
    encode_varint(value, out)
    return bytes(out)


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


def encode_records(records: Sequence[Record], base_offset: int | None, base_timestamp: int) -> bytes:
    """The body of a batch, with each record relative to ``base_offset`` and ``base_timestamp``. Without a base
    offset, the records' own offsets do not count: they get consecutive ones.
    """
    out = bytearray()
    for number, (key, value, headers, timestamp, offset) in enumerate(records):
        body: list[Bytes] = [
            b"\0",
            _varint(as_long(timestamp - base_timestamp)),
            _varint(number if base_offset is None else offset - base_offset),
            _NULL if key is None else _varint(len(key)),
            key or b"",
            _NULL if value is None else _varint(len(value)),
            value or b"",
            _varint(len(headers)),
        ]
        for header_key, header_value in headers:
            name = header_key.encode()
            body += (_varint(len(name)), name)
            body += (_NULL,) if header_value is None else (_varint(len(header_value)), header_value)
        out += _varint(sum(map(len, body)))
        out += b"".join(body)
    return bytes(out)


def decode_records(
    body: Bytes, count: int, base_offset: int, base_timestamp: int, append_time_ms: int | None = None
) -> Iterator[Record]:
    """The ``count`` records of a decompressed body; ``append_time_ms`` replaces their timestamps if given."""
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
        timestamp = as_long(base_timestamp + timestamp_delta) if append_time_ms is None else append_time_ms
        yield Record(key, value, headers, timestamp, base_offset + offset_delta)
    if position != len(body):
        raise RecordFormatError(f"{len(body) - position} bytes follow the {count} records of the batch")


class Walk:
    """The result of :func:`walk`. Timestamps are absolute, in ms; records without one (-1) are ignored.
    ``without_key`` is the index of the first record without a key, -1 if all have one.
    """

    __slots__ = ("earliest_index", "earliest_timestamp", "latest_timestamp", "without_key")

    def __init__(
        self,
        latest_timestamp: int,
        earliest_timestamp: int,
        earliest_index: int,
        without_key: int,
    ) -> None:
        self.latest_timestamp = latest_timestamp
        self.earliest_timestamp = earliest_timestamp
        self.earliest_index = earliest_index
        self.without_key = without_key


def walk(body: Bytes, count: int, base_timestamp: int) -> Walk:  # noqa: PLR0912, PLR0915 - see below
    """Checks every length and offset of the ``count`` records of a decompressed body. Offsets must rise by
    one from 0, and fields and records must fill the body exactly. Raises RecordFormatError.

    The code is inlined, because it dominates the cost of a request whose records are all checked.
    """
    # Indexing a memoryview is slower, but copying a few large records is slower still.
    data = bytes(body) if len(body) < count << 10 else body
    latest, earliest, earliest_index, without_key = NO_TIMESTAMP, LONG_MAX, -1, -1
    position = index = 0
    try:
        for index in range(count):
            byte = data[position]
            if byte < _MORE:
                length = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                length, position = decode_varint(data, position)
            end = position + length
            byte = data[position + 1]  # after the attributes
            if byte < _MORE:
                timestamp = base_timestamp + ((byte >> 1) ^ -(byte & 1))
                position += 2
            else:
                delta, position = decode_varint(data, position + 1)
                timestamp = base_timestamp + delta
            byte = data[position]
            if byte < _MORE:
                delta = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                delta, position = decode_varint(data, position)
            if delta != index:
                raise RecordFormatError(f"record {index} has the offset delta {delta}")
            byte = data[position]
            if byte < _MORE:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = decode_varint(data, position)
            if size > 0:
                position += size
            elif size < 0 and without_key < 0:
                without_key = index
            byte = data[position]
            if byte < _MORE:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = decode_varint(data, position)
            if size > 0:
                position += size
            position = _skip_headers(data, position, end) if data[position] else position + 1
            if position != end:
                raise RecordFormatError(f"record {index} ends at {position}, not at {end} as its length says")
            latest = max(latest, timestamp)
            if timestamp < earliest and timestamp != NO_TIMESTAMP:
                earliest, earliest_index = timestamp, index
    except IndexError:
        raise RecordFormatError(f"record {index} goes on past the {len(data)} bytes of the records") from None
    if position != len(data):
        raise RecordFormatError(f"{len(data) - position} bytes follow the {count} records of the batch")
    if latest > LONG_MAX or earliest < -LONG_MAX:
        raise RecordFormatError("a record's timestamp is out of range")
    return Walk(latest, earliest, earliest_index, without_key)


def first_timestamp(head: Bytes, total: int, base_timestamp: int) -> int:
    """Checks the first record of a body of ``total`` bytes and returns its timestamp (ms). ``head`` holds the
    body's first bytes, some hundreds or all.

    If the record ends after ``head``, only its length, offset and key length are checked.
    Raises RecordFormatError.
    """
    length, position = decode_varint(head, 0)
    end = position + length
    if length < LEAST_LENGTH or end > total:
        raise RecordFormatError(f"record 0 claims {length} bytes, {total - position} are left")
    timestamp_delta, position = decode_varint(head, position + 1)
    offset_delta, position = decode_varint(head, position)
    if offset_delta:
        raise RecordFormatError(f"record 0 has the offset delta {offset_delta}")
    size, position = decode_varint(head, position)
    if size > end - position:
        raise RecordFormatError(f"key claims {size} bytes, {end - position} are left")
    if end <= len(head):
        size, position = decode_varint(head, position + max(size, 0))
        position = _skip_headers(head, position + max(size, 0), end)
        if position != end:
            raise RecordFormatError(f"record 0 ends at {position}, not at {end} as its length says")
    return base_timestamp + timestamp_delta


def is_usual(data: Bytes, position: int, *, alone: bool = False) -> bool:
    """Whether the first record, at ``position``, has the most common shape: shorter than 8 KiB, at the
    batch's offset and time, a key of less than 64 bytes or none, no headers; ``alone``: and no other follows it.
    True means that it is valid; False means nothing. Every request with uncompressed records pays for this check.
    """
    try:
        byte = data[position]
        if byte < _MORE:
            end = position + 1 + (byte >> 1)
        else:
            position += 1
            high = data[position]
            if high >= _MORE:
                return False
            end = position + 1 + ((byte & 0x7F | high << 7) >> 1)
        if byte & 1 or data[position + 2] or data[position + 3] or data[end - 1] or end > len(data):
            return False
        if alone and end < len(data):
            return False
        size = data[position + 4]
        if size != NULL_LENGTH:
            if size & 1 or size >= _MORE:
                return False
            position += size >> 1
        size = data[position + 5]
        if size >= _MORE:
            high = data[position + 6]
            return high < _MORE and not size & 1 and position + 8 + ((size & 0x7F | high << 7) >> 1) == end
        return position + 7 + (size >> 1) == end and (size == NULL_LENGTH or not size & 1)
    except IndexError:
        return False


def _skip_headers(data: Bytes, position: int, end: int) -> int:
    count, position = decode_varint(data, position)
    if count < 0 or count > end - position:
        raise RecordFormatError(f"record claims {count} headers in {end - position} bytes")
    for _ in range(count):
        size, position = decode_varint(data, position)
        if size < 0:
            raise RecordFormatError("a record header has no key")
        size, position = decode_varint(data, position + size)
        position += max(size, 0)
    return position


def _record_bounds(body: Bytes, position: int) -> tuple[int, int]:
    length, start = decode_varint(body, position)
    if length < LEAST_LENGTH or length > len(body) - start:
        raise RecordFormatError(f"record claims {length} bytes, {len(body) - start} are left")
    return start, start + length


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
