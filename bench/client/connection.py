"""Sockets to a broker, with a buffer for received answers."""

from __future__ import annotations

import select
import socket
import struct
from collections.abc import Iterator

from bench.client.requests import (
    RawClientError,
    check_produced,
    end_offset_error,
    end_offset_request,
    metadata_request,
    produced_error_at,
    read_leaders,
)
from bench.client.tls import WOULD_BLOCK, ClientTls, pending
from rig.brokers import HOST

SOCKET_TIMEOUT_S = 60.0
LENGTH = struct.Struct(">i")
METADATA_ROOM = 1 << 20


class Connection:
    """A blocking connection that sends and receives whole frames."""

    def __init__(
        self, port: int, buffer_bytes: int = 4096, host: str = HOST, *, tls: ClientTls | None = None
    ) -> None:
        self._socket = _connect(host, port, tls)
        self._buffer = memoryview(bytearray(buffer_bytes))

    def send(self, request: bytes) -> None:
        """Sends a whole request."""
        self._socket.sendall(request)

    def receive(self) -> memoryview:
        """Receives one answer, without its length; valid until the next call."""
        self._receive_into(self._buffer[: LENGTH.size])
        answer = self._buffer[: _checked_size(self._buffer, 0)]
        self._receive_into(answer)
        return answer

    def ask(self, request: bytes) -> memoryview:
        """Sends a request and receives its answer."""
        self.send(request)
        return self.receive()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def _receive_into(self, view: memoryview) -> None:
        done = 0
        while done < len(view):
            count = self._socket.recv_into(view[done:])
            if count == 0:
                raise RawClientError("the broker closed the connection")
            done += count


class ReadyConnection:
    """A non-blocking connection for an event loop."""

    def __init__(
        self, port: int, buffer_bytes: int = 4096, host: str = HOST, *, tls: ClientTls | None = None
    ) -> None:
        self._socket = _connect(host, port, tls)
        self._socket.setblocking(False)
        self._buffer = memoryview(bytearray(buffer_bytes))
        self._filled = 0

    def fileno(self) -> int:
        """For ``select``."""
        return self._socket.fileno()

    def send(self, request: bytes) -> None:
        """Sends a whole request; waits while the socket is full."""
        rest = memoryview(request)
        while rest:
            try:
                rest = rest[self._socket.send(rest) :]
            except WOULD_BLOCK:
                _await_writable(self._socket)

    def answers(self) -> Iterator[memoryview]:
        """Receives what is there, without TLS once; yields each complete answer, valid until the next step."""
        yield from self._received()
        while pending(self._socket):
            yield from self._received()

    def _received(self) -> Iterator[memoryview]:
        try:
            count = self._socket.recv_into(self._buffer[self._filled :])
        except WOULD_BLOCK:
            return
        if count == 0:
            raise RawClientError("the broker closed the connection")
        self._filled += count
        at = 0
        while self._filled - at >= LENGTH.size:
            size = _checked_size(self._buffer, at)
            if self._filled - at < LENGTH.size + size:
                break
            at += LENGTH.size + size
            yield self._buffer[at - size : at]
        rest = self._filled - at
        if at and rest:
            self._buffer[:rest] = bytes(self._buffer[at : self._filled])
        self._filled = rest

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()


def leaders(port: int, topic: str) -> dict[int, int]:
    """Asks the broker at ``port`` for the port of each partition's leader."""
    connection = Connection(port, METADATA_ROOM)
    try:
        return read_leaders(bytes(connection.ask(metadata_request(topic))))
    finally:
        connection.close()


def serving_leaders(port: int, topic: str, partitions: int) -> dict[int, int] | None:
    """The leaders of all partitions; None while one is unknown or does not serve yet, as after a creation."""
    found = leaders(port, topic)
    if len(found) < partitions:
        return None
    for leader in set(found.values()):
        connection = Connection(leader)
        try:
            for partition in (partition for partition, at in found.items() if at == leader):
                answer = connection.ask(end_offset_request(topic, partition))
                if end_offset_error(answer, topic) != 0:
                    return None
        finally:
            connection.close()
    return found


def acknowledged(port: int, topic: str, request: bytes) -> bool:
    """Asks for one partition's Produce; True, or raises :class:`RawClientError` with the error in the answer."""
    connection = Connection(port)
    try:
        check_produced(connection.ask(request), produced_error_at(topic))
    finally:
        connection.close()
    return True


def _connect(host: str, port: int, tls: ClientTls | None = None) -> socket.socket:
    connected = socket.create_connection((host, port), timeout=SOCKET_TIMEOUT_S)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected if tls is None else tls.wrap(connected)


def _checked_size(buffer: memoryview, at: int) -> int:
    (size,) = LENGTH.unpack_from(buffer, at)
    if not 0 < size <= len(buffer) - LENGTH.size:
        raise RawClientError(f"an answer of {size} bytes, there is room for {len(buffer)}")
    return int(size)


def _await_writable(waiting: socket.socket) -> None:
    if not select.select([], [waiting], [], SOCKET_TIMEOUT_S)[1]:
        raise RawClientError(f"the broker took nothing for {SOCKET_TIMEOUT_S:.0f} s")
