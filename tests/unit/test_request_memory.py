"""queued.max.request.bytes: what requests that came in part may hold, and that somebody always gets on."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from broker.config.endpoint import Endpoint
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.processor import Verdict
from broker.network.request_channel import Request
from broker.network.request_memory import Rations, RequestMemory
from broker.network.socket_server import SocketServer
from tests.support.raw_client import request_frame
from tests.support.wait import wait_until

KIB = 1024
BUDGET = 1024 * KIB
FRAME = 900 * KIB
WAIT_S = 60


class PeakMemory(RequestMemory):
    """Remembers the most that was held."""

    peak = 0

    def change(self, by: int) -> None:
        super().change(by)
        self.peak = max(self.peak, self.used)


class Guest:
    """As much of a connection as Rations looks at."""

    def __init__(self, fd: int) -> None:
        self.starved, self.begun_ms, self.held, self.fd = False, fd, 1, fd


# A request of so many bytes is answered with more than a socket takes, when the test says so.
LATE = 77
LATE_ANSWER = 32 * 1024 * KIB
late: list[Request] = []


def served(request: Request) -> Verdict:
    if len(request.body) == LATE:
        late.append(request)
        return Verdict.SERVED
    body = struct.pack(">ii", 8, request.correlation_id) + struct.pack(">i", len(request.body))
    request.respond((body,))
    return Verdict.SERVED


@pytest.fixture
def server() -> Iterator[SocketServer]:
    server = SocketServer(
        [Endpoint("127.0.0.1", 0, "PLAINTEXT", "PLAINTEXT")],
        num_processors=1,
        max_frame_bytes=FRAME + KIB,
        idle_ms=-1,
        send_buffer=-1,
        receive_buffer=-1,
        backlog=50,
        quotas=ConnectionQuotas(100, 100, {}),
    )
    server.memory = PeakMemory(BUDGET)
    server.bind()
    server.start(served)
    yield server
    server.stop()


def connect(server: SocketServer) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), WAIT_S)


def asked(sock: socket.socket, size: int) -> int:
    """Sends a request with a body of ``size`` bytes; the size that the server saw."""
    sock.sendall(request_frame(0, 3, bytes(size)))
    answer = b""
    while len(answer) < 12:
        answer += sock.recv(12 - len(answer)) or pytest.fail("closed")
    return int.from_bytes(answer[8:], "big")


def test_many_large_requests_at_once_are_all_answered_within_the_budget(server: SocketServer) -> None:
    sizes: list[int] = []

    def ask() -> None:
        with connect(server) as sock:
            sizes.extend(asked(sock, FRAME) for _ in range(3))

    threads = [threading.Thread(target=ask) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WAIT_S)
    assert sizes == [FRAME] * 36
    # One frame beyond the budget, one doubling that began below it, and what each had read when it was stopped.
    assert server.memory.peak <= BUDGET + 2 * FRAME + 12 * 512 * KIB  # type: ignore[attr-defined]


def test_half_frames_stop_at_the_budget_and_small_requests_are_answered(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = request_frame(0, 3, bytes(FRAME))[: FRAME // 2]
    hogs = [connect(server) for _ in range(20)]
    try:
        for hog in hogs:
            hog.setblocking(False)
            hog.send(half)  # what the system takes of it
        wait_until(lambda: server.memory.over)
        with connect(server) as small:
            assert asked(small, 100) == 100
        monkeypatch.setattr("broker.network.processor.LONGEST_FRAME_MS", 1)
        wait_until(lambda: not server.memory.over)
        with connect(server) as large:
            assert asked(large, FRAME) == FRAME
    finally:
        for hog in hogs:
            hog.close()
    wait_until(lambda: server.memory.used == 0)


def test_half_a_frame_of_who_reads_no_answer_is_given_up_too(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = request_frame(0, 3, bytes(FRAME))[: FRAME // 2]
    hogs = [connect(server) for _ in range(8)]
    late.clear()
    try:
        for hog in hogs:
            hog.sendall(request_frame(0, 3, bytes(LATE)))
            hog.setblocking(False)
            hog.send(half)
        wait_until(lambda: server.memory.over and len(late) == len(hogs))
        for request in late:
            answer = struct.pack(">ii", 4 + LATE_ANSWER, request.correlation_id) + bytes(LATE_ANSWER)
            request.respond((answer,))
        monkeypatch.setattr("broker.network.processor.LONGEST_FRAME_MS", 1)
        wait_until(lambda: not server.memory.over)
    finally:
        for hog in hogs:
            hog.close()


def test_the_favoured_one_goes_on_and_the_next_follows() -> None:
    memory = RequestMemory(10)
    rations: Rations[Guest] = Rations(memory)
    first, second, third = (Guest(fd) for fd in (1, 2, 3))
    assert rations.may_grow(first)
    memory.change(10)
    assert rations.may_grow(first)
    assert not rations.may_grow(second)
    assert not rations.may_grow(third)
    assert (second.starved, third.starved) == (True, True)
    assert rations.fed() == []
    first.held = 0
    assert rations.fed() == [second]
    assert rations.may_grow(second)
    second.fd = -1
    assert rations.fed() == [third]


def test_favour_ends_with_the_frame() -> None:
    memory = RequestMemory(10)
    rations: Rations[Guest] = Rations(memory)
    greedy, patient = Guest(1), Guest(2)
    memory.change(10)
    assert rations.may_grow(greedy)
    assert not rations.may_grow(patient)
    greedy.begun_ms += 1
    assert rations.fed() == [patient]
    assert not rations.may_grow(greedy)


def test_all_go_on_when_there_is_memory_again() -> None:
    memory = RequestMemory(10)
    rations: Rations[Guest] = Rations(memory)
    guests = [Guest(fd) for fd in range(1, 4)]
    memory.change(10)
    assert [rations.may_grow(guest) for guest in guests] == [True, False, False]
    memory.change(-1)
    assert rations.fed() == guests[1:]
    assert not any(guest.starved for guest in guests)


@pytest.mark.parametrize("limit", [-1, 0])
def test_without_a_limit_nothing_is_short(limit: int) -> None:
    memory = RequestMemory(limit)
    memory.change(1 << 40)
    assert not memory.over
