"""Decides which peers may send brokers' requests, by their address, because there is no authentication.

Anyone who could send LeaderAndIsr would control all data. So requests that only brokers send are served only
for the addresses of hosts registered in ``/brokers/ids``, and for this host itself. If all registered brokers
declare that they use one listener for inter-broker requests, and it is this broker's inter-broker listener,
such requests are refused on any other listener. During a roll from one listener to two, and with Kafka's
brokers, which declare nothing, both are accepted.

The registrations are read when the set of brokers in the controller's metadata changes, and for an unknown
address. Addresses are kept for some time after their broker has gone, because it may be back before its
registration is read. The addresses of a registered name are also kept while no name server resolves it. A
refused peer is looked up again after a second.
"""

from __future__ import annotations

import ipaddress
import socket
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import lru_cache
from typing import Final, NamedTuple

import structlog

from broker.network.request_channel import ConnectionInfo
from broker.protocol.control_messages import BrokerInfo
from broker.server.metadata_cache import MetadataCache
from broker.utils.clock import Clock, SystemClock
from broker.utils.refusal_log import log_refusal

_log = structlog.get_logger(__name__)
_KEPT_MS: Final = 10 * 60_000
_ASK_AGAIN_MS: Final = 1_000
# The pause between two reads of the store for unknown peers, and how long a name's addresses are cached.
_PAUSE_MS: Final = 100
_NAMES_MS: Final = 1_000
_MOST_PREFIXES: Final = 1_000
# Addresses of one IPv6 network (/64, which one host may own entirely) that are looked up per second.
_MOST_IN_PREFIX: Final = 8


class Trust(Enum):
    """The values of ``landline.inter.broker.peers``."""

    ANY = "any"
    REGISTERED = "registered"
    LISTENER = "listener"


class Standing(Enum):
    """What is known about a peer that sends a broker's request."""

    BROKER = "it is one, or this host"
    REFUSED = "it was none when it was looked up, less than a second ago"
    CROWDED = "too many of its network were looked up in this second"
    UNKNOWN = "to be looked up; or the store could not be read"


class Speaker(NamedTuple):
    """A registered broker: its hosts, and the listener that it declares to use for inter-broker requests;
    None if it declares none.
    """

    hosts: frozenset[str]
    listener: str | None = None


@dataclass(slots=True)
class _Refused:
    """The peers of one network that were looked up since ``since_ms`` and are not brokers, as address
    and listener.
    """

    since_ms: int
    peers: set[tuple[str, str]] = field(default_factory=set)


