"""The hosts of a lab for the comparison, reached over their consoles, so that no ssh counts as a
launcher's cost.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from compare.members import LIFECYCLE_ENV, Member, told_to_brokers
from compare.settings import STOP_TIMEOUT_S
from lab import Lab, LabError
from lab.waiting import wait_until

T = TypeVar("T")
SPARK_PIDS = "var/lib/spark/run"


class Hosts:
    """The hosts of one lab."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.names = [host.name for host in lab.hosts]

    def is_on(self, host: str) -> bool:
        return self.lab.leader(host) is not None

    def on(self) -> list[str]:
        """The hosts that have power."""
        return [host for host in self.names if self.is_on(host)]

    def root(self, host: str) -> Path:
        """The host's file system as its own processes see it; raises LabError when it is off."""
        leader = self.lab.leader(host)
        if leader is None:
            raise LabError(f"{host} is off")
        return Path(f"/proc/{leader}/root")

    def boot_id(self, host: str) -> str:
        """The host's current boot id; empty when it is off."""
        try:
            shown = self.lab.run_on_console(host, ["cat", "/proc/sys/kernel/random/boot_id"], check=False)
        except LabError:
            return ""
        return shown.stdout.strip()

    def systemctl(self, host: str, *arguments: str, check: bool = True) -> str:
        """Runs systemctl and returns its output. Raises LabError."""
        done = self.lab.run_on_console(host, ["systemctl", *arguments], check=check, timeout_s=90)
        return done.stdout

    def processes(self, member: Member) -> list[int]:
        """The member's processes, identified by the marks in their command lines."""
        return [pid for pid in self.lab.processes(member.host) if _has_marks(pid, member.marks)]

    def signal(self, member: Member, number: signal.Signals) -> None:
        for pid in self.processes(member):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def cpu_us(self) -> int:
        """CPU time of all hosts together so far, in microseconds."""
        return sum(self.lab.cpu_us(host) for host in self.names)

    def everywhere(self, do: Callable[[str], T], hosts: Iterable[str] | None = None) -> list[T]:
        """Runs ``do`` on all hosts in parallel; raises the first error after all have ended."""
        wanted = list(self.names if hosts is None else hosts)
        with ThreadPoolExecutor(max_workers=max(1, len(wanted))) as pool:
            return list(pool.map(do, wanted))

    def write_lifecycle(self, run_id: str, model: str) -> None:
        """Tells every broker of the hosts which run its next start belongs to."""
        text = "".join(f"{line}\n" for line in told_to_brokers(run_id, model))
        for host in self.on():
            (self.root(host) / LIFECYCLE_ENV.lstrip("/")).write_text(text, encoding="ascii")

    def forget_lifecycle(self) -> None:
        for host in self.on():
            (self.root(host) / LIFECYCLE_ENV.lstrip("/")).unlink(missing_ok=True)

    def forget_pids(self) -> None:
        """Removes the pid files of Spark's daemons that its script did not stop; the script would have
        removed them.
        """
        for host in self.on():
            for file in (self.root(host) / SPARK_PIDS).glob("*.pid"):
                file.unlink(missing_ok=True)

    def stop(self, members: Sequence[Member]) -> list[str]:
        """Stops the members however they were started; returns the names of those that had to be killed."""
        here = [member for member in members if self.is_on(member.host)]

        def stop_host(host: str) -> None:
            units = [member.unit for member in here if member.host == host]
            with contextlib.suppress(LabError):
                self.systemctl(host, "stop", "--no-block", *units, check=False)
            for member in here:
                if member.host == host and not self._of_unit(member):
                    self.signal(member, signal.SIGTERM)

        self.everywhere(stop_host, sorted({member.host for member in here}))
        wait_until(lambda: not any(self.processes(m) for m in here), STOP_TIMEOUT_S, 0.1)
        stubborn = [member for member in here if self.processes(member)]
        for member in stubborn:
            self.signal(member, signal.SIGKILL)
        wait_until(lambda: not any(self._busy(m) for m in here), STOP_TIMEOUT_S, 0.1)
        return [member.name for member in stubborn]

    def _of_unit(self, member: Member) -> bool:
        """Whether its process is in the unit's cgroup."""
        return any(f"/{member.unit}" in _read(Path(f"/proc/{pid}/cgroup")) for pid in self.processes(member))

    def _busy(self, member: Member) -> bool:
        state = self.systemctl(member.host, "is-active", member.unit, check=False).strip()
        return state not in {"inactive", "failed"} or bool(self.processes(member))

    def master_argv(self, host: str, user: str, script: str) -> list[str]:
        """The command line of a person who runs a script in a shell of ``host``, as ``user``."""
        line = shlex.join(["runuser", "-u", user, "--", "bash", "-c", script])
        return self.lab.enter_argv(self.lab.ssh_argv(host, line))


def _has_marks(pid: int, marks: Sequence[str]) -> bool:
    arguments = _read(Path(f"/proc/{pid}/cmdline")).split("\0")
    return all(mark in arguments for mark in marks)


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
