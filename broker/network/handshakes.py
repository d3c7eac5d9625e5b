"""TLS handshakes, on one thread between the Acceptors and the Processors.

A handshake takes 0.5 to 1 ms of CPU time, and as long as the peer likes. On a network thread it would delay
all clients. Here one thread serves all handshakes in progress by epoll. OpenSSL does not hold the interpreter
lock meanwhile. Ready handshakes of the addresses that took the least CPU time in this second come first. An
address may have as many handshakes in progress as there are free places, so alone it fills half of them.
"""

from __future__ import annotations

import select
import socket
import ssl
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import structlog

from broker.network.request_channel import ConnectionInfo
from broker.network.tls_transport import TlsTransport
from broker.network.transport import Adopt
from broker.network.wake_up import WakeUp
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
DEADLINE_MS: Final = 10_000
PLACES: Final = 1_024
_TURN_NS: Final = 20_000_000
_SECOND_NS: Final = 1_000_000_000
_PLAIN: Final = "it does not speak TLS; is it a client for another listener?"
_NO_CERTIFICATE: Final = "it has no certificate, and ssl.client.auth=required"
_UNTRUSTED_HERE: Final = "its certificate is not trusted here; is its CA in ssl.truststore.location?"
_UNTRUSTED_THERE: Final = (
    "it does not trust this broker's certificate; is the CA in the client's trust store?"
)
# What OpenSSL reports, and what it means.
_REASONS: Final = {
    "HTTP_REQUEST": _PLAIN,
    "WRONG_VERSION_NUMBER": _PLAIN,
    "UNKNOWN_PROTOCOL": _PLAIN,
    "RECORD_LAYER_FAILURE": _PLAIN,
    "UNSUPPORTED_PROTOCOL": "it offers none of ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "it offers none of ssl.cipher.suites, or none that fits the certificate",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": _NO_CERTIFICATE,
    "CERTIFICATE_VERIFY_FAILED": _UNTRUSTED_HERE,
    "TLSV1_ALERT_UNKNOWN_CA": _UNTRUSTED_THERE,
    "SSLV3_ALERT_BAD_CERTIFICATE": _UNTRUSTED_THERE,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _UNTRUSTED_THERE,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it finds this broker's certificate expired",
}


class PrincipalError(Exception):
    """A peer whose certificate gives no principal; the message says why."""


class ServerTls(Protocol):
    """A listener's TLS settings. Used on the handshakes' thread."""

    def wrap(self, sock: socket.socket) -> ssl.SSLSocket:
        """The server's end of a connection, before its handshake."""

    def principal(self, sock: ssl.SSLSocket) -> str:
        """The peer's principal after the handshake. Raises PrincipalError."""


@dataclass(slots=True, eq=False)
class _Handshake:
    """A handshake: in progress, or about to begin."""

    sock: socket.socket
    info: ConnectionInfo
    tls: ServerTls
    adopt: Adopt
    on_failed: Callable[[], None]
    deadline_ns: int = 0
    events: int = 0


