"""The network layer over real sockets, with a dispatch that stands for the APIs."""

from __future__ import annotations

import itertools
import os
import socket
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
import structlog

from broker.config.endpoint import Endpoint
from broker.network import shares
from broker.network.acceptor import BindError
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas
from broker.network.processor import Verdict
from broker.network.request_channel import Request
from broker.network.socket_server import SocketServer
from broker.utils.file_region import FileRegion
from tests.support.wait import last_for, wait_until

METADATA = 3
MAX_FRAME = 1 << 20


def frame(correlation_id: int, body: bytes = b"", api_key: int = METADATA) -> bytes:
    payload = struct.pack(">hhih", api_key, 1, correlation_id, 1) + b"c" + body
    return struct.pack(">i", len(payload)) + payload


def answer(request: Request, body: bytes = b"") -> tuple[bytes, ...]:
    return (struct.pack(">ii", 4 + len(body), request.correlation_id) + body,)


class Api:
    """Keeps what it is told to keep; answers the rest at once with the request's body."""

    def __init__(self) -> None:
        self.parked: dict[int, Request] = {}
        self.seen: list[int] = []
        self.park: set[int] = set()
        self.queue: set[int] = set()
        self.full: set[int] = set()
        self.cost_ms = 0.0
        self.costs_ms: dict[int, float] = {}
        self.gates: dict[int, threading.Event] = {}
        self.thread_names: set[str] = set()

    def __call__(self, request: Request) -> Verdict:
        self.thread_names.add(threading.current_thread().name)
        number = request.correlation_id
        if number in self.full:
            request.keep()
            request.again = lambda: number not in self.full and self(request) is Verdict.SERVED
            return Verdict.FULL
        self.seen.append(number)
        if number in self.gates:
            assert self.gates[number].wait(30)
        done_ns = time.thread_time_ns() + self.costs_ms.get(number, self.cost_ms) * 1_000_000
        while time.thread_time_ns() < done_ns:  # a busy machine's others do not count
            pass
        if number in self.park | self.queue:
            request.keep()
            self.parked[number] = request
            return Verdict.QUEUED if number in self.queue else Verdict.SERVED
        request.respond(answer(request, bytes(request.body)))
        return Verdict.SERVED


def make_server(
    quotas: ConnectionQuotas, idle_ms: int = -1, listeners: tuple[str, ...] = ("PLAINTEXT",)
) -> SocketServer:
    return SocketServer(
        [Endpoint("127.0.0.1", 0, name, "PLAINTEXT") for name in listeners],
        num_processors=1,
        max_frame_bytes=MAX_FRAME,
        idle_ms=idle_ms,
        send_buffer=-1,
        receive_buffer=-1,
        backlog=50,
        quotas=quotas,
    )


@pytest.fixture
def api() -> Api:
    return Api()


@pytest.fixture
def server(api: Api) -> Iterator[SocketServer]:
    server = make_server(ConnectionQuotas(100, 100, {}))
    server.bind()
    server.start(api)
    yield server
    server.stop()


@pytest.fixture
def client(server: SocketServer) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), 10) as sock:
        yield sock


def read_answer(sock: socket.socket) -> tuple[int, bytes]:
    size, number = struct.unpack(">ii", read_exactly(sock, 8))
    return number, read_exactly(sock, size - 4)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError(f"closed after {len(data)} of {size} bytes")
        data += piece
    return data


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def test_request_is_served_on_the_processors_thread(client: socket.socket, api: Api) -> None:
    client.sendall(frame(7, b"hello"))
    assert read_answer(client) == (7, b"hello")
    assert api.thread_names == {"network-thread-0"}


def test_pipelined_requests_are_answered_in_their_order(client: socket.socket, api: Api) -> None:
    api.park = {1}
    client.sendall(b"".join(frame(number) for number in range(5)))
    wait_until(lambda: api.seen == [0, 1, 2, 3, 4], what="all requests seen")
    api.parked[1].respond(answer(api.parked[1]))
    assert [read_answer(client)[0] for _ in range(5)] == [0, 1, 2, 3, 4]


