"""Requests for which the RequestChannel has no room: a Processor hands them over again until it has."""

from __future__ import annotations

from collections import deque

from broker.network.connection import Connection
from broker.network.request_channel import Request


class StalledRequests:
    """One Processor's, on its thread. ``waiting`` is read only: whether there are any is asked in each turn."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Connection, Request]] = deque()

    def add(self, connection: Connection, request: Request) -> None:
        # What found no room yet is not given up for its peer's last byte.
        connection.is_half_closed = True
        self.waiting.append((connection, request))

    def retry(self) -> None:
        """Each address that finds no room waits for itself, in its order, and for no other."""
        full: set[str] = set()
        for _ in range(len(self.waiting)):
            connection, request = self.waiting.popleft()
            address = connection.info.client_address
            if connection.fd < 0:
                request.drop()
            elif address in full or not request.again():
                full.add(address)
                self.waiting.append((connection, request))
            else:
                del request.again  # it holds the request, which holds it
