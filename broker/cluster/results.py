"""The results of a :class:`~broker.cluster.partition.Partition`'s appends and followers' fetches."""

from __future__ import annotations

from typing import NamedTuple

from broker.log.log import LogRead
from broker.protocol.alter_partition_messages import IsrChange


class Awaited(NamedTuple):
    """What must be committed before an append is acknowledged: all below ``offset``, while this broker leads
    without a break. After a break the records may have been truncated, even if others now have their offsets.
    """

    offset: int
    term: int


class FollowerRead(NamedTuple):
    """The result of a follower's fetch: records, or where the logs diverge.

    ``hw_advanced``: waiting requests must be checked.
    """

    read: LogRead | None
    diverging: tuple[int, int] | None
    high_watermark: int
    log_start_offset: int
    hw_advanced: bool
    isr_change: IsrChange | None
