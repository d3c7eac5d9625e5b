"""The lock of a log directory: Kafka's file ``.lock``, held by the process whose broker uses the directory.

This module imports little, because ``landline deregister`` uses it to find out whether a broker is alive.
LogDir decides when a directory is locked.
"""

from __future__ import annotations

import fcntl
import os
import struct
from pathlib import Path

LOCK_FILE = ".lock"
_FLOCK = struct.Struct("@hhqqi")  # Linux's struct flock: type, whence, start, length, pid


def take_lock(directory: Path) -> int:
    """Locks the directory and returns the descriptor, which holds the lock until it is closed.

    Takes both of Linux's lock types: flock, and the record lock that Apache Kafka uses. Raises
    BlockingIOError if another process holds one of them, OSError if the file cannot be opened.
    """
    fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise BlockingIOError(error.errno, "locked by another process", str(directory)) from error
    return fd


def is_locked(directory: Path) -> bool:
    """Whether a living process uses the directory. Takes no record lock, and works on a read-only disk.

    Raises OSError if that cannot be determined. Do not call it in the process that holds the lock: closing
    any descriptor of the file releases the record lock.
    """
    try:
        fd = os.open(directory / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        found = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wanted))[0]
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return bool(found != fcntl.F_UNLCK)
