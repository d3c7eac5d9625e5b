"""One cgroup per host in every relevant hierarchy, so each host can be frozen, killed and measured alone.

The memory, cpuset and devices hierarchies are left alone, because the machine's own management uses them.
Works on a hybrid machine (v1 controllers and a v2 tree) and on a pure v2 one.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from lab.errors import LabError, UsageError
from lab.naming import Host
from lab.state import machine_lock
from lab.waiting import wait_until

PARENT = "landline-lab"

_V1_WANTED = {"name=systemd", "freezer", "cpu", "cpuacct", "pids", "blkio"}
_CPU_PERIOD_US = 100_000
# The CPU weight of all labs' hosts together, in ordinary processes. A cgroup counts as one process by
# default. A dozen hosts beside twenty test processes then had a tenth of a core together, and ssh connections
# timed out.
_COUNTS_FOR = 16
_SHARES = {"cpu.shares": 1024 * _COUNTS_FOR, "cpu.weight": 100 * _COUNTS_FOR}
_MOUNTINFO = Path("/proc/self/mountinfo")


def hierarchies(mountinfo: str) -> tuple[Path, list[Path]]:
    """The mount points of the v2 tree and of the wanted v1 controllers. Raises `UsageError` without a
    v2 tree.
    """
    unified: Path | None = None
    legacy: list[Path] = []
    for line in mountinfo.splitlines():
        place, _, details = line.partition(" - ")
        kind, _, super_options = details.split(" ", 2)
        mount_point = Path(place.split()[4])
        if kind == "cgroup2" and unified is None:
            unified = mount_point
        elif kind == "cgroup" and _V1_WANTED & set(super_options.split(",")):
            legacy.append(mount_point)
    if unified is None:
        raise UsageError("no cgroup v2 tree is mounted: boot with systemd.unified_cgroup_hierarchy=1")
    return unified, legacy


class HostCgroup:
    """The cgroups of one host: `landline-lab/<lab>/<host>` in each hierarchy."""

    def __init__(self, lab: str, host: Host) -> None:
        unified, legacy = hierarchies(_MOUNTINFO.read_text())
        relative = Path(PARENT, lab, host.name)
        self._unified = unified / relative
        self._legacy = [mount_point / relative for mount_point in legacy]
        self._payload = self._unified / "payload"

    def make(self) -> list[Path]:
        """Creates the missing cgroups; returns the directories that a host's supervisor has to enter."""
        directories = [*self._legacy, self._unified]
        for directory in directories:
            directory.mkdir(parents=True, exist_ok=True)
            for name, value in _SHARES.items():
                share = directory.parents[1] / name
                if (
                    share.exists()
                ):  # a hierarchy has at most one of them; opening a missing one would create a file
                    share.write_text(str(value))
        return directories

    def all_processes(self) -> list[int]:
        """Every process of the host, including its supervisor."""
        return _processes_below(self._unified)

    def leader(self) -> int | None:
        """The process id of the host's PID 1, as the controller sees it; None while the host is off."""
        return next((pid for pid in _processes_below(self._payload) if _is_pid_one(pid)), None)

    def is_frozen(self) -> bool:
        """Has the whole host been frozen?"""
        try:
            return "frozen 1" in (self._payload / "cgroup.events").read_text()
        except OSError:
            return False

    def set_frozen(self, frozen: bool) -> None:
        """Freeze or thaw every process of the host except its supervisor; returns when done."""
        try:
            (self._payload / "cgroup.freeze").write_text("1" if frozen else "0")
        except OSError as error:
            raise LabError(f"cannot {'freeze' if frozen else 'thaw'} the host: {error}") from error
        if not wait_until(lambda: self.is_frozen() is frozen, 10):
            raise LabError(f"the host did not {'freeze' if frozen else 'thaw'} within 10 s")

    def cpu_us(self) -> int:
        """CPU time that the host has used over all its boots, in microseconds; 0 before the first."""
        try:
            lines = (self._unified / "cpu.stat").read_text().splitlines()
        except OSError:
            return 0
        return next(int(line.split()[1]) for line in lines if line.startswith("usage_usec "))

    def limit_cpu(self, percent: float) -> None:
        """Limit the host to this share of one processor, across reboots; 0 lifts the limit."""
        quota = round(percent / 100 * _CPU_PERIOD_US)
        places = [mount / "cpu.cfs_quota_us" for mount in self._legacy]
        for place in filter(Path.exists, places):
            place.with_name("cpu.cfs_period_us").write_text(str(_CPU_PERIOD_US))
            place.write_text(str(quota or -1))
            return
        try:
            (self._unified / "cpu.max").write_text(f"{quota or 'max'} {_CPU_PERIOD_US}")
        except OSError as error:
            raise LabError(f"this machine has no processor limits for cgroups: {error}") from error

    def kill(self) -> None:
        """Kill everything at once, like a power cut; returns when no process is left."""
        _write_if_there(self._payload / "cgroup.kill", "1")
        if not wait_until(lambda: not self.all_processes(), 5):
            _write_if_there(self._unified / "cgroup.kill", "1")
            if not wait_until(lambda: not self.all_processes(), 15):
                raise LabError(f"processes {self.all_processes()} of the host do not end")
        # The directory may stay and be reused by the next boot, which must not start frozen.
        _write_if_there(self._payload / "cgroup.freeze", "0")

    def remove(self) -> None:
        """Remove the host's cgroups, which must have no processes."""
        for directory in [*self._legacy, self._unified]:
            if not wait_until(lambda tree=directory: _remove_tree(tree), 10):  # type: ignore[misc]
                raise LabError(f"{directory}: this cgroup cannot be removed, a process is still in it")


def labs_with_cgroups() -> set[str]:
    """Names of the labs that have cgroups, whether or not their state file still exists."""
    unified, _ = hierarchies(_MOUNTINFO.read_text())
    return {entry.name for entry in _directories(unified / PARENT)}


def hosts_with_cgroups(lab: str) -> set[str]:
    """Names of the hosts of a lab that have cgroups in any hierarchy."""
    unified, legacy = hierarchies(_MOUNTINFO.read_text())
    return {entry.name for mount in (unified, *legacy) for entry in _directories(mount / PARENT / lab)}


def remove_parents(lab: str) -> None:
    """Remove the lab's own directory and, after the last lab, the parent of all labs."""
    unified, legacy = hierarchies(_MOUNTINFO.read_text())
    with machine_lock():
        for mount_point in (unified, *legacy):
            for directory in (mount_point / PARENT / lab, mount_point / PARENT):
                with contextlib.suppress(OSError):
                    directory.rmdir()


def _directories(directory: Path) -> list[Path]:
    try:
        return [entry for entry in directory.iterdir() if entry.is_dir()]
    except OSError:
        return []


def _processes_below(directory: Path) -> list[int]:
    found: list[int] = []
    for place, _, _ in os.walk(directory):
        with contextlib.suppress(OSError):
            found += map(int, Path(place, "cgroup.procs").read_text().split())
    return found


def _is_pid_one(pid: int) -> bool:
    """Is it PID 1 of a process namespace one level below ours?"""
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False
    ids = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
    return len(ids) == 2 and ids[1] == "1"


def _remove_tree(directory: Path) -> bool:
    for place, _, _ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):
            Path(place).rmdir()
    return not directory.exists()


def _write_if_there(path: Path, text: str) -> None:
    with contextlib.suppress(FileNotFoundError):
        path.write_text(text)
