"""Who may connect, for how long, and what a connection may cost."""

from __future__ import annotations

import itertools
import socket
import struct
from contextlib import ExitStack

import pytest
import structlog

from broker.network.acceptor import BindError
from broker.network.connection_quotas import ConnectionLimits, ConnectionQuotas, ListenerLimits
from broker.network.socket_server import SocketServer
from rig.wait import last_for, wait_until
from tests.support.network import MAX_FRAME, Api, frame, is_closed, make_server, read_answer, spend


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
    quotas = ConnectionQuotas(3, 100, {}, protected_listeners={"BROKER"})
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


def test_at_its_own_limit_a_listener_lets_clients_wait_and_others_do_not(api: Api) -> None:
    quotas = ConnectionQuotas(100, 100, {})
    quotas.limits = ConnectionLimits(100, 100, listeners={"PLAINTEXT": ListenerLimits(1)})
    server = make_server(quotas, listeners=("PLAINTEXT", "OTHER"))
    server.bind()
    server.start(api)
    limited, other = (("127.0.0.1", server.bound_ports[name]) for name in ("PLAINTEXT", "OTHER"))
    with ExitStack() as stack:
        stack.callback(server.stop)
        first = stack.enter_context(socket.create_connection(limited, 10))
        spend(api, [first], 0, 1)
        waits = stack.enter_context(socket.create_connection(limited, 10))
        waits.sendall(frame(7))
        spend(api, [stack.enter_context(socket.create_connection(other, 10)), first], 0, 10)
        assert 7 not in api.seen
        first.close()
        assert read_answer(waits)[0] == 7


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

    def settle() -> bool:
        api.seen.append(server.connection_count)
        return False

    server.start(api, settle)
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
    second = make_server(ConnectionQuotas(1, 1, {}), port=port)
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
