"""Limits on connections: ``max.connections``, ``max.connections.per.ip`` with its overrides, and
``max.connection.creation.rate`` for new ones per second. All of them may change while the broker runs. The
rates of single addresses are in :mod:`.ip_rates`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from broker.network.ip_rates import IpConnectionRates

NO_RATE = (1 << 31) - 1


class TooManyConnectionsError(Exception):
    """An address has reached a limit, named in the message; the connection is closed."""


@dataclass(frozen=True, slots=True)
class ListenerLimits:
    """The limits of one listener alone; ``creation_rate`` is per second."""

    max_connections: int = NO_RATE
    creation_rate: int = NO_RATE


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The connection limits. ``creation_rate`` is per second, over all listeners except the protected one.
    ``listeners`` has those that a listener has of its own.
    """

    max_connections: int = NO_RATE
    max_per_ip: int = NO_RATE
    overrides: Mapping[str, int] = field(default_factory=dict)
    creation_rate: int = NO_RATE
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)


_NO_LIMITS: Final = ListenerLimits()


class _Pace:
    """The connections that may be accepted at once. Unused allowance older than a second is lost."""

    def __init__(self, now_s: float) -> None:
        self.allowed = 1.0
        self._at_s = now_s

    def wait_s(self, rate: int, now_s: float) -> float:
        """Seconds until the next connection may be accepted."""
        self.allowed = min(self.allowed + (now_s - self._at_s) * rate, max(rate, 1))
        self._at_s = now_s
        if self.allowed >= 1:
            return 0.0
        return (1 - self.allowed) / rate if rate else 1.0


class ConnectionQuotas:
    """Counts connections by client address and by listener; Kafka's ConnectionQuotas. Thread-safe: the acceptors
    add, processors remove.

    ``protected_listeners`` are those of brokers, if there is another one for clients. Clients that connect
    constantly must not keep brokers from each other, so only limits of their own are for them. The clock
    ``clock_s`` is monotonic.
    """

    def __init__(
        self,
        max_connections: int,
        max_per_ip: int,
        overrides: Mapping[str, int],
        creation_rate: int = NO_RATE,
        *,
        protected_listeners: Collection[str] = (),
        ip_rates: IpConnectionRates | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ip_rates = ip_rates or IpConnectionRates()
        self.limits = ConnectionLimits(max_connections, max_per_ip, overrides, creation_rate)
        self._protected_listeners = protected_listeners
        self._clock_s = clock_s
        self._pace = _Pace(clock_s())
        self._paces: dict[str, _Pace] = {}
        self._counts: Counter[str] = Counter()
        self._by_listener: Counter[str] = Counter()
        self._total = 0
        self._lock = threading.Lock()  # lock order 73

    @property
    def total(self) -> int:
        return self._total

    def protects(self, listener: str) -> bool:
        """Whether it is a listener of brokers and clients have another one."""
        return listener in self._protected_listeners

    def why_full(self, listener: str) -> str | None:
        """The limit that is reached; None if there is room. The broker's limit is not for the protected one."""
        own = self.limits.listeners.get(listener, _NO_LIMITS).max_connections
        if self._by_listener[listener] >= own:
            return f"listener.name.{listener.lower()}.max.connections={own}"
        if self._total >= self.limits.max_connections and not self.protects(listener):
            return f"max.connections={self.limits.max_connections}"
        return None

    @property
    def excess(self) -> int:
        """How many connections to close: brokers are admitted above the limit, and client connections
        make room.
        """
        return self._total - self.limits.max_connections if self._protected_listeners else 0

    def add(self, address: str, listener: str) -> None:
        """Counts a connection. Raises :class:`TooManyConnectionsError`, and counts nothing, when the address
        is at its limit.
        """
        with self._lock:
            limits = self.limits
            limit = limits.overrides.get(address, limits.max_per_ip)
            if self._counts[address] >= limit:
                raise TooManyConnectionsError(f"max.connections.per.ip={limit} reached by {address}")
            self._counts[address] += 1
            self._by_listener[listener] += 1
            self._total += 1

    def pause_s(self, listener: str) -> float:
        """Seconds to wait before the next connection is accepted; 0 when it may be accepted now, which
        counts it.
        """
        limits = self.limits
        own_rate = limits.listeners.get(listener, _NO_LIMITS).creation_rate
        broker_rate = NO_RATE if self.protects(listener) else limits.creation_rate
        if own_rate >= NO_RATE and broker_rate >= NO_RATE:
            return 0.0
        with self._lock:
            now_s = self._clock_s()
            paces = []
            if broker_rate < NO_RATE:
                paces.append((self._pace, broker_rate))
            if own_rate < NO_RATE:
                paces.append((self._paces.setdefault(listener, _Pace(now_s)), own_rate))
            wait_s = max(pace.wait_s(rate, now_s) for pace, rate in paces)
            if wait_s <= 0:
                for pace, _ in paces:
                    pace.allowed -= 1
            return wait_s

    def remove(self, address: str, listener: str) -> None:
        with self._lock:
            self._total -= 1
            self._by_listener[listener] -= 1
            self._counts[address] -= 1
            if self._counts[address] <= 0:
                del self._counts[address]