def test_dear_pipelined_requests_of_one_client_let_the_others_have_their_turns(
    server: SocketServer, client: socket.socket, api: Api
) -> None:
    api.cost_ms = 15
    with socket.create_connection(client.getpeername(), 10) as other:
        client.sendall(b"".join(frame(number) for number in range(50)))
        wait_until(lambda: 0 in api.seen, what="the first request seen")
        other.sendall(frame(1_000))
        assert read_answer(other)[0] == 1_000
        assert len(api.seen) < 20
    assert [read_answer(client)[0] for _ in range(50)] == list(range(50))


def test_dear_requests_that_wait_for_something_do_not_hold_back_the_ones_behind_them(
    client: socket.socket, api: Api
) -> None:
    """Three fetches that wait for records, each from a client that sends the next before."""
    api.cost_ms, api.park = 15, {0, 1, 2}
    client.sendall(b"".join(frame(number) for number in range(4)))
    wait_until(lambda: api.seen == [0, 1, 2, 3], what="all requests seen")
    for number in (2, 0, 1):
        api.parked[number].respond(answer(api.parked[number]))
    assert [read_answer(client)[0] for _ in range(4)] == [0, 1, 2, 3]


def test_queued_request_holds_back_dear_ones_too(client: socket.socket, api: Api) -> None:
    api.cost_ms, api.queue = 15, {3}
    client.sendall(b"".join(frame(number) for number in range(8)))
    assert [read_answer(client)[0] for _ in range(3)] == [0, 1, 2]
    wait_until(lambda: 3 in api.parked, what="request 3 queued")
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    assert api.seen == [0, 1, 2, 3]
    client.settimeout(10)
    api.parked[3].respond(answer(api.parked[3]))
    assert [read_answer(client)[0] for _ in range(5)] == [3, 4, 5, 6, 7]


def test_queued_request_holds_back_the_ones_behind_it(client: socket.socket, api: Api) -> None:
    api.queue = {0}
    client.sendall(frame(0) + frame(1))
    wait_until(lambda: 0 in api.parked, what="request 0 queued")
    assert api.seen == [0]
    api.parked[0].respond(answer(api.parked[0]))
    assert [read_answer(client)[0] for _ in range(2)] == [0, 1]


def test_request_waits_while_the_channel_is_full(client: socket.socket, api: Api) -> None:
    api.full = {0}
    client.sendall(frame(0, b"kept") + frame(1))
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
    client.settimeout(10)
    api.full = set()
    assert [read_answer(client) for _ in range(2)] == [(0, b"kept"), (1, b"")]


@pytest.mark.parametrize("size", [0, 1, 70_000, 300_000, MAX_FRAME - 20])
def test_request_of_any_size_arrives_whole(client: socket.socket, size: int) -> None:
    body = os.urandom(size)
    for number in range(3):
        threading.Thread(target=client.sendall, args=(frame(number, body),), daemon=True).start()
        assert read_answer(client) == (number, body)


def test_requests_cut_into_single_bytes_arrive_whole(client: socket.socket) -> None:
    for byte in frame(1, b"abc") + frame(2, b"def"):
        client.sendall(bytes((byte,)))
    assert [read_answer(client) for _ in range(2)] == [(1, b"abc"), (2, b"def")]


def test_announced_length_beyond_the_limit_closes_the_connection(client: socket.socket) -> None:
    client.sendall(struct.pack(">i", MAX_FRAME + 1))
    assert is_closed(client)


def test_negative_length_closes_the_connection(client: socket.socket) -> None:
    client.sendall(struct.pack(">i", -1))
    assert is_closed(client)


def test_unknown_api_key_closes_the_connection(client: socket.socket) -> None:
    client.sendall(frame(1, api_key=999))
    assert is_closed(client)


