"""Answers as plain values: mappings by Kafka's field names, lists, numbers and strings.

The codec of the broker does not decode times below zero, which Kafka answers for "none". So this module reads the
bytes itself, by the same layouts (kio's dataclasses). Errors are their names, ids and bytes are hexadecimal, and
record batches are lists of their headers and records.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Mapping
from dataclasses import Field, fields
from typing import Any, Final, get_args

from kafka.record.memory_records import MemoryRecords

from broker.protocol import codec
from broker.protocol.errors import Errors
from broker.protocol.lengths import element_type
from broker.protocol.primitives import read_uvarint
from broker.record.batch import iter_batches, iter_records
from broker.record.message_set import begins_old
from tests.support.times import NOW_MS

Plain = Any
NO_ID: Final = str(uuid.UUID(int=0))
_FORMATS: Final[Mapping[str, str]] = {
    "bool": ">?",
    "int8": ">b",
    "int16": ">h",
    "uint16": ">H",
    "error_code": ">h",
    "int32": ">i",
    "uint32": ">I",
    "int64": ">q",
    "float64": ">d",
    "timedelta_i32": ">i",
    "timedelta_i64": ">q",
    "datetime_i64": ">q",
}


def plain_answer(api_key: int, version: int, body: bytes | memoryview) -> dict[str, Plain]:
    """The decoded body of a response. Raises AssertionError if bytes are left over."""
    reader = _Reader(memoryview(body))
    found = reader.entity(codec._entity_type(api_key, version, "response"))
    assert reader.position == len(body), (
        f"{len(body) - reader.position} bytes after an answer of API {api_key}"
    )
    return found


class _Reader:
    def __init__(self, view: memoryview) -> None:
        self._view = view
        self.position = 0

    def entity(self, entity_type: Any) -> dict[str, Plain]:
        flexible = bool(entity_type.__flexible__)
        layout = fields(entity_type)
        found = {each.name: self._value(each, flexible) for each in layout if "tag" not in each.metadata}
        if flexible:
            tagged = {each.metadata["tag"]: each for each in layout if "tag" in each.metadata}
            for _ in range(self._uvarint()):
                tag, end = self._uvarint(), self._uvarint() + self.position
                if tag in tagged:
                    found[tagged[tag].name] = self._value(tagged[tag], flexible)
                else:
                    found[f"tag {tag}"] = bytes(self._view[self.position : end]).hex()
                    self.position = end
                assert self.position == end, f"tag {tag} does not have the size that it announces"
        return found

    def _value(self, layout: Field[Any], flexible: bool) -> Plain:
        inner, is_array = element_type(layout.type)
        kafka_type = layout.metadata.get("kafka_type")
        if is_array:
            count = self._length(flexible)
            return None if count < 0 else [self._one(kafka_type, inner, flexible) for _ in range(count)]
        if kafka_type is None and type(None) in get_args(layout.type) and self._number(">b") < 0:
            return None
        return self._one(kafka_type, inner, flexible)

    def _one(self, kafka_type: str | None, inner: Any, flexible: bool) -> Plain:
        match kafka_type:
            case None:
                return self.entity(inner)
            case "error_code":
                return Errors(self._number(">h")).name
            case "uuid":
                return str(uuid.UUID(bytes=self._bytes(16)))
            case "string":
                size = self._length(flexible, ">h")
                return None if size < 0 else self._bytes(size).decode()
            case "bytes":
                size = self._length(flexible)
                return None if size < 0 else self._bytes(size).hex()
            case "records":
                size = self._length(flexible)
                return None if size < 0 else plain_batches(self._bytes(size))
        return self._number(_FORMATS[kafka_type])

    def _length(self, flexible: bool, legacy: str = ">i") -> int:
        return self._uvarint() - 1 if flexible else int(self._number(legacy))

    def _uvarint(self) -> int:
        value, self.position = read_uvarint(self._view, self.position)
        return value

    def _number(self, layout: str) -> Any:
        (value,) = struct.unpack_from(layout, self._view, self.position)
        self.position += struct.calcsize(layout)
        return value

    def _bytes(self, size: int) -> bytes:
        self.position += size
        return bytes(self._view[self.position - size : self.position])


def plain_batches(data: bytes) -> list[Plain]:
    """The whole batches of a fetch, without their checksums, or its messages of an older format. A marker's time, which
    its broker gives, is left out.
    """
    if begins_old(data):
        return _plain_messages(data)
    view, found, position = memoryview(data), [], 0
    for header in iter_batches(view):
        row = header._asdict()
        del row["crc"]
        records = iter_records(view, header, position)
        row["records"] = [_plain_record(record, header.is_control) for record in records]
        if header.is_control:
            row |= {"base_timestamp": 0, "max_timestamp": 0}
        found.append(row)
        position += header.size_bytes
    return found


def _plain_messages(data: bytes) -> list[Plain]:
    """The whole messages of magic 0 and 1, as another's code reads them. A wrapper has its records; how well they are
    compressed is not compared.
    """
    messages = MemoryRecords(data)
    found: list[Plain] = []
    while (message := messages.next_batch()) is not None:
        row = {
            "base_offset": message.base_offset,
            "magic": message.magic,
            "codec": message.compression_type,
            "is_valid": message.validate_crc(),
            "records": [
                [
                    record.offset,
                    None if record.timestamp is None else record.timestamp - NOW_MS,
                    record.timestamp_type,
                    None if record.key is None else record.key.hex(),
                    None if record.value is None else record.value.hex(),
                ]
                for record in message
            ],
        }
        found.append(row)
    return found


def _plain_record(record: Any, is_control: bool) -> Plain:
    return [
        record.offset,
        0 if is_control else record.timestamp - NOW_MS,
        None if record.key is None else record.key.hex(),
        None if record.value is None else record.value.hex(),
        [[name, None if value is None else value.hex()] for name, value in record.headers],
    ]
