# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Which file systems directories are on, and which of these are missing. For filters and modules."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_ASSERTS = "AssertPathIsMountPoint="
_OCTAL = re.compile(r"\\([0-7]{3})")
_PLAIN = re.compile(r"[A-Za-z0-9:_.]")


def mount_unit(point: str) -> str:
    """Returns the name of systemd's unit of a mount point, as `systemd-escape --path --suffix=mount` does."""
    path = "-".join(_escaped(part, first) for first, part in _numbered(point.strip("/").split("/")))
    return f"{path or '-'}.mount"


def _numbered(parts: list[str]) -> list[tuple[bool, str]]:
    return [(number == 0, part) for number, part in enumerate(parts) if part]


def _escaped(part: str, first: bool) -> str:
    found = "".join(
        character if _PLAIN.fullmatch(character) else "".join(f"\\x{byte:02x}" for byte in character.encode())
        for character in part
    )
    return f"\\x2e{found[1:]}" if first and found.startswith(".") else found


def points_in_mountinfo(text: str) -> set[str]:
    """Returns the mount points in /proc/self/mountinfo."""
    return {_unescaped(line.split()[4]) for line in text.splitlines() if len(line.split()) > 4}


def points_in_fstab(text: str) -> set[str]:
    """Returns the mount points in /etc/fstab."""
    rows = [line.split() for line in text.splitlines() if not line.lstrip().startswith("#")]
    return {_clean(_unescaped(row[1])) for row in rows if len(row) > 2 and row[1].startswith("/")}


def points_in_unit(text: str) -> set[str]:
    """Returns the mount points that a unit asserts."""
    lines = [line.strip() for line in text.splitlines()]
    return {line.removeprefix(_ASSERTS).replace("%%", "%") for line in lines if line.startswith(_ASSERTS)}


def _unescaped(text: str) -> str:
    return _OCTAL.sub(lambda found: chr(int(found[1], 8)), text)


def _clean(point: str) -> str:
    return point.rstrip("/") or "/"


def is_below(directory: str, point: str) -> bool:
    """Returns whether a directory is a mount point or below it."""
    return directory == point or directory.startswith(point.rstrip("/") + "/")


def own_mount(directory: str, mounted: Iterable[str]) -> str:
    """Returns the mount point of the file system that a directory is on; empty for the root."""
    found = max((each for each in mounted if is_below(directory, each)), key=len, default="/")
    return "" if found == "/" else found


def missing_mounts(
    directories: Iterable[str],
    wanted: Iterable[str],
    units: dict[str, str],
    fstab: set[str],
    mounted: set[str],
) -> dict[str, str]:
    """Returns the mount points of the file systems that should be mounted for these directories, and are not, each with
    a description.

    Those are what the inventory wants, what is in `fstab`, and what the text of a unit by its path in `units`
    says that its process had.
    """
    reasons: dict[str, str] = {}
    for path, text in units.items():
        reasons.update(dict.fromkeys(points_in_unit(text), f"{path} asserts it"))
    reasons.update(dict.fromkeys(fstab, "it is in /etc/fstab"))
    reasons.update({_clean(str(each)): "the inventory wants it" for each in wanted})
    there = list(dict.fromkeys(directories))
    return {
        point: f"nothing is mounted at {point} for {', '.join(below)} ({reason})"
        for point, reason in sorted(reasons.items())
        if point != "/"
        and point not in mounted
        and (below := [each for each in there if is_below(each, point)])
    }


def look_at_mounts(directories: Iterable[str], wanted: Iterable[str], units: Iterable[str]) -> dict[str, str]:
    """Returns what is missing on this host, as missing_mounts does. `units` are files, which need not exist."""
    texts = {path: _text(Path(path)) for path in units}
    paths = [path for each in directories for path in (each, str(Path(each).resolve()))]
    return missing_mounts(paths, wanted, texts, points_in_fstab(_text(Path("/etc/fstab"))), mounted_now())


def mounts_of(directories: Iterable[str]) -> list[str]:
    """Returns the mount points, other than the root, that these directories of this host are on now."""
    mounted = mounted_now()
    return sorted({found for each in directories if (found := own_mount(str(Path(each).resolve()), mounted))})


def mounted_now() -> set[str]:
    """Returns the mount points of this host."""
    return points_in_mountinfo(Path("/proc/self/mountinfo").read_text())


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
