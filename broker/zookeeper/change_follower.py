"""The thread of a part that follows changes in the store. What it reads is up to the part."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Final

import structlog

from broker.zookeeper.store import StoreError

RETRY_S: Final = 1.0
# What failed by itself, and not by the store, may fail again, each time with a traceback.
FAILED_RETRY_S: Final = 30.0
PURGE_S: Final = 300.0
_log = structlog.get_logger(__name__)


class ChangeFollower:
    """A thread that calls ``follow`` after each :meth:`wake`, and at least every five minutes, for what is
    to be deleted. It retries soon after a StoreError, and later after any other exception.

    The part whose changes it follows owns it. ``name`` is the thread's; ``unread`` and ``failed`` are the
    log events of a StoreError and of any other exception.
    """

    def __init__(self, name: str, follow: Callable[[], None], *, unread: str, failed: str) -> None:
        self._name = name
        self._follow = follow
        self._unread = unread
        self._failed = failed
        self._wakes: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    @property
    def is_started(self) -> bool:
        return self._thread is not None

    @property
    def is_awake(self) -> bool:
        """Whether a wake-up has not been taken up yet."""
        return not self._wakes.empty()

    def start(self) -> None:
        """Starts the thread, with a first call of ``follow``."""
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()
        self.wake()

    def wake(self) -> None:
        """Has ``follow`` called soon. From any thread, also before the start."""
        self._wakes.put(True)

    def close(self) -> None:
        """Ends the thread; idempotent."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._wakes.put(False)
            thread.join()

    def _run(self) -> None:
        timeout_s = PURGE_S
        while self._wait(timeout_s):
            timeout_s = PURGE_S
            try:
                self._follow()
            except StoreError as error:
                _log.warning(self._unread, error=str(error), retry_s=RETRY_S)
                timeout_s = RETRY_S
            except Exception:  # the thread must survive whatever is in the znodes
                _log.exception(self._failed, retry_s=FAILED_RETRY_S)
                timeout_s = FAILED_RETRY_S

    def _wait(self, timeout_s: float) -> bool:
        """Waits for a wake-up or the time-out; False at the end. Queued wake-ups count as one."""
        try:
            going_on = self._wakes.get(timeout=timeout_s)
            while going_on and not self._wakes.empty():
                going_on = self._wakes.get()
        except queue.Empty:
            return True
        return going_on
