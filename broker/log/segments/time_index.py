"""The ``.timeindex`` file, which maps a timestamp to an offset in the segment.

Entries are an int64 timestamp in ms, the highest so far, and an int32 relative offset, the last one of the
batch with that timestamp. Timestamps rise strictly. A last entry is added when the segment rolls or closes,
so that the segment's highest timestamp is known without reading it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from broker.log.segments.index_file import IndexFile
from broker.record.header import NO_TIMESTAMP

_ENTRY: Final = Struct(">qi")
ENTRY_BYTES: Final = _ENTRY.size


class TimeIndex:
    """The time index of a segment; Kafka's TimeIndex. Invariant: timestamps rise, offsets never fall."""

    def __init__(
        self, path: str | Path, base_offset: int, max_bytes: int, *, among: Collection[str] | None = None
    ) -> None:
        self.base_offset = base_offset
        self.file = IndexFile(path, _ENTRY, max_bytes, among=among)
        self._last_timestamp: int | None = None

    @property
    def is_full(self) -> bool:
        # One place is reserved for the entry that a roll adds.
        return len(self.file) >= self.file.max_entries - 1

    def maybe_append(self, timestamp: int, offset: int, *, force: bool = False) -> None:
        """Adds an entry if ``timestamp`` exceeds the last one's. ``force`` may use the reserved place."""
        last = self._last_timestamp
        if timestamp <= (self.last_timestamp if last is None else last):
            return
        file = self.file
        if len(file) >= file.max_entries:
            return
        if not force and self.is_full:
            return
        file.append(timestamp, offset - self.base_offset)
        self._last_timestamp = timestamp

    @property
    def last_timestamp(self) -> int:
        """The highest timestamp in the index, -1 if there is none."""
        if self._last_timestamp is None:
            last = self.last()
            self._last_timestamp = last[0] if last is not None else NO_TIMESTAMP
        return self._last_timestamp

    def last(self) -> tuple[int, int] | None:
        """The last entry as ``(timestamp, offset)``; None if empty."""
        entries = len(self.file)
        if not entries:
            return None
        timestamp, relative = self.file.entry(entries - 1)
        return timestamp, self.base_offset + relative

    def candidates(self, timestamp: int) -> Iterator[tuple[int, int]]:
        """Entries below ``timestamp`` as ``(timestamp, offset)``, the last first; nothing before is
        as late.
        """
        for noted, relative in self.file.down_from(0, timestamp - 1):
            yield noted, self.base_offset + relative

    def truncate_to(self, offset: int) -> None:
        """Drops the entries of batches whose last offset is ``offset`` or higher."""
        self.file.truncate(self.file.count_at_most(1, offset - self.base_offset - 1))
        self._last_timestamp = None

    def drop_unordered_end(self) -> None:
        """Drops last entries that do not rise from those before; a power loss may have torn them."""
        file = self.file
        keep = len(file)
        while keep > 1:
            (before, offset_before), (timestamp, offset) = file.entry(keep - 2), file.entry(keep - 1)
            if timestamp > before and offset >= offset_before:
                break
            keep -= 1
        file.truncate(keep)
        self._last_timestamp = None

    def reset(self) -> None:
        self.file.reset()
        self._last_timestamp = None

    def is_sane(self) -> bool:
        """Whether the file is plausible: whole entries, and the last one has the highest timestamp."""
        file = self.file
        if not len(file):
            return True
        if file.is_torn or len(file) > file.max_entries:
            return False
        timestamp, relative = file.entry(len(file) - 1)
        first = file.entry(0)[0] if len(file) > 1 else timestamp
        return relative >= 0 and timestamp > 0 and timestamp >= first
