"""The progress of loading a broker's logs: logs loaded, and segments of unclean logs verified."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from broker.log.segments.segment import base_offset_of
from broker.utils.clock import Clock

# Often enough for a person, and for a service manager that waits for a sign of life.
_INTERVAL_MS = 200


class LoadProgress(NamedTuple):
    """Loaded logs and verified segments, each with its total. Only segments of unclean logs count."""

    logs: int
    logs_total: int
    segments: int
    segments_total: int

    def __str__(self) -> str:
        logs = f"{self.logs} of {self.logs_total} logs"
        if self.segments_total == 0:
            return f"Loading: {logs}"
        return f"Recovering: {self.segments} of {self.segments_total} segments verified, {logs} loaded"


class LoadMeter:
    """Counts on any thread. Reports at most five times a second, and at the end."""

    def __init__(self, logs: int, segments: int, tell: Callable[[LoadProgress], None], clock: Clock) -> None:
        self._now = LoadProgress(0, logs, 0, segments)
        self._tell = tell
        self._clock = clock
        self._lock = threading.Lock()  # lock order 18
        self._told_ms = clock.monotonic_ms() - _INTERVAL_MS

    def log_loaded(self) -> None:
        with self._lock:
            self._advance(self._now._replace(logs=self._now.logs + 1))

    def segments_verified(self, count: int) -> None:
        with self._lock:
            done = min(self._now.segments + count, self._now.segments_total)
            self._advance(self._now._replace(segments=done))

    def _advance(self, progress: LoadProgress) -> None:
        self._now = progress
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._told_ms >= _INTERVAL_MS or progress.logs == progress.logs_total:
            self._told_ms = now_ms
            self._tell(progress)


def segments_to_verify(directory: Path, recovery_point: int) -> int:
    """How many segments of an unclean log to verify: from the one with the recovery point to the last."""
    try:
        names = os.listdir(directory)  # noqa: PTH208 - names alone, thousands of times at start-up
    except OSError:
        return 0  # loading reports the error
    bases = sorted(base for name in names if (base := base_offset_of(name)) is not None)
    return len(bases) - max(bisect_right(bases, recovery_point) - 1, 0)
