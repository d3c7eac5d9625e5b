"""Whether a log directory can be used, and what a disk error means for it; Kafka's LogDirFailureChannel
(KIP-112). Unlike in Kafka, a disk that is merely full has not failed.

Errors are reported here where they happen, with the log's lock held. The failure handler takes the partitions
offline on its own thread.
"""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Final

import structlog

from broker.log.filesystem_sync import NotSyncedError

_log = structlog.get_logger(__name__)


class Fault(Enum):
    """What an error of a file operation says about the directory. ABSENT: a file is missing, which may not be
    the directory's fault. PROCESS: this process or machine lacks a resource. FULL: there is no space.
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
    """What the error means for the directory; an unknown error is a failure, as in Kafka."""
    return _FAULTS.get(error.errno or 0, Fault.FAILED)


class LogDirHealth:
    """The health of one log directory. Thread-safe.

    Invariant: ``failure`` is set once and stays, because after an error the disk's contents are unknown. Only
    a restart, which verifies the logs, clears it. ``refusal`` follows the free space.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failure: str | None = None
        # Why clients' records are refused, as reported to them; None while they are accepted. Each append
        # reads it.
        self.refusal: str | None = None
        self.is_full = False
        self._lock = threading.Lock()  # lock order 54
        self._on_failed: Callable[[], None] | None = None

    def __repr__(self) -> str:
        state = "failed" if self.failure else "low on space" if self.refusal else "good"
        return f"<LogDirHealth {self.path} {state}>"

    def listen(self, on_failed: Callable[[], None]) -> None:
        """Registers the failure callback; calls it at once after a failure. It must only enqueue."""
        with self._lock:
            self._on_failed = on_failed
            failed = self.failure is not None
        if failed:
            on_failed()

    def report(self, doing: str, error: OSError, *, torn: bool = False) -> bool:
        """Classifies an error of ``doing``; True if the directory has failed.

        ``torn``: files or memory were left in an unknown state. Then even a full disk is a failure, because
        going on could lose acknowledged data. A sync that failed always leaves them so.
        """
        torn = torn or isinstance(error, NotSyncedError)
        fault = fault_of(error)
        if fault is Fault.FULL and not torn:
            self._note_full(doing)
            return False
        if not torn and (fault is Fault.PROCESS or (fault is Fault.ABSENT and self.path.is_dir())):
            return False
        self.fail(f"cannot {doing}: {error.strerror or error}")
        return True

    def fail(self, reason: str, *, quiet: bool = False) -> None:
        """Marks the directory as failed. The first reason stays. With ``quiet`` the caller logs it."""
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
