"""Hostile peers: each is a process that does one thing to a broker until its time is over.

They use as little CPU as possible and have the lowest priority (nice 19), so that the broker's work for them
harms others, not the work of sending it.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import resource
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from bench.client.process import ClientProcess
from rig.brokers import HOST

ROOM = 1 << 20
LENGTH = struct.Struct(">i")
LINGER = struct.pack("ii", 1, 0)
SPARE_FILES = 256
LEAST_WAIT_S = 0.01


@dataclass(frozen=True, slots=True)
class Tally:
    """What one peer got: the number of answers, and how often it was disconnected or rejected."""

    answered: int = 0
    closed: int = 0

    def __add__(self, other: Tally) -> Tally:
        return Tally(self.answered + other.answered, self.closed + other.closed)


class _OverError(Exception):
    """The peer's time is over."""


class Peer:
    """One connection, which is reopened when the broker closes it. Raises :class:`_OverError` when the time
    is over.
    """

    def __init__(self, port: int, end: float) -> None:
        self.port, self.end = port, end
        self._buffer = memoryview(bytearray(ROOM))
        self._socket: socket.socket | None = None
        self.answered = self.closed = 0

    def send(self, data: bytes) -> None:
        self._connected().sendall(data)

    def receive(self) -> bytes:
        """Returns the first bytes of an answer and discards the rest."""
        (size,) = LENGTH.unpack(self._exactly(LENGTH.size))
        head = self._exactly(min(size, 64))
        left = size - len(head)
        while left > 0:
            left -= self._some(left)
        self.answered += 1
        return head

    def drain(self) -> None:
        """Reads and discards everything until the broker closes the connection."""
        while self._some(ROOM):
            pass

    def reset(self) -> None:
        """Closes the connection with a reset, so that no port stays in TIME_WAIT."""
        if self._socket is not None:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, LINGER)
            self._socket.close()
            self._socket = None

    def lost(self) -> None:
        """Counts a connection that the broker closed or did not accept."""
        self.closed += 1
        self.reset()

    def _connected(self) -> socket.socket:
        if self._socket is None:
            self._socket = socket.create_connection((HOST, self.port), self.left())
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(self.left())
        return self._socket

    def left(self) -> float:
        """The remaining seconds; raises when there are none."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise _OverError
        return max(left, LEAST_WAIT_S)

    def _exactly(self, size: int) -> bytes:
        done = 0
        while done < size:
            done += self._take(self._buffer[done:size])
        return bytes(self._buffer[:size])

    def _some(self, most: int) -> int:
        return self._take(self._buffer[:most])

    def _take(self, view: memoryview) -> int:
        count = self._connected().recv_into(view)
        if count == 0:
            raise ConnectionResetError
        return count


@dataclass(frozen=True, slots=True)
class Repeated:
    """A peer that sends the frames one after the other, ``in_flight`` at a time, after ``opening`` on each
    new connection.
    """

    frames: Sequence[bytes]
    in_flight: int = 1
    opening: bytes = b""

    def begin(self, peer: Peer) -> Iterator[None]:
        """Yields after each answer."""
        if self.opening:
            peer.send(self.opening)
            peer.receive()
        sent = received = 0
        while True:
            while sent - received < self.in_flight:
                peer.send(self.frames[sent % len(self.frames)])
                sent += 1
            peer.receive()
            received += 1
            yield


@dataclass(frozen=True, slots=True)
class IdleSession:
    """A peer with a fetch session (v12 to v17), opened by ``opening``, whose fetches find nothing new."""

    opening: bytes
    empty: bytes
    epoch_at: int
    """The position of the session's epoch in ``empty``; its id is before it."""

    def begin(self, peer: Peer) -> Iterator[None]:
        """Yields after each answer."""
        peer.send(self.opening)
        (session,) = struct.unpack_from(">i", peer.receive(), 4 + 1 + 4 + 2)
        frame, epoch = bytearray(self.empty), 0
        while True:
            epoch += 1
            struct.pack_into(">ii", frame, self.epoch_at - 4, session, epoch)
            peer.send(bytes(frame))
            peer.receive()
            yield


@dataclass(frozen=True, slots=True)
class Held:
    """A peer that sends ``data`` on ``connections`` sockets and keeps them open: halves of requests, or
    fetches that wait.
    """

    data: bytes
    connections: int = 1

    def begin(self, peer: Peer) -> Iterator[None]:
        """Ends only when the time is over."""
        with ExitStack() as stack:
            for _ in range(self.connections):
                with suppress(TimeoutError):  # the broker accepts no more of it
                    held = stack.enter_context(socket.create_connection((HOST, peer.port), 5))
                    held.settimeout(0.3)
                    held.sendall(self.data)
            time.sleep(max(0.0, peer.end - time.monotonic()))
            yield


