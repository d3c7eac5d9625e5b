"""Limits on connections: ``max.connections``, ``max.connections.per.ip`` with its overrides, and
``max.connection.creation.rate`` for new ones per second. All of them may change while the broker runs. The
rates of single addresses are in :mod:`.ip_rates`.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from broker.network.ip_rates import IpConnectionRates

NO_RATE = (1 << 31) - 1


class TooManyConnectionsError(Exception):
    """An address has reached a limit, named in the message; the connection is closed."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The four connection limits. ``creation_rate`` is per second, over all listeners except the
    protected one.
    """

    max_connections: int = NO_RATE
    max_per_ip: int = NO_RATE
    overrides: Mapping[str, int] = field(default_factory=dict)
    creation_rate: int = NO_RATE


class ConnectionQuotas:
    """Counts connections by client address; Kafka's ConnectionQuotas. Thread-safe: the acceptor adds,
    processors remove.

    ``protected_listener`` is the inter-broker listener, if there is another one for clients. Clients that
    connect constantly must not keep brokers from each other. ``clock_s`` is monotonic.
    """

    def __init__(
        self,
        max_connections: int,
        max_per_ip: int,
        overrides: Mapping[str, int],
        creation_rate: int = NO_RATE,
        *,
        protected_listener: str | None = None,
        ip_rates: IpConnectionRates | None = None,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.ip_rates = ip_rates or IpConnectionRates()
        self.limits = ConnectionLimits(max_connections, max_per_ip, overrides, creation_rate)
        self._protected_listener = protected_listener
        self._clock_s = clock_s
        self._allowed = 1.0  # connections that may be accepted at once, at ``_allowed_at_s``
        self._allowed_at_s = clock_s()
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._lock = threading.Lock()  # lock order 73

    @property
    def total(self) -> int:
        return self._total

    def protects(self, listener: str) -> bool:
        """Whether it is the inter-broker listener and clients have another one."""
        return listener == self._protected_listener

    def is_full(self, listener: str) -> bool:
        """Whether ``max.connections`` is reached; never for the inter-broker listener."""
        return self._total >= self.limits.max_connections and not self.protects(listener)

    @property
    def excess(self) -> int:
        """How many connections to close: brokers are admitted above the limit, and client connections
        make room.
        """
        return 0 if self._protected_listener is None else self._total - self.limits.max_connections

    def add(self, address: str) -> None:
        """Counts a connection. Raises :class:`TooManyConnectionsError`, and counts nothing, when the address
        is at its limit.
        """
        with self._lock:
            limits = self.limits
            limit = limits.overrides.get(address, limits.max_per_ip)
            if self._counts[address] >= limit:
                raise TooManyConnectionsError(f"max.connections.per.ip={limit} reached by {address}")
            self._counts[address] += 1
            self._total += 1

    def pause_s(self, listener: str) -> float:
        """Seconds to wait before the next connection is accepted; 0 when it may be accepted now, which
        counts it.
        """
        rate = self.limits.creation_rate
        if rate >= NO_RATE or listener == self._protected_listener:
            return 0.0
        with self._lock:
            now_s = self._clock_s()
            allowed = self._allowed + (now_s - self._allowed_at_s) * rate
            self._allowed = min(allowed, max(rate, 1))  # unused allowance older than a second is lost
            self._allowed_at_s = now_s
            if self._allowed >= 1:
                self._allowed -= 1
                return 0.0
            return (1 - self._allowed) / rate if rate else 1.0

    def remove(self, address: str) -> None:
        with self._lock:
            self._total -= 1
            self._counts[address] -= 1
            if self._counts[address] <= 0:
                del self._counts[address]
