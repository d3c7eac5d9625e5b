"""Pages of memory, made alike for every target: touched before they are written, dropped before a cold read.

A virtual machine hands free memory back to its host; the next first write to such a page runs ten times slower and
is billed to whoever makes it. ``touch_free_memory`` pays that before each run, for every target alike.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import psutil

from tests.support.processes import MIB
from tests.support.wait import wait_until

DROP_TIMEOUT_S = 10.0
CHUNK = bytes(range(256)) * (MIB // 256)


def touch_free_memory(mib: int) -> None:
    """Writes to ``mib`` MiB of fresh memory in a process that ends at once, as far as half the free memory allows."""
    allowed = int(psutil.virtual_memory().available / MIB / 2)
    subprocess.run([sys.executable, "-m", "bench.pages", str(min(mib, allowed))], check=True)


def drop_from_cache(files: Iterable[Path]) -> None:
    """Writes the files to the disk and drops their pages; raises TimeoutError when they stay in the cache: the kernel
    keeps for a moment what another processor has at hand.
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


def _touch(mib: int) -> None:
    with mmap.mmap(-1, max(1, mib) * MIB) as memory:
        for _ in range(mib):
            memory.write(CHUNK)


if __name__ == "__main__":
    _touch(int(sys.argv[1]))
