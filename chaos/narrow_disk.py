"""A disk that accepts only a limited number of bytes per second from this process and its children.

Keeps the disk's queue full. It uses cgroup v1's block controller: synced writes count for the process that
syncs, the kernel's own writeback does not count.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

CONTROLLER = Path("/sys/fs/cgroup/blkio")


@contextmanager
def narrow_disk(directory: Path, bytes_per_s: int) -> Iterator[None]:
    """Meanwhile this process and its children write at most ``bytes_per_s`` to ``directory``'s disk."""
    limit = CONTROLLER / "blkio.throttle.write_bps_device"
    if not CONTROLLER.is_dir() or os.geteuid() != 0:
        raise click.ClickException(f"a limit of the disk needs root and {limit.parent} (cgroup v1)")
    group = CONTROLLER / f"landline-narrow-disk-{os.getpid()}"
    group.mkdir()
    try:
        (group / limit.name).write_text(f"{_disk_of(directory)} {bytes_per_s}")
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        for pid in (group / "cgroup.procs").read_text().split():
            (CONTROLLER / "cgroup.procs").write_text(pid)
        group.rmdir()


def _disk_of(directory: Path) -> str:
    """``major:minor`` of the whole disk; the kernel refuses a limit on a partition."""
    device = directory.stat().st_dev
    place = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}").resolve()
    if not place.is_dir():
        raise click.ClickException(f"{directory} is on no disk of its own: {device:#x}; set TMPDIR to one")
    disk = place.parent if (place / "partition").exists() else place
    return (disk / "dev").read_text().strip()
