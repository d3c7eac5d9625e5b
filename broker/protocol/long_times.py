"""Durations of clients that are longer than Python's: Java's Long.MAX_VALUE for "as long as possible".

kio decodes durations of 64 bits to :class:`datetime.timedelta`, which has 2.7 million years. A longer one is no wrong
request: it becomes the longest there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import timedelta
from functools import cache
from typing import Any, Final

from broker.protocol.fields import Entity
from broker.protocol.lengths import LargeArray
from broker.protocol.pieces import read_in_pieces

_LONG: Final = "timedelta_i64"
_LONGEST_MS: Final = 999_999_999 * 86_400_000


def has_long_times(entity_type: type[Entity]) -> bool:
    return any(each.metadata.get("kafka_type") == _LONG for each in fields(entity_type))


def read_with_long_times(
    entity_type: type[Entity], view: memoryview, large: Sequence[LargeArray]
) -> tuple[Any, int]:
    """Decodes a message that kio refuses for a duration. Returns the entity and its size; raises what kio raises for
    another fault.
    """
    plain, size = read_in_pieces(_with_numbers(entity_type), view, 0, len(view), large)
    values = {each.name: getattr(plain, each.name) for each in fields(entity_type)}
    for each in fields(entity_type):
        if each.metadata.get("kafka_type") == _LONG:
            bounded = max(-_LONGEST_MS, min(values[each.name], _LONGEST_MS))
            values[each.name] = timedelta(milliseconds=bounded)
    return entity_type(**values), size


@cache
def _with_numbers(entity_type: type[Entity]) -> type[Entity]:
    """The same message with numbers for durations of 64 bits."""
    long = [each for each in fields(entity_type) if each.metadata.get("kafka_type") == _LONG]
    namespace: dict[str, Any] = {
        each.name: field(metadata={**each.metadata, "kafka_type": "int64"}) for each in long
    }
    namespace["__annotations__"] = {each.name: int for each in long}
    made = type(entity_type.__name__, (entity_type,), namespace)
    return dataclass(frozen=True, slots=True, kw_only=True)(made)