def test_garbage_closes_the_connection_and_no_other(client: socket.socket, server: SocketServer) -> None:
    with socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), 10) as other:
        client.sendall(b"GET / HTTP/1.1\r\nHost: broker\r\n\r\n")
        assert is_closed(client)
        other.sendall(frame(1))
        assert read_answer(other) == (1, b"")


def test_memory_follows_what_arrived_not_what_was_announced(server: SocketServer) -> None:
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    clients = [socket.create_connection(address, 10) for _ in range(20)]
    for sock in clients:
        sock.sendall(struct.pack(">i", MAX_FRAME) + bytes(100))
    (processor,) = server._processors
    wait_until(lambda: sum(c.buffer is not None for c in list(processor._connections.values())) == 20)
    assert all(len(c.buffer or b"") <= 64 * 1024 for c in list(processor._connections.values()))
    for sock in clients:
        sock.close()


def test_file_region_is_sent_between_bytes(client: socket.socket, api: Api) -> None:
    content = os.urandom(3_000_000)
    with tempfile.TemporaryFile(buffering=0) as file:
        file.write(content)
        api.park = {5}
        client.sendall(frame(5))
        wait_until(lambda: 5 in api.parked)
        size = 2_500_000
        head = struct.pack(">ii", 4 + size + 3, 5)
        api.parked[5].respond((head, FileRegion(file, 100, size), b"end"))
        assert read_answer(client) == (5, content[100 : 100 + size] + b"end")


def test_acks_0_style_request_gets_no_answer(client: socket.socket, api: Api) -> None:
    api.park = {1}
    client.sendall(frame(1) + frame(2))
    wait_until(lambda: 1 in api.parked)
    api.parked[1].respond_nothing()
    assert read_answer(client)[0] == 2


def test_answering_twice_is_an_error(client: socket.socket, api: Api) -> None:
    api.park = {1}
    client.sendall(frame(1))
    wait_until(lambda: 1 in api.parked)
    request = api.parked[1]
    request.respond(answer(request))
    with pytest.raises(RuntimeError, match="answered twice"):
        request.respond(answer(request))


def test_connections_beyond_the_limit_of_an_address_are_closed(api: Api) -> None:
    server = make_server(ConnectionQuotas(100, 2, {}))
    server.bind()
    server.start(api)
    try:
        address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
        held = [socket.create_connection(address, 10) for _ in range(2)]
        wait_until(lambda: server.connection_count == 2)
        with socket.create_connection(address, 10) as third:
            assert is_closed(third)
        held[0].close()
        wait_until(lambda: server.quotas.total == 1)
        with socket.create_connection(address, 10) as fourth:
            fourth.sendall(frame(1))
            assert read_answer(fourth)[0] == 1
        held[1].close()
    finally:
        server.stop()


def test_at_the_limit_clients_wait_and_a_broker_is_let_in_for_the_least_used_of_them(api: Api) -> None:
    quotas = ConnectionQuotas(3, 100, {}, protected_listener="BROKER")
    server = make_server(quotas, listeners=("PLAINTEXT", "BROKER"))
    server.bind()
    server.start(api)
    clients, brokers = (("127.0.0.1", server.bound_ports[name]) for name in ("PLAINTEXT", "BROKER"))
    (processor,) = server._processors
    with ExitStack() as stack:
        stack.callback(server.stop)
        held = [stack.enter_context(socket.create_connection(clients, 10)) for _ in range(3)]
        for number in (1, 2, 0):
            wait_until(lambda: len(processor._connections) == 3)
            last_for(0.005)
            spend(api, [held[number]], 0, number)
        waits = stack.enter_context(socket.create_connection(clients, 10))
        waits.sendall(frame(7))
        broker = stack.enter_context(socket.create_connection(brokers, 10))
        spend(api, [broker], 0, 8)
        assert is_closed(held[1]), "the longest unused"
        spend(api, [held[0], held[2], broker], 0, 20)
        assert 7 not in api.seen
        quotas.limits = ConnectionLimits(4, 100)
        assert read_answer(waits)[0] == 7
        quotas.limits = ConnectionLimits(0, 100)
        assert all(is_closed(sock) for sock in (held[0], held[2], waits))
        spend(api, [broker], 0, 30)


