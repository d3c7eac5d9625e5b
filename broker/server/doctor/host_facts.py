"""Reads what a broker's host says about it: disks, clock, process, memory. `host_judge` judges it.

Everything is read from /proc, the files and systemd, so it works while the broker and ZooKeeper are down. Nothing
is changed.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import subprocess
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from broker.log.dirs.meta_properties import MetaProperties, read_meta_properties
from broker.log.errors import LogDirError
from broker.log.free_space import space_at
from broker.server.doctor.host_judge import LogDirFacts, MemoryFacts, Mount, Owner, ProcessFacts
from broker.server.registration.session_file import SessionFile

_MOST_ENTRIES: Final = 10_000
_SHOWN: Final = 3
_SYSTEMCTL_S: Final = 5.0
# adjtimex(2): the state of a clock that is not synchronised, and where struct timex has its maximum error, in µs.
_TIME_ERROR: Final = 5
_TIMEX_BYTES: Final = 208
_MAX_ERROR_AT: Final = 24


# -- disks


def log_dir_facts(path: str, owner: Owner | None, status: Mapping[str, Any]) -> LogDirFacts:
    """Raises OSError for a path that cannot be looked at."""
    directory = Path(path)
    present = next(each for each in (directory, *directory.parents) if each.exists())
    exists = present == directory
    meta, damage = _meta(directory) if exists else (None, None)
    return LogDirFacts(
        path,
        exists,
        mount_of(present, directory),
        space_at(present),
        present.stat().st_uid,
        _foreign(directory, owner) if exists else (),
        meta.broker_id if meta else None,
        meta.cluster_id if meta else None,
        damage,
        (status.get("offline_log_dirs") or {}).get(path),
    )


def _meta(directory: Path) -> tuple[MetaProperties | None, str | None]:
    try:
        return read_meta_properties(directory), None
    except (OSError, LogDirError) as error:
        return None, str(error)


def _foreign(directory: Path, owner: Owner | None) -> Sequence[str]:
    """The first entries that belong to another user than the broker's."""
    found: list[str] = []
    if owner is None:
        return found
    with os.scandir(directory) as entries:
        for number, entry in enumerate(entries):
            if number >= _MOST_ENTRIES or len(found) >= _SHOWN:
                break
            with suppress(FileNotFoundError):
                if entry.name != "lost+found" and entry.stat(follow_symlinks=False).st_uid != owner.uid:
                    found.append(entry.name)
    return found


