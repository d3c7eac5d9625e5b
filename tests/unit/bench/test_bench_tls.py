"""The benchmark's TLS: its clients over a real TLS socket, its handshakes in full, and the listeners of its brokers."""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench.client import holding
from bench.client.connection import Connection, ReadyConnection
from bench.client.handshaking import Handshakes, shake_hands
from bench.client.hostile import attack
from bench.client.requests import RawClientError
from bench.client.tls import ClientTls
from bench.suites import SUITES, tls
from bench.targets import Target
from rig.certificates import Authority
from rig.wait import wait_until
from rig.wire import receive_frame
from tests.support.sockets import serving

SHORT_S = 0.3


class Site:
    """A TLS server, and what its clients need."""

    def __init__(self, directory: Path) -> None:
        authority = Authority()
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(authority.issue().write_pem(directory / "server.pem"))
        self.client = ClientTls(authority.pem.decode())
        self.resumed: list[bool] = []

    @contextmanager
    def serving(self, serve: Callable[[ssl.SSLSocket], None]) -> Iterator[int]:
        def secured(connection: socket.socket) -> None:
            with self.context.wrap_socket(connection, server_side=True) as accepted:
                self.resumed.append(bool(accepted.session_reused))
                serve(accepted)

        with serving(secured) as port:
            yield port


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def echo(connection: socket.socket) -> None:
    while True:
        frame = receive_frame(connection)
        connection.sendall(struct.pack(">i", len(frame)) + frame)


def asked(text: bytes) -> bytes:
    return struct.pack(">i", len(text)) + text


def test_large_and_small_frames_pass_a_blocking_connection(site: Site) -> None:
    with site.serving(echo) as port:
        connection = Connection(port, 1 << 20, tls=site.client)
        for size in (1, 20_000, 500_000):
            assert connection.ask(asked(bytes(size))) == bytes(size)
        connection.close()


def test_a_connection_of_an_event_loop_leaves_nothing_decrypted_inside(site: Site) -> None:
    """Several answers in one record are all there after one event."""

    def at_once(connection: socket.socket) -> None:
        receive_frame(connection)
        connection.sendall(asked(b"a") + asked(bytes(40_000)) + asked(b"c"))
        connection.recv(1)

    with site.serving(at_once) as port:
        connection = ReadyConnection(port, 1 << 16, tls=site.client)
        connection.send(asked(b"?"))
        got: list[int] = []
        wait_until(lambda: got.extend(map(len, connection.answers())) or len(got) == 3, 20)
        assert got == [1, 40_000, 1]
        connection.close()


def test_another_cipher_or_an_unknown_ca_is_no_measurement(site: Site, tmp_path: Path) -> None:
    with site.serving(echo) as port:
        with pytest.raises(ssl.SSLCertVerificationError):
            Connection(port, tls=ClientTls(Authority().pem.decode()))
        site.context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError):
            Connection(port, tls=site.client)


def test_the_cipher_is_looked_at(site: Site, monkeypatch) -> None:
    monkeypatch.setattr("bench.client.tls.CIPHER", "TLS_AES_128_GCM_SHA256")
    with site.serving(echo) as port, pytest.raises(RawClientError, match="TLS_AES_256_GCM_SHA384"):
        Connection(port, tls=site.client)


def test_each_handshake_is_in_full_and_ends_with_an_answer(site: Site) -> None:
    with site.serving(echo) as port:
        count = shake_hands(port, site.client, SHORT_S)
    assert count >= 1
    assert site.resumed == [False] * count


def test_a_hostile_peer_shakes_hands_until_its_time_is_over(site: Site) -> None:
    with site.serving(echo) as port:
        tally = attack(Handshakes(site.client), port, SHORT_S)
    assert tally.answered >= 1
    assert not any(site.resumed)


def test_idle_connections_may_be_by_tls(site: Site) -> None:
    gone: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        connection.sendall(asked(receive_frame(connection)))
        gone.append(connection.recv(1))

    with site.serving(serve) as port:
        with holding.idle_connections(port, 3, site.client):
            assert not gone
        wait_until(lambda: len(gone) == 3, 20)


def test_the_suite_runs_where_a_secured_broker_can_be_had_and_its_keys_are_its_own() -> None:
    assert all(Target.KRAFT not in workload.targets for workload in tls.SUITE.workloads)
    keys = [metric.key for suite in SUITES for workload in suite.workloads for metric in workload.metrics]
    assert len(keys) == len(set(keys))
