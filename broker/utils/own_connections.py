"""Traffic of the connections that this process opened, as counted by the kernel (TCP_INFO).

Connections that others opened to its listeners are not counted. A connection that was opened and closed
between two calls of :meth:`OwnConnections.look` is missed. Linux only.
"""

from __future__ import annotations

import os
import socket
import struct
from pathlib import Path
from typing import NamedTuple

_TCP_INFO_BYTES = 136
_ACKED_RECEIVED = struct.Struct("=QQ")  # tcpi_bytes_acked, tcpi_bytes_received
_ACKED_AT = 120


class ConnectionTotals(NamedTuple):
    """Bytes sent (and acknowledged by the peer's kernel) and received, and the number
    of connections opened.
    """

    bytes: int
    connections: int


class OwnConnections:
    """Counts own connections, and keeps the last known counts of closed ones. One thread at a time."""

    def __init__(self) -> None:
        self._bytes: dict[str, int] = {}  # by the socket's inode

    def look(self) -> ConnectionTotals:
        """The totals since the process started. Raises OSError without /proc."""
        listening: set[int] = set()
        found: dict[str, tuple[int, int]] = {}
        for entry in Path("/proc/self/fd").iterdir():
            try:
                inode = str(entry.readlink())
                if inode.startswith("socket:"):
                    _examine(int(entry.name), inode, listening, found)
            except OSError:  # closed meanwhile, or not connected
                continue
        self._bytes |= {inode: count for inode, (port, count) in found.items() if port not in listening}
        return ConnectionTotals(sum(self._bytes.values()), len(self._bytes))


def _examine(fd: int, inode: str, listening: set[int], found: dict[str, tuple[int, int]]) -> None:
    # Use a duplicate: the original may be closed, and its number reused, before it is examined.
    with socket.socket(fileno=os.dup(fd)) as sock:
        if sock.type != socket.SOCK_STREAM or sock.family not in (socket.AF_INET, socket.AF_INET6):
            return
        port = sock.getsockname()[1]
        if sock.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            listening.add(port)
            return
        sock.getpeername()
        info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        found[inode] = (port, sum(_ACKED_RECEIVED.unpack_from(info, _ACKED_AT)))
