"""Round-robin queue: items by client address, and by connection within an address.

A client that sends the most waits the longest, and only for its own items: an address with a thousand
connections gets one item for each item of an address with a single connection.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairRounds(Generic[T]):
    """A queue that is fair to addresses and connections. Each address has its turn; within it, the connection
    that has waited longest since its last turn. A connection's items keep their order. Not thread-safe.
    Adding and removing take constant time.
    """

    def __init__(self) -> None:
        self._addresses: OrderedDict[str, OrderedDict[str, deque[T]]] = OrderedDict()
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def add(self, address: str, connection_id: str, item: T) -> None:
        connections = self._addresses.get(address)
        if connections is None:
            connections = self._addresses[address] = OrderedDict()
        items = connections.get(connection_id)
        if items is None:
            items = connections[connection_id] = deque()
        items.append(item)
        self._size += 1

    def next(self) -> tuple[str, T]:
        """The next address in turn, and its item. Raises KeyError when the queue is empty."""
        address, connections = self._addresses.popitem(last=False)
        connection_id, items = connections.popitem(last=False)
        item = items.popleft()
        if items:
            connections[connection_id] = items
        if connections:
            self._addresses[address] = connections
        self._size -= 1
        return address, item
