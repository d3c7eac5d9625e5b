"""How small clients may make a segment. Each is files, a roll of a millisecond and a look-up more: a client that could
make one of each of its appends would have all of the broker.

The operator's own properties file may say less, for all topics: clients may then go as low as that. What is in
ZooKeeper already is used as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.config.problems import Problem
from broker.config.types import Value
from broker.utils.topic_partition import GROUP_METADATA_TOPIC

# Kafka 4's floor (KIP-1030).
SEGMENT_BYTES: Final = 1 << 20
# Its entries, one of each append at most, are more than a thousand: what a roll costs is then little to each.
INDEX_BYTES: Final = 16 << 10

_FLOORS: Final[Mapping[str, tuple[str, int]]] = {
    "segment.bytes": ("log.segment.bytes", SEGMENT_BYTES),
    "log.segment.bytes": ("log.segment.bytes", SEGMENT_BYTES),
    "segment.index.bytes": ("log.index.size.max.bytes", INDEX_BYTES),
    "log.index.size.max.bytes": ("log.index.size.max.bytes", INDEX_BYTES),
}


def floor_of(static_values: Mapping[str, Value], name: str) -> int | None:
    """The least that a client may set the topic's or broker's config ``name`` to, where the properties file has
    ``static_values``; None: there is no such bound.
    """
    if name not in _FLOORS:
        return None
    broker_key, floor = _FLOORS[name]
    operators = static_values.get(broker_key)
    return min(floor, operators) if isinstance(operators, int) else floor


def below_floors(
    static_values: Mapping[str, Value], values: Mapping[str, Value], topic: str = ""
) -> list[Problem]:
    """What is wrong with parsed ``values`` that a client sets, for ``topic`` where that one is being made."""
    problems = []
    for name, value in values.items():
        floor = floor_of(static_values, name)
        if floor is None or not isinstance(value, int):
            continue
        offsets_segment = static_values.get("offsets.topic.segment.bytes")
        if topic == GROUP_METADATA_TOPIC and name == "segment.bytes" and isinstance(offsets_segment, int):
            floor = min(floor, offsets_segment)
        if value < floor:
            reason = f"{value} is less than {floor}, the least that clients may set it to"
            problems.append(Problem(name, None, reason))
    return problems
