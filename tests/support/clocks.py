"""Clocks that a test controls."""

from __future__ import annotations

from typing import Generic, TypeVar

N = TypeVar("N", int, float)
MS = 1_000_000


class Nanoseconds:
    """The function of a clock, as time.monotonic_ns is one; it moves when told."""

    def __init__(self) -> None:
        self.now_ns = 1_000_000_000_000

    def __call__(self) -> int:
        return self.now_ns

    def pass_ms(self, ms: int) -> None:
        self.now_ns += ms * MS


class ManualClock:
    """A Clock (:mod:`broker.utils.clock`). Wall time is ``epoch_ms`` ahead of the monotonic one."""

    def __init__(self, now_ms: int = 1_000_000, epoch_ms: int = 0) -> None:
        self.now_ms = now_ms
        self._epoch_ms = epoch_ms

    def wall_ms(self) -> int:
        return self._epoch_ms + self.now_ms

    def monotonic_ms(self) -> int:
        return self.now_ms


class TickingClock(ManualClock):
    """A clock that advances a second at every reading, so that everything that is reported periodically
    is reported.
    """

    def monotonic_ms(self) -> int:
        self.now_ms += 1000
        return self.now_ms


class ManualTime(Generic[N]):
    """A replacement for a function like ``time.monotonic`` or ``time.monotonic_ns``, in its unit."""

    def __init__(self, now: N) -> None:
        self.now = now

    def __call__(self) -> N:
        return self.now
