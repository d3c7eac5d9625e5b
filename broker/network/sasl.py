"""SASL on a broker's connections: bounds those that are not authenticated yet, and delays and logs failures.

`sasl.login` decides what a frame means; `logins` puts its replies among a connection's responses. The bounds:
frames of ``sasl.server.max.receive.size``, so many connections at a time, so many bytes of their incomplete
frames together, and so long for each.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import structlog

from broker.network.login_thread import LoginThread
from broker.network.request_channel import ConnectionInfo
from broker.protocol.errors import ProtocolError
from broker.sasl.exchange import LoginFailed
from broker.sasl.login import Login, LoginReply, Offer
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
_MOST_SHOWN: Final = 64
_MOST_BYTES: Final = 32 << 20


class Newcomers:
    """Counts the connections that are not authenticated yet, and the bytes of their buffers. Thread-safe:
    Processors add and remove.

    One address may have no more of them than there are free places: alone it gets half, and others still
    find room. The same holds for the bytes. ``most_bytes`` limits how far buffers grow; each may be small.
    """

    def __init__(self, most: int, most_bytes: int = _MOST_BYTES) -> None:
        self.most = most
        self.most_bytes = most_bytes
        self.bytes = 0
        self._bytes_by_address: Counter[str] = Counter()
        self._by_address: Counter[str] = Counter()
        self._total = 0
        self._lock = threading.Lock()  # lock order 82

    def __len__(self) -> int:
        return self._total

    def add(self, address: str) -> bool:
        """Counts a connection; False if there is no room for it."""
        with self._lock:
            if self._by_address[address] >= self.most - self._total:
                if not self._by_address[address]:
                    del self._by_address[address]
                return False
            self._by_address[address] += 1
            self._total += 1
        return True

    def remove(self, address: str) -> None:
        with self._lock:
            self._total -= 1
            self._by_address[address] -= 1
            if not self._by_address[address]:
                del self._by_address[address]

    def hold(self, address: str, by: int) -> None:
        """Records that a buffer has grown or shrunk by so many bytes."""
        with self._lock:
            self.bytes += by
            self._bytes_by_address[address] += by
            if not self._bytes_by_address[address]:
                del self._bytes_by_address[address]

    def may_hold(self, address: str, more: int) -> bool:
        """Whether a buffer may grow by so many bytes."""
        with self._lock:
            return self._bytes_by_address.get(address, 0) + more <= self.most_bytes - self.bytes


@dataclass(slots=True)
class LoginStats:
    """Authentications since the start. Written without a lock by the Processors: a scrape may miss one."""

    successes: int = 0
    failures: int = 0
    re_successes: int = 0
    re_failures: int = 0
    expired: int = 0

    def counts(self) -> dict[str, int]:
        return {
            "successful_authentication": self.successes,
            "failed_authentication": self.failures,
            "successful_reauthentication": self.re_successes,
            "failed_reauthentication": self.re_failures,
            "expired_connections_killed": self.expired,
        }

    def count(self, *, failed: bool, again: bool) -> None:
        if failed:
            self.failures += not again
            self.re_failures += again
        else:
            self.successes += not again
            self.re_successes += again


class SaslListeners:
    """What the SASL listeners offer, by their names, and the bounds that they share.

    ``delay`` runs a callback after so many ms on another thread; failures are answered after ``failure_delay_ms``.
    ``apart`` is the thread of mechanisms that may block, None if there are none.
    """

    def __init__(
        self,
        offers: Mapping[str, Offer],
        delay: Callable[[int, Callable[[], None]], object],
        *,
        failure_delay_ms: int,
        max_newcomers: int,
        max_login_ms: int,
        apart: LoginThread | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self.offers = offers
        self.delay = delay
        self.apart = apart
        self.failure_delay_ms = failure_delay_ms
        self.max_login_ms = max_login_ms
        # Each listener has its own: clients cannot take the places of brokers.
        self.newcomers = {name: Newcomers(max_newcomers) for name in offers}
        self.stats = LoginStats()
        self._clock = clock

    def stop(self) -> None:
        """Ends the thread of mechanisms that may block."""
        if self.apart is not None:
            self.apart.stop()

    def open(self, info: ConnectionInfo, now_ms: int) -> ConnectionLogin | None:
        """The authentication of a new connection; None if there is no room for it."""
        newcomers = self.newcomers[info.listener_name]
        if not newcomers.add(info.client_address):
            log_refusal(
                "connection_refused",
                info.client_address,
                f"landline.sasl.unauthenticated.max.count={newcomers.most} are not authenticated yet",
                listener=info.listener_name,
            )
            return None
        info.is_unproved = True
        offer = self.offers[info.listener_name]
        return ConnectionLogin(self, offer, Login(offer, self._clock.wall_ms), info, now_ms)


class ConnectionLogin:
    """The authentication of one connection, as its Processor sees it. Only its thread uses it."""

    __slots__ = ("_counted", "_held", "_info", "_listeners", "_login", "_since_ms", "max_frame_bytes")

    def __init__(
        self, listeners: SaslListeners, offer: Offer, login: Login, info: ConnectionInfo, now_ms: int
    ) -> None:
        #: The largest frame before the authentication.
        self.max_frame_bytes = offer.max_receive_bytes
        self._listeners = listeners
        self._login = login
        self._info = info
        self._since_ms = now_ms
        self._counted = True
        self._held = 0

    @property
    def is_new(self) -> bool:
        """Whether the client has never been authenticated."""
        return self._login.identity is None

    def receive(self, frame: memoryview, now_ns: int) -> LoginReply | None:
        """The reply to a frame; None if it is a request to serve. Raises :class:`ProtocolError`, and what
        :meth:`Login.receive` raises.
        """
        login = self._login
        again = login.is_again
        was_done = login.is_done
        try:
            reply = login.receive(frame, now_ns)
        except ProtocolError:
            self._listeners.stats.expired += was_done and login.is_done
            raise
        if reply is None:
            return None
        if was_done:
            self._since_ms = now_ns // 1_000_000
        if reply.failure is not None:
            self._listeners.stats.count(failed=True, again=again)
            self._tell(reply.failure)
        elif login.is_done:
            self._listeners.stats.count(failed=False, again=again)
            self._admit(again=again)
        return reply

    def work_apart(self, work: Callable[[], None]) -> None:
        """Has a mechanism's work that may block done on another thread."""
        assert self._listeners.apart is not None
        self._listeners.apart.submit(work)

    def delay(self, answer: Callable[[], None]) -> None:
        """Runs ``answer``, to a failure, after connection.failed.authentication.delay.ms, on another thread."""
        self._listeners.delay(self._listeners.failure_delay_ms, answer)

    def is_overdue(self, now_ms: int) -> bool:
        """Whether the client has had its time to authenticate. It is logged."""
        if self._login.is_done or now_ms - self._since_ms <= self._listeners.max_login_ms:
            return False
        log_refusal(
            "authentication_timed_out",
            self._info.client_address,
            f"not authenticated after landline.sasl.authentication.max.ms={self._listeners.max_login_ms}",
            listener=self._info.listener_name,
            state=self._login.state.name,
        )
        return True

    def may_grow(self, size: int) -> bool:
        """Whether the connection's buffer may grow to ``size``. If not, that is logged."""
        newcomers, address = self._newcomers, self._info.client_address
        if not self._counted or newcomers.may_hold(address, size - self._held):
            return True
        log_refusal(
            "connection_refused",
            address,
            f"incomplete requests before authentication use up their {newcomers.most_bytes} bytes",
            listener=self._info.listener_name,
        )
        return False

    def hold(self, size: int) -> None:
        """Records the size of the connection's buffer."""
        if self._counted:
            self._newcomers.hold(self._info.client_address, size - self._held)
            self._held = size

    def leave(self) -> None:
        """Called when the connection is closed."""
        self._uncount()

    @property
    def _newcomers(self) -> Newcomers:
        return self._listeners.newcomers[self._info.listener_name]

    def _uncount(self) -> None:
        if self._counted:
            self.hold(0)
            self._counted = False
            self._newcomers.remove(self._info.client_address)

    def _admit(self, *, again: bool) -> None:
        identity = self._login.identity
        assert identity is not None
        self._info.principal = f"User:{identity.name}"
        self._info.is_unproved = False
        self._info.token_authenticated = identity.by_token
        self._info.session_ends_ns = self._login.expires_ns
        self._uncount()
        _log.debug(
            "authenticated",
            principal=self._info.principal,
            mechanism=self._login.mechanism,
            peer=self._info.client_address,
            listener=self._info.listener_name,
            again=again,
        )

    def _tell(self, failure: LoginFailed) -> None:
        """The audit line of a failure. What the client sent is in it only as the name it claimed."""
        log_refusal(
            "authentication_failed",
            self._info.client_address,
            str(failure),
            listener=self._info.listener_name,
            mechanism=self._login.mechanism,
            user=self._login.claimed[:_MOST_SHOWN],
            again=self._login.is_again,
        )
