"""Whether a log directory can be used: what an error of its disk means, and who must hear of it. Kafka's
LogDirFailureChannel (KIP-112), with one difference: a disk that is merely full has not failed.

Errors are reported here where they happen, with the log's lock held; taking the partitions away is the
failure handler's work, on its own thread.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

import structlog

_log = structlog.get_logger(__name__)


class Fault(Enum):
    """What an error of a file operation says of the directory. ABSENT: a file is not there, which the directory may
    not be to blame for; PROCESS: this process or machine lacks something; FULL: there is no space.
    """

    FAILED = "failed"
    FULL = "full"
    ABSENT = "absent"
    PROCESS = "process"


_FAULTS: Final = {
    errno.ENOSPC: Fault.FULL,
    errno.EDQUOT: Fault.FULL,
    errno.ENOENT: Fault.ABSENT,
    errno.EMFILE: Fault.PROCESS,
    errno.ENFILE: Fault.PROCESS,
    errno.ENOMEM: Fault.PROCESS,
    errno.EINTR: Fault.PROCESS,
}


def fault_of(error: OSError) -> Fault:
    """What the error means; what is not known is a failure, as in Kafka."""
    return _FAULTS.get(error.errno or 0, Fault.FAILED)


class LogDirHealth:
    """One directory's. Thread-safe.

    Invariant: ``failure`` is set once and stays, for after an error nothing is known of what the disk holds; only a
    new start, which verifies the logs, takes it back. ``refusal`` comes and goes with the free space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: str | None = None
        # Why clients' records are refused, told to them; None while they are taken. Read by every append.
        self.refusal: str | None = None
        self.is_full = False
        self._lock = threading.Lock()  # lock order 54
        self._on_failed: Callable[[], None] | None = None

    def __repr__(self) -> str:
        state = "failed" if self.failure else "low on space" if self.refusal else "good"
        return f"<LogDirHealth {self.path} {state}>"

    def listen(self, on_failed: Callable[[], None]) -> None:
        """Tells of the failure, at once when it is there already. The callback only enqueues."""
        with self._lock:
            self._on_failed = on_failed
            failed = self.failure is not None
        if failed:
            on_failed()

    def report(self, doing: str, error: OSError, *, torn: bool = False) -> bool:
        """Judges an error of ``doing``; True when the directory has failed.

        ``torn``: files or memory were left as nobody knows, so that even a full disk is a failure: going on could
        lose what was acknowledged.
        """
        fault = fault_of(error)
        if fault is Fault.FULL and not torn:
            self._note_full(doing)
            return False
        if not torn and (fault is Fault.PROCESS or (fault is Fault.ABSENT and self.path.is_dir())):
            return False
        self.fail(f"cannot {doing}: {error.strerror or error}")
        return True

    def fail(self, reason: str, *, quiet: bool = False) -> None:
        """The directory has failed. The first reason stands. ``quiet`` leaves the line in the log to the caller."""
        with self._lock:
            if self.failure is not None:
                return
            self.failure = reason
            on_failed = self._on_failed
        if not quiet:
            _log.error(
                "log_dir_failed",
                dir=str(self.path),
                reason=reason,
                action="its partitions go offline here; their other replicas take over",
                do="look at the kernel's log (dmesg), mend or replace the disk, then restart the broker",
            )
        if on_failed is not None:
            on_failed()

    def _note_full(self, doing: str) -> None:
        self.is_full = True
        if self.refusal is None:
            self.refusal = f"log directory {self.path} is full: produce is refused until there is space again"
            _log.error(
                "log_dir_full",
                dir=str(self.path),
                doing=doing,
                action="produce is refused, fetch and retention go on",
                do="free space, lower retention or enlarge the disk; the broker recovers by itself",
            )
