"""A file of fixed-size, rising entries; the common part of the offset index and the time index.

New entries wait in memory and are written in groups, because one write call per entry would cost the append
path too much. No entry is lost: a log that was not closed cleanly rebuilds the indexes past its recovery
point, and they are written and synced before that point moves. A failed write keeps the entries waiting, so a
full disk never fails an append here.

Look-ups read the file. Kafka maps it into memory, but a mapped page that cannot be read ends the process
(SIGBUS), while a failed read is an error of one log directory. Who reads a log from its beginning asks for one
entry after the other, so the blocks that were read last are kept.

The file is created when the first entry is written, or when a segment with batches rolls or closes. Most of
thousands of partitions are idle. Kafka creates the file with the segment, and recreates a missing one. The
file of an active segment is preallocated (sparse), as in Kafka, and trimmed when the segment rolls or closes.
"""

from __future__ import annotations

import errno
import itertools
import os
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct
from typing import Final

import structlog

from broker.log.filesystem_sync import sync_data

_log = structlog.get_logger(__name__)
_PENDING_ENTRIES: Final = 64
_TRIES: Final = 16  # one damaged entry needs two
_BLOCK_ENTRIES: Final = 512  # read at once: a page or two
# Of all indexes together: at most 744 KiB. Each place has a few blocks, as readers may be at several positions of one
# index; indexes that share a place displace each other's. The places are a prime, because a segment makes several
# indexes at once: all of them are used.
_PLACES: Final = 31
_BLOCKS_EACH: Final = 4
_Kept = tuple[int, int, bytes]  # whose, the number of its first entry, and the block
_kept: Final[dict[int, tuple[_Kept, ...]]] = {}  # by place, the newest block first
_serials = itertools.count(1)

Entry = tuple[int, int]
Around = tuple[Entry | None, Entry | None, Entry | None]


