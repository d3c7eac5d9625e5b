"""``queued.max.request.bytes``: the memory of requests that have come in part, and of those that are kept for a
handler, over all connections; and who may go on when it is used up.

Kafka's MemoryPool gives a request all of its announced size at once, takes it back when the request was handled, and
reads no further request while nothing is left. Here buffers grow with what came, so the budget is looked at when one is
full. Above it one connection of each Processor, the one that waited longest, still may grow to the end of its frame, as
long as what is kept is less than the budget: something always gets on, and both what has come in part and what is kept
pass the budget by one frame at most, and by the small buffers of those who have just begun.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

# A frame that is not whole after this is given up while memory is short: who begins and never ends gives it back.
LONGEST_FRAME_MS: Final = 30_000
# The same where it is not read on because its connection's requests wait for their answers: a group's member may wait
# for others for as long as it likes, a fetch for so long.
LONGEST_OWED_MS: Final = 300_000


class RequestMemory:
    """The budget in bytes, none when not positive. ``used`` counts what is ``kept`` too; ``over`` and ``kept`` are read
    without the lock. Thread-safe.
    """

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.used = 0
        self.kept = 0
        self.over = False
        self.returned: deque[int] = deque()
        self._lock = threading.Lock()  # lock order 77

    def change(self, by: int) -> None:
        """A connection's buffer is larger or smaller by so many bytes."""
        with self._lock:
            self._change(by)

    def keep(self, body: memoryview) -> memoryview:
        """A copy of it that counts until nobody has it any more."""
        if self.limit <= 0:
            return memoryview(bytearray(body))
        kept = _Kept(body)
        kept.returned = self.returned
        with self._lock:
            self.kept += len(kept)
            self._change(len(kept))
        return memoryview(kept)

    def collect(self) -> None:
        """Takes back what is not kept any more."""
        if self.returned:
            with self._lock:
                self._change(0)

    def _change(self, by: int) -> None:
        while self.returned:
            size = self.returned.popleft()
            self.kept -= size
            by -= size
        self.used += by
        self.over = 0 < self.limit <= self.used

    @property
    def keeps_too_much(self) -> bool:
        return 0 < self.limit <= self.kept


class _Kept(bytearray):
    """It goes when the last view of it does, on any thread and at any place: no lock can be taken there."""

    __slots__ = ("returned",)

    returned: deque[int]

    def __del__(self) -> None:
        self.returned.append(len(self))


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
        self.memory.collect()
        if not self.memory.over:
            return True
        if self._favoured is None and not self.memory.keeps_too_much:
            self._favour(eater)
        if self._favoured is eater:
            return True
        eater.starved = True
        self.waiting[eater] = None
        return False

    def fed(self) -> list[E]:
        """Those who may read again now, in the order in which they began to wait."""
        self.memory.collect()
        favoured = self._favoured
        if favoured is not None and self._is_done(favoured):
            self._favoured = favoured = None
        if not self.memory.over:
            fed = list(self.waiting)
        elif favoured is None and self.waiting and not self.memory.keeps_too_much:
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
