"""``queued.max.request.bytes``: the memory of requests that have come in part, over all connections, and who may go on
when it is used up.

Kafka's MemoryPool gives a request all of its announced size at once and reads no further request while nothing is left.
Here buffers grow with what came, so the budget is looked at when one is full. Above it one connection of each
Processor, the one that waited longest, still may grow to the end of its frame: something always gets on, and the budget
is passed by one frame at most, and by the small buffers of those who have just begun.
"""

from __future__ import annotations

import threading
from typing import Final, Generic, Protocol, TypeVar

# A frame that is not whole after this is given up while memory is short: who begins and never ends gives it back.
LONGEST_FRAME_MS: Final = 30_000


class RequestMemory:
    """The budget in bytes, none when not positive. ``over`` is read without the lock. Thread-safe."""

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.used = 0
        self.over = False
        self._lock = threading.Lock()  # lock order 77

    def change(self, by: int) -> None:
        """A connection's buffer is larger or smaller by so many bytes."""
        with self._lock:
            self.used += by
            self.over = 0 < self.limit <= self.used


class Eater(Protocol):
    """A connection, as far as its memory goes."""

    starved: bool
    begun_ms: int
    held: int
    fd: int


E = TypeVar("E", bound=Eater)


class Rations(Generic[E]):
    """One Processor's connections that wait for memory, and the favoured one that need not. On its thread only."""

    def __init__(self, memory: RequestMemory) -> None:
        self.memory = memory
        self.waiting: dict[E, None] = {}
        self._favoured: E | None = None
        self._favoured_begun_ms = 0

    def may_grow(self, eater: E) -> bool:
        """Whether its full buffer may be replaced by a larger one; else it is to wait for :meth:`fed`."""
        if not self.memory.over:
            return True
        if self._favoured is None:
            self._favour(eater)
        if self._favoured is eater:
            return True
        eater.starved = True
        self.waiting[eater] = None
        return False

    def fed(self) -> list[E]:
        """Those who may read again now, in the order in which they began to wait."""
        favoured = self._favoured
        if favoured is not None and self._is_done(favoured):
            self._favoured = favoured = None
        if not self.memory.over:
            fed = list(self.waiting)
        elif favoured is None and self.waiting:
            fed = [next(iter(self.waiting))]
            self._favour(fed[0])
        else:
            return []
        for eater in fed:
            self.forget(eater)
        return fed

    def _favour(self, eater: E) -> None:
        self._favoured = eater
        self._favoured_begun_ms = eater.begun_ms

    def _is_done(self, favoured: E) -> bool:
        """Favour is for one frame: who has begun another waits like everybody."""
        return favoured.fd < 0 or favoured.held == 0 or favoured.begun_ms != self._favoured_begun_ms

    def forget(self, eater: E) -> None:
        """It reads again, or is closed."""
        eater.starved = False
        self.waiting.pop(eater, None)
