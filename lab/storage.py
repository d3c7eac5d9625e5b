"""What a host keeps on disk: an overlay over the base image and, when asked for, a disk of its own for data.

The data disk is an ext4 file system in a sparse file, so that it can be full or broken without harm to the
controller. Both are mounted on the controller and handed to the host; an unclean data disk is checked before
each boot, as a real host does.
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
"""The second is how Linux 6.15 and later show a file system that an error made read-only."""
_EXT4_SHUTDOWN = 0x8004587D
"""EXT4_IOC_SHUTDOWN; with the flag below not even the journal is written out."""
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
        """Was a disk of its own asked for?"""
        return self._data_disk_mb > 0

    def mount(self, image: Path) -> None:
        """Mount what is not mounted, making it where it does not exist yet."""
        if not mounts.is_mounted(self.root):
            for directory in (self.root, self._upper, self._work):
                directory.mkdir(parents=True, exist_ok=True)
            options = f"lowerdir={image},upperdir={self._upper},workdir={self._work}"
            run(["mount", "-t", "overlay", "landline-lab", "-o", options, str(self.root)])
        if self.has_data_disk and not mounts.is_mounted(self.data):
            self._mount_data_disk()

    def check_data_disk(self) -> None:
        """For a host that is off: run the file system check a boot would, and mount the disk anew."""
        if self.has_data_disk:
            if mounts.is_mounted(self.data):
                self.thaw()
            mounts.unmount(self.data)
            self._wait_until_detached()
            self._mount_data_disk()

    def lose_unsynced(self) -> None:
        """Make the data disk forget what was written and not yet synced: nothing reaches it from now on."""
        self._need_data_disk()
        descriptor = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.ioctl(descriptor, _EXT4_SHUTDOWN, _WITHOUT_FLUSH)
        finally:
            os.close(descriptor)

    def fill(self) -> int:
        """Take all free space of the data disk; returns how many bytes."""
        self._need_data_disk()
        return _take_all_space(self.data / _FILLER)

    def free(self) -> None:
        """Give back what `fill` took."""
        self._need_data_disk()
        (self.data / _FILLER).unlink(missing_ok=True)

    def is_full(self) -> bool:
        """Has `fill` taken the space?"""
        return self.has_data_disk and (self.data / _FILLER).exists()

    def freeze(self) -> None:
        """Nothing is written from now on, and whoever writes or syncs waits, as on a disk that does not answer."""
        self._need_data_disk()
        done = run(["fsfreeze", "--freeze", str(self.data)], check=False)
        if done.returncode and "busy" not in done.stderr:  # busy: it is frozen already
            raise LabError(f"{self.data}: cannot be frozen: {done.stderr.strip()}")

    def thaw(self) -> None:
        """Undo `freeze`; a disk that is not frozen stays as it is."""
        self._need_data_disk()
        run(["fsfreeze", "--unfreeze", str(self.data)], check=False)

    def make_read_only(self) -> None:
        """As the kernel does on a failing disk: at once if no file is open for writing, else by an error."""
        self._need_data_disk()
        try:
            run(["mount", "-o", "remount,ro", str(self.data)])
        except CommandFailedError as busy:
            if self.is_read_only():
                return
            self._break(busy)

    def make_writable(self) -> None:
        """Undo `make_read_only`; raises `LabError` when that had to break the disk under open files."""
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
        """A check of a file system that is in use somewhere would destroy it."""
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
    """The last blocks, which an allocation as a whole would be refused."""
    for chunk in (bytes(_FILL_CHUNK_BYTES), bytes(1024)):
        try:
            while True:
                os.write(descriptor, chunk)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
