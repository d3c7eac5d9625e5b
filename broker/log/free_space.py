"""The floor of free space. Below it a log directory refuses clients' records. The remaining space then serves
followers' copies, retention, checkpoints and indexes, which a full disk would stop.

The disk is checked periodically; appends read a flag (:class:`~broker.log.log_dir_health.LogDirHealth`).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import structlog

from broker.log.log_dir_health import LogDirHealth

_log = structlog.get_logger(__name__)
# Without a floor, a directory that was full is used again from this much free space on.
_LEAST_BYTES = 1 << 20
MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Space:
    """The space of a file system, in bytes. ``free_bytes`` is what an unprivileged process may use."""

    total_bytes: int
    free_bytes: int
    free_inodes: int | None


@dataclass(frozen=True, slots=True)
class FreeSpaceFloor:
    """The floor: the smaller of ``min_free_bytes`` and ``min_free_percent`` of the disk; none if one is 0."""

    min_free_bytes: int
    min_free_percent: int

    def bytes_on(self, total_bytes: int) -> int:
        """The floor on a disk of ``total_bytes``."""
        return min(self.min_free_bytes, total_bytes * self.min_free_percent // 100)

    def refuses(self, space: Space, *, refusing: bool, was_full: bool) -> bool:
        """Whether clients' records are refused. They are accepted again once free space exceeds the floor by
        a tenth. Without that margin, each retention run would free just enough to be refused again.
        """
        if space.free_inodes == 0:
            return True
        floor = self.bytes_on(space.total_bytes)
        if not refusing:
            return space.free_bytes < floor
        needed = floor + floor // 10
        return space.free_bytes < (max(needed, _LEAST_BYTES) if was_full else needed)


DEFAULT_FLOOR = FreeSpaceFloor(1 << 30, 5)


def space_at(path: Path) -> Space:
    """The space of the file system at ``path``. Raises OSError."""
    found = os.statvfs(path)
    # File systems that create inodes on demand report no total.
    inodes = found.f_favail if found.f_files else None
    return Space(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize, inodes)


def check_free_space(floor: FreeSpaceFloor, directories: Iterable[LogDirHealth]) -> None:
    """Sets or clears each directory's refusal and logs each change; a periodic task."""
    for health in directories:
        if health.failure is not None:
            continue
        try:
            space = space_at(health.path)
        except OSError as error:
            health.report("ask for the free space", error)
            continue
        before = health.refusal is not None
        after = floor.refuses(space, refusing=before, was_full=health.is_full)
        limit = floor.bytes_on(space.total_bytes)
        if after and not before:
            _enter(health, space, limit)
        elif before and not after:
            health.refusal, health.is_full = None, False
            _log.info(
                "log_dir_space_is_back", dir=str(health.path), free_bytes=space.free_bytes, floor_bytes=limit
            )


def _enter(health: LogDirHealth, space: Space, limit: int) -> None:
    health.refusal = (
        f"log directory {health.path} has {space.free_bytes / MIB:.1f} MiB free, below its floor of "
        f"{limit / MIB:.1f} MiB (landline.log.dir.min.free.bytes and .percent): produce is refused until there is more"
        if space.free_inodes != 0
        else f"log directory {health.path} has no inode free: produce is refused until there is one"
    )
    _log.error(
        "log_dir_below_floor",
        dir=str(health.path),
        free_bytes=space.free_bytes,
        floor_bytes=limit,
        free_inodes=space.free_inodes,
        config="landline.log.dir.min.free.bytes, landline.log.dir.min.free.percent",
        action="produce is refused; fetch, deletes, retention and followers go on",
        do="free space, lower retention or enlarge the disk; the broker recovers by itself",
    )
