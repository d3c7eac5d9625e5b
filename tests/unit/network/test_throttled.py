"""A throttled connection gets its answers at once, and is not read until its time is over (KIP-219)."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from functools import partial

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.request_channel import Request, Verdict
from broker.network.socket_server import SocketServer
from broker.network.throttled import Throttled
from broker.quotas.allowance import Allowance
from rig.wait import last_for, wait_until
from tests.support.network import Api, answer, frame, is_closed, make_server, read_answer, spend

THROTTLE_S = 0.4


class ThrottlingApi(Api):
    """Throttles the connections of some requests, as a quota would."""

    def __init__(self) -> None:
        super().__init__()
        self.throttle: dict[int, float] = {}

    def __call__(self, request: Request) -> Verdict:
        seconds = self.throttle.get(request.correlation_id)
        if seconds is not None:
            request.connection.throttle(time.monotonic_ns() + int(seconds * 1e9))
        return super().__call__(request)


def started(stack: ExitStack) -> tuple[ThrottlingApi, SocketServer]:
    api, server = ThrottlingApi(), make_server(ConnectionQuotas(5_000, 5_000, {}))
    server.bind()
    server.start(api)
    stack.callback(server.stop)
    return api, server


def connect(stack: ExitStack, server: SocketServer) -> socket.socket:
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    return stack.enter_context(socket.create_connection(address, 30))


def seconds_for(sock: socket.socket, number: int) -> float:
    """How long the answer of that request takes."""
    began = time.monotonic()
    assert read_answer(sock)[0] == number
    return time.monotonic() - began


def test_the_answer_comes_at_once_and_the_next_request_is_read_later() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        api.throttle[1] = THROTTLE_S
        sock = connect(stack, server)
        sock.sendall(frame(1) + frame(2) + frame(3))
        assert seconds_for(sock, 1) < THROTTLE_S / 2
        assert api.seen == [1]
        assert seconds_for(sock, 2) > THROTTLE_S / 2
        assert seconds_for(sock, 3) < THROTTLE_S / 2


def test_others_are_served_meanwhile() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        api.throttle[1] = 30
        spend(api, [connect(stack, server)], 0, 1)
        spend(api, [connect(stack, server) for _ in range(5)], 0, 10)


def test_a_throttle_is_prolonged_by_a_later_answer_of_the_same_connection() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        api.park = {1, 2}
        sock = connect(stack, server)
        sock.sendall(frame(1) + frame(2))
        wait_until(lambda: len(api.parked) == 2)
        began = time.monotonic()
        for number, seconds in ((1, 0.1), (2, 2 * THROTTLE_S)):
            request = api.parked[number]
            request.connection.throttle(time.monotonic_ns() + int(seconds * 1e9))
            request.respond(answer(request))
            assert read_answer(sock)[0] == number
        sock.sendall(frame(3))
        assert read_answer(sock)[0] == 3
        assert time.monotonic() - began > 1.5 * THROTTLE_S


def test_a_request_on_its_way_to_a_handler_keeps_its_connection_muted_after_the_throttle() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        api.throttle[1] = 0.05
        api.queue = {1}
        sock = connect(stack, server)
        sock.sendall(frame(1) + frame(2))
        wait_until(lambda: 1 in api.parked)
        last_for(0.2)
        assert api.seen == [1]
        api.parked[1].respond(answer(api.parked[1]))
        assert [read_answer(sock)[0] for _ in range(2)] == [1, 2]


def test_who_hangs_up_while_throttled_is_noticed_and_not_kept() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        api.throttle[1] = 3_600
        (processor,) = server._processors
        for _ in range(200):
            with connect(stack, server) as sock:
                spend(api, [sock], 0, 1)
        wait_until(lambda: server.connection_count == 0)
        assert len(processor._throttled) == 0
        assert len(processor._throttled._heap) < 100


def test_many_whose_throttle_ends_together_are_all_served() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        crowd = [connect(stack, server) for _ in range(300)]
        api.throttle = dict.fromkeys(range(300), THROTTLE_S)
        for number, sock in enumerate(crowd):
            sock.sendall(frame(number) + frame(1_000 + number))
        api.cost_ms = 0.05
        for number, sock in enumerate(crowd):
            assert [read_answer(sock)[0] for _ in range(2)] == [number, 1_000 + number]


def test_a_connection_whose_throttled_answer_is_the_last_is_closed_with_it() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        api.throttle[1] = 3_600
        api.park = {1}
        sock = connect(stack, server)
        sock.sendall(frame(1))
        wait_until(lambda: 1 in api.parked)
        api.parked[1].close_connection()
        assert is_closed(sock)


def test_the_time_to_receive_and_to_send_is_counted_where_requests_are_measured() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        measured, other = connect(stack, server), connect(stack, server)
        api.park = {1, 2}
        for number, sock in ((1, measured), (2, other)):
            sock.sendall(frame(number))
            wait_until(partial(api.parked.__contains__, number))
        first, second = api.parked[1], api.parked[2]
        first.measure(lambda _request: 0, 0)
        assert first.used_ns(0) == 0, "from now on it is measured"
        for request in (first, second):
            request.respond(answer(request, bytes(100_000)))
        assert read_answer(measured)[0] == 1
        assert read_answer(other)[0] == 2
        wait_until(lambda: first.connection.network_ns > 0)
        assert second.connection.network_ns == -1
        assert first.used_ns(0) > first.thread_ns(0)
        assert first.used_ns(0) == first.thread_ns(0)
        spend(api, [measured], 0, 10)
        wait_until(lambda: first.connection.network_ns > 0)


def test_a_connection_that_closes_settles_its_parts_of_quotas() -> None:
    with ExitStack() as stack:
        api, server = started(stack)
        sock = connect(stack, server)
        api.park = {1}
        sock.sendall(frame(1))
        wait_until(lambda: 1 in api.parked)
        settled: list[Allowance] = []
        parts = [Allowance("app", 10, 1, settled.append) for _ in range(2)]
        info = api.parked[1].connection
        info.produced, info.timed = parts
        sock.close()
        wait_until(lambda: settled == parts)
        assert info.gone


class Member:
    """Of a connection, when its throttle ends."""

    def __init__(self, until_ns: int) -> None:
        self.throttled_until_ns = until_ns


def test_the_heap_tells_when_to_look_next() -> None:
    throttled: Throttled[Member] = Throttled()
    first, second = Member(10), Member(5)
    throttled.add(first)
    throttled.add(second)
    assert throttled.next_ns == 5
    second.throttled_until_ns = 20
    assert list(throttled.ended(9)) == []
    assert throttled.next_ns == 10
    assert list(throttled.ended(15)) == [first]
    throttled.forget(second)
    assert list(throttled.ended(30)) == []
    assert len(throttled) == 0
    assert throttled.next_ns > 1 << 60
