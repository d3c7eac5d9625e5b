"""The client's side of TLS: version 1.3 with AES-256-GCM, whichever broker is at the other end."""

from __future__ import annotations

import socket
import ssl
from dataclasses import dataclass
from functools import cache
from typing import Final

from bench.client.requests import RawClientError
from rig.certificates import trusting

CIPHER: Final = "TLS_AES_256_GCM_SHA384"
HOST_NAME: Final = "localhost"
WOULD_BLOCK: Final = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


@dataclass(frozen=True, slots=True)
class ClientTls:
    """What a client needs: the CA of the broker's certificate, as PEM."""

    ca: str

    def wrap(self, connected: socket.socket) -> ssl.SSLSocket:
        """Shakes hands, in full: no session is resumed. Raises for another cipher than :data:`CIPHER`, so that
        all brokers are measured with the same one.
        """
        secured = _context(self.ca).wrap_socket(connected, server_hostname=HOST_NAME)
        cipher = secured.cipher()
        if cipher is None or cipher[0] != CIPHER:
            secured.close()
            raise RawClientError(f"the broker chose {cipher}, not {CIPHER}")
        return secured


@cache
def _context(ca: str) -> ssl.SSLContext:
    context = trusting(ca)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def pending(connected: socket.socket) -> int:
    """Bytes that are decrypted and not received yet: ``select`` does not report them."""
    return connected.pending() if isinstance(connected, ssl.SSLSocket) else 0
