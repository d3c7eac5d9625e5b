"""Whose turn it is: items by the address that asks and the connection it asks through, round robin over both.

Who asks the most so waits the longest, and for himself: an address with a thousand connections gets one item for each
one of an address with a single connection.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Generic, TypeVar

T = TypeVar("T")


class FairRounds(Generic[T]):
    """Each address has its turn, and in an address's turn the connection of it that waits the longest since its last;
    a connection's items keep their order. Not thread-safe. Both ends cost the same however many wait.
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
        """The address whose turn it is, and its item. Raises KeyError when there is none."""
        address, connections = self._addresses.popitem(last=False)
        connection_id, items = connections.popitem(last=False)
        item = items.popleft()
        if items:
            connections[connection_id] = items
        if connections:
            self._addresses[address] = connections
        self._size -= 1
        return address, item
