"""Whose turn it is: dear clients, crowds and addresses beside one another."""

from __future__ import annotations

import socket
import threading

import pytest

from broker.network import shares
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.socket_server import SocketServer
from rig.wait import wait_until
from tests.support.network import Api, frame, make_server, read_answer, spend


def ask_together(api: Api, holder: socket.socket, many: list[socket.socket], one: socket.socket) -> list[int]:
    """Requests 1 of the many and 2 of the one, while the thread is held by 7; what it saw from then on."""
    api.gates[7] = threading.Event()
    holder.sendall(frame(7))
    wait_until(lambda: 7 in api.seen, what="a thread that is held while the others ask")
    for sock in many:
        sock.sendall(frame(1))
    one.sendall(frame(2))
    api.gates[7].set()
    assert read_answer(one)[0] == 2
    for sock in many:
        assert read_answer(sock)[0] == 1
    return api.seen[api.seen.index(7) :]


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


def test_one_address_without_room_does_not_keep_another_from_a_handler(
    server: SocketServer, client: socket.socket, api: Api
) -> None:
    api.full = {0, 5}
    with socket.create_connection(client.getpeername(), 10, ("127.0.0.9", 0)) as other:
        (processor,) = server._processors
        client.sendall(frame(0))
        wait_until(lambda: len(processor._stalled) == 1, what="the first without room")
        other.sendall(frame(5))
        wait_until(lambda: len(processor._stalled) == 2, what="both without room")
        api.full = {0}
        assert read_answer(other)[0] == 5
    assert api.seen == [5]


def test_dear_clients_come_last_and_share_one_part_of_a_turn_however_many_they_are(api: Api) -> None:
    settled = -1
    server = make_server(ConnectionQuotas(100, 100, {}))
    server.bind()
    server.start(api, lambda: bool(api.seen.append(settled)))
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
        seen = ask_together(api, holder, dear, quick)
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
        api.costs_ms = {2: cost_ms}
        api.cost_ms = 0.3
        seen = ask_together(api, holder, crowd, one)
        assert seen.index(2) < 60, "who is first of 300, until a turn is used up, and then it"
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
        wait_until(lambda: len(processor._connections) == 2)
        costs = [c.cost_ns for c in list(processor._connections.values())]
        assert all(cost > shares.DEAR_NS for cost in costs)
        newest = list(processor._connections.values())[-1]

        def has_shown_it() -> bool:
            """By several visits: on a slow machine a cheap one may take long."""
            spend(api, [again], 0, 7)
            return newest.cost_ns <= shares.DEAR_NS

        wait_until(has_shown_it, what="it has shown what it costs")
    wait_until(lambda: len(processor._connections) == 1)
    with socket.create_connection(client.getpeername(), 10, ("127.0.0.9", 0)) as elsewhere:
        wait_until(lambda: len(processor._connections) == 2)
        # Before its first request: one that takes long on a busy machine is measured from then on.
        assert list(processor._connections.values())[-1].cost_ns == 0
        spend(api, [elsewhere], 0, 8)
