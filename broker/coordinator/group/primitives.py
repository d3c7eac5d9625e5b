"""Kafka's primitive types, as the records of __consumer_offsets are made of them: a reader and small packers.

Knows the classic layouts (int16 and int32 lengths) and the flexible ones (KIP-482: varint lengths plus one,
tagged fields). What fields there are is the business of :mod:`.records`.
"""

from __future__ import annotations

import struct
from typing import Final

_I16: Final = struct.Struct(">h")
_I32: Final = struct.Struct(">i")
_I64: Final = struct.Struct(">q")


class MalformedRecord(ValueError):
    """The bytes are no such record: truncated, a length that is none, or text that is not UTF-8."""


class Reader:
    """Reads value after value; ``flexible`` means compact lengths. Raises :class:`MalformedRecord`."""

    __slots__ = ("_data", "_position", "flexible")

    def __init__(self, data: bytes, *, flexible: bool = False) -> None:
        self._data = data
        self._position = 0
        self.flexible = flexible

    def int16(self) -> int:
        return self._number(_I16)

    def int32(self) -> int:
        return self._number(_I32)

    def int64(self) -> int:
        return self._number(_I64)

    def string(self) -> str:
        text = self.nullable_string()
        if text is None:
            raise MalformedRecord("null where a string must be")
        return text

    def nullable_string(self) -> str | None:
        length = self._compact_length() if self.flexible else self.int16()
        if length < 0:
            return None
        try:
            return self._take(length).decode()
        except UnicodeDecodeError as error:
            raise MalformedRecord(str(error)) from error

    def blob(self) -> bytes:
        return self._take(self._compact_length() if self.flexible else self.int32())

    def array_length(self) -> int:
        """How many elements follow; null counts as none, and more than there are bytes left is refused."""
        length = self._compact_length() if self.flexible else self.int32()
        if length > len(self._data) - self._position:
            raise MalformedRecord(f"an array of {length} elements in a record of {len(self._data)} bytes")
        return max(length, 0)

    def skip_tagged_fields(self) -> None:
        """Tagged fields of a flexible version; none in the others."""
        if not self.flexible:
            return
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def _number(self, layout: struct.Struct) -> int:
        number: int = layout.unpack(self._take(layout.size))[0]
        return number

    def _compact_length(self) -> int:
        return self._varint() - 1

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise MalformedRecord("a varint of more than five bytes")

    def _take(self, length: int) -> bytes:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise MalformedRecord(f"{length} bytes wanted at {self._position} of {len(self._data)}")
        taken = self._data[self._position : end]
        self._position = end
        return taken


def pack_int16(value: int) -> bytes:
    return _I16.pack(value)


def pack_int32(value: int) -> bytes:
    return _I32.pack(value)


def pack_int64(value: int) -> bytes:
    return _I64.pack(value)


def pack_string(text: str) -> bytes:
    """A classic STRING. Raises ValueError above 32,767 bytes of UTF-8."""
    encoded = text.encode()
    if len(encoded) > 0x7FFF:
        raise ValueError(f"a string of {len(encoded)} bytes does not fit Kafka's 32767")
    return _I16.pack(len(encoded)) + encoded


def pack_nullable_string(text: str | None) -> bytes:
    return _I16.pack(-1) if text is None else pack_string(text)


def pack_bytes(data: bytes) -> bytes:
    return _I32.pack(len(data)) + data
