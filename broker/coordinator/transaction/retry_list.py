"""What is to be tried again a little later, one after the other."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

import structlog

_log = structlog.get_logger(__name__)
T = TypeVar("T")
RETRY_MS: Final = 100
# So that retries take a small part of a CPU, however many transactions wait for a dead leader.
_PER_MS: Final = 10
# To free very many at once would hold the interpreter for long.
_AT_ONCE: Final = 1_000


class RetryList(Generic[T]):
    """The things that failed. Thread-safe. One task tries all of them again, after a time that grows with their
    number. ``schedule`` runs an action after so many milliseconds; ``retry`` gets the things, a thousand at once. If
    it raises, it gets these and the later ones again.
    """

    def __init__(
        self, schedule: Callable[[Callable[[], None], int], None], retry: Callable[[list[T]], None]
    ) -> None:
        self._schedule = schedule
        self._retry = retry
        self._lock = threading.Lock()  # lock order 56
        self._things: deque[T] = deque()
        self._is_scheduled = False

    @property
    def size(self) -> int:
        return len(self._things)

    def add(self, things: Iterable[T]) -> None:
        with self._lock:
            self._things += things
            is_due = bool(self._things) and not self._is_scheduled
            self._is_scheduled |= is_due
            delay_ms = max(RETRY_MS, len(self._things) // _PER_MS)
        if is_due:
            self._schedule(self._run, delay_ms)

    def _run(self) -> None:
        with self._lock:
            things, self._things = self._things, deque()
            self._is_scheduled = False
        while things:
            some = [things.popleft() for _ in range(min(_AT_ONCE, len(things)))]
            try:
                self._retry(some)
            except Exception:
                _log.exception("retry_failed", things=len(some) + len(things), action="tried again")
                self.add([*some, *things])
                return
