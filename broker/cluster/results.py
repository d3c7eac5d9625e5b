"""What a :class:`~broker.cluster.partition.Partition` answers to appends and to followers' fetches."""

from __future__ import annotations

from typing import NamedTuple

from broker.log.log import AppendInfo, LogRead
from broker.protocol.alter_partition_messages import IsrChange


class Awaited(NamedTuple):
    """What must be committed for an append to be acknowledged: all below ``offset``, while this broker leads without
    a break. After a break the records may have been truncated, though others now stand at their offsets.
    """

    offset: int
    term: int


class Appended(NamedTuple):
    """An append as leader; ``hw_advanced`` tells whoever waits. ``is_committed``: nothing of it is awaited any more."""

    info: AppendInfo
    hw_advanced: bool
    awaited: Awaited
    is_committed: bool


class FollowerRead(NamedTuple):
    """What a follower's fetch gives: records, or where the logs diverge; ``hw_advanced`` tells whoever waits."""

    read: LogRead | None
    diverging: tuple[int, int] | None
    high_watermark: int
    log_start_offset: int
    hw_advanced: bool
    isr_change: IsrChange | None