def test_one_address_that_connects_all_the_time_does_not_use_up_the_rate_of_another(api: Api) -> None:
    quotas = ConnectionQuotas(1_000, 1_000, {}, 4)
    server = make_server(quotas)
    server.bind()
    server.start(api)
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    with ExitStack() as stack:
        stack.callback(server.stop)
        storm = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(60)]
        for sock in storm:
            sock.sendall(frame(1))
        one = stack.enter_context(socket.create_connection(address, 30, ("127.0.0.9", 0)))
        one.sendall(frame(2))
        assert read_answer(one)[0] == 2
        assert api.seen.count(1) < 30, "of 60 that came before, at 4 a second"
        for sock in storm[:50]:
            sock.close()
        assert read_answer(storm[-1])[0] == 1, "who hung up meanwhile is not waited for"
    assert quotas.total == 0


def test_many_idle_connections_are_closed_some_in_each_turn_and_told_of_in_one_line(api: Api) -> None:
    server = make_server(ConnectionQuotas(1_000, 1_000, {}), idle_ms=2_500)
    server.bind()
    server.start(api, lambda: api.seen.append(server.connection_count))
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    with ExitStack() as stack:
        stack.callback(server.stop)
        lines = stack.enter_context(structlog.testing.capture_logs())
        idle = [stack.enter_context(socket.create_connection(address, 30)) for _ in range(300)]
        assert all(is_closed(sock) for sock in idle)

        def told() -> list[int]:
            return [line["count"] for line in lines if line["event"] == "idle_connection_closed"]

        wait_until(lambda: sum(told()) == 300)
        assert len(told()) < 10, "one for each sweep"
        dropped = [before - after for before, after in itertools.pairwise(api.seen)]
        assert max(dropped) <= 100


def test_idle_connection_is_closed(api: Api) -> None:
    server = make_server(ConnectionQuotas(100, 100, {}), idle_ms=300)
    server.bind()
    server.start(api)
    try:
        with socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), 10) as sock:
            assert is_closed(sock)
    finally:
        server.stop()


def test_port_in_use_is_refused_with_what_to_do(server: SocketServer) -> None:
    port = server.bound_ports["PLAINTEXT"]
    second = SocketServer(
        [Endpoint("127.0.0.1", port, "PLAINTEXT", "PLAINTEXT")],
        num_processors=1,
        max_frame_bytes=MAX_FRAME,
        idle_ms=-1,
        send_buffer=-1,
        receive_buffer=-1,
        backlog=50,
        quotas=ConnectionQuotas(1, 1, {}),
    )
    with pytest.raises(
        BindError, match=rf"{port}: the port is in use; stop the other process or change listeners"
    ):
        second.bind()


def test_bound_listener_refuses_connections_until_it_is_started() -> None:
    server = make_server(ConnectionQuotas(1, 1, {}))
    server.bind()
    try:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", server.bound_ports["PLAINTEXT"]), 10)
    finally:
        server.stop()


def test_answers_of_other_threads_go_out_at_once_however_many_wake_the_processor(
    client: socket.socket, api: Api
) -> None:
    rounds = 300
    for start in range(0, 8 * rounds, 8):
        numbers = range(start, start + 8)
        api.park = set(numbers)
        client.sendall(b"".join(frame(number) for number in numbers))
        wait_until(lambda numbers=numbers: all(number in api.parked for number in numbers), interval=0.0005)
        threads = [
            threading.Thread(
                target=lambda number=number: api.parked[number].respond(answer(api.parked[number]))
            )
            for number in numbers
        ]
        for thread in threads:
            thread.start()
        assert [read_answer(client)[0] for _ in numbers] == list(numbers)
        for thread in threads:
            thread.join()
    client.sendall(frame(9999))
    assert read_answer(client)[0] == 9999