class Handshakes:
    """The handshakes of one broker. Everything runs on its thread except :meth:`secure`, :meth:`start`
    and :meth:`stop`. ``listeners`` has the settings of each TLS listener. ``succeeded`` and ``failed`` count
    by listener.
    """

    def __init__(
        self, listeners: Mapping[str, ServerTls], *, deadline_ms: int = DEADLINE_MS, places: int = PLACES
    ) -> None:
        self._listeners = listeners
        self.succeeded: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._deadline_ns = deadline_ms * 1_000_000
        self._places = places
        self._epoll: select.epoll
        self._wake_up: WakeUp
        self._arrived: deque[_Handshake] = deque()
        self._going: dict[int, _Handshake] = {}  # by descriptor, in the order of their deadlines
        self._by_address: Counter[str] = Counter()
        self._spent_ns: Counter[str] = Counter()
        self._spent_since_ns = 0
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="tls-handshakes", daemon=True)

    @property
    def names(self) -> Collection[str]:
        """The TLS listeners."""
        return self._listeners.keys()

    @property
    def count(self) -> int:
        """Handshakes in progress or about to begin."""
        return len(self._going) + len(self._arrived)

    def start(self) -> None:
        self._epoll = select.epoll()
        self._wake_up = WakeUp(self._epoll)
        self._thread.start()

    def covers(self, listener: str) -> bool:
        return listener in self._listeners

    def secure(
        self, sock: socket.socket, info: ConnectionInfo, adopt: Adopt, on_failed: Callable[[], None]
    ) -> None:
        self._arrived.append(_Handshake(sock, info, self._listeners[info.listener_name], adopt, on_failed))
        self._wake_up.wake()

    def stop(self) -> None:
        """Closes the connections of all handshakes, and ends. Harmless if it never started."""
        if not self._thread.is_alive():
            return
        self._stopping = True
        self._wake_up.wake()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            try:
                self._turn()
            except Exception:  # an ended loop would let nobody in
                _log.exception("handshakes_failed")
        for handshake in [*self._going.values(), *self._arrived]:
            self._end(handshake)
        self._epoll.close()
        self._wake_up.close()

    def _turn(self) -> None:
        events = self._epoll.poll(self._next_deadline_s())
        now_ns = time.monotonic_ns()
        if now_ns - self._spent_since_ns > _SECOND_NS:
            self._spent_since_ns = now_ns
            self._spent_ns.clear()
        ready = [self._going[fd] for fd, _ in events if fd in self._going]
        if len(ready) < len(events):
            self._wake_up.take()
            ready += self._let_in(now_ns + self._deadline_ns)
        ready.sort(key=lambda handshake: self._spent_ns[handshake.info.client_address])
        for handshake in ready:
            self._step(handshake)
            if time.monotonic_ns() - now_ns > _TURN_NS:
                break  # epoll reports the others again
        self._end_overdue(now_ns)

    def _next_deadline_s(self) -> float | None:
        if not self._going:
            return None
        first = next(iter(self._going.values()))
        return max((first.deadline_ns - time.monotonic_ns()) / 1e9, 0.0)

    def _let_in(self, deadline_ns: int) -> Iterable[_Handshake]:
        for _ in range(len(self._arrived)):
            handshake = self._arrived.popleft()
            handshake.deadline_ns = deadline_ns
            address = handshake.info.client_address
            if self._by_address[address] >= self._places - len(self._going):
                self._refuse(handshake, "too many handshakes of its address are in progress")
                continue
            try:
                handshake.sock = handshake.tls.wrap(handshake.sock)
                fd = handshake.sock.fileno()
                self._epoll.register(fd, select.EPOLLIN)
            except (OSError, ValueError) as error:  # the peer has gone
                self._refuse(handshake, str(error))
                continue
            handshake.events = select.EPOLLIN
            self._going[fd] = handshake
            self._by_address[address] += 1
            yield handshake

    def _step(self, handshake: _Handshake) -> None:
        fd = handshake.sock.fileno()
        events = 0
        before_ns = time.thread_time_ns()
        try:
            assert isinstance(handshake.sock, ssl.SSLSocket)
            handshake.sock.do_handshake()
            handshake.info.principal = handshake.tls.principal(handshake.sock)
        except ssl.SSLWantReadError:
            events = select.EPOLLIN
        except ssl.SSLWantWriteError:
            events = select.EPOLLOUT
        except (OSError, PrincipalError) as error:
            self._forget(fd, handshake)
            self._refuse(handshake, why_failed(error))
        except Exception:  # it must not be ready for ever
            _log.exception("handshake_failed", peer=handshake.info.client_address)
            self._forget(fd, handshake)
            self._refuse(handshake, "see the line before")
        else:
            self._forget(fd, handshake)
            self.succeeded[handshake.info.listener_name] += 1
            handshake.adopt(TlsTransport(handshake.sock), handshake.info)
        self._spent_ns[handshake.info.client_address] += time.thread_time_ns() - before_ns
        if events and events != handshake.events:
            handshake.events = events
            self._epoll.modify(fd, events)

    def _end_overdue(self, now_ns: int) -> None:
        while self._going:
            fd, handshake = next(iter(self._going.items()))
            if handshake.deadline_ns > now_ns:
                return
            self._forget(fd, handshake)
            self._refuse(handshake, f"not complete after {self._deadline_ns // 1_000_000} ms")

    def _forget(self, fd: int, handshake: _Handshake) -> None:
        del self._going[fd]
        self._epoll.unregister(fd)
        address = handshake.info.client_address
        self._by_address[address] -= 1
        if not self._by_address[address]:
            del self._by_address[address]

    def _refuse(self, handshake: _Handshake, reason: str) -> None:
        info = handshake.info
        self.failed[info.listener_name] += 1
        log_refusal(
            "tls_handshake_failed",
            info.client_address,
            reason,
            listener=info.listener_name,
            action="connection closed",
        )
        self._end(handshake)

    def _end(self, handshake: _Handshake) -> None:
        handshake.sock.close()
        handshake.on_failed()


def why_failed(error: Exception) -> str:
    """What a failed handshake means, in words of the configuration."""
    reason = getattr(error, "reason", None) or ""
    if reason in _REASONS:
        detail = getattr(error, "verify_message", "")
        return f"{_REASONS[reason]} ({detail})" if detail else _REASONS[reason]
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionResetError | BrokenPipeError):
        return "it hung up during the handshake"
    return str(error)