class IndexFile:
    """A file of entries of one ``struct``. Appends, truncation and the descriptor are guarded by the log's
    lock; reads may race with them.
    """

    def __init__(
        self, path: str | Path, entry: Struct, max_bytes: int, *, among: Collection[str] | None = None
    ) -> None:
        """``among``: the directory's file names, if the caller just listed them; saves a stat of
        missing files.
        """
        self.name = os.fspath(path)
        self._entry = entry
        self._size = entry.size
        self.max_entries = max_bytes // entry.size
        self._fd = -1
        self._preallocated = False
        self._write_failed = False
        # Whether the directory was synced since the file was created; set by the thread that syncs.
        self.name_synced = True
        stored = 0
        self.exists = among is None or self.name.rpartition("/")[2] in among
        try:
            if self.exists:
                stored = os.stat(path).st_size // entry.size  # noqa: PTH116 - twice for each log at start-up
        except FileNotFoundError:
            self.exists = False
        # The number of entries in the file, and the bytes of those after them. They are replaced together,
        # because a look-up on another thread reads both at once. Only appends change the bytearray in place.
        self._state = (stored, bytearray())
        # Whose a kept block is. It changes when stored entries are removed, and after the state: a look-up reads
        # it before the state, so no block with removed entries is kept under the new one.
        self._serial = next(_serials)

    @property
    def path(self) -> Path:
        return Path(self.name)

    def __len__(self) -> int:
        stored, pending = self._state
        return stored + len(pending) // self._size

    def __del__(self) -> None:
        if hasattr(self, "_fd"):
            self._close_fd()

    @property
    def is_full(self) -> bool:
        stored, pending = self._state
        return stored + len(pending) // self._size >= self.max_entries

    @property
    def is_torn(self) -> bool:
        """Whether the file ends in the middle of an entry; False if it does not exist. Raises OSError."""
        return self.exists and os.stat(self.name).st_size % self._size != 0  # noqa: PTH116 - for each log at start-up

    @property
    def has_pending(self) -> bool:
        return bool(self._state[1])

    def entry(self, number: int) -> tuple[int, int]:
        """Entry ``number``, counted from 0. Raises IndexError or struct.error if there is none, OSError."""
        stored, pending = self._state
        if number >= stored:
            first, second = self._entry.unpack_from(pending, (number - stored) * self._size)
        else:
            with self._reading() as fd:
                first, second = self._entry.unpack(self._read(fd, number, 1))
        return first, second

    def __iter__(self) -> Iterator[tuple[int, int]]:
        stored, pending = self._state
        for start in range(0, stored, _BLOCK_ENTRIES):
            with self._reading() as fd:
                block = self._read(fd, start, min(_BLOCK_ENTRIES, stored - start))
            yield from self._entry.iter_unpack(block)
        yield from self._entry.iter_unpack(bytes(pending))

    def count_at_most(self, field: int, target: int) -> int:
        """How many leading entries have a ``field`` (0 or 1) of at most ``target``. Raises as ``entry``.

        Nobody confirms a number, so the file is searched: a kept block may have been found by a damaged entry.
        """
        return self.search(field, target, len(self))[0]

    def last_at_most(self, field: int, target: int) -> tuple[int, int] | None:
        """The last entry whose ``field`` (0 or 1) is at most ``target``. Raises as ``entry``."""
        return self.search(field, target)[1]

    def down_from(self, field: int, target: int) -> Iterator[tuple[int, int]]:
        """As :meth:`last_at_most`, then the same search among the entries before the result, and so on, a few
        times. If entries are damaged, one search may have followed the wrong half of them.
        """
        count, entry = self.search(field, target)
        for _ in range(_TRIES):
            if entry is None:
                return
            yield entry
            count, entry = self.search(field, target, count - 1)

    def around(self, field: int, target: int) -> Around | None:
        """The last entry whose ``field`` is at most ``target``, and the two after it; None if the file would have to
        be read for that.
        """
        serial = self._serial
        stored, pending = self._state
        if stored and not (pending and self._entry.unpack_from(pending)[field] <= target):
            kept = self._kept_block(serial, stored, field, target)
            if kept is None:
                return None
            low, block = kept
            count, last = self._search_block(block, field, target)
            held = len(block) // self._size
            if count + 1 >= held and low + held < stored:
                return None
            after = self._entry_in(block, count) or self._entry_in(pending, count - held)
            return last, after, self._entry_in(block, count + 1) or self._entry_in(pending, count + 1 - held)
        count, last = self._search_block(pending, field, target)
        return last, self._entry_in(pending, count), self._entry_in(pending, count + 1)

    def _entry_in(self, entries: bytes | bytearray, number: int) -> Entry | None:
        if (number + 1) * self._size > len(entries):
            return None
        first, second = self._entry.unpack_from(entries, number * self._size)
        return first, second

    def search(self, field: int, target: int, below: int | None = None) -> tuple[int, tuple[int, int] | None]:
        """The results of both methods above in one look-up, among all entries or the first ``below``."""
        serial = self._serial
        stored, pending = self._state
        if below is not None:
            kept_bytes = max(below - stored, 0) * self._size
            pending = pending[:kept_bytes]
            stored = min(stored, below)
        if pending and self._entry.unpack_from(pending)[field] <= target:
            count, last = self._search_block(pending, field, target)
            return stored + count, last
        if not stored:
            return 0, None
        if below is None:
            kept = self._kept_block(serial, stored, field, target)
            if kept is not None:
                count, last = self._search_block(kept[1], field, target)
                return kept[0] + count, last
        low, high = 0, stored
        with self._reading() as fd:
            while high - low > _BLOCK_ENTRIES:
                middle = (low + high) // 2
                if self._entry.unpack(self._read(fd, middle, 1))[field] <= target:
                    low = middle
                else:
                    high = middle
            block = self._read(fd, low, high - low)
        if below is None:
            others = [each for each in _kept.get(serial % _PLACES, ()) if each[:2] != (serial, low)]
            _kept[serial % _PLACES] = ((serial, low, block), *others[: _BLOCKS_EACH - 1])
        count, last = self._search_block(block, field, target)
        return low + count, last

    def _kept_block(self, serial: int, stored: int, field: int, target: int) -> tuple[int, bytes] | None:
        """The block that was read last of those in which the last entry up to ``target`` lies, or which show that there
        is none, and the number of its first entry; None if there is no such block.
        """
        unpack, size = self._entry.unpack_from, self._size
        for whose, low, block in _kept.get(serial % _PLACES, ()):
            if whose != serial or (low and unpack(block)[field] > target):
                continue
            high = low + len(block) // size
            if high >= stored or unpack(block, len(block) - size)[field] > target:
                return low, block
        return None

    def _search_block(
        self, entries: bytes | bytearray, field: int, target: int
    ) -> tuple[int, tuple[int, int] | None]:
        unpack, size = self._entry.unpack_from, self._size
        numbers = range(len(entries) // size)
        count = bisect_right(numbers, target, key=lambda number: unpack(entries, number * size)[field])
        if not count:
            return 0, None
        first, second = unpack(entries, (count - 1) * size)
        return count, (first, second)

    def append(self, first: int, second: int) -> None:
        """Adds an entry unless the file is full; the caller ensures that entries rise."""
        stored, pending = self._state
        waiting = len(pending) // self._size
        if stored + waiting >= self.max_entries:
            return
        pending += self._entry.pack(first, second)
        if waiting + 1 >= _PENDING_ENTRIES:
            self._try_write()

    def truncate(self, entries: int) -> None:
        """Keeps the first ``entries`` entries. The file shrinks when it is trimmed."""
        stored, pending = self._state
        if entries >= stored:
            self._state = (stored, pending[: (entries - stored) * self._size])
        else:
            self._state = (entries, bytearray())
            self._serial = next(_serials)

    def write_pending(self) -> None:
        """Writes the waiting entries. Raises OSError."""
        self._write(preallocate=True)

    def sync(self) -> None:
        """Makes the written entries durable; may run concurrently with appends. Raises OSError."""
        sync_file(self.name)

    def trim(self, *, make: bool = True) -> None:
        """Writes the waiting entries and cuts the file to its entries.

        ``make``: also creates a missing file. Raises OSError.
        """
        self._write(preallocate=False)
        if not (make or self.exists):
            return
        os.ftruncate(self._open(), self._state[0] * self._size)
        self._preallocated = False
        self._close_fd()

    def reset(self) -> None:
        """Removes all entries, in memory and on disk, but leaves one byte, which is less than an entry.

        When a file that was truncated to zero and rewritten is closed, ext4 writes it to disk. A recovery
        would cause that for thousands of files.
        """
        self._state = (0, bytearray())
        self._serial = next(_serials)
        if self.exists:
            os.ftruncate(self._open(), 1)
        self._preallocated = False

    def _try_write(self) -> None:
        try:
            self._write(preallocate=True)
            self._write_failed = False
        except OSError as error:
            if not self._write_failed:
                self._write_failed = True
                _log.warning("index_write_failed", file=str(self.path), error=str(error), kept="in memory")

    def _write(self, *, preallocate: bool) -> None:
        stored, pending = self._state
        if not pending:
            return
        if preallocate and not self._preallocated:
            os.ftruncate(self._open(), self.max_entries * self._size)
            self._preallocated = True
        written = os.pwrite(self._open(), pending, stored * self._size)
        whole = written // self._size
        self._state = (stored + whole, pending[whole * self._size :])
        if self._state[1]:
            raise OSError(
                errno.ENOSPC, f"only {written} of {len(pending)} bytes could be written to {self.path}"
            )

    @contextmanager
    def _reading(self) -> Iterator[int]:
        # This look-up has its own descriptor. The index's one is guarded by the log's lock. If a look-up
        # closed it, the next write would go to whatever file had got its number.
        fd = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            yield fd
        finally:
            os.close(fd)

    def _read(self, fd: int, first: int, count: int) -> bytes:
        found = os.pread(fd, count * self._size, first * self._size)
        if len(found) < count * self._size:
            raise IndexError(f"{self.path} has no {first + count} entries: it was cut meanwhile")
        return found

    def _open(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self.name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            if not self.exists:
                self.exists, self.name_synced = True, False
        return self._fd

    def let_go_of_file(self) -> None:
        """Closes the file; a later write opens it again."""
        self._close_fd()

    def _close_fd(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def sync_file(path: str | Path) -> None:
    """Syncs the file at ``path``, if it exists, through a separate descriptor. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        sync_data(fd)
    finally:
        os.close(fd)
