"""The connections of a Processor that are throttled, ordered by when that ends (KIP-219).

Kafka keeps them in a DelayQueue for each quota, with a thread each. Here the network thread itself looks when
the first one ends, and waits for events no longer than that.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterator
from typing import Final, Generic, Protocol, TypeVar

_NEVER: Final = 1 << 62
_FEW: Final = 64


class Throttleable(Protocol):
    """The attribute of a connection that says when its throttle ends, on the monotonic clock."""

    throttled_until_ns: int


C = TypeVar("C", bound=Throttleable)


class Throttled(Generic[C]):
    """The throttled connections of one Processor, used on its thread only.

    Each is here once. A throttle may be prolonged meanwhile: that is noticed when the earlier end comes.
    ``next_ns``: when to call :meth:`ended` next; public because reading it costs a tenth of a method call.
    """

    def __init__(self) -> None:
        self.next_ns = _NEVER
        self._heap: list[tuple[int, int, C]] = []
        self._members: set[C] = set()
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._members)

    def add(self, connection: C) -> None:
        self._members.add(connection)
        self._push(connection)
        self._look()

    def ended(self, now_ns: int) -> Iterator[C]:
        """Removes and yields those whose throttle has ended."""
        while self._heap and self._heap[0][0] <= now_ns:
            _, _, connection = heapq.heappop(self._heap)
            if connection not in self._members:
                continue
            if connection.throttled_until_ns > now_ns:
                self._push(connection)
                continue
            self._members.remove(connection)
            yield connection
        self._look()

    def forget(self, connection: C) -> None:
        """Called when the connection is closed. Its memory is not kept for as long as it was throttled."""
        self._members.discard(connection)
        if len(self._heap) > 2 * len(self._members) + _FEW:
            self._heap = [entry for entry in self._heap if entry[2] in self._members]
            heapq.heapify(self._heap)
            self._look()

    def _push(self, connection: C) -> None:
        heapq.heappush(self._heap, (connection.throttled_until_ns, next(self._numbers), connection))

    def _look(self) -> None:
        self.next_ns = self._heap[0][0] if self._heap else _NEVER