def test_one_address_without_room_does_not_keep_another_from_a_handler(
    server: SocketServer, client: socket.socket, api: Api
) -> None:
    api.full = {0, 5}
    with socket.create_connection(client.getpeername(), 10, ("127.0.0.9", 0)) as other:
        client.sendall(frame(0))
        time.sleep(0.05)  # so that it comes first; what is asserted holds in any order
        other.sendall(frame(5))
        (processor,) = server._processors
        wait_until(lambda: len(processor._stalled) == 2, what="both without room")
        api.full = {0}
        assert read_answer(other)[0] == 5
    assert api.seen == [5]


def test_a_closed_connection_is_marked_as_gone(server: SocketServer, client: socket.socket, api: Api) -> None:
    api.park = {1}
    client.sendall(frame(1))
    wait_until(lambda: 1 in api.parked)
    assert not api.parked[1].connection.gone
    client.close()
    wait_until(lambda: api.parked[1].connection.gone)


def spend(api: Api, clients: list[socket.socket], cost_ms: float, first: int) -> None:
    """Each client asks for something that costs so much, one after another."""
    api.cost_ms = cost_ms
    for number, sock in enumerate(clients, first):
        sock.sendall(frame(number))
        assert read_answer(sock)[0] == number


def test_dear_clients_come_last_and_share_one_part_of_a_turn_however_many_they_are(api: Api) -> None:
    settled = -1
    server = make_server(ConnectionQuotas(100, 100, {}))
    server.bind()
    server.start(api, lambda: api.seen.append(settled))
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    holder, quick, *dear = [socket.create_connection(address, 10) for _ in range(22)]
    try:
        for first in (100, 200):  # what they cost is measured from the second time on
            spend(api, dear, 4, first)
        (processor,) = server._processors
        wait_until(
            lambda: (
                sum(c.cost_ns > shares.DEAR_NS for c in list(processor._connections.values())) == 20
                and not processor._dear
            ),
            what="twenty dear connections, and none of them in a turn",
        )
        api.gates[7] = threading.Event()
        holder.sendall(frame(7))
        wait_until(lambda: 7 in api.seen, what="a thread that is held while the others ask")
        for sock in dear:
            sock.sendall(frame(1))
        quick.sendall(frame(2))
        api.gates[7].set()
        assert read_answer(quick)[0] == 2
        for sock in dear:
            assert read_answer(sock)[0] == 1
        seen = api.seen[api.seen.index(7) :]
        assert seen.index(2) < seen.index(1)
        most = run = 0
        for number in seen:
            run = 0 if number == settled else run + (number == 1)
            most = max(most, run)
        assert most <= 2, "of 4 ms each, when 5 ms are theirs"
    finally:
        for sock in (holder, quick, *dear):
            sock.close()
        server.stop()


