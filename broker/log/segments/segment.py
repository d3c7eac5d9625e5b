"""A segment of a log: a ``.log`` file of batches with its indexes.

Writes go to explicit positions, so the remains of a failed write are overwritten or cut off. They are never
read, because readers go by ``size``, which moves after the write. Knows nothing about epochs, producers or
the high watermark.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

from broker.log.filesystem_sync import sync_all, sync_data
from broker.log.segments.batch_file import (
    INDEX_SUFFIX,
    INT32_MAX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    TXN_INDEX_SUFFIX,
    BatchFile,
)
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.offset_index import OffsetIndex
from broker.log.segments.segment_file import SegmentFile
from broker.log.segments.time_index import TimeIndex
from broker.log.segments.txn_index import TransactionIndex
from broker.record.header import HEADER_BYTES, NO_TIMESTAMP, BatchHeader
from broker.utils.file_region import keep

DELETED_SUFFIX: Final = ".deleted"
_NAME_DIGITS: Final = 20
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)

# (base offset, last offset, bytes, max timestamp) of a batch to append
AppendedBatch = tuple[int, int, int, int]


class Segment(BatchFile):
    """A segment of a log; Kafka's LogSegment. Changes only under the log's lock; reads may race
    with appends.
    """

    __slots__ = (
        "bytes_since_index_entry",
        "created_ms",
        "dir_synced",
        "first_timestamp",
        "index_max_bytes",
        "indexes_full",
        "max_timestamp",
        "max_timestamp_offset",
        "time_index",
        "txn_index",
    )

    def __init__(
        self,
        directory: Path,
        base_offset: int,
        index_max_bytes: int,
        created_ms: int,
        suffix: str = "",
        *,
        among: Collection[str] | None = None,
    ) -> None:
        """``among``: the file names in ``directory``, if the caller has just listed them."""
        super().__init__(directory, base_offset, suffix)
        self.index_max_bytes = index_max_bytes
        self.created_ms = created_ms
        self.max_timestamp: int | None = None
        self.max_timestamp_offset = base_offset
        self.first_timestamp: int | None = None
        self.bytes_since_index_entry = 0
        self.dir_synced = True
        self._open_indexes(among)
        self.indexes_full = False

    def _open_indexes(self, among: Collection[str] | None = None) -> None:
        base, size = self.base_offset, self.index_max_bytes
        self.offset_index = OffsetIndex(self.file_name(INDEX_SUFFIX), base, size, among=among)
        self.time_index = TimeIndex(self.file_name(TIME_INDEX_SUFFIX), base, size, among=among)
        self.txn_index = TransactionIndex(self.file_name(TXN_INDEX_SUFFIX), among=among)

    @classmethod
    def create(
        cls,
        directory: Path,
        base_offset: int,
        index_max_bytes: int,
        now_ms: int,
        suffix: str = "",
        *,
        in_new_dir: bool = False,
    ) -> Segment:
        """Creates a new, empty, active segment and replaces existing files with its names.

        ``in_new_dir``: there are no such files. Raises OSError.
        """
        segment = cls(directory, base_offset, index_max_bytes, now_ms, suffix)
        if not in_new_dir:
            for name in SEGMENT_SUFFIXES:
                segment.path(name).unlink(missing_ok=True)
            segment._open_indexes(among=())
        segment._slot.file = SegmentFile(segment.file_name(LOG_SUFFIX), "x+")
        segment.keep_file()
        segment.max_timestamp = NO_TIMESTAMP
        segment.dir_synced = False
        return segment

    @classmethod
    def open(
        cls,
        directory: Path,
        base_offset: int,
        index_max_bytes: int,
        suffix: str = "",
        *,
        among: Collection[str] | None = None,
    ) -> Segment:
        """A segment that is on disk. Its files are opened when first needed."""
        segment = cls(directory, base_offset, index_max_bytes, 0, suffix, among=among)
        stat = os.stat(segment.file_name(LOG_SUFFIX))  # noqa: PTH116 - once for each log at start-up
        segment.size = stat.st_size
        segment.created_ms = stat.st_mtime_ns // 1_000_000
        return segment

    def __repr__(self) -> str:
        return f"<Segment {self.path(LOG_SUFFIX).name} {self.size} bytes>"

    # -- appending

    def append(self, data: memoryview, batches: Sequence[AppendedBatch], index_interval_bytes: int) -> None:
        """Writes ``data``, which holds exactly ``batches``, at the end.

        Raises OSError; the segment is then unchanged.
        """
        position = self.size
        end = position + len(data)
        file = self.file
        fd = file.fileno()
        written = os.pwrite(fd, data, position)
        if position + written < end:
            self._write_rest(fd, data, position, written)
        keep(file)
        since_entry = self.bytes_since_index_entry
        max_timestamp = self.max_timestamp
        if max_timestamp is None:
            max_timestamp = self.largest_noted_timestamp
        for _, last_offset, size, timestamp in batches:
            if timestamp > max_timestamp:
                max_timestamp = self.max_timestamp = timestamp
                self.max_timestamp_offset = last_offset
            if since_entry > index_interval_bytes:
                self._index(last_offset, position, max_timestamp)
                since_entry = 0
            since_entry += size
            position += size
        self.bytes_since_index_entry = since_entry
        if self.size == 0:
            self.first_timestamp = batches[0][3]
        self.size = end

    def _index(self, last_offset: int, position: int, max_timestamp: int) -> None:
        offset_index, time_index = self.offset_index, self.time_index
        offset_index.append(last_offset, position)
        time_index.maybe_append(max_timestamp, self.max_timestamp_offset)
        self.indexes_full = offset_index.is_full or time_index.is_full

    def _write_rest(self, fd: int, data: memoryview, position: int, written: int) -> None:
        while written < len(data):
            count = os.pwrite(fd, data[written:], position + written)
            if count == 0:
                raise OSError(errno.ENOSPC, "the file takes no more bytes")
            written += count

    def cut_back(self) -> None:
        """Removes what a failed write left after the end. Raises OSError."""
        file = self.file
        os.ftruncate(file.fileno(), self.size)
        keep(file)

    # -- timestamps

    @property
    def largest_noted_timestamp(self) -> int:
        """The highest timestamp of its batches (ms), -1 if none has one. Raises OSError."""
        if self.max_timestamp is None:
            last = self.time_index.last()
            if last is None:
                self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
            elif self._is_carried(*last):
                self.max_timestamp, self.max_timestamp_offset = last
            else:
                # Retention uses this timestamp, so the batches are read if the index entry is wrong.
                path = self.path(TIME_INDEX_SUFFIX)
                self.tell(
                    "index_damaged", path.name, path.stat().st_size, f"no batch has timestamp {last[0]}"
                )
                self._read_timestamps()
        return self.max_timestamp if self.max_timestamp is not None else NO_TIMESTAMP

    def _read_timestamps(self) -> None:
        self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        for _, header in self.sound_headers_for(self.base_offset - 1):
            self._note_timestamp(header)

    def _is_carried(self, timestamp: int, offset: int) -> bool:
        """Whether the batch that holds ``offset`` has ``timestamp``, as a time index entry claims."""
        try:
            found = self.find(offset)
        except DamagedError:
            return False
        return found is not None and found[1].base_offset <= offset and found[1].max_timestamp == timestamp

    def first_offset_for(self, timestamp: int) -> int:
        """An offset at or before the first record with a timestamp of at least ``timestamp``. It comes from
        an index entry that a batch confirms, or is the base offset.

        Raises OSError.
        """
        for noted, offset in self.time_index.candidates(timestamp):
            if self._is_carried(noted, offset):
                return offset
        return self.base_offset

    @property
    def largest_timestamp(self) -> int:
        """As :attr:`largest_noted_timestamp`, or the file's modification time if no batch has one."""
        noted = self.largest_noted_timestamp
        return noted if noted >= 0 else self.path(LOG_SUFFIX).stat().st_mtime_ns // 1_000_000

    def first_batch_timestamp(self) -> int | None:
        """The highest timestamp of the first batch; the segment's age counts from it."""
        if self.first_timestamp is None and self.size >= HEADER_BYTES:
            self.first_timestamp = self.header_at(0).max_timestamp
        return self.first_timestamp

    # -- reading

    def next_offset(self) -> int:
        """The offset after the last batch; the scan begins at the last valid index entry.

        Raises DamagedError if the last batch is damaged; damage before it is only logged.
        """
        next_offset = self.base_offset
        self.bytes_since_index_entry = 0
        if not self.size:
            return next_offset
        entry = self.last_sound_entry()
        if entry is None:  # every batch is read, so the time index is not needed
            self.max_timestamp, self.max_timestamp_offset = NO_TIMESTAMP, self.base_offset
        end = 0
        for position, header in self.sound_headers_from(0 if entry is None else entry[1]):
            next_offset = header.next_offset
            end = position + header.size_bytes
            self._note_timestamp(header)
            self.bytes_since_index_entry += header.size_bytes
        if end < self.size:
            raise DamagedError(self.path(LOG_SUFFIX), end, next_offset, "no whole batch follows")
        return next_offset

    def _note_timestamp(self, header: BatchHeader) -> None:
        if header.record_count and header.max_timestamp > self.largest_noted_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset

    # -- changing

    def truncate_to(self, offset: int) -> int:
        """Removes the batch that holds ``offset`` and all after it; returns the end offset of what remains.

        Raises OSError.
        """
        try:
            found = self.find(offset)
            start = None if found is None else (found[0], found[1].base_offset)
        except DamagedError as damage:
            self.tell_damage(damage)
            start = damage.position, damage.expected
        if start is not None:
            position, first_offset = start
            self.size = position
            self.offset_index.truncate_to(position)
            self.time_index.truncate_to(first_offset)
            self.txn_index.truncate_to(first_offset)
            file = self.file
            os.ftruncate(file.fileno(), position)
            keep(file)
            if position == 0:
                self.first_timestamp = None
            self.max_timestamp = None
        return self.next_offset()

    @property
    def has_indexes(self) -> bool:
        """Whether both index files exist; one without the other is useless."""
        return self.offset_index.file.exists and self.time_index.file.exists

    @property
    def has_waiting_entries(self) -> bool:
        """Whether index entries are only in memory; in an inactive segment only after a full disk."""
        return self.offset_index.file.has_pending or self.time_index.file.has_pending

    def become_inactive(self) -> None:
        """Adds the last time index entry and trims the indexes; a segment with batches then has index files.

        Raises OSError.
        """
        self.time_index.maybe_append(self.largest_noted_timestamp, self.max_timestamp_offset, force=True)
        # A compacted segment's indexes must replace those of its source segments, even if it is empty.
        make = self.size > 0 or bool(self.suffix)
        for index in (self.offset_index.file, self.time_index.file):
            index.trim(make=make)

    def write_indexes(self) -> None:
        """Writes the waiting index entries; called under the log's lock. Raises OSError."""
        self.offset_index.file.write_pending()
        self.time_index.file.write_pending()

    def sync(self) -> None:
        """Makes log and indexes durable; may run concurrently with appends, unlocked. Raises OSError."""
        self.offset_index.file.sync()
        self.time_index.file.sync()
        self.txn_index.sync()
        sync_data(self.file)
        self._sync_names()

    def _sync_names(self) -> None:
        """Syncs the directory if the log or an index is new in it."""
        indexes = self.offset_index.file, self.time_index.file, self.txn_index
        if self.dir_synced and all(index.name_synced for index in indexes):
            return
        # Set before the sync, so that an index created meanwhile is left to the next sync. The log was created
        # before; whoever asks for its name alone must see a sync that is done.
        for index in indexes:
            index.name_synced = True
        self.dir_synced = False
        sync_dir(self.dir)
        self.dir_synced = True

    def change_suffix(self, new_suffix: str) -> None:
        """Renames all its files, to ``.deleted``, ``.swap`` or no suffix. Raises OSError.

        A crash may leave some files unrenamed. The log file is therefore renamed last if the segment becomes
        visible, and first if it goes away: indexes without their log are ignored.
        """
        old = {kind: self.path(kind) for kind in SEGMENT_SUFFIXES}
        going = new_suffix == DELETED_SUFFIX
        self.suffix = new_suffix
        for kind in SEGMENT_SUFFIXES if going else reversed(SEGMENT_SUFFIXES):
            if old[kind].exists():
                old[kind].rename(self.path(kind))
        self._name_indexes()

    def follow(self, directory: Path) -> None:
        """Notes that its directory was renamed to ``directory``."""
        self.dir = directory
        self._name_indexes()

    def _name_indexes(self) -> None:
        self.offset_index.file.name = self.file_name(INDEX_SUFFIX)
        self.time_index.file.name = self.file_name(TIME_INDEX_SUFFIX)
        self.txn_index.name = self.file_name(TXN_INDEX_SUFFIX)

    def let_go_of_files(self) -> None:
        """Drops its open files; called under the log's lock, when it takes no more appends."""
        self.let_go_of_file()
        for index in (self.offset_index.file, self.time_index.file):
            index.let_go_of_file()

    def delete_files(self) -> None:
        """Unlinks all its files that exist."""
        for kind in SEGMENT_SUFFIXES:
            self.path(kind).unlink(missing_ok=True)


def base_offset_of(name: str) -> int | None:
    """The base offset of the segment whose ``.log`` has this file name; None if it is no segment's, such as a copy."""
    digits = name.removesuffix(LOG_SUFFIX)
    is_whole = len(digits) == _NAME_DIGITS and name.endswith(LOG_SUFFIX)
    return int(digits) if is_whole and digits.isascii() and digits.isdigit() else None


def set_limits(segments: Sequence[Segment]) -> None:
    """Sets each segment's limit to the base offset of the next one."""
    for segment, following in pairwise(segments):
        segment.limit = following.base_offset
    if segments:
        segments[-1].limit = segments[-1].base_offset + INT32_MAX + 1


def sync_dir(directory: Path) -> None:
    """Makes file creations and renames in ``directory`` durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        sync_all(fd)
    finally:
        os.close(fd)
