"""A message of every API in every version with all fields: two elements per array, and every tagged field.

Built from kio's own layouts, so that a new version is covered automatically.
"""

from __future__ import annotations

import io
import uuid
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from typing import Any

from broker.protocol import codec
from broker.protocol.lengths import element_type

_VALUES: dict[str, Any] = {
    "bool": True,
    "float64": 1.5,
    "string": "some text",
    "bytes": b"some bytes",
    "records": b"some records",
    "uuid": uuid.UUID(int=7),
    "timedelta_i32": timedelta(milliseconds=5),
    "timedelta_i64": timedelta(milliseconds=5),
    "datetime_i64": datetime(2026, 1, 1, tzinfo=UTC),
}


def filled(api_key: int, version: int, kind: codec.Kind) -> bytes:
    """The encoded body."""
    buffer = io.BytesIO()
    entity_type = codec._entity_type(api_key, version, kind)
    codec._encoder(api_key, version, kind)[1](buffer, _filled(entity_type))
    return buffer.getvalue()


def _filled(entity_type: Any) -> Any:
    values = {}
    for field in fields(entity_type):
        inner, is_array = element_type(field.type)
        kafka_type = field.metadata.get("kafka_type")
        one = _filled(inner) if kafka_type is None else _value(kafka_type, inner)
        values[field.name] = (one, one) if is_array else one
    return entity_type(**values)


def _value(kafka_type: str, inner: Any) -> Any:
    if kafka_type == "error_code":
        return inner(3)
    return _VALUES.get(kafka_type, 1)
