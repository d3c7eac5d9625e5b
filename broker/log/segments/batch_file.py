"""A segment's file of batches: finding a batch by the offset index, and handling damaged batches.

The index is only a hint: an entry counts if the batch at its position confirms it. This module
writes nothing.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterator
from io import FileIO
from pathlib import Path
from typing import Final
from weakref import ref

import structlog

from broker.log.segments.batch_walk import (
    SCAN_BYTES,
    DamagedError,
    Extent,
    has_right_crc,
    implausible,
    next_sound,
    walk,
)
from broker.log.segments.offset_index import OffsetIndex
from broker.log.segments.segment_file import FileSlot, SegmentFile
from broker.record.header import HEADER_BYTES, BatchHeader, crc_is_valid, read_header
from broker.utils.file_region import keep

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TXN_INDEX_SUFFIX: Final = ".txnindex"
# Of a segment that is to replace others: unfinished, and finished.
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
INT32_MAX: Final = (1 << 31) - 1
# How many files of inactive segments stay open for later reads, over all logs; the most recently opened ones
# do. A log with thousands of segments could otherwise use all file descriptors of the process.
MOST_KEPT_OPEN: int = 512
_opening = threading.Lock()  # lock order 91
_opened: deque[ref[FileSlot]] = deque()
_log = structlog.get_logger(__name__)

_WHAT_TO_DO: Final = (
    "look at the disk; what is damaged is kept and answered with CORRUPT_MESSAGE. Let a sound replica lead, then have "
    "this one copied anew: stop the broker, remove the partition's directory, start it"
)


class BatchFile:
    """The file, offset range and damage of a segment. Reads may race with appends: they go by ``size``."""

    __slots__ = (
        "_slot",
        "base_offset",
        "damages",
        "dir",
        "limit",
        "offset_index",
        "size",
        "suffix",
    )

    offset_index: OffsetIndex

    def __init__(self, directory: Path, base_offset: int, suffix: str = "") -> None:
        self.dir = directory
        self.base_offset = base_offset
        self.suffix = suffix
        self._slot = FileSlot()
        self.size = 0
        # The offset where the next segment begins; no batch here may reach it.
        self.limit = base_offset + INT32_MAX + 1
        # Damaged places as (file, position); each is logged once.
        self.damages: set[tuple[str, int]] = set()

    def path(self, kind: str) -> Path:
        """The file of ``kind`` (a suffix such as ``.log``) under the segment's current name."""
        return Path(self.file_name(kind))

    def file_name(self, kind: str) -> str:
        """:attr:`path` as a string: creating Paths took a third of a start with thousands of logs."""
        return f"{self.dir}/{self.base_offset:020d}{kind}{self.suffix}"

    @property
    def file(self) -> SegmentFile:
        file = self._slot.file
        return self._open_file() if file is None else file

    def is_of(self, file: FileIO) -> bool:
        """Whether ``file`` is this one's, as it is open now."""
        return file is self._slot.file

    def _open_file(self) -> SegmentFile:
        # Open it only once. If two threads opened it, one file would close as the other replaced it. Its
        # descriptor could then belong to another file while the first thread still uses it.
        slot = self._slot
        with _opening:
            while slot.file is None:
                name = self.file_name(LOG_SUFFIX)
                try:
                    file = SegmentFile(name, "r+")
                except FileNotFoundError:
                    if name == self.file_name(LOG_SUFFIX):
                        raise
                    continue
                # If the segment was renamed meanwhile, a recreated topic may already have another file with
                # this name. The renaming thread updates the segment before the name is free.
                if name == self.file_name(LOG_SUFFIX):
                    slot.file = file
                    if not slot.stays:
                        _opened.append(ref(slot))
                        self._close_oldest()
                    return file
            return slot.file

    @staticmethod
    def _close_oldest() -> None:
        while len(_opened) > MOST_KEPT_OPEN:
            slot = _opened.popleft()()
            if slot is not None and not slot.stays:
                slot.file = None

    def keep_file(self) -> None:
        """Has the file, once open, stay open: while it is written to, and until that is synced. A descriptor that
        is opened later may not report an earlier failed write.
        """
        self._slot.stays = True

    def let_go_of_file(self) -> None:
        """Drops the open file after the last write was synced; the next read opens it again."""
        with _opening:
            self._slot.stays = False
            self._slot.file = None

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch at ``position``. Raises struct.error past the end, OSError."""
        file = self.file
        data = os.pread(file.fileno(), HEADER_BYTES, position)
        keep(file)
        return read_header(data)

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """``(position, header)`` of the batches from ``position``, where a batch begins, to the end.

        Raises DamagedError where the file is damaged, OSError.
        """
        return walk(self._extent(), position)

    def headers_for(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """As :meth:`headers_from`, from some batch at or before the one that holds ``offset``.

        The index is a hint. An entry counts if the batch at its position ends with the entry's offset, or
        before it, as Kafka makes one entry for several batches of an append.
        """
        extent = self._extent()
        for last_offset, position in self.offset_index.candidates(offset):
            if position <= 0:
                break
            chunk = self._start_of_batch(extent, last_offset, position)
            if chunk:
                return walk(extent, position, chunk)
        return walk(extent, 0)

    def last_sound_entry(self) -> tuple[int, int] | None:
        """The last offset index entry that a batch confirms, as ``(offset, position)``. Raises OSError."""
        return self._sound_entry(self.limit)

    def _sound_entry(self, offset: int) -> tuple[int, int] | None:
        extent = self._extent()
        for entry in self.offset_index.candidates(offset):
            if entry[1] <= 0:
                return None
            if self._start_of_batch(extent, *entry):
                return entry
        return None

    def sound_headers_for(self, offset: int) -> Iterator[tuple[int, BatchHeader]]:
        """As :meth:`headers_for`, but skips and logs damage; called under the log's lock or while loading."""
        entry = self._sound_entry(offset)
        return self.sound_headers_from(0 if entry is None else entry[1])

    def sound_headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """As :meth:`headers_from`, but skips and logs damage."""
        batches = self.headers_from(position)
        while True:
            try:
                yield from batches
            except DamagedError as damage:
                self.tell_damage(damage)
                found = next_sound(self._extent(), damage)
                if found is None:
                    return
                batches = self.headers_from(found[0])
            else:
                return

    def _extent(self) -> Extent:
        file = self.file
        return Extent(
            file.fileno(), self.file_name(LOG_SUFFIX), self.size, self.base_offset, self.limit, file
        )

    @staticmethod
    def _start_of_batch(extent: Extent, offset: int, position: int) -> bytes:
        """The first bytes of a plausible batch at ``position`` that ends with ``offset`` or before; else no bytes."""
        if not 0 <= position <= extent.end - HEADER_BYTES:
            return b""
        chunk = os.pread(extent.fd, SCAN_BYTES, position)
        header = read_header(chunk)
        is_sound = implausible(header, extent.end - position, extent) is None and header.last_offset <= offset
        return chunk if is_sound else b""

    def _is_batch(self, position: int) -> bool:
        if not 0 <= position <= self.size - HEADER_BYTES:
            return False
        return implausible(self.header_at(position), self.size - position, self._extent()) is None

    def tell_damage(self, damage: DamagedError) -> None:
        """Logs one line for each damaged place."""
        self.tell("log_damaged", damage.path.name, damage.position, damage.message)

    def tell(self, event: str, file: str, position: int, reason: str) -> None:
        if self.is_first_word(file, position):
            _log.error(event, dir=str(self.dir), file=file, at_byte=position, reason=reason, do=_WHAT_TO_DO)

    def is_first_word(self, file: str, position: int) -> bool:
        """Counts a damaged place. False if it was counted, and logged, before."""
        if (file, position) in self.damages:
            return False
        self.damages.add((file, position))
        return True

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is at least ``offset``, with its position; None if all are lower.

        Raises DamagedError if damaged data may have held that batch.
        """
        batches = self.headers_for(offset)
        while True:
            try:
                for position, header in batches:
                    if header.last_offset >= offset:
                        return position, header
            except DamagedError as damage:
                found = next_sound(self._extent(), damage)
                if found is None or found[1].base_offset > offset:
                    raise
                batches = self.headers_from(found[0])
            else:
                return None

    def require_batch_of(self, position: int, size: int) -> None:
        """Raises DamagedError if the batch at ``position`` cannot have ``size`` bytes.

        That is the case if no batch follows it and its checksum does not match that size.
        """
        extent = self._extent()
        found = next(walk(extent, position))
        end = position + size
        is_last = end == extent.end
        is_followed = is_last or self._is_batch(end)
        if found[1].size_bytes != size or not (is_followed or has_right_crc(extent, *found)):
            raise DamagedError(
                extent.path, position, found[1].base_offset, f"no batch follows one of {size} bytes"
            )

    def whole_batch(self, position: int, header: BatchHeader) -> memoryview:
        """The batch at ``position``, with a valid checksum. Raises DamagedError, OSError."""
        view = self.read_batches(position, position + header.size_bytes)
        if len(view) < header.size_bytes or not crc_is_valid(view, header):
            path = self.path(LOG_SUFFIX)
            raise DamagedError(path, position, header.base_offset, "the batch fails its checksum")
        return view

    def read_batches(self, position: int, end: int) -> memoryview:
        """The bytes from ``position`` to ``end``, or fewer if the file is shorter."""
        file = self.file
        data = os.pread(file.fileno(), end - position, position)
        keep(file)
        return memoryview(data)
