"""``queued.max.request.bytes``: the memory for partly received requests and for those kept for a handler,
over all connections, and which connections may continue when it is used up.

Kafka's MemoryPool allocates a request's announced size at once, frees it when the request was handled, and
reads no further request while nothing is left. Here buffers grow with the received data, so the budget is
checked when a buffer is full. Above the budget, one connection per Processor, the one that waited longest,
may still grow to the end of its frame, as long as the kept requests are below the budget. So there is always
progress. Both the partly received and the kept requests exceed the budget by one frame at most, plus the
small buffers of connections that have just begun.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final, Generic, Protocol, TypeVar

# While memory is short, an incomplete frame is dropped after this time, so that unfinished requests free
# their memory.
LONGEST_FRAME_MS: Final = 30_000
# The same for a frame that is not read further because the connection's requests wait for their responses: a
# group member's JoinGroup may wait for other members arbitrarily long, a fetch for this long.
LONGEST_OWED_MS: Final = 300_000


class RequestMemory:
    """The memory budget for requests, in bytes; no limit when not positive. Kafka's MemoryPool. ``used``
    includes ``kept``. ``over`` and ``kept`` are read without the lock. Thread-safe.
    """

    def __init__(self, limit: int = -1) -> None:
        self.limit = limit
        self.used = 0
        self.kept = 0
        self.over = False
        self.returned: deque[int] = deque()
        self._lock = threading.Lock()  # lock order 77

    def change(self, by: int) -> None:
        """Records that a connection's buffer has grown or shrunk by ``by`` bytes."""
        with self._lock:
            self._change(by)

    def keep(self, body: memoryview) -> memoryview:
        """A copy of the body that counts until its last reference is gone."""
        if self.limit <= 0:
            return memoryview(bytearray(body))
        kept = _Kept(body)
        kept.returned = self.returned
        with self._lock:
            self.kept += len(kept)
            self._change(len(kept))
        return memoryview(kept)

    def collect(self) -> None:
        """Frees what is no longer kept."""
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
    """A kept body. Its last view may disappear on any thread and at any point, so ``__del__`` can take
    no lock.
    """

    __slots__ = ("returned",)

    returned: deque[int]

    def __del__(self) -> None:
        self.returned.append(len(self))


class Eater(Protocol):
    """The attributes of a connection that concern its memory."""

    starved: bool
    begun_ms: int
    held: int
    fd: int


E = TypeVar("E", bound=Eater)


class Rations(Generic[E]):
    """One Processor's connections that wait for memory, and the favoured one that may grow. On its
    thread only.
    """

    def __init__(self, memory: RequestMemory) -> None:
        self.memory = memory
        self.waiting: dict[E, None] = {}
        self._favoured: E | None = None
        self._favoured_begun_ms = 0

    def may_grow(self, eater: E) -> bool:
        """Whether its full buffer may be replaced by a larger one; otherwise it waits for :meth:`fed`."""
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
        """The connections that may read again now, in the order in which they began to wait."""
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
        """Whether the favoured connection has finished its frame: the favour is for one frame only."""
        return favoured.fd < 0 or favoured.held == 0 or favoured.begun_ms != self._favoured_begun_ms

    def forget(self, eater: E) -> None:
        """Called when the connection reads again or is closed."""
        eater.starved = False
        self.waiting.pop(eater, None)