@pytest.mark.parametrize(
    ("from_host", "cost_ms"), [("127.0.0.1", 0.0), ("127.0.0.9", 0.45)], ids=["who asks less", "elsewhere"]
)
def test_one_beside_a_crowd_of_cheap_ones_does_not_wait_for_all_of_them(
    api: Api, from_host: str, cost_ms: float
) -> None:
    server = make_server(ConnectionQuotas(1_000, 1_000, {}))
    server.bind()
    server.start(api)
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    holder, *crowd = [socket.create_connection(address, 30) for _ in range(301)]
    one = socket.create_connection(address, 30, (from_host, 0))
    try:
        for first in (10_000, 20_000):
            spend(api, crowd, 0.3, first)
            for number in range(4):
                spend(api, [one], cost_ms, first + 1_000 + number)
        api.gates[7] = threading.Event()
        api.costs_ms = {2: cost_ms}
        api.cost_ms = 0.3
        holder.sendall(frame(7))
        wait_until(lambda: 7 in api.seen, what="a thread that is held while the others ask")
        for sock in crowd:
            sock.sendall(frame(1))
        one.sendall(frame(2))
        api.gates[7].set()
        assert read_answer(one)[0] == 2
        for sock in crowd:
            assert read_answer(sock)[0] == 1
        waited_for = api.seen.index(2) - api.seen.index(7)
        assert waited_for < 60, "who is first of 300, until a turn is used up, and then it"
        (processor,) = server._processors
        wait_until(lambda: not processor._crowd, what="nobody left waiting")
        spend(api, crowd[:3], 0, 30_000)
    finally:
        for sock in (holder, one, *crowd):
            sock.close()
        server.stop()


def test_a_crowd_that_sends_many_at_a_time_and_hangs_up_is_served_and_forgotten(
    server: SocketServer, api: Api
) -> None:
    api.cost_ms = 0.2
    address = ("127.0.0.1", server.bound_ports["PLAINTEXT"])
    crowd = [socket.create_connection(address, 30) for _ in range(60)]
    for sock in crowd:
        sock.sendall(b"".join(frame(number) for number in range(20)))
    for sock in crowd[:30]:
        assert [read_answer(sock)[0] for _ in range(20)] == list(range(20))
    for sock in crowd:
        sock.close()
    wait_until(lambda: server.connection_count == 0)
    (processor,) = server._processors
    assert not processor._crowd
    with socket.create_connection(address, 10) as after:
        after.sendall(frame(1))
        assert read_answer(after)[0] == 1


def test_a_new_connection_of_an_address_that_was_dear_is_taken_for_dear_until_it_shows_its_cost(
    server: SocketServer, client: socket.socket, api: Api
) -> None:
    (processor,) = server._processors
    for first in (0, 1):
        spend(api, [client], 4, first)
    processor._sweep.due_ms = processor._sweep_ms = 1
    spend(api, [client], 4, 3)
    wait_until(lambda: processor._dear_addresses.first_cost("127.0.0.1") > 0, what="a sweep")
    with socket.create_connection(client.getpeername(), 10) as again:
        wait_until(lambda: server.connection_count == 2)
        costs = [c.cost_ns for c in list(processor._connections.values())]
        assert all(cost > shares.DEAR_NS for cost in costs)
        spend(api, [again], 0, 7)
        newest = list(processor._connections.values())[-1]
        wait_until(lambda: newest.cost_ns <= shares.DEAR_NS, what="it has shown what it costs")
    with socket.create_connection(client.getpeername(), 10, ("127.0.0.9", 0)) as elsewhere:
        wait_until(lambda: server.connection_count == 2)
        spend(api, [elsewhere], 0, 8)
        assert list(processor._connections.values())[-1].cost_ns == 0


def test_who_hangs_up_while_a_handler_has_its_request_is_gone(
    server: SocketServer, client: socket.socket, api: Api
) -> None:
    api.queue = {1}
    client.sendall(frame(1))
    wait_until(lambda: 1 in api.parked)
    client.close()
    wait_until(lambda: api.parked[1].connection.gone, what="the end seen while nothing is read")


def test_what_was_sent_before_the_end_is_served_though_a_handler_is_waited_for(
    client: socket.socket, api: Api
) -> None:
    api.queue = {1}
    client.sendall(frame(1) + frame(2))
    wait_until(lambda: 1 in api.parked)
    client.sendall(frame(3))
    client.shutdown(socket.SHUT_WR)
    time.sleep(0.1)  # so that it is seen; what is asserted holds in any order
    assert not api.parked[1].connection.gone
    api.parked[1].respond(answer(api.parked[1]))
    assert [read_answer(client)[0] for _ in range(3)] == [1, 2, 3]
