"""The memory of groups, members and offsets in this process, in bytes. The constants are measured, with
some reserve.

A weight is computed only from the object itself, so removing it subtracts exactly what was added.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

from broker.coordinator.common.weights import text_weight
from broker.coordinator.group.records import OffsetAndMetadata
from broker.utils.topic_partition import TopicPartition

_GROUP: Final = 2_000  # with its cell and its lock
_MEMBER: Final = 1_024
_PROTOCOL: Final = 128
_PENDING: Final = 128
_OFFSET: Final = 320
# Minimum weights of a member's protocols and of its assignment, and the step in which metadata counts. So
# small growth does not change a weight. A member read from the log has one protocol, and sends all of them
# when it rejoins.
_MEMBER_WORDS: Final = 4_096
_MEMBER_ASSIGNMENT: Final = 1_024
_METADATA_STEP: Final = 64


def group_weight(group_id: str) -> int:
    return _GROUP + text_weight(group_id)


def pending_weight(member_id: str) -> int:
    return _PENDING + text_weight(member_id)


def words_weight(protocols: Iterable[tuple[str, bytes]]) -> int:
    """The weight of a member's protocols. With many small protocols it is far more than their bytes."""
    return sum(_PROTOCOL + text_weight(name) + len(metadata) for name, metadata in protocols)


def member_weight(names: Iterable[str | None], words: int) -> int:
    """The weight of a member. ``names`` are its id, instance id, client id and host; ``words`` is
    :func:`words_weight` of its protocols.
    """
    return _MEMBER + max(words, _MEMBER_WORDS) + sum(text_weight(name) for name in names if name)


def assignments_weight(members: int, assigned_bytes: int) -> int:
    return max(assigned_bytes, members * _MEMBER_ASSIGNMENT)


def offset_weight(partition: TopicPartition, value: OffsetAndMetadata) -> int:
    """The weight of a committed offset. It is called twice for each commit."""
    weight = _unsaid_weight(partition.topic)
    if not value.metadata:  # as nearly always
        return weight
    steps = (text_weight(value.metadata) + _METADATA_STEP - 1) // _METADATA_STEP
    return weight + (steps - 1) * _METADATA_STEP


@lru_cache(maxsize=1024)
def _unsaid_weight(topic: str) -> int:
    """The weight of an offset without metadata, which counts as one step."""
    return _OFFSET + text_weight(topic) + _METADATA_STEP