@dataclass(frozen=True, slots=True)
class Numbered:
    """A peer that repeats the frame with a different number at ``at`` each time, cycling
    through ``numbers``.
    """

    DIGITS: ClassVar = 8

    frame: bytes
    at: int
    numbers: int

    def begin(self, peer: Peer) -> Iterator[None]:
        """Yields after each answer."""
        frame = bytearray(self.frame)
        for number in itertools.cycle(range(self.numbers)):
            frame[self.at : self.at + self.DIGITS] = f"{number:0{self.DIGITS}}".encode()
            peer.send(bytes(frame))
            peer.receive()
            yield


@dataclass(frozen=True, slots=True)
class Crowd:
    """A peer with many ``connections``; each sends the frame again as soon as it has its answer."""

    frame: bytes
    connections: int

    def begin(self, peer: Peer) -> Iterator[None]:
        """Yields after each round."""
        allow_files(self.connections)
        with ExitStack() as stack, selectors.DefaultSelector() as selector:
            for _ in range(self.connections):
                one = stack.enter_context(socket.create_connection((HOST, peer.port), peer.left()))
                one.sendall(self.frame)
                one.setblocking(False)
                selector.register(one, selectors.EVENT_READ, [0])
            while selector.get_map():
                for key, _ in selector.select(peer.left()):
                    self._take(key.fileobj, key.data, peer, selector)
                yield
        raise ConnectionResetError

    def _take(self, one: Any, owed: list[int], peer: Peer, selector: selectors.DefaultSelector) -> None:
        """``owed``: the number of bytes of the answer still to come."""
        try:
            data = one.recv(ROOM)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            selector.unregister(one)
            peer.closed += 1
            return
        if owed[0] == 0:
            # The length is never split: it is the first data in the socket.
            owed[0] = LENGTH.size + LENGTH.unpack_from(data)[0]
        owed[0] -= len(data)
        if owed[0] <= 0:
            owed[0] = 0
            peer.answered += 1
            with suppress(BlockingIOError):
                one.send(self.frame)


@dataclass(frozen=True, slots=True)
class Storm:
    """A peer that connects, sends ``data`` and closes, as often as possible."""

    data: bytes = b""

    def begin(self, peer: Peer) -> Iterator[None]:
        """Yields after each connection."""
        while True:
            peer.send(self.data)
            peer.answered += 1
            peer.reset()
            yield


@dataclass(frozen=True, slots=True)
class Deaf:
    """A peer that sends the frame endlessly and reads no answer."""

    frame: bytes

    def begin(self, peer: Peer) -> Iterator[None]:
        """Yields after each request."""
        while True:
            peer.send(self.frame)
            yield


@dataclass(frozen=True, slots=True)
class Page:
    """A peer that requests a page of the HTTP endpoint, with a new connection for each."""

    path: str

    def begin(self, peer: Peer) -> Iterator[None]:
        """Yields after each page."""
        while True:
            peer.send(f"GET {self.path} HTTP/1.1\r\nHost: b\r\nConnection: close\r\n\r\n".encode())
            with suppress(ConnectionResetError):
                peer.drain()
            peer.answered += 1
            peer.reset()
            yield


class Hostility(Protocol):
    """What a peer does. It goes to the peer's process, so it must be picklable."""

    def begin(self, peer: Peer) -> Iterator[None]:
        """Does it, and yields now and then, so that it can end."""


def allow_files(count: int) -> None:
    """Raises this process's limit of open files to ``count`` and some, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + SPARE_FILES
    if soft >= wanted:
        return
    with suppress(ValueError, PermissionError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
        return
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class HostilePeer(ClientProcess[Tally]):
    """One peer; starts with ``go``, and may be ended at any time."""

    context: ClassVar = multiprocessing.get_context("forkserver")

    def __init__(self, does: Hostility, port: int, seconds: float) -> None:
        super().__init__(attack, does, port, seconds)


def attack(does: Hostility, port: int, seconds: float) -> Tally:
    """Runs it for this many seconds, in this process."""
    os.nice(19)
    end = time.monotonic() + seconds
    peer = Peer(port, end)
    while time.monotonic() < end:
        try:
            for _ in does.begin(peer):
                if time.monotonic() >= end:
                    break
        except (_OverError, TimeoutError):
            break
        except OSError:
            peer.lost()
    peer.reset()
    return Tally(peer.answered, peer.closed)
