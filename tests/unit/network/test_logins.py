"""SASL over real sockets: who is served, who is answered late, and who is closed."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress

import pytest

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.login_thread import LoginThread
from broker.network.request_channel import ConnectionInfo
from broker.network.sasl import Newcomers, SaslListeners
from broker.network.socket_server import SocketServer
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.sasl.apart import ApartExchange
from broker.sasl.login import Offer
from broker.sasl.plain import PlainExchange
from broker.utils.timer import Timer
from rig.wait import wait_until
from tests.support.network import Api, frame, is_closed, make_server, read_answer, read_exactly
from tests.support.network import answer as network_answer
from tests.support.sasl_frames import USERS, answer, authenticate, handshake, make_offer, plain, request

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
    yield from serve(api, sasl)


def serve(api: Api, sasl: SaslListeners) -> Iterator[SocketServer]:
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


def test_requests_know_when_their_session_ends(served: SocketServer, api: Api, sasl: SaslListeners) -> None:
    sasl.offers = {"SASL": make_offer(max_session_ms=60_000)}
    api.park = {9}
    with connect(served) as sock:
        log_in(sock)
        before_ns = time.monotonic_ns()
        sock.sendall(frame(9))
        wait_until(lambda: 9 in api.parked, what="the request is seen")
        assert 0 < api.parked[9].connection.session_ends_ns - before_ns <= 60_000 * 1_000_000


def test_requests_know_who_is_not_authenticated(peer: socket.socket, api: Api) -> None:
    api.park = {5}
    peer.sendall(VERSIONS)
    wait_until(lambda: 5 in api.parked, what="the request is seen")
    connection = api.parked[5].connection
    assert connection.is_unproved
    api.parked[5].respond(network_answer(api.parked[5]))
    read_answer(peer)
    log_in(peer)
    assert not connection.is_unproved


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


def test_half_requests_before_the_login_take_a_bounded_memory(
    served: SocketServer, sasl: SaslListeners
) -> None:
    newcomers = sasl.newcomers["SASL"] = Newcomers(64, 1 << 20)
    half = struct.pack(">i", 500_000) + bytes(300_000)
    port = served.bound_ports["SASL"]
    with ExitStack() as stack:
        peers = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port), 10, (f"127.0.0.{10 + n}", 0)))
            for n in range(8)
        ]
        for peer in peers:
            with suppress(OSError):
                peer.sendall(half)
        wait_until(lambda: newcomers.bytes > 100_000 and len(newcomers) < 8, what="some are refused")
        assert newcomers.bytes <= 1 << 20
        with connect(served) as sock:
            log_in(sock)
            sock.sendall(frame(9, bytes(700_000)))
            assert read_answer(sock)[0] == 9
    wait_until(lambda: len(newcomers) == newcomers.bytes == 0, what="all are gone")


def test_newcomers_share_the_memory() -> None:
    newcomers = Newcomers(9, 100)
    assert newcomers.may_hold("a", 100)
    newcomers.hold("a", 50)
    assert not newcomers.may_hold("a", 1)
    assert newcomers.may_hold("b", 50)
    newcomers.hold("b", 25)
    assert not newcomers.may_hold("b", 1)
    newcomers.hold("a", -50)
    assert newcomers.may_hold("b", 50)


class Gate:
    """PLAIN as a mechanism that blocks until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.is_open = threading.Event()

    def exchange(self) -> ApartExchange:
        return ApartExchange(GatedPlain(self))


class GatedPlain(PlainExchange):
    def __init__(self, gate: Gate) -> None:
        super().__init__(lambda user, password: password == USERS[user])
        self._gate = gate

    def answer(self, token: bytes) -> bytes:
        self._gate.reached.release()
        assert self._gate.is_open.wait(30)
        return super().answer(token)


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.is_open.set()


@pytest.fixture
def gated(api: Api, gate: Gate) -> Iterator[SocketServer]:
    """A server whose SASL listener takes PLAIN only behind the gate."""
    timer = Timer("test")
    apart = SaslListeners(
        {"SASL": Offer({"PLAIN": gate.exchange})},
        timer.add,
        failure_delay_ms=0,
        max_newcomers=10,
        max_login_ms=10_000,
        apart=LoginThread(),
    )
    yield from serve(api, apart)
    timer.stop()


def test_a_mechanism_that_blocks_holds_up_its_own_connection_alone(
    gated: SocketServer, gate: Gate, api: Api
) -> None:
    with connect(gated) as peer, connect(gated, "PLAINTEXT") as other:
        peer.sendall(handshake() + authenticate(plain()) + frame(9, b"hello"))
        read_frame(peer)
        assert gate.reached.acquire(timeout=30)
        other.sendall(frame(8))
        assert read_answer(other)[0] == 8
        assert api.seen == [8]
        gate.is_open.set()
        assert answer(ApiKey.SASL_AUTHENTICATE, 2, read_frame(peer)).error_code == 0
        assert read_answer(peer) == (9, b"hello")
    times, _ = gated.total_times()[ApiKey.SASL_AUTHENTICATE]
    assert times[-1] == ("+Inf", 1)  # what waited in between is no request


def test_a_mechanism_that_blocks_may_refuse(gated: SocketServer, gate: Gate) -> None:
    gate.is_open.set()
    with connect(gated) as peer:
        peer.sendall(handshake() + authenticate(plain(password="x")))
        read_frame(peer)
        refused = answer(ApiKey.SASL_AUTHENTICATE, 2, read_frame(peer))
        assert refused.error_code == Errors.SASL_AUTHENTICATION_FAILED
        assert is_closed(peer)


def test_tokens_without_a_header_may_block_too(gated: SocketServer, gate: Gate) -> None:
    gate.is_open.set()
    with connect(gated) as peer:
        token = plain()
        peer.sendall(handshake(version=0) + struct.pack(">i", len(token)) + token + frame(9))
        read_frame(peer)
        assert read_frame(peer) == b""
        assert read_answer(peer)[0] == 9


def test_who_hangs_up_while_its_token_is_looked_at_is_forgotten(gated: SocketServer, gate: Gate) -> None:
    with connect(gated) as peer:
        peer.sendall(handshake() + authenticate(plain()))
        read_frame(peer)
        assert gate.reached.acquire(timeout=30)
    gate.is_open.set()
    wait_until(lambda: gated.connection_count == 0, what="the connection is gone")
    with connect(gated) as peer:
        log_in(peer)


def test_newcomers_share_the_room() -> None:
    newcomers = Newcomers(5)
    assert [newcomers.add("a") for _ in range(4)] == [True, True, True, False]
    assert newcomers.add("b")
    assert newcomers.add("c")
    assert not newcomers.add("d")
    newcomers.remove("a")
    assert newcomers.add("d")


def test_clients_do_not_take_the_places_of_brokers() -> None:
    sasl = SaslListeners(
        {"CLIENT": make_offer(), "BROKER": make_offer()},
        lambda *_: None,
        failure_delay_ms=0,
        max_newcomers=2,
        max_login_ms=1_000,
    )

    def is_let_in(listener: str, address: str) -> bool:
        return sasl.open(ConnectionInfo("", address, listener), 0) is not None

    assert [is_let_in("CLIENT", address) for address in "abc"] == [True, True, False]
    assert is_let_in("BROKER", "d")
