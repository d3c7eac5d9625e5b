"""How long a coordinator's partitions took to load; Kafka's ``partition-load-time-max`` and ``-avg``."""

from __future__ import annotations

import math
import threading
from collections import deque
from typing import Final

from broker.metrics.registry import Metrics
from broker.utils.clock import Clock

# As long as Kafka's two samples of 30 s.
_KEPT_MS: Final = 60_000


class LoadTimes:
    """The times of the loads in the last minute; Kafka's partitionLoadSensor. It owns its lock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = threading.Lock()  # lock order 87
        self._loads: deque[tuple[int, int]] = deque()  # when each ended, and its time

    def record(self, took_ms: int) -> None:
        """A load has ended. Its time runs from the election, so that it has the wait for a thread, too."""
        with self._lock:
            self._loads.append((self._clock.monotonic_ms(), took_ms))
        self._recent()

    def longest(self) -> float:
        """In milliseconds; NaN if there was no load, as in Kafka."""
        return max(self._recent(), default=math.nan)

    def average(self) -> float:
        """Likewise."""
        recent = self._recent()
        return sum(recent) / len(recent) if recent else math.nan

    def _recent(self) -> list[int]:
        with self._lock:
            oldest_ms = self._clock.monotonic_ms() - _KEPT_MS
            while self._loads and self._loads[0][0] < oldest_ms:
                self._loads.popleft()
            return [took_ms for _, took_ms in self._loads]


def register_load_times(metrics: Metrics, prefix: str, topic: str, times: LoadTimes) -> None:
    """Registers both gauges. ``prefix`` is Kafka's MBean of the coordinator."""
    what = f"time to load a partition of {topic} in the last minute, in milliseconds; NaN if none was loaded"
    metrics.gauge(prefix + "partitionloadtimemax", f"Longest {what}", times.longest)
    metrics.gauge(prefix + "partitionloadtimeavg", f"Average {what}", times.average)
