"""A transport that must write before it can read, or read before it can write: the Processor waits for that."""

from __future__ import annotations

import select
import socket
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.processor import Processor
from broker.network.request_channel import ConnectionInfo
from broker.network.transport import Piece, PlainTransport, WriteBuffer
from tests.support.network import MAX_FRAME, Api, frame, read_answer


class Crossed:
    """A socket that asks for the other direction first, once for reading and once for writing."""

    room = 1
    drains = False

    def __init__(self, sock: socket.socket, *, reading: bool, writing: bool) -> None:
        self._plain = PlainTransport(sock)
        self._crosses_reading = reading
        self._crosses_writing = writing
        self.wants = 0
        self.crossed = 0
        self.write = self._plain.write

    def fileno(self) -> int:
        return self._plain.fileno()

    def receive(self, buffer: WriteBuffer, most: int) -> int:
        self.wants = 0
        if self._crosses_reading:
            self._crosses_reading = False
            self.crossed += 1
            self.wants = select.EPOLLOUT
            raise BlockingIOError
        return self._plain.receive(buffer, most)

    def send(self, out: deque[Piece]) -> int:
        self.wants = 0
        if self._crosses_writing and out:
            self._crosses_writing = False
            self.crossed += 1
            self.wants = select.EPOLLIN
            return 0
        return self._plain.send(out)

    def has_ended(self) -> bool:
        return self._plain.has_ended()

    def hang_up(self) -> None:
        self._plain.hang_up()

    def close(self) -> None:
        self._plain.close()


@pytest.fixture
def processor() -> Iterator[Processor]:
    quotas = ConnectionQuotas(100, 100, {})
    made = Processor(0, Api(), lambda: False, max_frame_bytes=MAX_FRAME, idle_ms=-1, quotas=quotas)
    made.start()
    yield made
    made.stop()


@contextmanager
def crossed(processor: Processor, *, reading: bool, writing: bool) -> Iterator[tuple[Crossed, socket.socket]]:
    """A transport of the processor, and its peer's socket."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(20)
    ours.setblocking(False)
    with theirs:
        transport = Crossed(ours, reading=reading, writing=writing)
        processor.adopt(transport, ConnectionInfo("1", "127.0.0.1", "SSL"))
        yield transport, theirs


def test_a_read_that_must_write_first_goes_on_when_the_socket_is_writable(processor: Processor) -> None:
    with crossed(processor, reading=True, writing=False) as (transport, theirs):
        for number in range(3):
            theirs.sendall(frame(number, b"x"))
            assert read_answer(theirs) == (number, b"x")
        assert transport.crossed == 1


def test_a_write_that_must_read_first_goes_on_when_the_socket_is_readable(processor: Processor) -> None:
    with crossed(processor, reading=False, writing=True) as (transport, theirs):
        theirs.sendall(frame(1, b"x"))
        theirs.settimeout(0.3)
        with pytest.raises(TimeoutError):
            theirs.recv(1)
        theirs.settimeout(20)
        theirs.sendall(frame(2, b"y"))
        assert [read_answer(theirs) for _ in range(2)] == [(1, b"x"), (2, b"y")]
        assert transport.crossed == 1
