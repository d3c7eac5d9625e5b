"""Accepted connections that wait because ``max.connection.creation.rate`` is used up, served by address
in turn.

Kafka admits waiting connections in order of arrival, so one client that connects constantly uses up the rate
for all. Here a connection from another address is next but one. An address may have no more connections
waiting than there are free places, as in the queue for the handlers (ADR 29): alone it fills half of them.
"""

from __future__ import annotations

import socket
from typing import Final, Generic, TypeVar

from broker.network.fair_rounds import FairRounds

PLACES: Final = 1_024
T = TypeVar("T")


class Arrivals(Generic[T]):
    """The waiting connections of one Acceptor, used on its thread only."""

    def __init__(self, places: int = PLACES) -> None:
        self._places = places
        self._rounds: FairRounds[T] = FairRounds()
        self._by_address: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rounds)

    def add(self, address: str, arrival: T) -> bool:
        """Queues a connection; False when there is no room for its address."""
        waiting = self._by_address.get(address, 0)
        if waiting >= self._places - len(self):
            return False
        self._by_address[address] = waiting + 1
        self._rounds.add(address, "", arrival)
        return True

    def next(self) -> tuple[str, T]:
        """Removes and returns the next connection and its address. There must be one."""
        address, arrival = self._rounds.next()
        waiting = self._by_address.pop(address) - 1
        if waiting:
            self._by_address[address] = waiting
        return address, arrival


def has_gone(sock: socket.socket) -> bool:
    """Whether the peer hung up while it waited and left nothing to read."""
    try:
        return not sock.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True
