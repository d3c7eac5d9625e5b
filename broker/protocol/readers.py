"""The two encodings of Kafka's messages, for those that are read by hand.

Nothing is allocated by a length that a peer claims: a piece is a view of the body, and each element of an array takes
bytes of it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from functools import lru_cache
from struct import Struct
from typing import Any

from broker.protocol.errors import ProtocolError
from broker.protocol.framing import read_uvarint, skip_tags

_INT16 = Struct(">h")
_INT32 = Struct(">i")


@lru_cache(maxsize=4096)
def _uuid_of(value: bytes) -> uuid.UUID:
    """Readers name the same topics again and again. One made takes a microsecond, and so does to compare two."""
    return uuid.UUID(bytes=value)


class Reader:
    """The old encoding: int16 string lengths, int32 array and byte lengths, no tags. Not at the end of ``body`` raises
    struct.error, IndexError or :class:`ProtocolError`.
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

    def int32(self) -> int:
        (value,) = _INT32.unpack_from(self.body, self.position)
        self.position += 4
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
        (length,) = _INT16.unpack_from(self.body, self.position)
        self.position += 2
        return None if length < 0 else str(self.take(length), "utf-8")

    def nullable_bytes(self) -> memoryview | None:
        (length,) = _INT32.unpack_from(self.body, self.position)
        self.position += 4
        return None if length < 0 else self.take(length)

    def array_length(self) -> int:
        (length,) = _INT32.unpack_from(self.body, self.position)
        self.position += 4
        return int(length)

    def end_struct(self) -> None:
        """No tags in the old encoding."""

    def tags(self) -> Iterator[tuple[int, int]]:
        """Each tagged field: its number, and where its value begins."""
        return iter(())


class FlexibleReader(Reader):
    """The compact encoding of KIP-482."""

    __slots__ = ()

    def array_length(self) -> int:
        first = self.body[self.position]
        if first < 0x80:
            self.position += 1
            return first - 1
        length, self.position = read_uvarint(self.body, self.position)
        return length - 1

    def nullable_string(self) -> str | None:
        length = self.array_length()
        return None if length < 0 else str(self.take(length), "utf-8")

    def nullable_bytes(self) -> memoryview | None:
        length = self.array_length()
        return None if length < 0 else self.take(length)

    def end_struct(self) -> None:
        if self.body[self.position] == 0:  # as good as always
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
