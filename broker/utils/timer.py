"""A thread that runs callbacks after a delay, for time-outs that are almost always cancelled.
Kafka's SystemTimer.

Deadlines are rounded up to ticks, with one set of entries per tick. So adding and cancelling cost the same
however many entries wait, and a cancelled entry is freed at once.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable
from typing import Final

import structlog

from broker.utils.clock import SYSTEM_CLOCK, Clock, wait_s

TICK_MS: Final = 10
_log = structlog.get_logger(__name__)


class TimerEntry:
    """A callback and its tick. ``cancel`` may be called at any time and from any thread, even
    after it ran.
    """

    __slots__ = ("_bucket", "callback")

    def __init__(self, callback: Callable[[], None], bucket: set[TimerEntry]) -> None:
        self.callback = callback
        self._bucket = bucket

    def cancel(self) -> None:
        self._bucket.discard(self)


class Timer:
    """A timer with one thread, which starts with the first entry; Kafka's SystemTimer. Callbacks run one at a
    time and must not block. Without ``own_thread``, they run when :meth:`run_due` is called.
    """

    def __init__(self, name: str = "timer", clock: Clock = SYSTEM_CLOCK, *, own_thread: bool = True) -> None:
        self._name = name
        self._has_thread = own_thread
        self._clock = clock
        self._lock = threading.Condition()  # lock order 81
        self._buckets: dict[int, set[TimerEntry]] = {}
        self._ticks: list[int] = []
        self._own_thread: threading.Thread | None = None
        self._stopped = False

    def add(self, delay_ms: int, callback: Callable[[], None]) -> TimerEntry:
        """Runs ``callback`` on the timer's thread after ``delay_ms``, up to one tick
        late, unless cancelled.
        """
        tick = -(-(self._clock.monotonic_ms() + max(delay_ms, 0)) // TICK_MS)
        with self._lock:
            bucket = self._buckets.get(tick)
            if bucket is None:
                bucket = self._open_bucket(tick)
            entry = TimerEntry(callback, bucket)
            bucket.add(entry)
        return entry

    def next_due_ms(self) -> int | None:
        """When the earliest entries are due, on the monotonic clock; None if there are none."""
        with self._lock:
            return self._ticks[0] * TICK_MS if self._ticks else None

    def run_due(self) -> None:
        """Runs, on the caller's thread, all callbacks whose time has come."""
        while (due := self._take_due()) is not None:
            self._call(due)

    def stop(self) -> None:
        """Ends the thread and drops all waiting entries."""
        with self._lock:
            self._stopped = True
            self._buckets.clear()
            self._ticks.clear()
            self._lock.notify()
        if self._own_thread is not None and self._own_thread is not threading.current_thread():
            self._own_thread.join()

    def _open_bucket(self, tick: int) -> set[TimerEntry]:
        bucket: set[TimerEntry] = set()
        self._buckets[tick] = bucket
        heapq.heappush(self._ticks, tick)
        if self._ticks[0] == tick:
            self._lock.notify()
        if self._has_thread and self._own_thread is None and not self._stopped:
            self._own_thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._own_thread.start()
        return bucket

    def _run(self) -> None:
        while self._is_due():
            self.run_due()

    def _is_due(self) -> bool:
        """Waits for the next tick with entries; False once the timer is stopped."""
        with self._lock:
            while not self._stopped:
                if not self._ticks:
                    self._lock.wait()
                    continue
                wait_ms = self._ticks[0] * TICK_MS - self._clock.monotonic_ms()
                if wait_ms <= 0:
                    return True
                self._lock.wait(wait_s(wait_ms))
            return False

    def _take_due(self) -> list[TimerEntry] | None:
        """Removes a tick whose time has come and returns its entries; None if there is none."""
        with self._lock:
            if not self._ticks or self._ticks[0] * TICK_MS > self._clock.monotonic_ms():
                return None
            bucket = self._buckets.pop(heapq.heappop(self._ticks))
            due = list(bucket)
            bucket.clear()
            return due

    def _call(self, due: list[TimerEntry]) -> None:
        for entry in due:
            try:
                entry.callback()
            except Exception:
                _log.exception("timer_callback_failed", timer=self._name)