def addresses_of(host: str) -> list[str]:
    """The addresses that a host name resolves to; empty if none. May wait for a name server."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        _log.warning("broker_host_unknown", host=host, error=str(error), action="its requests are refused")
        return []
    return [str(row[4][0]) for row in found]


class BrokerPeers:
    """Knows which peers are brokers. Any thread may call :meth:`knows` and :meth:`standing`; one thread looks
    up and refreshes.

    ``registered`` returns all registered brokers, and may raise. ``listener`` is the name of the
    inter-broker listener, ``controller_listener`` of the one for the controller's requests, if it has its own.
    """

    def __init__(
        self,
        trust: Trust = Trust.ANY,
        listener: str = "",
        registered: Callable[[], Iterable[Speaker]] = tuple,
        clock: Clock | None = None,
        *,
        resolve: Callable[[str], Iterable[str]] = addresses_of,
        pause: Callable[[float], None] = time.sleep,
        controller_listener: str = "",
    ) -> None:
        self._trust = trust
        self._listener = listener
        self._own_listeners = {listener, controller_listener or listener}
        self._registered = registered
        self._clock = clock or SystemClock()
        self._resolve = resolve
        self._pause = pause
        self._by_listener = trust is Trust.LISTENER
        # Address to the time when it last belonged to a registered broker. Replaced, never modified.
        self._seen: dict[str, int] = {}
        self._names: dict[str, tuple[frozenset[str], int]] = {}
        self._refused: OrderedDict[str, _Refused] = OrderedDict()
        self._read_began_ms = self._read_ended_ms = -_PAUSE_MS
        self._is_read = self._closed = False

    @property
    def trusts_all(self) -> bool:
        """Whether every peer is trusted, so that nobody is ever looked up."""
        return self._trust is Trust.ANY

    def knows(self, connection: ConnectionInfo) -> bool:
        """Whether the peer is known to be a broker. Never blocks."""
        if self._trust is Trust.ANY:
            return True
        if self._by_listener and connection.listener_name not in self._own_listeners:
            return False
        address = connection.client_address
        return address in self._seen or _plain(address) in self._seen or _is_loopback(address)

    def standing(self, connection: ConnectionInfo) -> Standing:
        """What is known about the peer. Never blocks."""
        if self.knows(connection):
            return Standing.BROKER
        if self._trust is Trust.LISTENER and connection.listener_name not in self._own_listeners:
            return Standing.REFUSED
        refused = self._refused.get(_network(connection.client_address))
        if refused is None or self._clock.monotonic_ms() - refused.since_ms >= _ASK_AGAIN_MS:
            return Standing.UNKNOWN
        if (_plain(connection.client_address), connection.listener_name) in refused.peers:
            return Standing.REFUSED
        return Standing.CROWDED if len(refused.peers) >= _MOST_IN_PREFIX else Standing.UNKNOWN

    def look_up(self, connection: ConnectionInfo, came_ms: int) -> Standing:
        """Like :meth:`standing`, but reads the registrations if the peer is unknown and they were not read
        since the request arrived, at ``came_ms`` of the monotonic clock. One read serves all requests that
        arrived before it. UNKNOWN if the registrations could not be read.
        """
        standing = self.standing(connection)
        if standing is not Standing.UNKNOWN:
            return standing
        if self._closed:
            return Standing.UNKNOWN
        if self._read_began_ms <= came_ms:
            pause_ms = self._read_ended_ms + _PAUSE_MS - self._clock.monotonic_ms()
            if pause_ms > 0:
                self._pause(pause_ms / 1000)
            self.refresh()
        if self.knows(connection):
            return Standing.BROKER
        if not self._is_read:
            return Standing.UNKNOWN
        self._note_refused(connection)
        return Standing.REFUSED

    def tell_refused(self, connection: ConnectionInfo, api: str) -> None:
        """Logs a refusal, at most one line per second and peer."""
        log_refusal(
            "broker_request_refused",
            connection.client_address,
            "only brokers may send this, by landline.inter.broker.peers",
            api=api,
            listener=connection.listener_name,
            only_listener=self._listener if self._by_listener else None,
            trusted=self._trust.value,
            error="CLUSTER_AUTHORIZATION_FAILED",
        )

    def refresh(self) -> None:
        """Reads the registrations. Waits for the store and for name servers."""
        if self._trust is Trust.ANY or self._closed:
            return
        self._read_began_ms = self._clock.monotonic_ms()
        try:
            speakers = list(self._registered())
            addresses = self._resolved({host for speaker in speakers for host in speaker.hosts})
        except Exception as error:
            _log.warning("broker_addresses_unread", error=str(error), action="peers that are known stay so")
            self._is_read = False
        else:
            self._take(speakers, addresses)
            self._is_read = True
        self._read_ended_ms = self._clock.monotonic_ms()

    def close(self) -> None:
        """Stops all look-ups: a broker that stops must not wait for the store."""
        self._closed = True

    def _take(self, speakers: list[Speaker], addresses: set[str]) -> None:
        """Merges the addresses seen so far with those registered now, and drops expired ones."""
        now_ms = self._read_began_ms
        kept = {known: at for known, at in self._seen.items() if now_ms - at < _KEPT_MS}
        self._seen = kept | dict.fromkeys(addresses, now_ms)
        if self._trust is Trust.REGISTERED:
            by_listener = bool(speakers) and all(speaker.listener == self._listener for speaker in speakers)
            if by_listener != self._by_listener:
                _log.info(
                    "brokers_heard_by_one_listener" if by_listener else "brokers_heard_by_any_listener",
                    listener=self._listener,
                )
            self._by_listener = by_listener

    def _resolved(self, hosts: set[str]) -> set[str]:
        names = self._names
        self._names = {}
        for host in hosts:
            found, at = names.get(host, (frozenset[str](), -_NAMES_MS))
            if self._clock.monotonic_ms() - at >= _NAMES_MS:
                found = frozenset(_plain(address) for address in self._resolve(host)) or found
                at = self._clock.monotonic_ms()
            self._names[host] = (found, at)
        return {address for found, _ in self._names.values() for address in found}

    def _note_refused(self, connection: ConnectionInfo) -> None:
        network, now_ms = _network(connection.client_address), self._clock.monotonic_ms()
        refused = self._refused.get(network)
        if refused is None or now_ms - refused.since_ms >= _ASK_AGAIN_MS:
            self._refused.pop(network, None)
            if len(self._refused) >= _MOST_PREFIXES:
                self._refused.popitem(last=False)
            refused = self._refused[network] = _Refused(now_ms)
        refused.peers.add((_plain(connection.client_address), connection.listener_name))


@lru_cache(maxsize=1024)
def _plain(address: str) -> str:
    """One spelling for each address: without a zone, and IPv4 form for IPv4-mapped IPv6 addresses."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = getattr(parsed, "ipv4_mapped", None)
    return str(mapped or parsed)


@lru_cache(maxsize=1024)
def _network(address: str) -> str:
    """The network that one host may own entirely: a single IPv4 address, or an IPv6 /64."""
    plain = _plain(address)
    return str(ipaddress.ip_network(f"{plain}/64", strict=False)) if ":" in plain else plain


@lru_cache(maxsize=1024)
def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(_plain(address)).is_loopback
    except ValueError:
        return False


def follow_brokers(
    peers: BrokerPeers, cache: MetadataCache, submit: Callable[[Callable[[], None]], bool]
) -> None:
    """Reads the registrations now, and again when the set of brokers in the controller's metadata changes.

    ``submit`` runs the read on another thread; it returns whether it will.
    """
    if peers.trusts_all:
        return
    told: Mapping[int, BrokerInfo] = {}

    def look() -> None:
        nonlocal told
        brokers = cache.snapshot.brokers
        if brokers != told and submit(peers.refresh):
            told = brokers

    cache.add_listener(look)
    submit(peers.refresh)
