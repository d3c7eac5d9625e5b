"""The ``.index`` file, which maps an offset to a position in the segment.

Entries are an int32 offset relative to the segment's base and an int32 position. The offset is the *last*
one of the batch that starts at the position, as Kafka's DumpLogSegments expects. There is about one entry
per ``index.interval.bytes``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from struct import Struct
from typing import Final

from broker.log.segments.index_file import IndexFile

_ENTRY: Final = Struct(">ii")
ENTRY_BYTES: Final = _ENTRY.size


class OffsetIndex:
    """The offset index of a segment; Kafka's OffsetIndex. Invariant: offsets and positions both rise."""

    def __init__(
        self, path: str | Path, base_offset: int, max_bytes: int, *, among: Collection[str] | None = None
    ) -> None:
        self.base_offset = base_offset
        self.file = IndexFile(path, _ENTRY, max_bytes, among=among)

    @property
    def is_full(self) -> bool:
        return self.file.is_full

    def append(self, last_offset: int, position: int) -> None:
        """Adds an entry for the batch at ``position``, which ends with ``last_offset``."""
        self.file.append(last_offset - self.base_offset, position)

    def candidates(self, offset: int) -> Iterator[tuple[int, int]]:
        """Entries up to ``offset`` as ``(offset, position)``, the last first: where a scan for it
        can start.
        """
        for relative, position in self.file.down_from(0, offset - self.base_offset):
            yield self.base_offset + relative, position

    def around(self, offset: int) -> tuple[int, int, int] | None:
        """The positions of three entries: before a batch with ``offset``, after it or its own, and behind it. 0 and -1
        if there is none; None if the file would have to be read for that.
        """
        relative = offset - self.base_offset
        found = self.file.around(0, relative)
        if found is None:
            return None
        before, after, second = found
        # An entry has its batch's last offset: the batch of the one after may hold the offset too.
        behind = after if before is not None and before[0] == relative else second
        return (
            0 if before is None else before[1],
            -1 if after is None else after[1],
            -1 if behind is None else behind[1],
        )

    def last(self) -> tuple[int, int] | None:
        """The last entry as ``(offset, position)``; None if empty."""
        entries = len(self.file)
        if not entries:
            return None
        relative, position = self.file.entry(entries - 1)
        return self.base_offset + relative, position

    def bound_at(self, position: int) -> int | None:
        """An offset above all those before ``position``, which is where a batch begins or ends: from the first
        entry there or later. None if there is none.
        """
        count = self.file.count_at_most(1, position - 1)
        return self.base_offset + self.file.entry(count)[0] if count < len(self.file) else None

    def truncate_to(self, position: int) -> None:
        """Drops the entries of batches at ``position`` or later."""
        self.file.truncate(self.file.count_at_most(1, position - 1))

    def truncate_to_offset(self, offset: int) -> None:
        """Drops the entries of batches whose last offset is ``offset`` or higher."""
        self.file.truncate(self.file.count_at_most(0, offset - self.base_offset - 1))

    def is_sane(self, log_bytes: int) -> bool:
        """Whether the file is plausible: whole entries, and the last one points into the log."""
        file = self.file
        if not len(file):
            return True
        if file.is_torn or len(file) > file.max_entries:
            return False
        last = relative, position = file.entry(len(file) - 1)
        first = file.entry(0) if len(file) > 1 else last
        return relative > 0 and 0 < position < log_bytes and first[0] <= relative and first[1] <= position
