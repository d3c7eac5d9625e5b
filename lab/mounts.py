"""The controller's mounts: what is mounted where, and how a lab's mounts do not interfere with other hosts.

A host's nspawn starts with copies of all mounts of the controller. Where those are private (a machine whose
PID 1 is not systemd), the copies would keep a disk busy after its own host, or lab, has unmounted it. So a
lab's directory is a shared mount: an unmount below it takes effect everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.shell import run

_MOUNTINFO = Path("/proc/self/mountinfo")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo."""

    place: Path
    source: Path
    flags: frozenset[str]
    """The flags of the mount and of its file system together."""


def parse(mountinfo: str) -> list[Mount]:
    """Every mount, in the order in which they were mounted."""
    found = []
    for line in mountinfo.splitlines():
        fields, _, details = line.partition(" - ")
        _, source, options = details.split(" ", 2)
        flags = frozenset((*fields.split()[5].split(","), *options.split(",")))
        found.append(Mount(Path(_unescaped(fields.split()[4])), Path(_unescaped(source)), flags))
    return found


def find(place: Path) -> Mount:
    """The topmost mount at `place`; `LabError` when there is none."""
    for mount in reversed(_present()):
        if mount.place == place:
            return mount
    raise LabError(f"{place} is not mounted")


def is_mounted(place: Path) -> bool:
    """Is `place` a mount point? Also detects a directory that is bind-mounted on itself."""
    return any(mount.place == place for mount in _present())


def share(directory: Path) -> None:
    """Make the directory a shared mount: changes below it reach every copy."""
    if not is_mounted(directory):
        run(["mount", "--bind", str(directory), str(directory)])
        run(["mount", "--make-shared", str(directory)])


def unmount(place: Path) -> None:
    """Unmount `place` if it is mounted."""
    if is_mounted(place):
        run(["umount", str(place)])


def unmount_all_below(directory: Path) -> None:
    """Unmount `directory` and everything below it, in reverse order of mounting."""
    for mount in reversed(_present()):
        if mount.place.is_relative_to(directory):
            run(["umount", str(mount.place)])


def _present() -> list[Mount]:
    return parse(_MOUNTINFO.read_text())


def _unescaped(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
