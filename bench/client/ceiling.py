"""What this machine's loopback and sendfile can do: a server that does nothing but answer a request by ``sendfile``.

It is read by the same client as the brokers are, in the same run: a broker's fetch is compared with it.
"""

from __future__ import annotations

import multiprocessing
import os
import select
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from bench.client.connection import Connection
from tests.support.brokers import HOST

CONNECTIONS = 3
START_TIMEOUT_S = 30.0
REQUEST = b"next"


def sendfile_rate(file: Path, answer_bytes: int, total_bytes: int) -> float:
    """Bytes per second of answers of ``answer_bytes`` out of ``file``, over as many connections as the brokers get."""
    with _server(file, answer_bytes) as port:
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


@contextmanager
def _server(file: Path, answer_bytes: int) -> Iterator[int]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=serve, args=(theirs, file, answer_bytes), daemon=True)
    process.start()
    theirs.close()
    try:
        if not ours.poll(START_TIMEOUT_S):
            raise TimeoutError("the sendfile server did not start")
        yield int(ours.recv())
    finally:
        process.kill()
        process.join()


def serve(pipe: Pipe, file: Path, answer_bytes: int) -> None:
    """The server's process: one thread, one epoll, until it is killed. The file is read round and round."""
    listener = socket.create_server((HOST, 0))
    pipe.send(listener.getsockname()[1])
    fd = os.open(file, os.O_RDONLY)
    last = os.fstat(fd).st_size - answer_bytes
    clients: dict[int, socket.socket] = {}
    places: dict[int, int] = {}
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    while True:
        for ready, _ in poll.poll():
            if ready == listener.fileno():
                client, _ = listener.accept()
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                clients[client.fileno()] = client
                places[client.fileno()] = 0
                poll.register(client.fileno(), select.EPOLLIN)
            elif not clients[ready].recv(len(REQUEST)):
                poll.unregister(ready)
                clients.pop(ready).close()
            else:
                places[ready] = _answer(clients[ready], fd, places[ready], answer_bytes, last)


def _answer(client: socket.socket, fd: int, place: int, size: int, last: int) -> int:
    client.send(struct.pack(">i", size), socket.MSG_MORE)
    start = place if place <= last else 0
    done = 0
    while done < size:
        done += os.sendfile(client.fileno(), fd, start + done, size - done)
    return start + size
