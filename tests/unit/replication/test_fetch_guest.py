"""A follower's conversation with its leader on a Processor's loop; the leader's end of the socket is the test's."""

from __future__ import annotations

import struct
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker.network.request_channel import Verdict
from broker.network.socket_server import SocketServer
from broker.protocol.api_keys import ApiKey
from broker.protocol.primitives import INT32
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.fetch_guest import FetchGuest
from tests.support.loops import bound_server
from tests.support.scripted_leader import ScriptedLeader
from tests.support.tls_pairs import listener_between_brokers

WAIT_S = 30
REQUEST_TIMEOUT_MS = 300


@pytest.fixture
def loop() -> Iterator[SocketServer]:
    server = bound_server()
    server.start(lambda _request: Verdict.SERVED)
    yield server
    server.stop()


@pytest.fixture(params=["plain", "tls"])
def leader(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ScriptedLeader]:
    """Each test is of both: a guest must not notice."""
    leader = ScriptedLeader(listener_between_brokers(tmp_path) if request.param == "tls" else None)
    yield leader
    leader.close()


class Follower:
    """A thread that lends its channel to a guest, and keeps what the guest took and what it ended with."""

    def __init__(
        self,
        loop: SocketServer,
        leader: ScriptedLeader,
        answers: int,
        asks: bytes = b"ask",
        timeout_ms: int = REQUEST_TIMEOUT_MS,
    ) -> None:
        self.channel = BrokerChannel(
            "127.0.0.1", leader.port, client_id="f", request_timeout_ms=timeout_ms, security=leader.security
        )
        self._asks = asks
        self.bodies: list[bytes] = []
        self.error: Exception | None = None
        self._loop, self._answers = loop, answers
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _request(self) -> bytes:
        return self.channel.frame_request(ApiKey.FETCH, 17, (self._asks,))

    def _go_on(self, frame: memoryview) -> bytes | None:
        self.bodies.append(bytes(self.channel.body_of(ApiKey.FETCH, 17, frame)))
        return self._request() if len(self.bodies) < self._answers else None

    def _run(self) -> None:
        try:
            with self.channel.lent() as connection:
                guest = FetchGuest(connection, self.channel, self._go_on)
                assert self._loop.invite(guest)
                guest.send(self._request())
                guest.wait(self.channel.request_timeout_s)
        except Exception as error:
            self.error = error

    def join(self) -> None:
        self._thread.join(WAIT_S)
        assert not self._thread.is_alive()


@pytest.fixture
def follow(loop: SocketServer, leader: ScriptedLeader) -> Iterator[Callable[[int], Follower]]:
    followers: list[Follower] = []

    def begin(answers: int) -> Follower:
        followers.append(Follower(loop, leader, answers))
        leader.accept()
        return followers[-1]

    yield begin
    for follower in followers:
        follower.channel.close()


def test_answers_are_taken_and_requests_sent_until_the_guest_has_enough(
    leader: ScriptedLeader, follow: Callable[[int], Follower]
) -> None:
    follower = follow(3)
    for body in (b"one", b"two", b"three"):
        leader.answer(leader.request(), body)
    follower.join()
    assert follower.error is None
    assert follower.bodies == [b"one", b"two", b"three"]


def test_the_connection_is_the_threads_again_afterwards(
    leader: ScriptedLeader, follow: Callable[[int], Follower]
) -> None:
    follower = follow(1)
    leader.answer(leader.request(), b"one")
    follower.join()
    asked = threading.Thread(
        target=lambda: follower.bodies.append(bytes(follower.channel.request_raw(ApiKey.FETCH, 17, (b"x",))))
    )
    asked.start()
    leader.answer(leader.request(), b"two")
    asked.join(WAIT_S)
    assert follower.bodies == [b"one", b"two"]


def test_a_large_answer_may_come_in_pieces(leader: ScriptedLeader, follow: Callable[[int], Follower]) -> None:
    follower = follow(2)
    body = bytes(range(256)) * 4096
    data = struct.pack(">ii", 5 + len(body), leader.request()) + b"\0" + body
    for piece in (data[:2], data[2:5], data[5:70_000], data[70_000:]):
        leader.socket.sendall(piece)
    leader.answer(leader.request(), b"small")
    follower.join()
    assert follower.error is None
    assert follower.bodies == [body, b"small"]


def test_requests_that_the_socket_takes_in_pieces_arrive_whole(
    loop: SocketServer, leader: ScriptedLeader
) -> None:
    """As of a follower with thousands of partitions to ask for."""
    asks = bytes(range(256)) * 64 * 1024  # more than the buffers of both ends together
    follower = Follower(loop, leader, 3, asks, timeout_ms=WAIT_S * 1000)
    leader.accept()
    for body in (b"one", b"two", b"three"):
        correlation_id, asked = leader.request_and_body()
        assert asked.endswith(asks)
        leader.answer(correlation_id, body)
    follower.join()
    assert follower.error is None
    assert follower.bodies == [b"one", b"two", b"three"]
    follower.channel.close()


def test_a_leader_that_takes_no_request_to_its_end_is_given_up(
    loop: SocketServer, leader: ScriptedLeader
) -> None:
    follower = Follower(loop, leader, 1, bytes(16 << 20))
    leader.accept()
    follower.join()
    assert isinstance(follower.error, ChannelError)
    follower.channel.close()


