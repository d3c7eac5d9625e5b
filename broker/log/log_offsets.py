"""Where a log begins, is committed to, and ends."""

from __future__ import annotations


class LogOffsets:
    """The offsets of Kafka's UnifiedLog.

    Invariant: ``start <= high_watermark <= end``.

    Owned by one :class:`~broker.log.log.Log`: changed under its lock, but for the high watermark, which is told under
    the partition's. Read without any.
    """

    __slots__ = ("end", "high_watermark", "start")

    def __init__(self, start: int, end: int) -> None:
        #: The first offset that may be read.
        self.start = start
        #: Below it everything is replicated.
        self.high_watermark = start
        #: The offset of the next record; moves after the write.
        self.end = end

    def __repr__(self) -> str:
        return f"<LogOffsets {self.start} {self.high_watermark} {self.end}>"

    def mark(self, offset: int) -> None:
        """Sets the high watermark, kept between start and end."""
        self.high_watermark = max(min(offset, self.end), self.start)

    def begin_at(self, offset: int) -> None:
        """Lets the log begin at ``offset``, not past its end, unless it begins later already."""
        self.start = max(self.start, offset)
        self.high_watermark = max(self.high_watermark, self.start)

    def restart_at(self, offset: int) -> None:
        """There is nothing, from ``offset`` on."""
        self.start = self.end = self.high_watermark = offset
