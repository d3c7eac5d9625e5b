"""The ``.txnindex`` file: the aborted transactions whose markers are in a segment.

An entry has 34 bytes: int16 version 0, int64 producer id, first offset, last offset (the marker's) and the
last stable offset at that time. The file is created with the first abort; most segments have none.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from operator import attrgetter
from pathlib import Path
from struct import Struct
from typing import Final

from broker.log.results import AbortedTransaction
from broker.log.segments.index_file import sync_file

_ENTRY: Final = Struct(">hqqqq")
ENTRY_BYTES: Final = _ENTRY.size
VERSION: Final = 0
# A look-up reads so many bytes at once. An index of this size is read from its begin: a damaged entry then
# hides no other.
_CHUNK_BYTES: Final = 2_000 * ENTRY_BYTES
_TEMPORARY_SUFFIX: Final = ".tmp"  # that of sealed_file: what a crash leaves is removed by the next load


class TransactionIndex:
    """The transaction index of a segment; Kafka's TransactionIndex. Entries rise by their last offset.

    Invariant: ``size``, the bytes of all whole entries, is known without the disk, so a fetch from a log without
    aborted transactions opens no file. Changed under the log's lock; look-ups may race with appends.
    """

    __slots__ = ("name", "name_synced", "size")

    def __init__(self, path: str | Path, *, among: Collection[str] | None = None) -> None:
        """``among``: the file names in the directory, if the caller has just listed them. Raises OSError."""
        self.name = os.fspath(path)
        #: Whether a new file's name in the directory is durable. False until the next sync of the directory.
        self.name_synced = True
        self.size = 0
        if among is None or os.path.basename(self.name) in among:  # noqa: PTH119 - at each start
            with suppress(FileNotFoundError):
                size = os.stat(self.name).st_size  # noqa: PTH116 - the same
                self.size = size - size % ENTRY_BYTES

    @property
    def path(self) -> Path:
        return Path(self.name)

    def entries(self) -> list[AbortedTransaction]:
        """All entries, without a torn last one. A missing file gives []. Raises OSError."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        return list(_decoded(data[: len(data) - len(data) % ENTRY_BYTES]))

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry; a torn last entry is overwritten. Raises OSError."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(fd).st_size
            if not size:
                self.name_synced = False
            data, position = _ENTRY.pack(VERSION, *aborted), size - size % ENTRY_BYTES
            if os.pwrite(fd, data, position) < len(data):
                raise OSError(errno.ENOSPC, f"no room for an entry of {self.path}")
        finally:
            os.close(fd)
        self.size = position + ENTRY_BYTES

    def insert(self, aborted: AbortedTransaction) -> None:
        """Adds an entry in its place, unless its marker has one. After a loss of power the file is the old or the new
        one. Raises OSError.
        """
        entries = self.entries()
        if any(entry.last_offset == aborted.last_offset for entry in entries):
            return
        entries.append(aborted)
        entries.sort(key=attrgetter("last_offset"))
        replacement = Path(self.name + _TEMPORARY_SUFFIX)
        replacement.write_bytes(b"".join(_ENTRY.pack(VERSION, *entry) for entry in entries))
        sync_file(replacement)
        replacement.replace(self.path)
        self.name_synced = False
        self.size = len(entries) * ENTRY_BYTES

    def collect(self, first_offset: int, end_offset: int, into: list[AbortedTransaction]) -> bool:
        """Adds the transactions with a record in ``[first_offset, end_offset)``. True if later segments have
        no more of them.

        Raises OSError, also if the file was renamed meanwhile.
        """
        size = self.size
        if not size:
            return False
        fd = os.open(self.name, os.O_RDONLY | os.O_CLOEXEC)
        try:
            position = _place_of(fd, size, first_offset) if size > _CHUNK_BYTES else 0
            while position < size:
                data = os.pread(fd, min(_CHUNK_BYTES, size - position), position)
                if not data:
                    break
                position += len(data)
                for aborted in _decoded(data[: len(data) - len(data) % ENTRY_BYTES]):
                    if aborted.last_offset >= first_offset and aborted.first_offset < end_offset:
                        into.append(aborted)
                    # Transactions that end later also began after this point.
                    if aborted.last_stable_offset >= end_offset:
                        return True
        finally:
            os.close(fd)
        return False

    def truncate_to(self, offset: int) -> None:
        """Drops the first entry whose marker is at ``offset`` or later and all after it. After a power loss, zeros may
        follow it.
        """
        self.keep_while(lambda aborted: aborted.last_offset < offset)

    def keep_while(self, is_sound: Callable[[AbortedTransaction], bool]) -> None:
        """Drops the first entry that is not sound and all after it; a power loss may tear the last ones."""
        for number, aborted in enumerate(self.entries()):
            if not is_sound(aborted):
                self._cut_to(number)
                return

    def _cut_to(self, count: int) -> None:
        os.truncate(self.path, count * ENTRY_BYTES)
        self.size = count * ENTRY_BYTES

    def reset(self) -> None:
        self.path.unlink(missing_ok=True)
        self.size = 0

    def sync(self) -> None:
        """Makes the file durable. Raises OSError."""
        sync_file(self.path)


def _decoded(data: bytes) -> Iterator[AbortedTransaction]:
    return (AbortedTransaction._make(fields[1:]) for fields in _ENTRY.iter_unpack(data))


def _place_of(fd: int, size: int, offset: int) -> int:
    """Where the first entry stands whose marker is not below ``offset``."""
    low, high = 0, size // ENTRY_BYTES
    while low < high:
        middle = (low + high) // 2
        aborted = next(_decoded(os.pread(fd, ENTRY_BYTES, middle * ENTRY_BYTES)), None)
        if aborted is None or aborted.last_offset >= offset:
            high = middle
        else:
            low = middle + 1
    return low * ENTRY_BYTES
