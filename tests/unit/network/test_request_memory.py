"""queued.max.request.bytes: what requests that came in part may hold, and that somebody always gets on."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator

import pytest

from broker.config.endpoint import Endpoint
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.request_channel import Request, Verdict
from broker.network.request_memory import Rations, RequestMemory
from broker.network.socket_server import SocketServer
from rig.raw_client import request_frame
from rig.wait import wait_until

KIB = 1024
BUDGET = 1024 * KIB
FRAME = 900 * KIB
WAIT_S = 60


class PeakMemory(RequestMemory):
    """Remembers the most that was held."""

    peak = 0

    def _change(self, by: int) -> None:
        super()._change(by)
        self.peak = max(self.peak, self.used)


class Guest:
    """As much of a connection as Rations looks at."""

    def __init__(self, fd: int) -> None:
        self.starved, self.begun_ms, self.held, self.fd = False, fd, 1, fd


# A request of so many bytes is kept until the test says so.
KEPT = 800 * KIB
kept: list[Request] = []
# A request of so many bytes is answered with more than a socket takes, when the test says so.
LATE = 77
LATE_ANSWER = 32 * 1024 * KIB
late: list[Request] = []


def served(request: Request) -> Verdict:
    if len(request.body) == LATE:
        late.append(request)
        return Verdict.SERVED
    if len(request.body) == KEPT:
        request.keep()
        kept.append(request)
        return Verdict.QUEUED
    answer(request)
    return Verdict.SERVED


def answer(request: Request) -> None:
    body = struct.pack(">ii", 8, request.correlation_id) + struct.pack(">i", len(request.body))
    request.respond((body,))


@pytest.fixture
def server() -> Iterator[SocketServer]:
    server = SocketServer(
        [Endpoint("127.0.0.1", 0, "PLAINTEXT", "PLAINTEXT"), Endpoint("127.0.0.1", 0, "BROKER", "PLAINTEXT")],
        num_processors=1,
        max_frame_bytes=FRAME + KIB,
        idle_ms=-1,
        send_buffer=-1,
        receive_buffer=-1,
        backlog=50,
        quotas=ConnectionQuotas(100, 100, {}, protected_listeners={"BROKER"}),
    )
    server.memory = PeakMemory(BUDGET)
    server.bind()
    server.start(served)
    yield server
    server.stop()


def connect(server: SocketServer, listener: str = "PLAINTEXT") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.bound_ports[listener]), WAIT_S)


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
        monkeypatch.setattr("broker.network.sweep.LONGEST_FRAME_MS", 1)
        wait_until(lambda: not server.memory.over)
        with connect(server) as large:
            assert asked(large, FRAME) == FRAME
    finally:
        for hog in hogs:
            hog.close()
    wait_until(lambda: server.memory.used == 0)


@pytest.mark.parametrize("asked", [1, 2], ids=["all are answered", "another answer is to come"])
def test_half_a_frame_of_who_reads_no_answer_is_given_up_too(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch, asked: int
) -> None:
    half = request_frame(0, 3, bytes(FRAME))[: FRAME // 2]
    hogs = [connect(server) for _ in range(8)]
    late.clear()
    try:
        for hog in hogs:
            hog.sendall(asked * request_frame(0, 3, bytes(LATE)))
            hog.setblocking(False)
            hog.send(half)
        wait_until(lambda: server.memory.over and len(late) == asked * len(hogs))
        for request in late[::asked]:  # the second ones wait for what their peers never do
            answer = struct.pack(">ii", 4 + LATE_ANSWER, request.correlation_id) + bytes(LATE_ANSWER)
            request.respond((answer,))
        monkeypatch.setattr("broker.network.sweep.LONGEST_FRAME_MS", 1)
        wait_until(lambda: not server.memory.over)
    finally:
        for hog in hogs:
            hog.close()


def test_half_a_frame_behind_as_many_requests_as_may_wait_is_given_up_too(
    server: SocketServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = 128 * request_frame(0, 3, bytes(LATE)) + request_frame(0, 3, bytes(FRAME))[: 200 * KIB]
    hogs = [connect(server) for _ in range(20)]
    late.clear()
    try:
        for hog in hogs:
            hog.setblocking(False)
            hog.send(many)
        wait_until(lambda: server.memory.over)
        monkeypatch.setattr("broker.network.sweep.LONGEST_FRAME_MS", 1)
        monkeypatch.setattr("broker.network.sweep.LONGEST_OWED_MS", 1)
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


def test_a_kept_body_counts_until_nobody_has_it_any_more() -> None:
    memory = RequestMemory(10)
    kept_body = memory.keep(memoryview(b"twelve bytes"))
    part = kept_body[:6]
    assert (bytes(part), memory.used, memory.kept, memory.over) == (b"twelve", 12, 12, True)
    del kept_body
    memory.collect()
    assert memory.over
    del part
    memory.collect()
    assert (memory.used, memory.kept, memory.over) == (0, 0, False)


def test_nobody_is_favoured_while_what_is_kept_is_the_whole_budget() -> None:
    memory = RequestMemory(10)
    rations: Rations[Guest] = Rations(memory)
    kept_body = memory.keep(memoryview(bytes(10)))
    guests = [Guest(1), Guest(2)]
    assert [rations.may_grow(guest) for guest in guests] == [False, False]
    assert rations.fed() == []
    del kept_body
    assert rations.fed() == guests


def test_bodies_that_wait_for_a_handler_are_part_of_the_budget_and_given_back(server: SocketServer) -> None:
    kept.clear()
    sizes: list[int] = []

    def ask() -> None:
        with connect(server) as sock:
            sizes.append(asked(sock, KEPT))

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_until(lambda: server.memory.keeps_too_much)
    with connect(server) as small, connect(server, "BROKER") as broker:
        for _ in range(5):
            assert asked(small, 100) == 100
            assert asked(broker, FRAME) == FRAME
    assert server.memory.kept <= BUDGET + 2 * KEPT
    answered = 0
    while answered < 20:
        wait_until(lambda: bool(kept))
        answer(kept.pop())
        answered += 1
    for thread in threads:
        thread.join(WAIT_S)
    assert sizes == [KEPT] * 20
    # Both halves of it: what has come in part, and what is kept.
    assert server.memory.peak <= 2 * BUDGET + 2 * FRAME + 20 * 512 * KIB  # type: ignore[attr-defined]
    wait_until(lambda: server.memory.used - server.memory.kept == 0)
    server.memory.collect()
    assert server.memory.used == 0


def test_bodies_of_who_hangs_up_are_given_back_when_no_handler_has_them_any_more(
    server: SocketServer,
) -> None:
    kept.clear()
    with connect(server) as sock:
        sock.sendall(request_frame(0, 3, bytes(KEPT)))
        wait_until(lambda: len(kept) == 1)
    wait_until(lambda: kept[0].connection.gone)
    server.memory.collect()
    assert server.memory.kept == KEPT
    kept.clear()
    server.memory.collect()
    assert server.memory.kept == 0


def test_one_request_larger_than_the_budget_is_served(server: SocketServer) -> None:
    server.memory.limit = 100 * KIB
    kept.clear()
    with connect(server) as sock, connect(server) as next_one:
        sock.sendall(request_frame(0, 3, bytes(KEPT)))
        wait_until(lambda: len(kept) == 1)
        assert server.memory.keeps_too_much
        threading.Thread(
            target=lambda: next_one.sendall(request_frame(0, 3, bytes(FRAME))), daemon=True
        ).start()
        answer(kept.pop())
        assert sock.recv(12)
        assert next_one.recv(12)
