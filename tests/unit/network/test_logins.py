"""SASL over real sockets: who is served, who is answered late, and who is closed."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterator

import pytest

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.sasl import Newcomers, SaslListeners
from broker.network.socket_server import SocketServer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.utils.timer import Timer
from rig.wait import wait_until
from tests.support.network import Api, frame, is_closed, make_server, read_answer, read_exactly
from tests.support.sasl_frames import answer, authenticate, handshake, make_offer, plain, request

VERSIONS = request(ApiKey.API_VERSIONS, 0, {}, 5)
DELAY_MS = 300


@pytest.fixture
def sasl() -> Iterator[SaslListeners]:
    timer = Timer("test")
    yield SaslListeners(
        {"SASL": make_offer()}, timer.add, failure_delay_ms=DELAY_MS, max_newcomers=4, max_login_ms=1_500
    )
    timer.stop()


@pytest.fixture
def served(api: Api, sasl: SaslListeners) -> Iterator[SocketServer]:
    server = make_server(ConnectionQuotas(100, 100, {}), listeners=("SASL", "PLAINTEXT"))
    server.bind()
    server.start(api, sasl=sasl)
    yield server
    server.stop()


@pytest.fixture
def peer(served: SocketServer) -> Iterator[socket.socket]:
    with connect(served) as sock:
        yield sock


def connect(server: SocketServer, listener: str = "SASL") -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.bound_ports[listener]), 10)


def read_frame(sock: socket.socket) -> bytes:
    (size,) = struct.unpack(">i", read_exactly(sock, 4))
    return read_exactly(sock, size)


def log_in(sock: socket.socket) -> None:
    sock.sendall(handshake() + authenticate(plain()))
    assert answer(ApiKey.SASL_HANDSHAKE, 1, read_frame(sock)).error_code == 0
    assert answer(ApiKey.SASL_AUTHENTICATE, 2, read_frame(sock)).error_code == 0


def test_requests_are_served_after_the_login_with_the_users_name(peer: socket.socket, api: Api) -> None:
    api.park = {9}
    log_in(peer)
    peer.sendall(frame(9))
    wait_until(lambda: 9 in api.parked, what="the request is seen")
    assert api.parked[9].connection.principal == "User:alice"


def test_all_may_be_sent_at_once_and_is_answered_in_its_order(peer: socket.socket) -> None:
    peer.sendall(VERSIONS + handshake() + authenticate(plain()) + frame(9, b"hello"))
    assert read_answer(peer)[0] == 5
    read_frame(peer)
    read_frame(peer)
    assert read_answer(peer) == (9, b"hello")


def test_large_requests_are_taken_after_the_login_alone(served: SocketServer, api: Api) -> None:
    with connect(served) as sock:
        log_in(sock)
        sock.sendall(frame(9, bytes(700_000)))
        assert read_answer(sock)[0] == 9
    with connect(served) as sock:
        sock.sendall(struct.pack(">i", 600_000))
        assert is_closed(sock)


def test_a_wrong_password_is_answered_late_and_closed(
    peer: socket.socket, api: Api, sasl: SaslListeners
) -> None:
    peer.sendall(handshake())
    read_frame(peer)
    began = time.monotonic()
    peer.sendall(authenticate(plain(password="x")) + frame(9))
    refused = answer(ApiKey.SASL_AUTHENTICATE, 2, read_frame(peer))
    assert time.monotonic() - began >= DELAY_MS / 1000
    assert refused.error_code == Errors.SASL_AUTHENTICATION_FAILED
    assert is_closed(peer)
    assert api.seen == []
    assert sasl.stats.failures == 1
    wait_until(lambda: len(sasl.newcomers["SASL"]) == 0, what="it is counted no more")


def test_failures_of_many_do_not_hold_up_who_is_logged_in(served: SocketServer, peer: socket.socket) -> None:
    log_in(peer)
    with connect(served) as other, connect(served) as another:
        for sock in (other, another):
            sock.sendall(handshake() + authenticate(plain(password="x")))
        began = time.monotonic()
        peer.sendall(frame(9))
        assert read_answer(peer)[0] == 9
        assert time.monotonic() - began < DELAY_MS / 1000


def test_who_hangs_up_before_its_failure_is_told_is_forgotten(
    served: SocketServer, sasl: SaslListeners
) -> None:
    late: list[Callable[[], None]] = []
    sasl.delay = lambda _ms, tell: late.append(tell)
    with connect(served) as sock:
        sock.sendall(handshake() + authenticate(plain(password="x")))
        read_frame(sock)
        wait_until(lambda: late, what="the failure is to be told")
    wait_until(lambda: served.connection_count == 0, what="the connection is gone")
    (tell,) = late
    tell()
    with connect(served) as sock:
        log_in(sock)


def test_a_request_before_the_login_closes_the_connection(peer: socket.socket, api: Api) -> None:
    peer.sendall(frame(9))
    assert is_closed(peer)
    assert api.seen == []


def test_who_takes_too_long_is_closed(peer: socket.socket) -> None:
    peer.sendall(handshake())
    read_frame(peer)
    assert is_closed(peer)


def test_who_is_logged_in_has_time(served: SocketServer, peer: socket.socket) -> None:
    log_in(peer)
    with connect(served) as later:
        assert is_closed(later)  # its time was over after the peer's
    peer.sendall(frame(9))
    assert read_answer(peer)[0] == 9


def test_one_address_leaves_room_for_others(served: SocketServer, sasl: SaslListeners) -> None:
    with connect(served), connect(served), connect(served) as third:
        assert is_closed(third)
        assert len(sasl.newcomers["SASL"]) == 2
    wait_until(lambda: len(sasl.newcomers["SASL"]) == 0, what="all are gone")


def test_a_listener_without_sasl_asks_for_nothing(served: SocketServer) -> None:
    with connect(served, "PLAINTEXT") as sock:
        sock.sendall(frame(9))
        assert read_answer(sock)[0] == 9


def test_newcomers_share_the_room() -> None:
    newcomers = Newcomers(5)
    assert [newcomers.add("a") for _ in range(4)] == [True, True, True, False]
    assert newcomers.add("b")
    assert newcomers.add("c")
    assert not newcomers.add("d")
    newcomers.remove("a")
    assert newcomers.add("d")