def test_a_leader_that_hangs_up_ends_it(leader: ScriptedLeader, follow: Callable[[int], Follower]) -> None:
    follower = follow(1)
    leader.request()
    leader.socket.close()
    follower.join()
    assert isinstance(follower.error, ChannelError)


def test_a_leader_that_is_silent_for_the_request_timeout_is_given_up(
    leader: ScriptedLeader, follow: Callable[[int], Follower]
) -> None:
    follower = follow(1)
    follower.join()
    assert isinstance(follower.error, ChannelError)
    assert "no answer" in str(follower.error)


def test_an_answer_to_another_request_is_refused(
    leader: ScriptedLeader, follow: Callable[[int], Follower]
) -> None:
    follower = follow(1)
    leader.answer(leader.request() + 1, b"?")
    follower.join()
    assert isinstance(follower.error, ChannelError)


def test_an_error_of_whoever_takes_the_answers_ends_the_connection(
    leader: ScriptedLeader, follow: Callable[[int], Follower]
) -> None:
    follower = follow(1)
    follower.bodies = None  # type: ignore[assignment]
    leader.answer(leader.request(), b"?")
    follower.join()
    assert isinstance(follower.error, AttributeError)
    assert leader.socket.recv(1) == b""


def test_an_absurd_size_is_refused(leader: ScriptedLeader, follow: Callable[[int], Follower]) -> None:
    follower = follow(1)
    leader.socket.sendall(INT32.pack(1 << 30))
    follower.join()
    assert isinstance(follower.error, ChannelError)
    assert "announced" in str(follower.error)


def test_announced_bytes_take_no_memory_before_they_come(
    leader: ScriptedLeader, follow: Callable[[int], Follower]
) -> None:
    leader_sends = 100_000
    tracemalloc.start()
    try:
        follower = follow(1)
        leader.request()
        leader.socket.sendall(INT32.pack(200 << 20) + bytes(leader_sends))
        leader.socket.close()
        follower.join()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert isinstance(follower.error, ChannelError)
    assert peak < 20 * leader_sends


def test_announced_bytes_take_no_memory_of_a_thread_that_asks(leader: ScriptedLeader) -> None:
    channel = BrokerChannel("127.0.0.1", leader.port, client_id="f", security=leader.security)
    errors: list[ChannelError] = []

    def ask() -> None:
        try:
            channel.request_raw(ApiKey.FETCH, 17, (b"x",))
        except ChannelError as error:
            errors.append(error)

    tracemalloc.start()
    try:
        asked = threading.Thread(target=ask)
        asked.start()
        leader.accept()
        leader.request()
        leader.socket.sendall(INT32.pack(200 << 20) + bytes(100_000))
        leader.socket.close()
        asked.join(WAIT_S)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(errors) == 1
    assert peak < 2_000_000


def test_a_large_answer_is_whole_for_a_thread_that_asks(leader: ScriptedLeader) -> None:
    channel = BrokerChannel("127.0.0.1", leader.port, client_id="f", security=leader.security)
    bodies: list[bytes] = []

    def ask() -> None:
        bodies.extend(bytes(channel.request_raw(ApiKey.FETCH, 17, (b"x",))) for _ in range(2))

    asked = threading.Thread(target=ask)
    asked.start()
    leader.accept()
    large = bytes(range(256)) * 4096
    leader.answer(leader.request(), large)
    leader.answer(leader.request(), b"small")
    asked.join(WAIT_S)
    channel.close()
    assert bodies == [large, b"small"]


@pytest.mark.parametrize("end", ["close", "interrupt"])
def test_another_thread_ends_it(leader: ScriptedLeader, follow: Callable[[int], Follower], end: str) -> None:
    follower = follow(1)
    leader.request()
    getattr(follower.channel, end)()
    follower.join()
    assert isinstance(follower.error, ChannelError)
    assert leader.socket.recv(1) == b""


def test_a_leader_whose_certificate_is_for_another_host_is_not_spoken_to(tmp_path: Path) -> None:
    leader = ScriptedLeader(listener_between_brokers(tmp_path))
    accepting = threading.Thread(target=lambda: suppressed(leader.accept))
    accepting.start()
    channel = BrokerChannel("localhost", leader.port, client_id="f", security=leader.security)
    try:
        with pytest.raises(ChannelError, match=r"localhost.*certificate"):
            channel.connect()
    finally:
        accepting.join(WAIT_S)
        leader.close()


def test_a_leader_that_speaks_no_tls_is_not_spoken_to(tmp_path: Path) -> None:
    leader = ScriptedLeader()
    channel = BrokerChannel(
        "127.0.0.1",
        leader.port,
        client_id="f",
        connect_timeout_ms=WAIT_S * 1000,
        security=listener_between_brokers(tmp_path),
    )
    answering = threading.Thread(target=lambda: (leader.accept(), leader.socket.sendall(b"plain text" * 9)))
    answering.start()
    try:
        with pytest.raises(ChannelError, match="SSL"):
            channel.connect()
    finally:
        answering.join(WAIT_S)
        leader.close()


def suppressed(action: Callable[[], None]) -> None:
    with suppress(OSError):
        action()
