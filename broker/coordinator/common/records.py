"""What the records of the internal topics have in common: a version, then the fields, in Kafka's old encoding or,
from some version on, in the flexible one (KIP-915). Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import wraps
from typing import TypeVar

from broker.protocol.errors import ProtocolError
from broker.protocol.primitives import INT16, FlexibleReader, Reader

T = TypeVar("T")


class MalformedRecord(ValueError):
    """The bytes are not a valid record: truncated, an invalid length, or text that is not UTF-8."""


def told_as_malformed(decode: Callable[[bytes], T]) -> Callable[[bytes], T]:
    """Turns the errors of a decoder for truncated or invalid bytes into :class:`MalformedRecord`."""

    @wraps(decode)
    def decoded(data: bytes) -> T:
        try:
            return decode(data)
        except (ProtocolError, struct.error, IndexError, UnicodeDecodeError) as error:
            raise MalformedRecord(f"no such record: {error}") from error

    return decoded


def open_value(value: bytes, highest: int, flexible_from: int) -> tuple[Reader, int]:
    """A reader behind the value's version, and the version. Raises :class:`MalformedRecord`."""
    body = memoryview(value)
    (version,) = INT16.unpack_from(body)
    if not 0 <= version <= highest:
        raise MalformedRecord(f"unknown value version {version}")
    reader = FlexibleReader(body) if version >= flexible_from else Reader(body)
    reader.position = INT16.size
    return reader, version


def element_count(reader: Reader) -> int:
    """Reads how many elements follow. Null counts as 0. A count larger than the remaining bytes
    is refused.
    """
    length = reader.array_length()
    if length > len(reader.body) - reader.position:
        raise MalformedRecord(f"an array of {length} elements in a record of {len(reader.body)} bytes")
    return max(length, 0)
