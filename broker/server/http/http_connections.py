"""Limits HTTP connections: few in total, fewer per address; a new one replaces an idle one, or one whose client
does not take its response.

A client that connects and sends nothing, or sends or reads slowly, can therefore lose its own connection, but not
block others.
"""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

MAX_CONNECTIONS: Final = 16
MAX_PER_ADDRESS: Final = 4
# A client that has not taken its response after this time loses its place if another one needs it.
SLOW_S: Final = 1.0


class HttpConnection:
    """An accepted connection; ``busy`` from the end of a request's head to the end of its response, which is being
    sent since ``sending_since_s``. ``is_put_out`` once another one has its place.
    """

    __slots__ = ("address", "busy", "is_put_out", "sending_since_s", "socket")

    def __init__(self, sock: socket.socket, address: str) -> None:
        self.socket = sock
        self.address = address
        self.busy = False
        self.sending_since_s: float | None = None
        self.is_put_out = False

    def put_out(self) -> None:
        """Wakes the thread that waits for its next request; that thread closes the socket."""
        self.is_put_out = True
        with suppress(OSError):  # the client closed first
            # Of TLS only the connection below: its thread may be inside OpenSSL.
            socket.socket.shutdown(self.socket, socket.SHUT_RDWR)


class HttpConnections:
    """The open connections. Thread-safe: the acceptor admits, each connection's thread leaves."""

    def __init__(self) -> None:
        self._open: list[HttpConnection] = []  # oldest first
        self._lock = threading.Lock()  # lock order 76

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, sock: socket.socket, address: str) -> HttpConnection | None:
        """Makes room by closing the oldest idle connection, one whose client is slow, or one of an address that has
        more than its share; None if all candidates are busy.
        """
        made = HttpConnection(sock, address)
        with self._lock:
            same = [connection for connection in self._open if connection.address == address]
            if len(same) >= MAX_PER_ADDRESS:
                candidates = same
            elif len(self._open) >= MAX_CONNECTIONS:
                candidates = self._open
            else:
                self._open.append(made)
                return made
            oldest = _to_put_out(candidates, len(same))
            if oldest is None:
                return None
            self._open.remove(oldest)
            self._open.append(made)
        oldest.put_out()
        return made

    def leave(self, connection: HttpConnection) -> None:
        """Removes the connection; harmless if it was already replaced."""
        with self._lock, suppress(ValueError):
            self._open.remove(connection)


def _to_put_out(candidates: Sequence[HttpConnection], own: int) -> HttpConnection | None:
    """The oldest idle one, or else the oldest whose client is slow. Or else one of the address that has the most:
    more than the newcomer's, which has ``own``, will have.
    """
    for connection in candidates:
        if not connection.busy:
            return connection
    slow_s = time.monotonic() - SLOW_S
    for connection in candidates:
        since_s = connection.sending_since_s
        if since_s is not None and since_s <= slow_s:
            return connection
    counts = Counter(connection.address for connection in candidates)
    greedy = max(candidates, key=lambda each: counts[each.address])
    return greedy if counts[greedy.address] > own + 1 else None
