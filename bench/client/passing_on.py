"""Measures a record's way to a waiting reader without a broker: a server that only writes it to a file, acknowledges it
and passes it on, in this order, as Landline does.

The same client sends to it as to the brokers, at the same rate, in the same run. It is a Python process of one thread
too; what a broker takes beside it is the broker's own work.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import tempfile
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from bench.client.bare import bare_server
from bench.client.batches import Batch
from bench.client.connection import LENGTH, ReadyConnection
from bench.client.latency import EndToEnd, EndToEndLoop
from bench.client.requests import RawClientError
from rig.brokers import HOST

# About as long as Kafka's.
ACK = struct.pack(">i60x", 60)
NUMBER = struct.Struct(">q")
NEXT = struct.Struct(">iq52x")
MOST = 65_536


def passed_on(batch: Batch, per_second: int, seconds: float, directory: Path) -> EndToEnd:
    """The times of records of ``batch``'s size, written at a fixed rate to a file in ``directory``."""
    request = LENGTH.pack(len(batch.data)) + batch.data
    with bare_server(serve, directory, len(request)) as port:
        # The server tells them apart by their order.
        writer, reader = ReadyConnection(port), ReadyConnection(port, MOST)
        return _OfABareServer(writer, reader, request, per_second=per_second, seconds=seconds).run()


class _OfABareServer(EndToEndLoop):
    """An answer to the reader is one record, which begins with its number."""

    def next_request(self, read: int) -> bytes:
        return NEXT.pack(NEXT.size - LENGTH.size, read)

    def records_of(self, answer: memoryview) -> list[int]:
        (number,) = NUMBER.unpack_from(answer)
        return [number]

    def check(self, answer: memoryview) -> None:
        if len(answer) != len(ACK) - LENGTH.size:
            raise RawClientError(f"an acknowledgement of {len(answer)} bytes")


def serve(pipe: Pipe, directory: Path, size: int) -> None:
    """The server's process: one thread, one epoll, requests of ``size`` bytes, until its client goes."""
    listener = socket.create_server((HOST, 0))
    pipe.send(listener.getsockname()[1])
    writer, reader = (_connected(listener) for _ in range(2))
    poll = select.epoll()
    poll.register(writer, select.EPOLLIN)
    poll.register(reader, select.EPOLLIN)
    with tempfile.TemporaryFile(dir=directory) as file:
        record, number = bytearray(size), 0
        while True:
            for ready, _ in poll.poll():
                if ready == reader.fileno():
                    if not reader.recv(MOST):  # else it waits for the next one
                        return
                    continue
                if not writer.recv_into(record, size, socket.MSG_WAITALL):
                    return
                NUMBER.pack_into(record, LENGTH.size, number)
                os.pwrite(file.fileno(), record, number * size)
                writer.send(ACK)
                reader.send(record)
                number += 1


def _connected(listener: socket.socket) -> socket.socket:
    connected = listener.accept()[0]
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connected
