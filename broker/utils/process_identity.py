"""Identifies a process beyond its pid, which is reused: by pid, start time and boot id.

The data comes from Linux's /proc. Slow imports are avoided, because this runs between a crash and
its failover.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_TERMINAL = 4  # index in /proc/<pid>/stat after the command; tty_nr, field 7 in proc(5)
_STARTED_TICKS = 19  # index in /proc/<pid>/stat after the command; field 22 in proc(5)
_DEAD_STATES = frozenset({"Z", "X"})


class ProcessIdentity(NamedTuple):
    """A process, distinct from all others, including later ones with the same pid. ``started_ticks`` counts
    clock ticks since the boot that has the id ``boot_id``.
    """

    pid: int
    started_ticks: int
    boot_id: str

    @classmethod
    def current(cls) -> ProcessIdentity:
        """This process. Raises OSError without /proc."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> ProcessIdentity:
        """The process that has this pid now. Raises OSError if there is none."""
        return cls(pid, _state_and_start(pid)[1], _boot_id())

    def is_running(self) -> bool:
        """Whether this very process is alive. A zombie is not.

        Raises OSError if /proc cannot be read.
        """
        if self.boot_id != _boot_id():
            return False
        try:
            state, started_ticks = _state_and_start(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return started_ticks == self.started_ticks and state not in _DEAD_STATES


def has_terminal() -> bool:
    """Whether this process belongs to a terminal, which sends SIGHUP when it is closed. Raises OSError
    without /proc.
    """
    return _fields(os.getpid())[_TERMINAL] != "0"


def _fields(pid: int) -> list[str]:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    return stat.rpartition(")")[2].split()


def _state_and_start(pid: int) -> tuple[str, int]:
    fields = _fields(pid)
    return fields[0], int(fields[_STARTED_TICKS])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
