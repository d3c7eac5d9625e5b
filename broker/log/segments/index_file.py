"""A file of fixed-size, rising entries: what the offset and the time index have in common.

New entries wait in memory and are written a few at a time, for one write call per entry would cost the append
path more than the index is worth. That loses nothing: a log that was not closed cleanly rebuilds the indexes
past its recovery point, and they are written and synced before that point moves. A failed write keeps the
entries waiting, so a full disk never fails an append here.

Look-ups read the file. Kafka maps it into memory, but a page of a map that cannot be read ends the process (SIGBUS),
where a read is an error of one log directory.

The file is made with the first entry that is written, or when a segment that has batches rolls or closes: of thousands
of partitions most are idle, and Kafka, which makes it with the segment, makes one that is missing anew. While a segment
is active the file is preallocated (sparse), as Kafka does, and trimmed when it rolls or closes.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from struct import Struct

import structlog

_log = structlog.get_logger(__name__)
_PENDING_ENTRIES = 64
_TRIES = 16  # One damaged entry needs two.
_BLOCK_ENTRIES = 512  # Read at once: a page or two.


class IndexFile:
    """Entries of one ``struct``. Appends and truncation belong to the log's lock, and the descriptor with them; reads
    may race with them.
    """

    def __init__(
        self, path: str | Path, entry: Struct, max_bytes: int, *, among: Collection[str] | None = None
    ) -> None:
        """``among``: the names in its directory, by who has just listed them; then no look is needed for what is not
        there.
        """
        self.name = os.fspath(path)
        self._entry = entry
        self._size = entry.size
        self.max_entries = max_bytes // entry.size
        self._fd = -1
        self._preallocated = False
        self._write_failed = False
        # Whether its directory was synced since the file was made; told by who syncs.
        self.name_synced = True
        stored = 0
        self.exists = among is None or self.name.rpartition("/")[2] in among
        try:
            if self.exists:
                stored = os.stat(path).st_size // entry.size  # noqa: PTH116 - twice for each log at start-up
        except FileNotFoundError:
            self.exists = False
        # Entries in the file and the bytes of those after them: replaced together, for a look-up on another
        # thread reads both at once. Only appends change the bytearray in place.
        self._state = (stored, bytearray())

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
        """Whether the file ends in the middle of an entry; none does that a full disk kept from being made. Raises
        OSError.
        """
        return self.exists and os.stat(self.name).st_size % self._size != 0  # noqa: PTH116 - for each log at start-up

    @property
    def has_pending(self) -> bool:
        return bool(self._state[1])

    def entry(self, number: int) -> tuple[int, int]:
        """Entry ``number``, counted from 0. Raises IndexError or struct.error when there is none, OSError."""
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
        """How many entries have a ``field`` (0 or 1) of at most ``target``: they come first. Raises as ``entry``."""
        return self.search(field, target)[0]

    def last_at_most(self, field: int, target: int) -> tuple[int, int] | None:
        """The last entry whose ``field`` (0 or 1) is at most ``target``. Raises as ``entry``."""
        return self.search(field, target)[1]

    def down_from(self, field: int, target: int) -> Iterator[tuple[int, int]]:
        """As :meth:`last_at_most`, then that of the entries before it, and so on: where entries may be damaged, the
        search does not hold on to the wrong half of them. Few are given.
        """
        count, entry = self.search(field, target)
        for _ in range(_TRIES):
            if entry is None:
                return
            yield entry
            count, entry = self.search(field, target, count - 1)

    def search(self, field: int, target: int, below: int | None = None) -> tuple[int, tuple[int, int] | None]:
        """Both of the above, in one look-up, among all entries or the first ``below``."""
        stored, pending = self._state
        if below is not None:
            pending = pending[: max(below - stored, 0) * self._size]
            stored = min(stored, below)
        if pending and self._entry.unpack_from(pending)[field] <= target:
            count, last = self._search_block(pending, field, target)
            return stored + count, last
        if not stored:
            return 0, None
        low, high = 0, stored
        with self._reading() as fd:
            while high - low > _BLOCK_ENTRIES:
                middle = (low + high) // 2
                if self._entry.unpack(self._read(fd, middle, 1))[field] <= target:
                    low = middle
                else:
                    high = middle
            count, last = self._search_block(self._read(fd, low, high - low), field, target)
        return low + count, last

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
        """Adds an entry unless the file is full; the caller sees to it that entries rise."""
        stored, pending = self._state
        waiting = len(pending) // self._size
        if stored + waiting >= self.max_entries:
            return
        pending += self._entry.pack(first, second)
        if waiting + 1 >= _PENDING_ENTRIES:
            self._try_write()

    def truncate(self, entries: int) -> None:
        """Keeps the first ``entries``. The file shrinks when it is trimmed."""
        stored, pending = self._state
        if entries >= stored:
            self._state = (stored, pending[: (entries - stored) * self._size])
        else:
            self._state = (entries, bytearray())

    def write_pending(self) -> None:
        """Writes what waits. Raises OSError."""
        self._write(preallocate=True)

    def sync(self) -> None:
        """Makes what is written durable; may run beside appends. Raises OSError."""
        sync_file(self.name)

    def trim(self, *, make: bool = True) -> None:
        """Writes what waits and cuts the file to its entries; one that is not there is made when told to ``make`` it.
        Raises OSError.
        """
        self._write(preallocate=False)
        if not (make or self.exists):
            return
        os.ftruncate(self._open(), self._state[0] * self._size)
        self._preallocated = False
        self._close_fd()

    def reset(self) -> None:
        """Forgets all entries, in memory and on disk, where less than an entry is left: a file that was cut to nothing
        and written anew ext4 sends to the disk when it is closed, and a recovery does that to thousands.
        """
        self._state = (0, bytearray())
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
        # A descriptor of its own. The index's belongs to the log's lock, and a look-up that closed it would have the
        # next write go to whatever file got its number.
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

    def _close_fd(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def sync_file(path: str | Path) -> None:
    """Syncs the file at ``path`` when there is one: through a descriptor of its own. Raises OSError."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        os.fdatasync(fd)
    finally:
        os.close(fd)
