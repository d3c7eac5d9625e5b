"""Removes tagged fields that a message's schema does not know. KIP-482 readers skip them, but kio
refuses them.

Newer clients may send such fields in versions that this broker serves. The message is copied without them,
but only after kio has met one, so other messages cost nothing extra. Only flexible versions have tags.
"""

from __future__ import annotations

from dataclasses import Field, fields
from typing import Any, Final, get_args

from broker.protocol.fields import Entity
from broker.protocol.lengths import FIXED_BYTES, element_type
from broker.protocol.primitives import read_uvarint, write_uvarint

_NEGATIVE_INT8: Final = 0x80


def without_unknown_tags(entity_type: type[Entity], body: memoryview) -> bytes:
    """The body without the tagged fields that ``entity_type`` and the structs in it do not have.

    Raises IndexError or ProtocolError for a truncated body. Fields inside a known tagged field are kept as
    they are.
    """
    return _Copy(body).struct(entity_type)


class _Copy:
    """Walks through one message and copies the known fields."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._position = 0
        self._kept = bytearray()

    def struct(self, entity_type: type[Entity]) -> bytes:
        self._struct(entity_type)
        return bytes(self._kept)

    def _struct(self, entity_type: type[Entity]) -> None:
        tags = set()
        for field in fields(entity_type):
            if "tag" in field.metadata:
                tags.add(field.metadata["tag"])
            else:
                self._field(field)
        self._tags(tags)

    def _field(self, field: Field[Any]) -> None:
        inner, is_array = element_type(field.type)
        kafka_type = field.metadata.get("kafka_type")
        for _ in range(self._length() if is_array else 1):
            if kafka_type is None:
                if is_array or type(None) not in get_args(field.type) or self._is_there():
                    self._struct(inner)
            elif kafka_type in FIXED_BYTES:
                self._keep(FIXED_BYTES[kafka_type])
            else:
                self._keep(self._length())

    def _is_there(self) -> bool:
        """Copies the byte before a struct that may be null, and returns whether it is there."""
        is_null = self._body[self._position] >= _NEGATIVE_INT8
        self._keep(1)
        return not is_null

    def _length(self) -> int:
        """Copies a compact length and returns it; 0 for null."""
        length, end = read_uvarint(self._body, self._position)
        self._keep(end - self._position)
        return max(length - 1, 0)

    def _keep(self, size: int) -> None:
        end = self._position + size
        if end > len(self._body):
            raise IndexError(f"{size} bytes wanted at {self._position} of {len(self._body)}")
        self._kept += self._body[self._position : end]
        self._position = end

    def _tags(self, known: set[int]) -> None:
        count, position = read_uvarint(self._body, self._position)
        kept = []
        for _ in range(count):
            begin = position
            tag, position = read_uvarint(self._body, position)
            size, position = read_uvarint(self._body, position)
            position += size
            if position > len(self._body):
                raise IndexError(f"tagged field {tag} ends at {position} of {len(self._body)}")
            if tag in known:
                kept.append(bytes(self._body[begin:position]))
        self._kept += write_uvarint(len(kept)) + b"".join(kept)
        self._position = position
