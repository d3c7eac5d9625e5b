"""Handshakes beside the network threads: the slow, the strange and the many do not keep the others out."""

from __future__ import annotations

import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path

import pytest

from broker.network.connection_quotas import ConnectionQuotas
from broker.network.handshakes import _TURN_NS, Handshakes, PrincipalError
from broker.network.request_channel import Request, Verdict
from rig.wait import last_for, wait_until
from tests.support.network import Api, answer, frame, is_closed, make_server, read_answer
from tests.support.tls_pairs import contexts

WAIT_S = 20


class OneContext:
    """A listener's TLS with one context; the principal is what the test says."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.principals: list[str] = []
        self.refuses = False

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        return self.context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def principal(self, sock: ssl.SSLSocket) -> str:
        if self.refuses:
            raise PrincipalError("no rule matches CN=x")
        self.principals.append("User:somebody")
        return "User:somebody"


class Site:
    """A socket server with a TLS listener and a plain one."""

    def __init__(self, directory: Path, *, deadline_ms: int = 30_000, places: int = 8) -> None:
        server, self.client = contexts(directory, ssl.TLSVersion.TLSv1_3)
        self.tls = OneContext(server)
        self.quotas = ConnectionQuotas(100, 100, {})
        self.handshakes = Handshakes({"SSL": self.tls}, deadline_ms=deadline_ms, places=places)
        self.api = Api()
        self.principals: list[str] = []
        self.server = make_server(self.quotas, listeners=("SSL", "PLAINTEXT"), security=self.handshakes)
        self.server.bind()
        self.server.start(self._dispatch)

    def _dispatch(self, request: Request) -> Verdict:
        self.principals.append(request.connection.principal)
        return self.api(request)

    def raw(self, listener: str = "SSL", source: str = "127.0.0.1") -> socket.socket:
        address = ("127.0.0.1", self.server.bound_ports[listener])
        sock = socket.create_connection(address, WAIT_S, (source, 0))
        sock.settimeout(WAIT_S)
        return sock

    def connect(self, source: str = "127.0.0.1") -> ssl.SSLSocket:
        return self.client.wrap_socket(self.raw(source=source), server_hostname="localhost")

    def close(self) -> None:
        self.server.stop()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


def asked(sock: socket.socket, number: int, body: bytes = b"") -> bytes:
    sock.sendall(frame(number, body))
    got, body = read_answer(sock)
    assert got == number
    return body


def test_a_client_is_served_after_its_handshake_with_its_principal(site: Site) -> None:
    with site.connect() as client:
        body = bytes(100_000)
        assert asked(client, 1, body) == body
    assert site.principals == ["User:somebody"]
    assert site.handshakes.succeeded["SSL"] == 1
    wait_until(lambda: site.quotas.total == 0, WAIT_S)


def test_what_a_broker_answers_cannot_be_read_on_the_wire(site: Site) -> None:
    said = b"only for those two" * 100
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = site.client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    on_the_wire, got = b"", b""
    with site.raw() as raw:
        client_wants: Callable[[], object] = client.do_handshake
        while said not in got:
            try:
                got += client_wants() or b""  # type: ignore[operator]
                if client_wants == client.do_handshake:
                    client.write(frame(1, said))
                    client_wants = partial(client.read, 10_000)
            except ssl.SSLWantReadError:
                raw.sendall(outgoing.read())
                received = raw.recv(10_000)
                on_the_wire += received
                incoming.write(received)
    assert len(on_the_wire) > len(said)
    assert said[:18] not in on_the_wire


def test_the_plain_listener_beside_it_stays_plain(site: Site) -> None:
    with site.raw("PLAINTEXT") as client:
        assert asked(client, 1, b"x") == b"x"
    assert site.principals == ["User:ANONYMOUS"]


def test_pipelined_requests_behind_the_handshake_are_all_answered(site: Site) -> None:
    with site.connect() as client:
        client.sendall(b"".join(frame(number, bytes(3_000)) for number in range(50)))
        assert [read_answer(client)[0] for _ in range(50)] == list(range(50))


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "does not speak TLS"),
        (frame(1), "does not speak TLS"),
        (b"\x16\x03\x01\x00\x05hello", "(?i)length|unexpected|bad|wrong"),
        (bytes(64), "."),
    ],
    ids=["http", "kafka", "broken hello", "zeros"],
)
def test_garbage_instead_of_a_handshake_closes_the_connection_and_says_what_it_was(
    site: Site, said: bytes, reason: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with site.raw() as client, suppress(OSError):
        client.sendall(said)
        client.shutdown(socket.SHUT_WR)
        while client.recv(100):  # an alert, perhaps
            pass
    wait_until(lambda: site.handshakes.failed["SSL"] == 1, WAIT_S)
    wait_until(lambda: site.quotas.total == 0, WAIT_S)
    assert site.handshakes.count == 0
    told = capsys.readouterr().out
    if "tls_handshake_failed" in told:  # at most one a second for each peer
        assert re.search(reason, told)
    with site.connect() as client:
        assert asked(client, 2) == b""


def test_a_peer_without_a_principal_is_closed_after_its_handshake(site: Site) -> None:
    site.tls.refuses = True
    with site.raw() as raw, site.client.wrap_socket(raw, server_hostname="localhost") as client:
        assert is_closed(client)
    assert site.principals == []
    assert site.handshakes.failed["SSL"] == 1


def test_a_mistake_of_ours_costs_one_connection(site: Site) -> None:
    site.tls.principals = None  # type: ignore[assignment]
    with site.raw() as raw, site.client.wrap_socket(raw, server_hostname="localhost") as client:
        assert is_closed(client)
    site.tls.principals = []
    with site.connect() as client:
        assert asked(client, 1) == b""


def test_a_handshake_that_takes_too_long_is_closed(tmp_path: Path) -> None:
    site = Site(tmp_path, deadline_ms=200)
    with site.raw() as silent:
        assert silent.recv(1) == b""
    assert site.handshakes.failed["SSL"] == 1
    wait_until(lambda: site.quotas.total == 0, WAIT_S)
    site.close()


def test_a_handshake_byte_by_byte_keeps_nobody_waiting(site: Site) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    slow = site.client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with site.raw(source="127.0.0.2") as raw:
        with pytest.raises(ssl.SSLWantReadError):
            slow.do_handshake()
        hello = outgoing.read()
        for number, byte in enumerate(hello):
            raw.sendall(bytes((byte,)))
            if number % 100 == 0:
                with site.connect() as client:
                    assert asked(client, number) == b""
        incoming.write(raw.recv(10_000))
        slow.do_handshake()
        raw.sendall(outgoing.read())
        slow.write(frame(7))
        raw.sendall(outgoing.read())
        while True:
            incoming.write(raw.recv(10_000))
            try:
                assert slow.read(100) == b"".join(answer_bytes(7))
                break
            except ssl.SSLWantReadError:  # the session tickets came first
                continue


def answer_bytes(number: int) -> tuple[bytes, bytes]:
    class _Asked:
        correlation_id = number

    return answer(_Asked())  # type: ignore[arg-type]


def test_one_address_cannot_take_all_places(site: Site) -> None:
    held = [site.raw(source="127.0.0.2") for _ in range(8)]
    try:
        wait_until(lambda: site.handshakes.failed["SSL"] == 4, WAIT_S)  # half of the eight
        with site.connect() as client:
            assert asked(client, 1) == b""
    finally:
        for sock in held:
            sock.close()
    wait_until(lambda: site.quotas.total == 0, WAIT_S)


def test_a_flood_of_handshakes_from_one_address_leaves_the_others_their_turn(tmp_path: Path) -> None:
    site = Site(tmp_path, places=64)
    ended = threading.Event()

    def flood() -> None:
        while not ended.is_set():
            try:
                site.connect(source="127.0.0.2").close()
            except OSError:
                continue

    flooders = [threading.Thread(target=flood) for _ in range(3)]
    for thread in flooders:
        thread.start()
    try:
        with site.connect() as client:
            took = []
            for number in range(20):
                before = time.monotonic()
                assert asked(client, number) == b""
                took.append(time.monotonic() - before)
            assert sorted(took)[10] < 1
        for number in range(3):
            with site.connect() as other:
                assert asked(other, number) == b""
    finally:
        ended.set()
        for thread in flooders:
            thread.join(WAIT_S)
        site.close()


class Steps:
    """The addresses of the handshakes that went on, in order. ``then`` has what happens in which of these steps."""

    def __init__(self, site: Site, then: Mapping[int, Callable[[], None]]) -> None:
        self.addresses: list[str] = []
        steps = self

        class Step(ssl.SSLSocket):
            def do_handshake(self, block: bool = False) -> None:
                steps.addresses.append(self.getpeername()[0])
                then.get(len(steps.addresses), lambda: None)()
                super().do_handshake(block)

        site.handshakes._spent_since_ns = time.monotonic_ns() + 10**12  # this second does not end
        site.tls.context.sslsocket_class = Step


def arrive(site: Site, stack: ExitStack, *sources: str) -> None:
    """Connections that sent the first byte of a handshake, and that nobody has looked at yet."""
    for source in sources:
        stack.enter_context(site.raw(source=source)).sendall(b"\x16")
    wait_until(lambda: len(site.handshakes._arrived) == len(sources), WAIT_S)


def test_of_those_who_wait_the_address_that_cost_the_least_comes_first(site: Site) -> None:
    dear, cheap = "127.0.0.2", "127.0.0.3"
    site.handshakes._spent_ns[dear] = 10**12
    with ExitStack() as stack:
        steps = Steps(site, {1: lambda: arrive(site, stack, dear, cheap)})
        stack.enter_context(site.raw())
        wait_until(lambda: len(steps.addresses) >= 3, WAIT_S)
    assert steps.addresses[1:3] == [cheap, dear]


def test_a_newcomer_does_not_wait_for_all_of_a_crowd(site: Site) -> None:
    crowd, newcomer = "127.0.0.2", "127.0.0.3"
    with ExitStack() as stack:

        def newcomer_comes() -> None:
            arrive(site, stack, newcomer)
            last_for(2 * _TURN_NS / 1e9)

        steps = Steps(site, {1: lambda: arrive(site, stack, *[crowd] * 3), 2: newcomer_comes})
        stack.enter_context(site.raw())
        wait_until(lambda: newcomer in steps.addresses, WAIT_S)
    assert steps.addresses[1:].index(newcomer) == 1


def test_stopping_closes_handshakes_that_are_going_on(tmp_path: Path) -> None:
    site = Site(tmp_path)
    with site.raw() as silent:
        wait_until(lambda: site.handshakes.count == 1, WAIT_S)
        site.close()
        assert is_closed(silent)
    assert site.quotas.total == 0
    site.close()  # once more is harmless


def test_an_idle_long_poll_ends_when_its_client_says_goodbye(site: Site) -> None:
    abandoned = threading.Event()
    site.api.park = {1}
    with site.connect() as client:
        client.sendall(frame(1))
        wait_until(lambda: 1 in site.api.parked, WAIT_S)
        site.api.parked[1].on_abandon = abandoned.set
        read_tickets(client)
    assert abandoned.wait(WAIT_S)


def read_tickets(client: ssl.SSLSocket) -> None:
    client.settimeout(0.2)
    with pytest.raises(TimeoutError):
        client.recv(1)
