"""Minimum segment and index sizes that clients may set. Each segment costs files, a roll of a millisecond and
a look-up: a client with a segment per append would use up the broker.

If the operator's properties file has less, for all topics, clients may go as low as that. Values that are
already in ZooKeeper are used as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.config.problems import Problem
from broker.config.types import Value
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC

# Kafka 4's minimum (KIP-1030).
SEGMENT_BYTES: Final = 1 << 20
# Room for more than a thousand entries, of which an append adds at most one. So the cost of a roll is spread
# over many appends.
INDEX_BYTES: Final = 16 << 10

_FLOORS: Final[Mapping[str, tuple[str, int]]] = {
    "segment.bytes": ("log.segment.bytes", SEGMENT_BYTES),
    "log.segment.bytes": ("log.segment.bytes", SEGMENT_BYTES),
    "segment.index.bytes": ("log.index.size.max.bytes", INDEX_BYTES),
    "log.index.size.max.bytes": ("log.index.size.max.bytes", INDEX_BYTES),
}

_OWN_SEGMENT_KEYS: Final = {
    GROUP_METADATA_TOPIC: "offsets.topic.segment.bytes",
    TRANSACTION_STATE_TOPIC: "transaction.state.log.segment.bytes",
}


def floor_of(static_values: Mapping[str, Value], name: str) -> int | None:
    """The minimum that a client may set for the topic's or broker's config ``name``, if the properties file
    has ``static_values``. None if there is no minimum.
    """
    if name not in _FLOORS:
        return None
    broker_key, floor = _FLOORS[name]
    operators = static_values.get(broker_key)
    return min(floor, operators) if isinstance(operators, int) else floor


def below_floors(
    static_values: Mapping[str, Value], values: Mapping[str, Value], topic: str = ""
) -> list[Problem]:
    """The problems of parsed ``values`` that a client sets; ``topic`` is the topic if it is being created."""
    problems = []
    for name, value in values.items():
        floor = floor_of(static_values, name)
        if floor is None or not isinstance(value, int):
            continue
        own_segment = static_values.get(_OWN_SEGMENT_KEYS.get(topic, ""))
        if name == "segment.bytes" and isinstance(own_segment, int):
            floor = min(floor, own_segment)
        if value < floor:
            reason = f"{value} is less than {floor}, the least that clients may set it to"
            problems.append(Problem(name, None, reason))
    return problems
