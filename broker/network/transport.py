"""What carries a connection's bytes: the socket itself, or TLS over it.

:class:`PlainTransport` is the socket. TLS is in :mod:`.tls_transport`, which only a broker with TLS imports:
OpenSSL takes memory. `connection` and `broker.replication.fetch_guest` decide what to send and to receive.
"""

from __future__ import annotations

import os
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

from broker.network.request_channel import ConnectionInfo
from broker.utils.file_region import FileRegion

Piece = bytes | memoryview | FileRegion
WriteBuffer = bytearray | memoryview
_MAX_IOV: Final = 64
# Otherwise a reader as fast as sendfile could take all of fetch.max.bytes in one turn while the others wait.
MOST_AT_ONCE: Final = 2 * 1024 * 1024


class Transport(Protocol):
    """A non-blocking, connected byte stream; Kafka's TransportLayer.

    Nothing that was received is kept inside: what the caller did not get makes the descriptor readable. For
    that, :attr:`receive` needs room for at least ``room`` bytes. ``drains``: if it receives less than there was room
    for, nothing is left until more arrives (but behind urgent data, which no Kafka client sends). ``wants`` is the
    epoll event that the transport itself waits for, instead of what the caller waits for; 0 for none.
    """

    @property
    def room(self) -> int: ...

    @property
    def drains(self) -> bool: ...

    @property
    def wants(self) -> int: ...

    @property
    def receive(self) -> Callable[[WriteBuffer, int], int]:
        """Receives into a buffer (0: as much as fits) and returns the number of bytes; 0 at the end.
        Raises BlockingIOError when there is no data, OSError for a broken connection.
        """

    @property
    def write(self) -> Callable[[memoryview], int]:
        """Sends a part of the bytes and returns its size. Raises BlockingIOError when none can be sent; then
        the same bytes must be given again.
        """

    def fileno(self) -> int: ...

    def send(self, out: deque[Piece]) -> int:
        """Sends what the socket takes of ``out`` and removes it, up to one turn's share. Returns the bytes
        sent. Raises OSError.
        """

    def has_ended(self) -> bool:
        """Whether a peer that has shut down its sending side has left no data to read."""

    def hang_up(self) -> None:
        """Ends both directions, but does not close the descriptor. May be called from any thread."""

    def close(self) -> None: ...


Adopt = Callable[[Transport, ConnectionInfo], None]


class Security(Protocol):
    """What secures the connections of some listeners before a Processor gets them."""

    def covers(self, listener: str) -> bool: ...

    def secure(
        self, sock: socket.socket, info: ConnectionInfo, adopt: Adopt, on_failed: Callable[[], None]
    ) -> None:
        """Secures an accepted, non-blocking socket, and passes it to ``adopt``, or closes it and calls
        ``on_failed``; either on another thread.
        """

    def start(self) -> None: ...

    def stop(self) -> None:
        """Closes all connections that are not secured yet."""


class PlainTransport:
    """A socket without encryption; Kafka's PlaintextTransportLayer. ``receive`` and ``write`` are the
    socket's own functions: no call is added.
    """

    __slots__ = ("_fd", "_send", "_sendmsg", "_socket", "receive", "write")

    room: Final = 1
    drains: Final = True
    wants: Final = 0

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        self._sendmsg = sock.sendmsg
        self.receive: Callable[[WriteBuffer, int], int] = sock.recv_into
        self._send: Callable[[bytes | memoryview, int], int] = sock.send
        self.write: Callable[[memoryview], int] = sock.send

    def fileno(self) -> int:
        return self._fd

    def send(self, out: deque[Piece]) -> int:
        total = 0
        while out and total < MOST_AT_ONCE:
            head = out[0]
            if isinstance(head, FileRegion):
                sent, complete = send_region(self._fd, out, head, MOST_AT_ONCE - total)
            else:
                sent, complete = self._send_bytes(out)
            total += sent
            if not complete:
                break
        return total

    def _send_bytes(self, out: deque[Piece]) -> tuple[int, bool]:
        if len(out) == 1 or isinstance(out[1], FileRegion):  # as nearly always
            return self._send_one(out, 0 if len(out) == 1 else socket.MSG_MORE)
        batch: list[bytes | memoryview] = []
        more = 0
        for piece in out:
            if isinstance(piece, FileRegion) or len(batch) == _MAX_IOV:
                more = socket.MSG_MORE
                break
            batch.append(piece)
        try:
            sent = self._sendmsg(batch, (), more)
        except BlockingIOError:
            return 0, False
        left = sent
        for piece in batch:
            if left < len(piece):
                out[0] = memoryview(piece)[left:]
                return sent, False
            left -= len(piece)
            out.popleft()
        return sent, True

    def _send_one(self, out: deque[Piece], flags: int) -> tuple[int, bool]:
        piece = out[0]
        assert not isinstance(piece, FileRegion)
        try:
            sent = self._send(piece, flags)
        except BlockingIOError:
            return 0, False
        if sent < len(piece):
            out[0] = memoryview(piece)[sent:]
            return sent, False
        out.popleft()
        return sent, True

    def has_ended(self) -> bool:
        try:
            return not self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def hang_up(self) -> None:
        with suppress(OSError):  # the peer closed first
            self._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._socket.close()


def send_region(fd: int, out: deque[Piece], region: FileRegion, most: int) -> tuple[int, bool]:
    """Sends at most ``most`` bytes of ``region``, the first piece of ``out``, by sendfile. Returns the bytes
    sent and whether the socket may take more.
    """
    try:
        sent = os.sendfile(fd, region.file.fileno(), region.position, min(region.size, most))
    except BlockingIOError:
        return 0, False
    if sent == 0:
        raise file_ended(region)
    if sent == region.size:
        out.popleft()
    else:
        out[0] = FileRegion(region.file, region.position + sent, region.size - sent)
    return sent, True  # the socket may take more; the next call finds out


def file_ended(region: FileRegion) -> OSError:
    return OSError(f"segment file ended {region.size} bytes early; was it truncated from outside?")
