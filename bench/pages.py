"""Touches pages of memory before use, so that conditions are the same for every target.

A virtual machine returns free memory to its host. The next first write to such a page is ten times slower,
at the expense of the process that makes it. ``touch_free_memory`` pays this before each run, for every
target alike.
"""

from __future__ import annotations

import mmap
import subprocess
import sys

import psutil

from rig.processes import MIB

CHUNK = bytes(range(256)) * (MIB // 256)


def touch_free_memory(mib: int) -> None:
    """Writes to ``mib`` MiB of fresh memory in a process that ends at once, using at most half the
    free memory.
    """
    allowed = int(psutil.virtual_memory().available / MIB / 2)
    subprocess.run([sys.executable, "-m", "bench.pages", str(min(mib, allowed))], check=True)


def _touch(mib: int) -> None:
    with mmap.mmap(-1, max(1, mib) * MIB) as memory:
        for _ in range(mib):
            memory.write(CHUNK)


if __name__ == "__main__":
    _touch(int(sys.argv[1]))
