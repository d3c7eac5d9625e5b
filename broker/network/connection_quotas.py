"""How many connections there may be: ``max.connections`` and ``max.connections.per.ip`` with its overrides."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping


class TooManyConnectionsError(Exception):
    """Says which limit an address has reached; the connection is closed."""


class ConnectionQuotas:
    """Counts by client address. Thread-safe: the acceptor adds, processors take away."""

    def __init__(self, max_connections: int, max_per_ip: int, overrides: Mapping[str, int]) -> None:
        self.max_connections = max_connections
        self.max_per_ip = max_per_ip
        self.overrides = dict(overrides)
        self._counts: Counter[str] = Counter()
        self._total = 0
        self._lock = threading.Lock()  # lock order 73

    @property
    def total(self) -> int:
        return self._total

    def add(self, address: str) -> None:
        """Raises :class:`TooManyConnectionsError` and counts nothing when a limit is reached."""
        with self._lock:
            limit = self.overrides.get(address, self.max_per_ip)
            if self._counts[address] >= limit:
                raise TooManyConnectionsError(f"max.connections.per.ip={limit} reached by {address}")
            if self._total >= self.max_connections:
                raise TooManyConnectionsError(f"max.connections={self.max_connections} reached")
            self._counts[address] += 1
            self._total += 1

    def remove(self, address: str) -> None:
        with self._lock:
            self._total -= 1
            self._counts[address] -= 1
            if self._counts[address] <= 0:
                del self._counts[address]
