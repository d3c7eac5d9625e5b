"""A segment's open file.

Never compiled: mypyc's classes may not inherit from a type of C's (its object would overlap FileIO's), and nothing
refers to them weakly.
"""

from __future__ import annotations

import os
import threading
from contextlib import suppress
from io import FileIO
from queue import SimpleQueue

# Closed by a thread of their own. The queue's ``put`` may be called in the middle of anything, as ``__del__`` is.
_nameless: SimpleQueue[int] = SimpleQueue()
_closer: list[threading.Thread] = []


class SegmentFile(FileIO):
    """A file that closes itself silently when its last reference goes.

    Never close it explicitly: a region of it may be on its way to a socket, and its descriptor would be
    reused. For the same reason, hold the file while you use its descriptor: the segment may drop the file at
    any time.

    If it was deleted, its blocks are freed as it closes, which takes 0.3 ms for each MiB, and any thread may have the
    last reference. So another one closes it once :func:`close_deleted_apart` was called.
    """

    def __del__(self) -> None:
        if _closer and not self.closed:
            with suppress(OSError):  # no descriptor is left: it is closed here
                fd = self.fileno()
                if os.fstat(fd).st_nlink == 0:
                    _nameless.put(os.dup(fd))
        self.close()


def close_deleted_apart() -> None:
    """Starts the thread that closes deleted files, unless there is one: it serves the whole process."""
    if not _closer:
        thread = threading.Thread(
            target=_close_all, args=(_nameless,), name="deleted-file-closer", daemon=True
        )
        thread.start()
        _closer.append(thread)


def _close_all(descriptors: SimpleQueue[int]) -> None:
    while True:
        fd = descriptors.get()
        with suppress(OSError):  # it is closed in any case
            os.close(fd)


class FileSlot:
    """Where a segment has its file while it is open. ``stays``: until it is let go of; else the file is closed when
    too many are open.
    """

    __slots__ = ("__weakref__", "file", "stays")

    def __init__(self) -> None:
        self.file: SegmentFile | None = None
        self.stays = False
