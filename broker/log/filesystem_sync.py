"""Syncs files, directories and whole file systems, and tells a sync that failed from all other errors.

Never compiled: mypyc's classes may not inherit from OSError.
"""

from __future__ import annotations

import os
from io import FileIO
from pathlib import Path


class NotSyncedError(OSError):
    """The kernel could not write what was to be synced. It tells so once, by any errno, and may have dropped the
    pages: the next sync would succeed without them.
    """


def sync_data(file: FileIO | int) -> None:
    """Syncs a file's data and size (fdatasync). Raises NotSyncedError. Of a file that another thread may let go of, it
    takes the file itself, and holds it meanwhile.
    """
    try:
        os.fdatasync(file if isinstance(file, int) else file.fileno())
    except OSError as error:
        raise NotSyncedError(error.errno, error.strerror) from error


def sync_all(fd: int) -> None:
    """Syncs a file or a directory (fsync). Raises NotSyncedError."""
    try:
        os.fsync(fd)
    except OSError as error:
        raise NotSyncedError(error.errno, error.strerror) from error


def sync_filesystem(directory: Path) -> None:
    """Syncs the file system that holds ``directory`` in one call, where a sync of each file would take seconds (Linux's
    syncfs). Raises NotSyncedError, or OSError if the directory cannot be opened.
    """
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        if libc.syncfs(fd) != 0:
            error = ctypes.get_errno()
            raise NotSyncedError(error, os.strerror(error), str(directory))
    finally:
        os.close(fd)
