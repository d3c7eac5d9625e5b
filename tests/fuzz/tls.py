"""The state machine of TLS: a client whose flights come cut, changed, repeated or in another order, on a listener's
own context, and what comes after a handshake.

An input is a script. The oracle: the handshake is done, or has ended with a reason, once nothing more comes.
"""

from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.network.handshakes import PrincipalError, why_failed
from broker.network.tls_transport import RECORD, TlsTransport, is_goodbye
from broker.tls.listener_tls import ListenerTls
from broker.tls.settings import TlsSettings
from rig.certificates import trusting
from tests.fuzz.target import Script, Target
from tests.support.certificates import Authority

_MOST_SENT: Final = 1 << 17
_MOST_STEPS: Final = 100
# What the steps of a script are called.
DELIVER, PART, FLIP, CUT, INSERT, SWAP, REPEAT, WRITE, END = range(9)


class _Site:
    """A listener that asks for certificates, and clients of each version, with one and without."""

    def __init__(self) -> None:
        authority = Authority()
        with tempfile.TemporaryDirectory() as name:
            directory = Path(name)
            pem = authority.issue().write_pem(directory / "broker.pem")
            alice = authority.issue("alice", ()).write_pem(directory / "alice.pem")
            config = BrokerConfig.from_properties(
                {
                    "landline.standalone": "true",
                    "log.dirs": "/d",
                    "listeners": "SSL://:0",
                    "security.inter.broker.protocol": "SSL",
                    "ssl.keystore.type": "PEM",
                    "ssl.keystore.location": str(pem),
                    "ssl.truststore.type": "PEM",
                    "ssl.truststore.location": str(authority.write_pem(directory / "ca.pem")),
                    "ssl.client.auth": "requested",
                    "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
                }
            )
            settings = TlsSettings.of("SSL", config.for_listener("SSL"))
            self.listener = ListenerTls(settings, between_brokers=False)
            self.clients = []
            for version in (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3):
                for certificate in (None, alice):
                    client = trusting(authority.pem)
                    client.minimum_version = client.maximum_version = version
                    if certificate is not None:
                        client.load_cert_chain(certificate)
                    self.clients.append(client)


_site = functools.cache(_Site)


class _Peer:
    """A client in memory, and what it has sent but not delivered."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._end = context.wrap_bio(self._incoming, self._outgoing, server_hostname="localhost")
        self.flight = bytearray()
        self.go_on(b"")

    def go_on(self, received: bytes) -> None:
        """What the client does with the server's answer. It may refuse it: then it sends an alert."""
        self._incoming.write(received)
        with contextlib.suppress(ssl.SSLError):
            self._end.do_handshake()
        self.flight += self._outgoing.read()

    def write(self, content: bytes) -> None:
        with contextlib.suppress(ssl.SSLError):
            self._end.write(content)
        self.flight += self._outgoing.read()

    def records(self) -> list[bytes]:
        """The flight by its records, the last one perhaps not whole."""
        found, at = [], 0
        while at < len(self.flight):
            size = 5 + int.from_bytes(self.flight[at + 3 : at + 5], "big")
            found.append(bytes(self.flight[at : at + size]))
            at += size
        return found


class _Connection:
    """The listener's end, as Handshakes and a Processor drive it."""

    def __init__(self, ours: socket.socket, wire: socket.socket) -> None:
        self._sock = _site().listener.wrap(ours)
        self._wire = wire
        self._transport: TlsTransport | None = None
        self._sent = 0
        self.is_over = False
        self.refusal: str | None = None

    def close(self) -> None:
        self._sock.close()

    def end(self) -> None:
        """Nothing more comes."""
        with contextlib.suppress(OSError):
            self._wire.shutdown(socket.SHUT_WR)

    def deliver(self, content: bytes) -> bytes:
        """What the listener answers to these bytes."""
        # This thread alone reads the other end: to wait for room would be for ever. What does not fit is lost.
        with contextlib.suppress(OSError):
            self._wire.send(content, socket.MSG_DONTWAIT)
        is_goodbye(content)
        if not self.is_over:
            self._step()
        answer = b""
        with contextlib.suppress(BlockingIOError, ConnectionResetError):
            while chunk := self._wire.recv(1 << 16, socket.MSG_DONTWAIT):
                answer += chunk
        self._sent += len(answer)
        assert self._sent < _MOST_SENT, "a handshake says too much"
        return answer

    def _step(self) -> None:
        if self._transport is None:
            try:
                self._sock.do_handshake()
                assert _site().listener.principal(self._sock) in ("User:ANONYMOUS", "User:alice")
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return
            except (OSError, PrincipalError) as error:
                self.refusal = why_failed(error)
                self.is_over = True
                return
            self._transport = TlsTransport(self._sock)
        self._read(self._transport)

    def _read(self, transport: TlsTransport) -> None:
        buffer = bytearray(2 * RECORD)
        try:
            for _ in range(_MOST_STEPS):
                if transport.receive(buffer) == 0:
                    self.is_over = True
                    return
                assert transport.pending() == 0, "something is left inside"
        except BlockingIOError:
            return
        except OSError:
            self.is_over = True


