"""TLS over a non-blocking socket: an ``SSLSocket`` after its handshake, as a :class:`.transport.Transport`.

Three properties of OpenSSL shape this module.

- Bytes that are decrypted but not yet taken do not make the descriptor readable. So :meth:`TlsTransport.receive`
  reads only into room for a whole record, and never leaves a part of one inside.
- A write that could not be completed must be repeated with the same bytes. So pieces are joined to chunks, and
  a chunk stays at the head of the output until OpenSSL has taken all of it.
- Reading may have to write, and writing to read. ``wants`` then has the event to wait for. With renegotiation
  off only a key update does that.

With TLS in the kernel, file regions go out by sendfile, as without encryption. The module
:mod:`.handshakes` does what comes before.
"""

from __future__ import annotations

import os
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final, cast

from broker.network.transport import MOST_AT_ONCE, Piece, WriteBuffer, file_ended, send_region
from broker.utils.file_region import FileRegion

#: The most plaintext that one TLS record has.
RECORD: Final = 16 * 1024
# Sent by one call: large enough that the calls cost little, small enough to keep for a slow reader.
_CHUNK: Final = 64 * 1024
_SOL_TLS: Final = 282
_TLS_TX: Final = 1
_HEADER: Final = 5
_ALERT: Final = 21
_APPLICATION_DATA: Final = 23
# A record of TLS 1.3 with an alert: two bytes, the hidden type and the tag. No request is that short.
_HIDDEN_ALERT: Final = 2 + 1 + 16


def is_goodbye(peeked: bytes) -> bool:
    """Whether undecrypted bytes are nothing but an alert, which ends a connection."""
    if not peeked:
        return True
    if len(peeked) < _HEADER:
        return False
    size = int.from_bytes(peeked[3:_HEADER], "big")
    alone = len(peeked) == _HEADER + size
    return alone and (peeked[0] == _ALERT or (peeked[0] == _APPLICATION_DATA and size <= _HIDDEN_ALERT))


def sends_in_kernel(sock: socket.socket) -> bool:
    """Whether the kernel encrypts what is sent by this socket (kTLS)."""
    try:
        return bool(sock.getsockopt(_SOL_TLS, _TLS_TX, 40))
    except OSError:
        return False


class TlsTransport:
    """A TLS connection; Kafka's SslTransportLayer. Made after the handshake. One thread at a time uses it;
    any thread may call :meth:`hang_up`.
    """

    __slots__ = ("_begun", "_fd", "_in_kernel", "_read", "_socket", "_write", "wants")

    room: Final = RECORD
    drains: Final = False  # a record at a time

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._socket = sock
        self._fd = sock.fileno()
        # Into a buffer, it returns the number of bytes.
        self._read = cast("Callable[[int, memoryview], int]", sock.read)
        self._write = sock.write
        self._in_kernel = sends_in_kernel(sock)
        self._begun = False  # OpenSSL has begun to send the head of the output
        self.wants = 0

    def __repr__(self) -> str:
        where = "kernel" if self._in_kernel else "process"
        return f"<TlsTransport {self._socket.version()} in the {where}>"

    def fileno(self) -> int:
        return self._fd

    def pending(self) -> int:
        """Decrypted bytes that were not received; 0 between two calls of :meth:`receive`."""
        return self._socket.pending()

    def receive(self, buffer: WriteBuffer, most: int = 0) -> int:
        view = memoryview(buffer)
        end = most or len(view)
        filled = 0
        try:
            while end - filled >= RECORD:
                count = self._read(end - filled, view[filled:end])
                filled += count
                if count != RECORD:  # the sender's last record for now
                    break
        except ssl.SSLWantReadError:
            self.wants = 0
            if not filled:
                raise BlockingIOError from None
        except ssl.SSLWantWriteError:
            self.wants = select.EPOLLOUT
            if not filled:
                raise BlockingIOError from None
        else:
            self.wants = 0
        return filled

    def write(self, data: memoryview) -> int:
        try:
            return self._write(data)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, out: deque[Piece]) -> int:
        total = 0
        self.wants = 0
        try:
            while out and total < MOST_AT_ONCE:
                head = out[0]
                if self._in_kernel and isinstance(head, FileRegion):
                    sent, more = send_region(self._fd, out, head, MOST_AT_ONCE - total)
                    total += sent
                    if not more:
                        break
                    continue
                if not self._begun:
                    head = _next_chunk(out, with_regions=not self._in_kernel)
                    self._begun = True
                total += self._write(head) if head else 0  # type: ignore[arg-type]
                self._begun = False
                out.popleft()
        except ssl.SSLWantWriteError:
            pass
        except ssl.SSLWantReadError:
            self.wants = select.EPOLLIN
        return total

    def has_ended(self) -> bool:
        try:
            return is_goodbye(socket.socket.recv(self._socket, 64, socket.MSG_PEEK))
        except BlockingIOError:
            return False
        except OSError:
            return True

    def hang_up(self) -> None:
        # Not SSLSocket.shutdown: after that the socket reads and writes without encryption.
        with suppress(OSError):
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        with suppress(OSError, ValueError):  # tells the peer that nothing was cut off; it need not answer
            self._socket.unwrap()
        self._socket.close()


def _next_chunk(out: deque[Piece], *, with_regions: bool) -> bytes | memoryview:
    """Replaces the first pieces of the output by one chunk, which is returned."""
    head = out.popleft()
    chunk: bytes | memoryview
    if isinstance(head, FileRegion) or (len(head) < _CHUNK and out):
        chunk = _joined(head, out, with_regions=with_regions)
    else:
        chunk, rest = _cut(head, _CHUNK)
        if rest is not None:
            out.appendleft(rest)
    out.appendleft(chunk)
    return chunk


def _joined(piece: Piece, out: deque[Piece], *, with_regions: bool) -> bytes:
    parts: list[bytes | memoryview] = []
    left = _CHUNK
    while True:
        part, rest = _read(piece, left) if isinstance(piece, FileRegion) else _cut(piece, left)
        parts.append(part)
        left -= len(part)
        if rest is not None:
            out.appendleft(rest)
        if not left or not out or (isinstance(out[0], FileRegion) and not with_regions):
            break
        piece = out.popleft()
    return parts[0] if len(parts) == 1 and isinstance(parts[0], bytes) else b"".join(parts)


def _cut(piece: bytes | memoryview, most: int) -> tuple[bytes | memoryview, Piece | None]:
    if len(piece) <= most:
        return piece, None
    whole = memoryview(piece)
    return whole[:most], whole[most:]


def _read(region: FileRegion, most: int) -> tuple[bytes, Piece | None]:
    """The first bytes of a file region, and the rest of it."""
    part = os.pread(region.file.fileno(), min(region.size, most), region.position)
    if not part:
        raise file_ended(region)
    if len(part) == region.size:
        return part, None
    return part, FileRegion(region.file, region.position + len(part), region.size - len(part))
