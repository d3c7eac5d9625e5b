"""Who may speak as a broker: by the address it comes from, for there is no authentication.

LeaderAndIsr from anyone would be anyone's power over all data. So requests that only brokers send are served for the
addresses of hosts that are registered in ``/brokers/ids``, of this host itself, and, when so told, only on the
listener between brokers. Addresses are kept for a while after their broker has gone: it may be back before its
registration is read. Who asks and is refused is asked for again after a second.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Final

import structlog

from broker.network.request_channel import ConnectionInfo
from broker.utils.clock import Clock, SystemClock
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
_KEPT_MS: Final = 10 * 60_000
_ASK_AGAIN_MS: Final = 1_000
_MOST_REFUSED: Final = 1_000


class Trust(Enum):
    """Values of ``landline.inter.broker.peers``."""

    ANY = "any"
    REGISTERED = "registered"
    LISTENER = "listener"


def addresses_of(host: str) -> list[str]:
    """The addresses that a name stands for; none when it has none. May wait for a name server."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        _log.warning("broker_host_unknown", host=host, error=str(error), action="its requests are refused")
        return []
    return [str(row[4][0]) for row in found]


class BrokerPeers:
    """Any thread may ask. ``hosts`` gives the hosts of all registered brokers, and may raise; ``listener`` is the name
    of the listener between brokers.
    """

    def __init__(
        self,
        trust: Trust = Trust.ANY,
        listener: str = "",
        hosts: Callable[[], Iterable[str]] = tuple,
        clock: Clock | None = None,
        resolve: Callable[[str], Iterable[str]] = addresses_of,
    ) -> None:
        self._trust = trust
        self._listener = listener
        self._hosts = hosts
        self._clock = clock or SystemClock()
        self._resolve = resolve
        self._seen: dict[
            str, int
        ] = {}  # address to when it was last a registered broker's; replaced, never changed
        self._refused: dict[str, int] = {}

    def knows(self, connection: ConnectionInfo) -> bool:
        """Whether the peer is known as a broker. Waits for nothing."""
        if self._trust is Trust.ANY:
            return True
        if self._trust is Trust.LISTENER and connection.listener_name != self._listener:
            return False
        return connection.client_address in self._seen

    def admits(self, connection: ConnectionInfo, api: str) -> bool:
        """As :meth:`knows`, and asks the store when the peer is unknown: on a handler thread. One log line a second
        for who is refused.
        """
        if self.knows(connection) or self._is_admitted(connection):
            return True
        log_refusal(
            "broker_request_refused",
            connection.client_address,
            "only brokers may send this, by landline.inter.broker.peers",
            api=api,
            listener=connection.listener_name,
            trusted=self._trust.value,
            error="CLUSTER_AUTHORIZATION_FAILED",
        )
        return False

    def _is_admitted(self, connection: ConnectionInfo) -> bool:
        address = connection.client_address
        if self._trust is Trust.LISTENER and connection.listener_name != self._listener:
            return False
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._refused.get(address, -_ASK_AGAIN_MS) < _ASK_AGAIN_MS:
            return False
        seen = self._now_seen(now_ms)
        plain = _plain(address)
        if _is_loopback(plain) or plain in seen:
            seen[address] = now_ms
        self._seen = seen
        if address in seen:
            return True
        if len(self._refused) >= _MOST_REFUSED:
            self._refused = {}
        self._refused[address] = now_ms
        return False

    def _now_seen(self, now_ms: int) -> dict[str, int]:
        """Those seen so far and those registered now, without who has been gone for long."""
        try:
            registered = {_plain(found) for host in set(self._hosts()) for found in self._resolve(host)}
        except Exception as error:
            _log.warning("broker_addresses_unread", error=str(error))
            return dict(self._seen)
        seen = {
            known: now_ms if _plain(known) in registered else at
            for known, at in self._seen.items()
            if _plain(known) in registered or now_ms - at < _KEPT_MS
        }
        return seen | dict.fromkeys(registered, now_ms)


def _plain(address: str) -> str:
    """One spelling for each address: without a zone, and IPv4's own where IPv6 carries it."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