@contextlib.contextmanager
def _connected() -> Iterator[_Connection]:
    ours, wire = socket.socketpair()
    ours.setblocking(False)
    with wire:
        made = _Connection(ours, wire)
        try:
            yield made
        finally:
            made.close()


def _tls(data: bytes) -> None:
    script = Script(data)
    clients = _site().clients
    with _connected() as connection:
        peer = _Peer(clients[script.byte() % len(clients)])
        while script and not connection.is_over:
            _step(script, peer, connection)
        for _ in range(4):  # whatever is missing of an honest handshake
            peer.go_on(connection.deliver(_taken(peer, len(peer.flight))))
        connection.end()
        for _ in range(_MOST_STEPS):
            if connection.is_over:
                assert connection.refusal != "", "a refusal needs a reason"
                return
            connection.deliver(b"")
    raise AssertionError("the connection does not end with its peer")


def _step(script: Script, peer: _Peer, connection: _Connection) -> None:
    flight, step = peer.flight, script.byte() % 9
    match step:
        case 0 | 1:
            count = len(flight) if step == DELIVER else script.byte() * 4
            peer.go_on(connection.deliver(_taken(peer, count)))
        case 2 if flight:
            flight[script.byte() * 4 % len(flight)] ^= script.byte()
        case 3:
            at = script.byte() * 4 % (len(flight) + 1)
            del flight[at : at + script.byte()]
        case 4:
            at = script.byte() * 4 % (len(flight) + 1)
            flight[at:at] = script.take(script.byte())
        case 5 | 6:
            records = peer.records()
            records = [*records[1:2], *records[:1], *records[2:]] if step == SWAP else records[:1] + records
            flight[:] = b"".join(records)
        case 7:
            peer.write(script.take(script.byte()))
        case _ if flight:
            del flight[script.byte() * 4 % len(flight) :]
    del flight[_MOST_SENT:]  # each REPEAT of a record as long as the flight doubles it


def _taken(peer: _Peer, count: int) -> bytes:
    found = bytes(peer.flight[:count])
    del peer.flight[:count]
    return found


def _tls_seeds() -> Sequence[bytes]:
    whole = bytes([DELIVER, DELIVER, DELIVER])
    scripts = (
        whole + bytes([WRITE, 4]) + b"\0\0\0\1" + bytes([DELIVER]),
        bytes([PART, 1, PART, 20, DELIVER]) + whole,
        bytes([FLIP, 10, 3]) + whole,
        bytes([CUT, 10, 3]) + whole,
        bytes([INSERT, 0, 5]) + b"GET /" + whole,
        bytes([DELIVER, SWAP]) + whole,
        bytes([DELIVER, REPEAT]) + whole,
        bytes([DELIVER, FLIP, 5, 1]) + whole,
        bytes([DELIVER, END, 3]),
        whole + bytes([WRITE, 9]) + b"\0\0\0\5hello" + bytes([REPEAT, DELIVER]),
        bytes([END, 0, INSERT, 0, 7]) + b"\x15\3\3\0\2\2\x28" + bytes([DELIVER]),
        bytes([INSERT, 0, 5]) + b"\x16\3\1\xff\xff" + bytes([REPEAT] * 25) + whole,
    )
    return [bytes([client]) + script for client in range(4) for script in scripts]


TARGETS: Sequence[Target] = (Target("tls", _tls, (), _tls_seeds, most_lines=1),)
