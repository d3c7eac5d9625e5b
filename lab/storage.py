"""A host's disks: an overlay over the base image and, when requested, its own data disk.

The data disk is an ext4 file system in a sparse file, so that it can be full or broken without harm to the
controller. Both are mounted on the controller and passed to the host. An unclean data disk is checked before
each boot, as on a real host.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
from pathlib import Path

from lab import mounts
from lab.errors import CommandFailedError, LabError
from lab.shell import run
from lab.waiting import wait_until

DATA_TARGET = "/var/lib/landline"
MIN_DATA_DISK_MB = 16

_READ_ONLY_FLAGS = {"ro", "emergency_ro"}
"""Linux 6.15 and later show the second for a file system that an error made read-only."""
_EXT4_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN; with the flag below, not even the journal is written out."""
_WITHOUT_FLUSH = struct.pack("=I", 2)
_FILLER = ".landline-lab-filler"
_FILL_CHUNK_BYTES = 64 * 1024


class HostStorage:
    """The disks of one host, below its directory `home` on the controller."""

    def __init__(self, home: Path, data_disk_mb: int) -> None:
        self.root = home / "root"
        self.data = home / "data"
        self._upper = home / "upper"
        self._work = home / "work"
        self._image_file = home / "data.ext4"
        self._data_disk_mb = data_disk_mb

    @property
    def has_data_disk(self) -> bool:
        """Was a data disk requested?"""
        return self._data_disk_mb > 0

    def mount(self, image: Path) -> None:
        """Mount the root and the data disk if they are not mounted, and create them if they do not exist."""
        if not mounts.is_mounted(self.root):
            for directory in (self.root, self._upper, self._work):
                directory.mkdir(parents=True, exist_ok=True)
            options = f"lowerdir={image},upperdir={self._upper},workdir={self._work}"
            run(["mount", "-t", "overlay", "landline-lab", "-o", options, str(self.root)])
        if self.has_data_disk and not mounts.is_mounted(self.data):
            self._mount_data_disk()

    def check_data_disk(self) -> None:
        """For a host that is off: run the file system check that a boot would, and remount the disk."""
        if self.has_data_disk:
            if mounts.is_mounted(self.data):
                self.thaw()
            mounts.unmount(self.data)
            self._wait_until_detached()
            self._mount_data_disk()

    def lose_unsynced(self) -> None:
        """Make the data disk lose what was written and not yet synced: nothing reaches it from now on."""
        self._need_data_disk()
        descriptor = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, _WITHOUT_FLUSH)
        finally:
            os.close(descriptor)

    def fill(self) -> int:
        """Fill all free space of the data disk; returns the number of bytes."""
        self._need_data_disk()
        return _take_all_space(self.data / _FILLER)

    def free(self) -> None:
        """Release the space that `fill` took."""
        self._need_data_disk()
        (self.data / _FILLER).unlink(missing_ok=True)

    def is_full(self) -> bool:
        """Has `fill` taken the space?"""
        return self.has_data_disk and (self.data / _FILLER).exists()

    def freeze(self) -> None:
        """Block all writes from now on: writers and syncs wait, as on a disk that does not respond."""
        self._need_data_disk()
        done = run(["fsfreeze", "--freeze", str(self.data)], check=False)
        if done.returncode and "busy" not in done.stderr:  # busy: it is already frozen
            raise LabError(f"{self.data}: cannot be frozen: {done.stderr.strip()}")

    def thaw(self) -> None:
        """Undo `freeze`; a disk that is not frozen stays as it is."""
        self._need_data_disk()
        run(["fsfreeze", "--unfreeze", str(self.data)], check=False)

    def make_read_only(self) -> None:
        """Like the kernel on a failing disk: remounts it if no file is open for writing, otherwise causes
        an error.
        """
        self._need_data_disk()
        try:
            run(["mount", "-o", "remount,ro", str(self.data)])
        except CommandFailedError as busy:
            if self.is_read_only():
                return
            self._break(busy)

    def make_writable(self) -> None:
        """Undo `make_read_only`. Raises `LabError` when that had to break the disk under open files."""
        self._need_data_disk()
        try:
            run(["mount", "-o", "remount,rw", str(self.data)])
            (self.data / ".landline-lab-probe").touch()
            (self.data / ".landline-lab-probe").unlink()
        except (CommandFailedError, OSError) as error:
            raise LabError(
                "the disk was in use when it failed, so its journal is aborted, as after a real fault: "
                "cut the host's power (`power-loss`) and `boot` it, which repairs the file system"
            ) from error

    def is_read_only(self) -> bool:
        """Does the data disk refuse writes?"""
        if not (self.has_data_disk and mounts.is_mounted(self.data)):
            return False
        return bool(_READ_ONLY_FLAGS & mounts.find(self.data).flags)

    def _mount_data_disk(self) -> None:
        self.data.mkdir(parents=True, exist_ok=True)
        if not self._image_file.exists():
            self._make_file_system()
        check = run(["e2fsck", "-p", str(self._image_file)], check=False, timeout_s=300)
        if check.returncode > 1:
            run(["e2fsck", "-f", "-y", str(self._image_file)], check=False, timeout_s=300)
        run(["mount", "-o", "loop,errors=remount-ro", str(self._image_file), str(self.data)])

    def _wait_until_detached(self) -> None:
        """Checking a file system that is still in use would destroy it."""
        users = ["losetup", "--noheadings", "--associated", str(self._image_file)]
        if not wait_until(lambda: not run(users).stdout.strip(), 15):
            raise LabError(f"{self._image_file} is still in use: {run(users).stdout.strip()}")

    def _make_file_system(self) -> None:
        unfinished = self._image_file.with_suffix(".new")
        with unfinished.open("wb") as file:
            file.truncate(self._data_disk_mb * 1024 * 1024)
        run(["mkfs.ext4", "-q", "-m", "0", "-E", "nodiscard", "-F", str(unfinished)], timeout_s=300)
        unfinished.rename(self._image_file)

    def _need_data_disk(self) -> None:
        if not self.has_data_disk:
            raise LabError("this lab's hosts have no data disk: make the lab with --data-disk-mb 256")
        if not mounts.is_mounted(self.data):
            raise LabError("the data disk is not mounted: boot the host first")

    def _break(self, cause: CommandFailedError) -> None:
        trigger = Path("/sys/fs/ext4", mounts.find(self.data).source.name, "trigger_fs_error")
        try:
            trigger.write_text("fault of the lab")
        except OSError as error:
            raise LabError(f"{self.data}: cannot be made read-only: {cause}; {error}") from error


def _take_all_space(filler: Path) -> int:
    descriptor = os.open(filler, os.O_CREAT | os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        _allocate_free_blocks(descriptor)
        _write_until_full(descriptor)
        os.fsync(descriptor)
        return os.fstat(descriptor).st_size
    finally:
        os.close(descriptor)


def _allocate_free_blocks(descriptor: int) -> None:
    space = os.fstatvfs(descriptor)
    size = os.fstat(descriptor).st_size
    free_bytes = space.f_bavail * space.f_frsize
    with contextlib.suppress(OSError):
        os.posix_fallocate(descriptor, size, max(1, free_bytes - _FILL_CHUNK_BYTES))


def _write_until_full(descriptor: int) -> None:
    """Fill the last blocks, which a single allocation cannot get."""
    for chunk in (bytes(_FILL_CHUNK_BYTES), bytes(1024)):
        try:
            while True:
                os.write(descriptor, chunk)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
