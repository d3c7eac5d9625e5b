"""Requests that found no room in the RequestChannel. The Processor retries them until there is room."""

from __future__ import annotations

from collections import deque

from broker.network.connection import Connection
from broker.network.request_channel import Request


class StalledRequests:
    """The stalled requests of one Processor, used on its thread only. ``waiting`` is read-only for callers."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Connection, Request]] = deque()

    def add(self, connection: Connection, request: Request) -> None:
        # A request that found no room yet is not abandoned when its peer shuts down its sending side.
        connection.is_half_closed = True
        self.waiting.append((connection, request))

    def retry(self) -> None:
        """Retries all, in order. An address without room blocks only its own requests, which keep their order."""
        full: set[str] = set()
        for _ in range(len(self.waiting)):
            connection, request = self.waiting.popleft()
            address = connection.info.client_address
            if connection.fd < 0:
                request.drop()
            elif address in full or request.again is None or not request.again():
                full.add(address)
                self.waiting.append((connection, request))
            else:
                request.again = None  # breaks a reference cycle with the request
