"""Small real disks for a broker's data: ext4 in a file, which can be filled, emptied and broken.

Needs root and loop devices.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

_BALLAST = "ballast"
_EXT4_SHUTDOWN = 0x8004587D  # _IOR('X', 125, __u32)
_NO_LOG_FLUSH = 2
_BLKIO, _MEMBERS = Path("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device"), "cgroup.procs"
_STEPS = (1 << 20, 1 << 16, 1 << 12, 1)


def can_mount() -> bool:
    """Whether this process can mount disks."""
    return os.geteuid() == 0 and Path("/dev/loop-control").exists()


def needs_small_disks() -> pytest.MarkDecorator:
    """Skips a test where it cannot."""
    return pytest.mark.skipif(not can_mount(), reason="mounting a small disk needs root and loop devices")


def needs_slow_disks() -> pytest.MarkDecorator:
    """Skips a test where :meth:`SmallDisk.stalled_for` does not work."""
    return pytest.mark.skipif(not _BLKIO.exists(), reason="a slow disk needs cgroup v1's controller blkio")


class SmallDisk:
    """One file system, mounted at ``path`` while it is entered."""

    def __init__(self, directory: Path, mebibytes: int = 64) -> None:
        self.path = directory / "disk"
        self._image = directory / "disk.ext4"
        self._mebibytes = mebibytes

    def __enter__(self) -> Self:
        self.path.mkdir(parents=True)
        with self._image.open("wb") as image:
            image.truncate(self._mebibytes << 20)
        # No blocks are reserved for root: the tests' broker runs as root, and must find the disk full.
        _run("mkfs.ext4", "-q", "-m", "0", str(self._image))
        self._mount()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _run("umount", "--lazy", str(self.path))

    def _mount(self) -> None:
        # The kernel would initialize inode tables in the background and disturb what is timed here.
        _run("mount", "-o", "loop,errors=remount-ro,noinit_itable", str(self._image), str(self.path))

    def free_bytes(self) -> int:
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def fill(self, *, leave_bytes: int = 0) -> None:
        """Fills the disk up to about ``leave_bytes``; to the last byte if that is 0."""
        fd = os.open(self.path / _BALLAST, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        try:
            if leave_bytes:
                os.posix_fallocate(fd, 0, max(self.free_bytes() - leave_bytes, 1))
                return
            for step in _STEPS:
                _write_until_refused(fd, step)
        finally:
            os.close(fd)

    def empty(self) -> None:
        """Releases the space."""
        (self.path / _BALLAST).unlink()

    def break_down(self) -> None:
        """Like a failing disk: the kernel detects an error and makes the file system read-only under
        open files.
        """
        device = _run("findmnt", "--noheadings", "--output", "SOURCE", str(self.path)).strip()
        Path(f"/sys/fs/ext4/{Path(device).name}/trigger_fs_error").write_text("test\n")

    def freeze(self) -> None:
        """Blocks all writes and syncs, like a disk that does not respond, until :meth:`thaw`."""
        _run("fsfreeze", "--freeze", str(self.path))

    def thaw(self) -> None:
        """Unblocks writes."""
        _run("fsfreeze", "--unfreeze", str(self.path))

    def stop_reading(self) -> None:
        """Makes every read and write fail from now on, even of cached data: ext4's emergency shutdown."""
        fd = os.open(self.path, os.O_RDONLY)
        try:
            fcntl.ioctl(fd, _EXT4_SHUTDOWN, struct.pack("I", _NO_LOG_FLUSH))
        finally:
            os.close(fd)

    @contextmanager
    def stalled_for(self, pid: int) -> Iterator[None]:
        """Meanwhile what that process reads that is not cached takes hours: a byte a second."""
        group = Path(tempfile.mkdtemp(prefix="slow-", dir=_BLKIO.parent))
        limit = group / _BLKIO.name
        device = self.path.stat().st_dev
        number = f"{os.major(device)}:{os.minor(device)}"
        try:
            limit.write_text(f"{number} 1")
            (group / _MEMBERS).write_text(str(pid))
            yield
        finally:
            limit.write_text(f"{number} 0")
            (_BLKIO.parent / _MEMBERS).write_text(str(pid))
            group.rmdir()

    def mend(self) -> None:
        """Checks and remounts the disk, once nobody uses it."""
        _run("umount", str(self.path))
        subprocess.run(["e2fsck", "-fy", str(self._image)], check=False, capture_output=True)
        self._mount()


def _write_until_refused(fd: int, step: int) -> None:
    data = b"\0" * step
    while True:
        try:
            os.write(fd, data)
        except OSError:
            return


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout
