"""One segment: a ``.log`` file of batches with its indexes.

Writes by position, so that what a failed write left behind is overwritten or cut off, and never read: readers
go by ``size``, which moves after the write. Knows nothing of epochs, producers or the high watermark.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator, Sequence
from io import FileIO
from pathlib import Path

from broker.log.offset_index import OffsetIndex
from broker.log.time_index import TimeIndex
from broker.log.txn_index import TransactionIndex
from broker.record.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, BatchHeader, read_header

LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX = ".log", ".index", ".timeindex", ".txnindex"
DELETED_SUFFIX = ".deleted"
SEGMENT_SUFFIXES = (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX, TXN_INDEX_SUFFIX)
INT32_MAX = (1 << 31) - 1
_SCAN_BYTES = 8192
_opening = threading.Lock()

# (base offset, last offset, bytes, max timestamp) of a batch that is appended
AppendedBatch = tuple[int, int, int, int]


class SegmentFile(FileIO):
    """A file that closes itself, without complaint, when its last holder lets go.

    Nobody may close it by hand: a region of it may be on its way to a socket, and its number would be reused.
    """

    def __del__(self) -> None:
        self.close()


class Segment:
    """Kafka's LogSegment. All that changes it happens under the log's lock; reads may race with appends."""

    __slots__ = (
        "_file",
        "base_offset",
        "bytes_since_index_entry",
        "created_ms",
        "dir",
        "dir_synced",
        "first_timestamp",
        "index_max_bytes",
        "indexes_full",
        "max_timestamp",
        "max_timestamp_offset",
        "offset_index",
        "size",
        "suffix",
        "time_index",
        "txn_index",
    )

    def __init__(
        self, directory: Path, base_offset: int, index_max_bytes: int, created_ms: int, suffix: str = ""
    ) -> None:
        self.dir = directory
        self.base_offset = base_offset
        self.index_max_bytes = index_max_bytes
        self.created_ms = created_ms
        self.suffix = suffix
        self._file: SegmentFile | None = None
        self.size = 0
        self.max_timestamp: int | None = None
        self.max_timestamp_offset = base_offset
        self.first_timestamp: int | None = None
        self.bytes_since_index_entry = 0
        self.dir_synced = True
        self._open_indexes()
        self.indexes_full = False

    def _open_indexes(self) -> None:
        base = self.base_offset
        self.offset_index = OffsetIndex(self.path(INDEX_SUFFIX), base, self.index_max_bytes)
        self.time_index = TimeIndex(self.path(TIME_INDEX_SUFFIX), base, self.index_max_bytes)
        self.txn_index = TransactionIndex(self.path(TXN_INDEX_SUFFIX))

    @classmethod
    def create(
        cls, directory: Path, base_offset: int, index_max_bytes: int, now_ms: int, suffix: str = ""
    ) -> Segment:
        """A new, empty, active segment; whatever files had its names are replaced. Raises OSError."""
        segment = cls(directory, base_offset, index_max_bytes, now_ms, suffix)
        for name in SEGMENT_SUFFIXES:
            segment.path(name).unlink(missing_ok=True)
        segment._file = SegmentFile(segment.path(LOG_SUFFIX), "x+")
        segment._open_indexes()
        segment.max_timestamp = -1
        segment.dir_synced = False
        return segment

    @classmethod
    def open(cls, directory: Path, base_offset: int, index_max_bytes: int, suffix: str = "") -> Segment:
        """A segment that is on disk. Its files are opened when they are needed first."""
        segment = cls(directory, base_offset, index_max_bytes, 0, suffix)
        stat = segment.path(LOG_SUFFIX).stat()
        segment.size = stat.st_size
        segment.created_ms = stat.st_mtime_ns // 1_000_000
        return segment

    def __repr__(self) -> str:
        return f"<Segment {self.path(LOG_SUFFIX).name} {self.size} bytes>"

    def path(self, kind: str) -> Path:
        """The file of ``kind`` (a suffix such as ``.log``) under the segment's present name."""
        return self.dir / f"{self.base_offset:020d}{kind}{self.suffix}"

    @property
    def file(self) -> SegmentFile:
        file = self._file
        return self._open_file() if file is None else file

    def _open_file(self) -> SegmentFile:
        # Once only: had two threads opened it, the one file would close as the other replaced it, and its number be
        # another file's by the time that its finder reads or writes there.
        with _opening:
            if self._file is None:
                self._file = SegmentFile(self.path(LOG_SUFFIX), "r+")
            return self._file

    # -- appending ---------------------------------------------------------------------------------

    def append(self, data: memoryview, batches: Sequence[AppendedBatch], index_interval_bytes: int) -> None:
        """Writes ``data``, which holds exactly ``batches``, at the end. Raises OSError and is then as
        before.
        """
        position = self.size
        end = position + len(data)
        fd = self.file.fileno()
        written = os.pwrite(fd, data, position)
        if position + written < end:
            self._write_rest(fd, data, position, written)
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
        """Removes what a failed write left behind the end. Raises OSError."""
        os.ftruncate(self.file.fileno(), self.size)

    # -- what the segment knows --------------------------------------------------------------------

    @property
    def largest_noted_timestamp(self) -> int:
        """Highest timestamp of its batches (ms), -1 when none has one."""
        if self.max_timestamp is None:
            last = self.time_index.last()
            self.max_timestamp, self.max_timestamp_offset = (
                last if last is not None else (-1, self.base_offset)
            )
        return self.max_timestamp

    @property
    def largest_timestamp(self) -> int:
        """As :attr:`largest_noted_timestamp`, or the file's time of change when its batches have none."""
        noted = self.largest_noted_timestamp
        return noted if noted >= 0 else self.path(LOG_SUFFIX).stat().st_mtime_ns // 1_000_000

    def first_batch_timestamp(self) -> int | None:
        """Highest timestamp of the first batch, by which the segment's age is counted."""
        if self.first_timestamp is None and self.size >= HEADER_BYTES:
            self.first_timestamp = self.header_at(0).max_timestamp
        return self.first_timestamp

    # -- reading -----------------------------------------------------------------------------------

    def header_at(self, position: int) -> BatchHeader:
        """The batch header at ``position``, which must be one's. Raises struct.error behind the end,
        OSError.
        """
        return read_header(os.pread(self.file.fileno(), HEADER_BYTES, position))

    def headers_from(self, position: int) -> Iterator[tuple[int, BatchHeader]]:
        """``(position, header)`` of the batches from ``position`` to the end, read a few KiB at a time."""
        fd = self.file.fileno()
        end = self.size
        chunk, chunk_start, size = b"", position, 0
        while position + HEADER_BYTES <= end:
            if position + HEADER_BYTES > chunk_start + len(chunk):
                # What lies behind the header is of use only where batches are small.
                wanted = _SCAN_BYTES if size < _SCAN_BYTES else HEADER_BYTES
                chunk, chunk_start = os.pread(fd, wanted, position), position
                if len(chunk) < HEADER_BYTES:
                    return
            header = read_header(chunk, position - chunk_start)
            size = header.length + LOG_OVERHEAD_BYTES
            if size < HEADER_BYTES or size > end - position:
                return
            yield position, header
            position += size

    def find(self, offset: int) -> tuple[int, BatchHeader] | None:
        """The first batch whose last offset is at least ``offset``, with its position; None: all are
        lower.
        """
        for position, header in self.headers_from(self.offset_index.lookup(offset)):
            if header.last_offset >= offset:
                return position, header
        return None

    def read_batches(self, position: int, end: int) -> memoryview:
        """The bytes from ``position`` to ``end``, less where the file is shorter."""
        return memoryview(os.pread(self.file.fileno(), end - position, position))

    def next_offset(self) -> int:
        """The offset after the last batch, found from the last index entry on."""
        last = self.offset_index.last()
        next_offset = self.base_offset
        self.bytes_since_index_entry = 0
        for _, header in self.headers_from(last[1] if last is not None else 0):
            next_offset = header.next_offset
            self._note_timestamp(header)
            self.bytes_since_index_entry += header.size_bytes
        return next_offset

    def _note_timestamp(self, header: BatchHeader) -> None:
        if header.record_count and header.max_timestamp > self.largest_noted_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_offset = header.last_offset

    # -- changing ----------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> int:
        """Removes the batch that holds ``offset`` and all after it; the offset after what stays.

        Raises OSError.
        """
        found = self.find(offset)
        if found is not None:
            position, header = found
            self.size = position
            self.offset_index.truncate_to(position)
            self.time_index.truncate_to(header.base_offset)
            self.txn_index.truncate_to(header.base_offset)
            os.ftruncate(self.file.fileno(), position)
            if position == 0:
                self.first_timestamp = None
            self.max_timestamp = None
        return self.next_offset()

    @property
    def has_waiting_entries(self) -> bool:
        """Whether index entries are in memory alone; of a segment that is not active only after a full disk."""
        return self.offset_index.file.has_pending or self.time_index.file.has_pending

    def become_inactive(self) -> None:
        """Forces the last time index entry and trims the indexes. Raises OSError."""
        self.time_index.maybe_append(self.largest_noted_timestamp, self.max_timestamp_offset, force=True)
        self.offset_index.file.trim()
        self.time_index.file.trim()

    def preallocate_indexes(self) -> None:
        for index in (self.offset_index.file, self.time_index.file):
            index.preallocate()
            index.let_go()

    def write_indexes(self) -> None:
        """Writes the index entries that wait, under the log's lock. Raises OSError."""
        self.offset_index.file.write_pending()
        self.time_index.file.write_pending()

    def sync(self) -> None:
        """Makes log and indexes durable; may run beside appends, without the lock. Raises OSError."""
        self.offset_index.file.sync()
        self.time_index.file.sync()
        self.txn_index.sync()
        os.fdatasync(self.file.fileno())
        if not self.dir_synced:
            sync_dir(self.dir)
            self.dir_synced = True

    def change_suffix(self, new_suffix: str) -> None:
        """Renames all its files, as ``.deleted``, ``.swap`` or none. Raises OSError.

        A crash may leave some of them behind, so the log goes last where it is what the others are waited for, and
        first where it goes away: indexes without their log are nothing.
        """
        old = {kind: self.path(kind) for kind in SEGMENT_SUFFIXES}
        going = new_suffix == DELETED_SUFFIX
        self.suffix = new_suffix
        for kind in SEGMENT_SUFFIXES if going else reversed(SEGMENT_SUFFIXES):
            if old[kind].exists():
                old[kind].rename(self.path(kind))
        self._name_indexes()

    def follow(self, directory: Path) -> None:
        """Takes note that its directory was renamed to ``directory``."""
        self.dir = directory
        self._name_indexes()

    def _name_indexes(self) -> None:
        self.offset_index.file.path = self.path(INDEX_SUFFIX)
        self.time_index.file.path = self.path(TIME_INDEX_SUFFIX)
        self.txn_index.path = self.path(TXN_INDEX_SUFFIX)

    def delete_files(self) -> None:
        """Unlinks all its files, those that are there."""
        for kind in SEGMENT_SUFFIXES:
            self.path(kind).unlink(missing_ok=True)


def sync_dir(directory: Path) -> None:
    """Makes creations and renames in ``directory`` durable. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
