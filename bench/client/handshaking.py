"""TLS handshakes, one after the other, each in full and on a new connection."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from bench.client.connection import Connection
from bench.client.hostile import Peer
from bench.client.tls import ClientTls
from rig.brokers import HOST
from rig.wire import API_VERSIONS, framed

RESET: Final = struct.pack("ii", 1, 0)
QUESTION: Final = framed(API_VERSIONS, 0, 1, b"")


def shake_hands(port: int, tls: ClientTls, seconds: float) -> int:
    """Connects, shakes hands, and asks for the API versions, again and again; returns how often.

    With TLS 1.3 a client is ready before the broker is. The answer shows that the broker has finished, too.
    """
    count = 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        connection = Connection(port, tls=tls)
        try:
            connection.ask(QUESTION)
        finally:
            connection.close()
        count += 1
    return count


@dataclass(frozen=True, slots=True)
class Handshakes:
    """A hostile peer that shakes hands without end, and sends nothing."""

    tls: ClientTls

    def begin(self, peer: Peer) -> Iterator[None]:
        """Yields after each handshake."""
        while True:
            with socket.create_connection((HOST, peer.port), peer.left()) as connected:
                # Without a reset each would keep a port for a minute.
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                self.tls.wrap(connected).close()
            peer.answered += 1
            yield
