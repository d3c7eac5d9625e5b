"""Slows the cleaner down to ``log.cleaner.io.max.bytes.per.second``."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Final

from broker.utils.clock import Clock

_LOOK_S: Final = 0.25


class CleaningAborted(Exception):
    """The log changed during the compaction, or the broker is stopping. Only the work is lost."""


class IoPace:
    """The pace of the cleaner's reads and writes; Kafka's Throttler.

    Only the cleaner's thread calls :meth:`spend`. ``stopped`` says whether the broker stops. Idle time earns
    at most one second of IO.
    """

    def __init__(self, bytes_per_second: float, clock: Clock, stopped: Callable[[], bool]) -> None:
        self._rate = max(bytes_per_second, 1.0)
        self._clock = clock
        self._stopped = stopped
        self._changed = threading.Event()
        # When all bytes so far are paid for.
        self._paid_at_ms = -math.inf

    def limit(self, bytes_per_second: float) -> None:
        """Changes the pace, also of a cleaning that waits."""
        self._rate = max(bytes_per_second, 1.0)
        self._paid_at_ms = -math.inf
        self._changed.set()

    def spend(self, size: int) -> None:
        """Waits until ``size`` more bytes may be read or written. Raises CleaningAborted if the broker stops."""
        if self._stopped():
            raise CleaningAborted("the broker stops")
        now_ms = self._clock.monotonic_ms()
        self._paid_at_ms = max(self._paid_at_ms, now_ms - 1_000) + size * 1_000 / self._rate
        while (wait_s := (self._paid_at_ms - self._clock.monotonic_ms()) / 1_000) > 0:
            self._changed.clear()
            self._changed.wait(min(wait_s, _LOOK_S))
            if self._stopped():
                raise CleaningAborted("the broker stops")
