"""The ``.txnindex`` file: the aborted transactions whose markers are in a segment.

An entry has 34 bytes: int16 version 0, int64 producer id, first offset, last offset (the marker's) and the
last stable offset at that time. The file is created with the first abort; most segments have none.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from struct import Struct

from broker.log.results import AbortedTransaction
from broker.log.segments.index_file import sync_file

_ENTRY = Struct(">hqqqq")
ENTRY_BYTES = _ENTRY.size
VERSION = 0


class TransactionIndex:
    """The transaction index of a segment; Kafka's TransactionIndex. Entries rise by their last offset. The
    file is small, so each look-up reads all of it.
    """

    def __init__(self, path: str | Path) -> None:
        self.name = os.fspath(path)

    @property
    def path(self) -> Path:
        return Path(self.name)

    def entries(self) -> list[AbortedTransaction]:
        """All entries, without a torn last one. A missing file gives []. Raises OSError."""
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return []
        whole = len(data) - len(data) % _ENTRY.size
        return [AbortedTransaction._make(fields[1:]) for fields in _ENTRY.iter_unpack(data[:whole])]

    def append(self, aborted: AbortedTransaction) -> None:
        """Adds an entry; a torn last entry is overwritten. Raises OSError."""
        fd = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            size = os.fstat(fd).st_size
            data = _ENTRY.pack(VERSION, *aborted)
            if os.pwrite(fd, data, size - size % _ENTRY.size) < len(data):
                raise OSError(errno.ENOSPC, f"no room for an entry of {self.path}")
        finally:
            os.close(fd)

    def overlapping(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """The transactions with a record in ``[first_offset, end_offset)``."""
        return [
            aborted
            for aborted in self.entries()
            if aborted.last_offset >= first_offset and aborted.first_offset < end_offset
        ]

    def truncate_to(self, offset: int) -> None:
        """Drops the entries whose marker is at ``offset`` or later."""
        entries = self.entries()
        keep = [aborted for aborted in entries if aborted.last_offset < offset]
        if len(keep) < len(entries):
            os.truncate(self.path, len(keep) * _ENTRY.size)

    def keep_while(self, is_sound: Callable[[AbortedTransaction], bool]) -> None:
        """Drops the first entry that is not sound and all after it; a power loss may tear the last ones."""
        entries = self.entries()
        for number, aborted in enumerate(entries):
            if not is_sound(aborted):
                os.truncate(self.path, number * _ENTRY.size)
                return

    def reset(self) -> None:
        self.path.unlink(missing_ok=True)

    def sync(self) -> None:
        """Makes the file durable. Raises OSError."""
        sync_file(self.path)
