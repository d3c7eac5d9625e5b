"""Drops files from the kernel's page cache, and verifies that they left it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from rig.wait import wait_until

DROP_TIMEOUT_S = 10.0


def drop_from_cache(files: Iterable[Path]) -> None:
    """Writes the files to disk and drops their pages; raises TimeoutError when they stay in the cache.

    The kernel keeps pages for a moment while another processor still holds them.
    """
    for file in files:
        fd = os.open(file, os.O_RDONLY)
        try:
            wait_until(partial(_dropped, fd), DROP_TIMEOUT_S, what=f"{file} leaves the page cache")
        finally:
            os.close(fd)


def _dropped(fd: int) -> bool:
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    middle = os.fstat(fd).st_size // 2
    return not (middle and _is_cached(fd, middle))


def _is_cached(fd: int, offset: int) -> bool:
    try:
        os.preadv(fd, [bytearray(1)], offset, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    return True