def mount_of(present: Path, wanted: Path) -> Mount:
    """The mount of ``present``, an existing directory at or above ``wanted``."""
    real = present.resolve()
    rows = _mounts(Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace"))
    points = {point for point, _, _ in rows}
    on = max((row for row in rows if real.is_relative_to(row[0])), key=lambda row: len(row[0]))
    missing = next(
        (point for point in _fstab() if point not in points and wanted.is_relative_to(point)),
        None,
    )
    return Mount(on[0], on[1], on[2], missing)


def _mounts(mountinfo: str) -> list[tuple[str, str, bool]]:
    """Mount point, kind and whether it is read-only, of each mount; the last one of a point counts."""
    found = {}
    for line in mountinfo.splitlines():
        fields, _, rest = line.partition(" - ")
        words, kind = fields.split(), rest.split()
        options = {*words[5].split(","), *(kind[2].split(",") if len(kind) > 2 else ())}
        point = _unescaped(words[4])
        found[point] = (point, kind[0], "ro" in options)
    return list(found.values())


def _fstab() -> list[str]:
    """The mount points that the host has by its configuration, the longest first."""
    try:
        lines = Path("/etc/fstab").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
    rows = [line.split() for line in lines if line.strip() and not line.lstrip().startswith("#")]
    points = [_unescaped(row[1]) for row in rows if len(row) > 2 and row[1].startswith("/")]
    return sorted((point for point in points if point != "/"), key=len, reverse=True)


def _unescaped(text: str) -> str:
    """A path as /proc and fstab write it, with octal escapes."""
    for code, letter in (("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")):
        text = text.replace(code, letter)
    return text


# -- the clock


def clock_state() -> tuple[bool | None, float]:
    """Whether the kernel's clock is synchronised, None if it does not say, and its maximum error in ms."""
    buffer = ctypes.create_string_buffer(_TIMEX_BYTES)  # zeros: nothing is set
    try:
        state = ctypes.CDLL(None, use_errno=True).adjtimex(buffer)
    except (AttributeError, OSError):
        return None, 0.0
    if state < 0:
        return None, 0.0
    max_error_us = int.from_bytes(buffer.raw[_MAX_ERROR_AT : _MAX_ERROR_AT + 8], "little", signed=True)
    return state != _TIME_ERROR, max_error_us / 1000


# -- the process


def unit_of(broker_id: int | None) -> str:
    return f"landline-broker@{broker_id}.service"


def unit_properties(unit: str) -> dict[str, str]:
    """What systemd says of a unit; empty if there is no such unit, or no systemd."""
    wanted = "LoadState,ActiveState,MainPID,User,LimitNOFILESoft,NRestarts"
    argv = ["systemctl", "show", f"--property={wanted}", unit]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, timeout=_SYSTEMCTL_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return {}
    shown = dict(line.partition("=")[::2] for line in done.stdout.splitlines())
    return shown if shown.get("LoadState") == "loaded" else {}


def process_facts(
    unit: str, shown: Mapping[str, str], log_dirs: Sequence[str], status: Mapping[str, Any]
) -> ProcessFacts:
    state = status.get("state")
    return ProcessFacts(
        _main_pid(shown) or running_pid(log_dirs),
        unit if shown else None,
        shown.get("ActiveState", ""),
        None if state is None else str(state),
    )


def _main_pid(shown: Mapping[str, str]) -> int | None:
    text = shown.get("MainPID", "0")
    return int(text) if text.isdecimal() and text != "0" else None


def running_pid(log_dirs: Sequence[str]) -> int | None:
    """The process that owns the session noted in the first log directory, if it runs."""
    for path in log_dirs[:1]:
        with suppress(OSError):
            note = SessionFile(Path(path)).read()
            if note is not None and note.owner.is_running():
                return note.owner.pid
    return None


def owner_of(pid: int | None, shown: Mapping[str, str]) -> Owner | None:
    """The user of the running broker, or else of its unit."""
    with suppress(OSError, KeyError):
        if pid is not None:
            uid = Path(f"/proc/{pid}").stat().st_uid
            return Owner(uid, pwd.getpwuid(uid).pw_name)
        if shown.get("User"):
            return Owner(pwd.getpwnam(shown["User"]).pw_uid, shown["User"])
    return None


def open_files(pid: int | None, shown: Mapping[str, str]) -> tuple[int | None, int | None]:
    """The soft limit of open files, and how many are in use; None where it is unknown or may not be seen."""
    limit, used = None, None
    text = shown.get("LimitNOFILESoft", "")
    if text.isdecimal():
        limit = int(text)
    if pid is not None:
        with suppress(OSError):
            for line in Path(f"/proc/{pid}/limits").read_text(encoding="ascii").splitlines():
                if line.startswith("Max open files"):
                    limit = int(line.split()[3])
        with suppress(OSError):
            used = sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return limit, used


# -- memory


def memory_facts(pid: int | None) -> MemoryFacts:
    """Raises OSError without /proc."""
    host = _kib("/proc/meminfo")
    limit, used, swapped = None, 0, 0
    if pid is not None:
        with suppress(OSError):
            swapped = _kib(f"/proc/{pid}/status").get("VmSwap", 0)
        with suppress(OSError, ValueError):
            group = _group_of(pid)
            used = memory_in_use(group)
            text = (group / "memory.max").read_text(encoding="ascii").strip()
            limit = int(text) if text.isdecimal() else None
    return MemoryFacts(host.get("MemTotal", 0), host.get("MemAvailable", 0), limit, used, swapped)


def memory_in_use(group: Path) -> int:
    """The bytes of a control group that the kernel cannot take back: all but the page cache, in which a broker's
    segments fill any limit. Raises OSError or ValueError.
    """
    rows = (line.split() for line in (group / "memory.stat").read_text(encoding="ascii").splitlines())
    stat = {row[0]: int(row[1]) for row in rows if len(row) == 2}
    cached = stat.get("inactive_file", 0) + stat.get("active_file", 0)
    return max(int((group / "memory.current").read_text(encoding="ascii")) - cached, 0)


def _group_of(pid: int) -> Path:
    line = Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8").splitlines()[-1]
    return Path("/sys/fs/cgroup") / line.split(":", 2)[2].lstrip("/")


def _kib(path: str) -> dict[str, int]:
    """The sizes of a file of /proc, in bytes."""
    found = {}
    for line in Path(path).read_text(encoding="utf-8", errors="replace").splitlines():
        name, _, value = line.partition(":")
        words = value.split()
        if len(words) == 2 and words[1] == "kB":
            found[name] = int(words[0]) * 1024
    return found
