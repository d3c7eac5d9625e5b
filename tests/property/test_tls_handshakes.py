"""Whatever comes instead of a handshake: a connection or none, in bounded time, and nothing stays behind."""

from __future__ import annotations

import random
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from broker.network.handshakes import Handshakes
from broker.network.request_channel import ConnectionInfo
from broker.network.transport import Transport
from rig.wait import wait_until
from tests.support.mutated_bytes import scrambled
from tests.support.tls_pairs import contexts
from tests.unit.network.test_handshakes import OneContext

WAIT_S = 20


class Site:
    """Handshakes on socket pairs, with what became of them."""

    def __init__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> None:
        self.client = client
        self.handshakes = Handshakes({"SSL": OneContext(server)}, deadline_ms=200, places=64)
        self.handshakes.start()
        self.adopted = self.failed = 0

    def begin(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.settimeout(WAIT_S)
        info = ConnectionInfo("1", "127.0.0.1", "SSL", "SSL")
        self.handshakes.secure(ours, info, self._adopt, self._fail)
        return theirs

    def _adopt(self, transport: Transport, _info: ConnectionInfo) -> None:
        self.adopted += 1
        transport.close()

    def _fail(self) -> None:
        self.failed += 1


@pytest.fixture(scope="module", params=["TLSv1_2", "TLSv1_3"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(*contexts(tmp_path_factory.mktemp("tls"), ssl.TLSVersion[request.param]))
    yield made
    made.handshakes.stop()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    seed=st.integers(0, 1 << 30), changes=st.integers(0, 6), flight=st.integers(0, 1), hangs_up=st.booleans()
)
def test_every_handshake_ends(site: Site, seed: int, changes: int, flight: int, hangs_up: bool) -> None:
    before = site.adopted + site.failed
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = site.client.wrap_bio(incoming, outgoing, server_hostname="localhost")
    with site.begin() as peer, suppress(OSError):
        for number in range(3):
            with suppress(ssl.SSLWantReadError):
                client.do_handshake()
            sent = outgoing.read()
            chance = random.Random(seed)
            peer.sendall(scrambled(sent, chance, changes) if number == flight and sent else sent)
            if number == flight and changes and hangs_up:
                peer.shutdown(socket.SHUT_WR)
            if number < 2:
                answer = peer.recv(65536)
                if not answer:
                    break
                incoming.write(answer)
    wait_until(lambda: site.adopted + site.failed == before + 1, WAIT_S, what="the handshake's end")
    assert site.handshakes.count == 0


@settings(max_examples=40, deadline=None)
@given(noise=st.binary(max_size=400))
def test_noise_is_closed(site: Site, noise: bytes) -> None:
    failed = site.failed
    with site.begin() as peer, suppress(OSError):
        peer.sendall(noise)
        peer.shutdown(socket.SHUT_WR)
        while peer.recv(4096):
            pass
    wait_until(lambda: site.failed == failed + 1, WAIT_S, what="the noise is refused")
    assert site.handshakes.count == 0
