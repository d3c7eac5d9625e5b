"""Which process it was: a pid alone is used again, together with when it began and the boot it is not.

Linux's /proc says it. Nothing is imported that takes time: this stands between a crash and its failover.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

_STARTED_TICKS = 19  # of the fields of /proc/<pid>/stat behind the command: proc(5) counts it as the 22nd
_DEAD_STATES = frozenset({"Z", "X"})


class ProcessIdentity(NamedTuple):
    """A process that is told from all others, also from later ones with its pid. ``started_ticks`` counts
    clock ticks from the boot that has the id ``boot_id``.
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
        """The process that has this pid now. Raises OSError when there is none."""
        return cls(pid, _state_and_start(pid)[1], _boot_id())

    def is_running(self) -> bool:
        """Whether this very process lives. One that waits for its parent to take note of its end does not.

        Raises OSError when /proc does not say.
        """
        if self.boot_id != _boot_id():
            return False
        try:
            state, started_ticks = _state_and_start(self.pid)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return started_ticks == self.started_ticks and state not in _DEAD_STATES


def _state_and_start(pid: int) -> tuple[str, int]:
    stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    fields = stat.rpartition(")")[2].split()
    return fields[0], int(fields[_STARTED_TICKS])


def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
