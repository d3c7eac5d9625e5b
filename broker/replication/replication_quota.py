"""Replication throttles (KIP-73): how many bytes a second catching-up replicas may take, as leaders and
as followers.

A leader holds back data from throttled followers that are not in the ISR. A follower does not fetch throttled
partitions in which it is behind. So replicas in sync stay in sync. Kafka's ReplicationQuotaManager.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Collection

from broker.config.log_config import LONG_MAX
from broker.utils.clock import Clock

ALL = "*"


class ReplicationQuota:
    """The quota of one direction; Kafka's ReplicationQuotaManager. ``limit`` is in bytes a second; the
    default LONG_MAX throttles nothing.

    The rate is that of the last ``windows`` samples of ``window_ms``, including the current one. Thread-safe.
    """

    def __init__(self, clock: Clock, windows: int = 11, window_ms: int = 1000) -> None:
        self.limit = LONG_MAX
        self._clock = clock
        self._windows = windows
        self._window_ms = window_ms
        self._lock = threading.Lock()  # lock order 74
        self._samples: deque[tuple[int, int]] = deque()  # (start time, bytes) of each sample

    @property
    def is_set(self) -> bool:
        return self.limit < LONG_MAX

    def covers(self, listed: Collection[str], partition: int, broker_id: int) -> bool:
        """Whether a replica is throttled: ``listed`` is the topic's ``*.replication.throttled.replicas``."""
        return self.is_set and (f"{partition}:{broker_id}" in listed or ALL in listed)

    def record(self, count: int) -> None:
        """Adds bytes that throttled replicas took."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._drop_old(now_ms)
            if self._samples and now_ms - self._samples[-1][0] < self._window_ms:
                began_ms, so_far = self._samples[-1]
                self._samples[-1] = (began_ms, so_far + count)
            else:
                self._samples.append((now_ms, count))

    def rate(self) -> float:
        """The rate in bytes a second."""
        taken, elapsed_ms = self._taken()
        return 1000 * taken / elapsed_ms

    def wait_ms(self) -> int:
        """How long until the rate is within the limit if nothing more is taken; 0 if it is now.

        At most until the oldest sample expires.
        """
        taken, elapsed_ms = self._taken()
        if 1000 * taken <= self.limit * elapsed_ms:
            return 0
        enough_ms = 1000 * taken // max(self.limit, 1) + 1
        return max(1, min(enough_ms, self._kept_ms) - elapsed_ms)

    @property
    def _kept_ms(self) -> int:
        return self._windows * self._window_ms

    def _taken(self) -> tuple[int, int]:
        """The bytes taken, and in how many milliseconds, at least the length of one sample."""
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            self._drop_old(now_ms)
            began_ms = self._samples[0][0] if self._samples else now_ms
            return sum(count for _, count in self._samples), max(now_ms - began_ms, self._window_ms)

    def _drop_old(self, now_ms: int) -> None:
        while self._samples and now_ms - self._samples[0][0] >= self._kept_ms:
            self._samples.popleft()
