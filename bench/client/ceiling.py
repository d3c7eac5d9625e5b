"""Measures this machine's limit for loopback and sendfile: a server that only answers requests
by ``sendfile``.

The same client reads from it as from the brokers, in the same run, so that a broker's fetch can be compared
with it.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import time
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from bench.client.bare import bare_server
from bench.client.connection import Connection
from rig.brokers import HOST

CONNECTIONS = 3
REQUEST = b"next"


def sendfile_rate(file: Path, answer_bytes: int, total_bytes: int) -> float:
    """The rate, in bytes per second, of answers of ``answer_bytes`` from ``file``, over as many connections
    as for brokers.
    """
    with bare_server(serve, file, answer_bytes) as port:
        connections = [Connection(port, answer_bytes + 4096) for _ in range(CONNECTIONS)]
        for connection in connections:
            connection.send(REQUEST)
        moved, start = 0, time.perf_counter()
        while moved < total_bytes:
            for connection in connections:
                moved += len(connection.receive())
                connection.send(REQUEST)
        seconds = time.perf_counter() - start
        for connection in connections:
            connection.receive()
            connection.close()
    return moved / seconds


def serve(pipe: Pipe, file: Path, answer_bytes: int) -> None:
    """The server's process: one thread, one epoll, non-blocking sockets, until it is killed."""
    listener = socket.create_server((HOST, 0))
    pipe.send(listener.getsockname()[1])
    fd = os.open(file, os.O_RDONLY)
    clients: dict[int, _Client] = {}
    poll = select.epoll()
    poll.register(listener, select.EPOLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == listener.fileno():
                client = _Client(listener.accept()[0], fd, answer_bytes)
                clients[client.socket.fileno()] = client
                poll.register(client.socket, select.EPOLLIN)
            elif (wanted := clients[ready].go_on()) is None:
                poll.unregister(ready)
                clients.pop(ready).socket.close()
            else:
                poll.modify(ready, wanted)


class _Client:
    """One connection: its position in the file, which is read in a loop, and the unsent part of an answer."""

    def __init__(self, connected: socket.socket, fd: int, size: int) -> None:
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket = connected
        self._fd, self._size = fd, size
        self._last = os.fstat(fd).st_size - size
        self._place = self._left = 0

    def go_on(self) -> int | None:
        """Reads a request, or sends more of an answer; returns the event to wait for, None when the client
        is gone.
        """
        if self._left == 0:
            if not self.socket.recv(len(REQUEST)):
                return None
            self.socket.send(struct.pack(">i", self._size), socket.MSG_MORE)
            self._left = self._size
            if self._place > self._last:
                self._place = 0
        try:
            while self._left:
                sent = os.sendfile(self.socket.fileno(), self._fd, self._place, self._left)
                self._place += sent
                self._left -= sent
        except BlockingIOError:
            return select.EPOLLOUT
        return select.EPOLLIN
