"""Handles a failed log directory: its partitions are dropped here, and the controller is told so that
it elects other leaders. After the last directory fails, the broker stops. Kafka's
LogDirFailureHandler (KIP-112).
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

import structlog

from broker.log.dirs.log_dir import LogDir
from broker.log.log_manager import LogManager
from broker.replication.leadership import Leadership

_log = structlog.get_logger(__name__)
_RETRY_S: Final = 1.0


class LogDirFailureHandler:
    """Handles failures on its own thread, because the code that meets a disk error holds locks that this
    needs; Kafka's LogDirFailureHandler.

    ``announce`` tells the controller and may raise; then it is retried, for all directories that failed by then. No
    other failure waits for that. ``on_last`` stops the broker without waiting for it.
    """

    def __init__(
        self,
        logs: LogManager,
        leadership: Leadership,
        announce: Callable[[], None],
        on_last: Callable[[], None],
    ) -> None:
        self._logs = logs
        self._leadership = leadership
        self._announce = announce
        self._on_last = on_last
        self._failed: queue.SimpleQueue[LogDir | None] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log-dir-failure-handler", daemon=True)

    def start(self) -> None:
        """Handles failures from now on, and those since the logs were loaded."""
        self._thread.start()
        self._logs.listen(self._failed.put)

    def shutdown(self) -> None:
        self._stopped.set()
        self._failed.put(None)
        if self._thread is not threading.current_thread() and self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        untold = False
        while not self._stopped.is_set():
            try:
                log_dir = self._failed.get(timeout=_RETRY_S if untold else None)
            except queue.Empty:
                untold = not self._told_controller()
                continue
            if log_dir is None:
                return
            try:
                if self._handle(log_dir):
                    untold = not self._told_controller()
            except Exception:
                # Continuing could acknowledge data that is not on a disk.
                _log.exception("log_dir_failure_not_handled", dir=str(log_dir.path))
                self._on_last()

    def _handle(self, log_dir: LogDir) -> bool:
        """Whether the controller is to be told: not if it was the last directory."""
        partitions = self._logs.partitions_in(log_dir)
        self._leadership.take_offline(partitions)
        # A log that was being made, or moved there, when the directory failed came after the look.
        late = set(self._logs.take_offline(log_dir)).difference(partitions)
        if late:
            self._leadership.take_offline(late)
            partitions += sorted(late)
        left = [str(other.path) for other in self._logs.dirs]
        if not left:
            _log.critical(
                "last_log_dir_failed",
                dir=str(log_dir.path),
                reason=log_dir.health.failure,
                partitions=len(partitions),
                action="the broker ends; its supervisor starts it again, and it runs when the disk does",
                do="look at the kernel's log (dmesg), mend or replace the disk, or change log.dirs",
            )
            self._on_last()
            return False
        _log.error(
            "log_dir_offline",
            dir=str(log_dir.path),
            reason=log_dir.health.failure,
            partitions=[str(partition) for partition in partitions],
            dirs_left=left,
        )
        return True

    def _told_controller(self) -> bool:
        try:
            self._announce()
        except Exception as error:  # the store is down; no leader can be elected then either
            _log.warning("log_dir_failure_not_announced", reason=str(error), retry_s=_RETRY_S)
            return False
        return True
