"""Both ends of a TLS connection without a broker: a transport that does not block, and a peer that does."""

from __future__ import annotations

import os
import select
import socket
import ssl
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.network.connection import Connection
from broker.network.tls_transport import RECORD, TlsTransport
from broker.tls.listener_tls import ListenerTls
from broker.tls.settings import TlsSettings
from rig.certificates import trusting
from rig.wait import wait_until
from tests.support.certificates import Authority, Stores

WAIT_S = 20


def contexts(directory: Path, version: ssl.TLSVersion) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A server's and a client's, of one version of TLS."""
    authority = Authority()
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(authority.issue().write_pem(directory / "server.pem"))
    server.options |= ssl.OP_NO_RENEGOTIATION
    client = trusting(authority.pem)
    for context in (server, client):
        context.minimum_version = context.maximum_version = version
    return server, client


def listener_between_brokers(directory: Path) -> ListenerTls:
    """The inter-broker listener of a broker on 127.0.0.1, and by that name alone, with certificates in
    ``directory``.
    """
    props = {
        "landline.standalone": "true",
        "log.dirs": "/d",
        "listeners": "SSL://:0",
        "security.inter.broker.protocol": "SSL",
        **Stores(directory, ["127.0.0.1"]).configs,
        "ssl.client.auth": "required",
    }
    config = BrokerConfig.from_properties(props)
    return ListenerTls(TlsSettings.of("SSL", config.for_listener("SSL")), between_brokers=True)


class Peer:
    """The client's end, which blocks."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock = sock
        self.sendall: Callable[[bytes], None] = sock.sendall
        self.recv: Callable[[int], bytes] = sock.recv

    def unwrap_quietly(self) -> None:
        """Says goodbye, and does not wait for the other's."""
        self.sock.settimeout(0)
        with suppress(OSError):
            self.sock.unwrap()
        socket.socket.shutdown(self.sock, socket.SHUT_WR)

    def raw_send(self, data: bytes) -> None:
        os.write(self.sock.fileno(), data)

    def raw_close(self) -> None:
        socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


class TlsPair:
    """A transport and its peer."""

    def __init__(self, transport: TlsTransport, peer: Peer) -> None:
        self.transport = transport
        self.peer = peer

    def read_exactly(self, size: int) -> bytes:
        pieces = []
        while size:
            piece = self.peer.recv(min(size, 1 << 20))
            if not piece:
                raise EOFError
            pieces.append(piece)
            size -= len(piece)
        return b"".join(pieces)

    def settle(self) -> None:
        """Has the peer take the session tickets that come after the handshake."""
        self.transport.send(deque((b".",)))
        assert self.peer.recv(1) == b"."


def received_frames(pair: TlsPair, connection: Connection, count: int, shared: bytearray) -> list[bytes]:
    """The next requests of the peer, taken whenever the socket is readable, as a Processor does."""
    frames: list[bytes] = []
    while len(frames) < count:
        assert select.select([pair.transport.fileno()], [], [], 10)[0], "epoll would have slept for ever"
        try:
            assert connection.receive(shared)
        except BlockingIOError:
            continue
        frames += [bytes(frame) for frame in iter(connection.next_frame, None)]
        connection.settle(shared)
        assert pair.transport.pending() == 0
    return frames


class OpenSslPair:
    """A transport whose peer is OpenSSL's command line client."""

    def __init__(self, transport: TlsTransport, process: subprocess.Popen[bytes]) -> None:
        self.transport = transport
        self._process = process
        self._heard = b""
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        while piece := os.read(self._process.stdout.fileno(), 4096):
            self._heard += piece

    def say(self, line: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(line)
        self._process.stdin.flush()

    def hear(self, size: int) -> bytes:
        heard = b""
        buffer = bytearray(RECORD)
        while len(heard) < size:
            wanted = self.transport.wants
            read = [self.transport.fileno()] if wanted != select.EPOLLOUT else []
            write = [self.transport.fileno()] if wanted == select.EPOLLOUT else []
            assert any(select.select(read, write, [], WAIT_S)), heard
            with suppress(BlockingIOError):
                count = self.transport.receive(buffer, 0)
                assert count, "the peer hung up"
                heard += buffer[:count]
        return heard

    def heard_by_peer(self, text: bytes) -> bool:
        wait_until(lambda: text in self._heard, WAIT_S, what=f"the peer hears {text!r}")
        return True


class _Pairs:
    @contextmanager
    def __call__(self, server: ssl.SSLContext, client: ssl.SSLContext) -> Iterator[TlsPair]:
        ours, theirs = socket.socketpair()
        secured: list[ssl.SSLSocket] = []
        shaking = threading.Thread(
            target=lambda: secured.append(client.wrap_socket(theirs, server_hostname="localhost"))
        )
        shaking.start()
        accepted = server.wrap_socket(ours, server_side=True)
        shaking.join(WAIT_S)
        accepted.setblocking(False)
        secured[0].settimeout(WAIT_S)
        with accepted, secured[0]:
            yield TlsPair(TlsTransport(accepted), Peer(secured[0]))

    @contextmanager
    def by_openssl(self, server: ssl.SSLContext, version: str = "-tls1_3") -> Iterator[OpenSslPair]:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            address = f"127.0.0.1:{listener.getsockname()[1]}"
            process = subprocess.Popen(
                ["openssl", "s_client", "-connect", address, "-quiet", "-no_ign_eof", version],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            raw, _ = listener.accept()
            accepted = server.wrap_socket(raw, server_side=True)
            accepted.setblocking(False)
            try:
                with accepted:
                    yield OpenSslPair(TlsTransport(accepted), process)
            finally:
                process.kill()
                process.communicate()


tls_pair = _Pairs()
