"""Guests of a Processor's loop, and what a turn puts off to its end: over real sockets."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from broker.network.request_channel import Request, Verdict
from broker.network.socket_server import SocketServer
from rig.wait import wait_until
from tests.support.loops import bound_server
from tests.support.network import frame

WAIT_S = 30


class Listener:
    """A guest that keeps what it hears, and leaves when it hears ``bye``."""

    waits_to_send = False

    def __init__(self, ear: socket.socket) -> None:
        self._ear = ear
        self.heard: list[bytes] = []
        self.left = threading.Event()

    def fileno(self) -> int:
        return self._ear.fileno()

    def on_ready(self) -> bool:
        self.heard.append(self._ear.recv(100))
        return self.heard[-1] not in {b"bye", b""}

    def on_left(self) -> None:
        self.left.set()


def answer_at_once(request: Request) -> Verdict:
    request.respond((struct.pack(">ii", 4, request.correlation_id),))
    return Verdict.SERVED


@pytest.fixture
def server() -> Iterator[SocketServer]:
    server = bound_server()
    server.start(answer_at_once)
    yield server
    server.stop()


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    mouth, ear = socket.socketpair()
    with mouth, ear:
        ear.setblocking(False)
        yield mouth, ear


def test_a_guest_hears_what_comes_until_it_leaves(
    server: SocketServer, pair: tuple[socket.socket, socket.socket]
) -> None:
    mouth, ear = pair
    guest = Listener(ear)
    assert server.invite(guest)
    mouth.send(b"one")
    wait_until(lambda: guest.heard == [b"one"], WAIT_S)
    assert not guest.left.is_set()
    mouth.send(b"bye")
    assert guest.left.wait(WAIT_S)
    mouth.send(b"to nobody")
    again = Listener(ear)
    assert server.invite(again)
    wait_until(lambda: again.heard == [b"to nobody"], WAIT_S)
    assert guest.heard == [b"one", b"bye"]


def test_a_guest_learns_that_its_peer_is_gone(
    server: SocketServer, pair: tuple[socket.socket, socket.socket]
) -> None:
    mouth, ear = pair
    guest = Listener(ear)
    server.invite(guest)
    mouth.shutdown(socket.SHUT_RDWR)
    assert guest.left.wait(WAIT_S)
    assert guest.heard == [b""]


def test_guests_are_seen_off_when_the_loop_ends(pair: tuple[socket.socket, socket.socket]) -> None:
    server = bound_server()
    server.start(answer_at_once)
    early, late = Listener(pair[1]), Listener(pair[0])
    server.invite(early)
    server.stop()
    assert early.left.is_set()
    server.invite(late)
    assert late.left.is_set()


def test_a_guest_whose_socket_is_closed_already_has_left_and_harms_nobody(
    server: SocketServer, pair: tuple[socket.socket, socket.socket]
) -> None:
    with socket.socket() as unused:
        closed = Listener(unused)
    assert server.invite(closed)
    assert closed.left.wait(WAIT_S)
    guest = Listener(pair[1])
    server.invite(guest)
    pair[0].send(b"bye")
    assert guest.left.wait(WAIT_S)


def test_nobody_is_a_guest_of_a_server_that_does_not_run(pair: tuple[socket.socket, socket.socket]) -> None:
    server = bound_server()
    assert not server.invite(Listener(pair[1]))
    server.stop()


def test_what_requests_put_off_is_settled_before_the_loop_waits_again() -> None:
    events: list[object] = []

    def dispatch(request: Request) -> Verdict:
        events.append(request.correlation_id)
        return answer_at_once(request)

    def settle() -> bool:
        events.append("settled")
        return False

    server = bound_server()
    server.start(dispatch, settle)
    try:
        with socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), WAIT_S) as client:
            payload = struct.pack(">hhih", 3, 1, 0, 1) + b"c"
            frames = [
                struct.pack(">i", len(payload)) + struct.pack(">hhih", 3, 1, n, 1) + b"c" for n in (1, 2)
            ]
            client.sendall(b"".join(frames))
            wait_until(lambda: 2 in events and events[-1] == "settled", WAIT_S)
    finally:
        server.stop()
    first = events.index(1)
    assert events[first : first + 3] == [1, 2, "settled"]


def test_what_is_left_until_the_answers_are_sent_comes_after_them() -> None:
    has_answer = threading.Event()
    had_answer: list[bool] = []
    turns: list[str] = []

    def dispatch(request: Request) -> Verdict:
        turns.append("asked")
        return answer_at_once(request)

    def settle() -> bool:
        match turns[-1:]:
            case ["asked"]:
                turns.append("left for later")
                return True
            case ["left for later"]:
                had_answer.append(has_answer.wait(WAIT_S))
                turns.append("done")
        return False

    server = bound_server()
    server.start(dispatch, settle)
    try:
        with socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), WAIT_S) as client:
            payload = struct.pack(">hhih", 3, 1, 7, 1) + b"c"
            client.sendall(struct.pack(">i", len(payload)) + payload)
            assert client.recv(100) == struct.pack(">ii", 4, 7)
            has_answer.set()
            wait_until(lambda: turns == ["asked", "left for later", "done"], WAIT_S)
    finally:
        server.stop()
    assert had_answer == [True]


def test_a_peer_whose_requests_leave_work_for_later_keeps_nobody_waiting() -> None:
    """Each request is answered as the turn settles, and leaves something until its answer is sent."""
    mine, arrival, yours, both_sent = range(1, 101), 999, 1_000, threading.Event()
    waiting: list[Request] = []
    events: list[int] = []

    def dispatch(request: Request) -> Verdict:
        events.append(request.correlation_id)
        if request.correlation_id == mine[0]:
            assert both_sent.wait(WAIT_S)
        if request.correlation_id in {arrival, yours}:
            return answer_at_once(request)
        request.keep()
        waiting.append(request)
        return Verdict.QUEUED

    def settle() -> bool:
        answered = len(waiting)
        while waiting:
            answer_at_once(waiting.pop())
        return answered > 0

    server = bound_server()
    server.start(dispatch, settle)
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    try:
        with (
            socket.create_connection(address, WAIT_S) as peer,
            socket.create_connection(address, WAIT_S) as other,
        ):
            other.sendall(frame(arrival))
            assert other.recv(100) == struct.pack(">ii", 4, arrival)  # so the Processor has it
            peer.sendall(b"".join(frame(number) for number in mine))
            other.sendall(frame(yours))
            both_sent.set()
            wait_until(lambda: len(events) == 102, WAIT_S)
    finally:
        server.stop()
    assert events.index(yours) < 10
