"""Kafka's primitive types in both encodings, for messages and group records that are encoded without kio.

The old encoding has int16 and int32 lengths. The compact one (KIP-482) has varint lengths, which are one
larger than the length, and tagged fields. Each message's module knows its fields. A length that a peer
announces never causes an allocation: each part is a view of the body, and every array element takes bytes
of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import Any, Final

from broker.protocol.errors import ProtocolError

INT16: Final = Struct(">h")
INT32: Final = Struct(">i")
INT64: Final = Struct(">q")
# Kafka's clients send at most a few tags, so a header with kilobytes of them is not theirs.
MAX_TAGS: Final = 64
# Kafka reads no longer one in the compact encoding either, whose lengths could say so.
LONGEST_STRING: Final = 0x7FFF


def read_uvarint(view: memoryview, position: int) -> tuple[int, int]:
    """The unsigned varint at ``position`` and the position after it (at most 5 bytes)."""
    value = shift = 0
    while True:
        byte = view[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 28:
            raise ProtocolError("varint longer than 5 bytes")


def too_long(length: int) -> ProtocolError:
    return ProtocolError(f"a string of {length} bytes announced; the most is {LONGEST_STRING}")


def write_uvarint(value: int) -> bytes:
    """The bytes of an unsigned varint."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def skip_tags(view: memoryview, position: int) -> int:
    """The position after a tagged-field section."""
    count, position = read_uvarint(view, position)
    if count > MAX_TAGS:
        raise ProtocolError(f"{count} tagged fields")
    for _ in range(count):
        _, position = read_uvarint(view, position)
        size, position = read_uvarint(view, position)
        position += size
    if position > len(view):
        raise ProtocolError("truncated tagged fields")
    return position


@lru_cache(maxsize=4096)
def _uuid_of(value: bytes) -> uuid.UUID:
    """The UUID, cached because the same topics occur repeatedly. Creating one takes a microsecond, and
    comparing two as well.
    """
    return uuid.UUID(bytes=value)


class Reader:
    """Reads the old encoding: int16 string lengths, int32 array and byte lengths, no tags. Reading past the
    end of ``body`` raises struct.error, IndexError or :class:`ProtocolError`.
    """

    __slots__ = ("body", "position")

    def __init__(self, body: memoryview) -> None:
        self.body = body
        self.position = 0

    def take(self, size: int) -> memoryview:
        end = self.position + size
        if end > len(self.body):
            raise ProtocolError(f"{size} bytes announced where {len(self.body) - self.position} are left")
        piece = self.body[self.position : end]
        self.position = end
        return piece

    def int16(self) -> int:
        (value,) = INT16.unpack_from(self.body, self.position)
        self.position += 2
        return int(value)

    def int32(self) -> int:
        (value,) = INT32.unpack_from(self.body, self.position)
        self.position += 4
        return int(value)

    def int64(self) -> int:
        (value,) = INT64.unpack_from(self.body, self.position)
        self.position += 8
        return int(value)

    def fields(self, layout: Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self.body, self.position)
        self.position += layout.size
        return values

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ProtocolError("null where a string must be")
        return value

    def uuid(self) -> uuid.UUID:
        return _uuid_of(bytes(self.take(16)))

    def nullable_string(self) -> str | None:
        (length,) = INT16.unpack_from(self.body, self.position)
        self.position += 2
        return None if length < 0 else str(self.take(length), "utf-8")

    def nullable_bytes(self) -> memoryview | None:
        (length,) = INT32.unpack_from(self.body, self.position)
        self.position += 4
        return None if length < 0 else self.take(length)

    def array_length(self) -> int:
        (length,) = INT32.unpack_from(self.body, self.position)
        self.position += 4
        return int(length)

    def end_struct(self) -> None:
        """Reads nothing: the old encoding has no tags."""

    def tags(self) -> Iterator[tuple[int, int]]:
        """Each tagged field: its number, and the position of its value."""
        return iter(())


class FlexibleReader(Reader):
    """Reads the compact encoding of KIP-482."""

    __slots__ = ()

    def array_length(self) -> int:
        first = self.body[self.position]
        if first < 0x80:
            self.position += 1
            return first - 1
        length, self.position = read_uvarint(self.body, self.position)
        return length - 1

    def nullable_string(self) -> str | None:
        first = self.body[self.position]
        if first < 0x80:  # nearly always
            self.position += 1
            return str(self.take(first - 1), "utf-8") if first else None
        length = self.array_length()
        if length > LONGEST_STRING:
            raise too_long(length)
        return None if length < 0 else str(self.take(length), "utf-8")

    def nullable_bytes(self) -> memoryview | None:
        length = self.array_length()
        return None if length < 0 else self.take(length)

    def end_struct(self) -> None:
        if self.body[self.position] == 0:  # nearly always
            self.position += 1
        else:
            self.position = skip_tags(self.body, self.position)

    def tags(self) -> Iterator[tuple[int, int]]:
        body, begin = self.body, self.position
        self.end_struct()
        count, position = read_uvarint(body, begin)
        for _ in range(count):
            tag, position = read_uvarint(body, position)
            size, position = read_uvarint(body, position)
            yield tag, position
            position += size


def pack_string(text: str) -> bytes:
    """A STRING of the old encoding. Raises ValueError above 32,767 bytes of UTF-8."""
    encoded = text.encode()
    if len(encoded) > LONGEST_STRING:
        raise ValueError(f"a string of {len(encoded)} bytes does not fit Kafka's {LONGEST_STRING}")
    return INT16.pack(len(encoded)) + encoded


def pack_nullable_string(text: str | None) -> bytes:
    return INT16.pack(-1) if text is None else pack_string(text)


def pack_compact_nullable_string(text: str | None) -> bytes:
    if text is None:
        return b"\0"
    encoded = text.encode()
    return write_uvarint(len(encoded) + 1) + encoded


def pack_bytes(data: bytes) -> bytes:
    """BYTES of the old encoding."""
    return INT32.pack(len(data)) + data
