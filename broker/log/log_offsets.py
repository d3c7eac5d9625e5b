"""The start offset, high watermark and end offset of a log."""

from __future__ import annotations


class LogOffsets:
    """The offsets of a log; those of Kafka's UnifiedLog.

    Invariant: ``start <= high_watermark <= end``.

    Owned by one :class:`~broker.log.log.Log`. Changed under the log's lock, except the high watermark, which
    is set under the partition's lock. Read without a lock.
    """

    __slots__ = ("end", "high_watermark", "start")

    def __init__(self, start: int, end: int) -> None:
        #: The first offset that may be read.
        self.start = start
        #: All records below this offset are replicated.
        self.high_watermark = start
        #: The offset of the next record; moves after the write.
        self.end = end

    def __repr__(self) -> str:
        return f"<LogOffsets {self.start} {self.high_watermark} {self.end}>"

    def mark(self, offset: int) -> None:
        """Sets the high watermark, kept between start and end."""
        self.high_watermark = max(min(offset, self.end), self.start)

    def begin_at(self, offset: int) -> None:
        """Moves the log start to ``offset``, not past its end, unless the log already begins later."""
        self.start = max(self.start, offset)
        # Not by max(): what another thread sets between its reading and writing would be taken back.
        if self.high_watermark < self.start:  # noqa: PLR1730
            self.high_watermark = self.start

    def restart_at(self, offset: int) -> None:
        """Makes the log empty, beginning at ``offset``."""
        self.start = self.end = self.high_watermark = offset
