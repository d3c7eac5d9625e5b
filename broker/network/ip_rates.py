"""``connection_creation_rate`` of IP addresses (KIP-612): how many connections an address may open a second.

As in Kafka, a connection too many is accepted and then closed after the throttle time, so that its client
does not try again at once. :class:`HeldSockets` keeps it until then.
"""

from __future__ import annotations

import heapq
import itertools
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from broker.quotas.rate import AVERAGE_WINDOWS, CLIENT_WINDOWS, SampledAverage, SampledRate, Windows

_MOST_ADDRESSES: Final = 10_000
_MOST_HELD: Final = 1_024
_MOST_EXPORTED: Final = 1_000


class IpConnectionRates:
    """The rates of addresses, and what they use of them; a part of Kafka's ConnectionQuotas. Thread-safe.

    ``enabled`` is False while there is no rate. An address that is forgotten because too many others came
    begins again with an unused rate.
    """

    def __init__(
        self, windows: Windows = CLIENT_WINDOWS, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self.enabled = False
        self._windows = windows
        self._clock_s = clock_s
        self._default: int | None = None
        self._rates: dict[str, int] = {}
        self._used: OrderedDict[str, SampledRate] = OrderedDict()
        self._waits: dict[str, SampledAverage] = {}
        self._lock = threading.Lock()  # lock order 79

    def update(self, address: str | None, rate: int | None) -> None:
        """Sets or removes the rate of an address, or of all that have none of their own (None)."""
        with self._lock:
            if address is None:
                self._default = rate
            elif rate is None:
                self._rates.pop(address, None)
            else:
                self._rates[address] = rate
            self.enabled = self._default is not None or bool(self._rates)

    def rate_of(self, address: str) -> int | None:
        return self._rates.get(address, self._default)

    def throttle_ms(self, address: str, listener: str) -> int:
        """Counts a new connection. If it is one too many, it does not count: returns when to close it; else 0.

        At most the length of a sample, as in Kafka.
        """
        with self._lock:
            bound = self.rate_of(address)
            if bound is None:
                return 0
            now_ms = int(self._clock_s() * 1_000)
            used = self._used.get(address)
            if used is None:
                used = self._used[address] = SampledRate(self._windows)
                if len(self._used) > _MOST_ADDRESSES:
                    self._used.popitem(last=False)
            else:
                self._used.move_to_end(address)
            used.record(1, now_ms)
            throttle_ms = min(used.throttle_ms(bound, now_ms), self._windows.window_ms)
            if throttle_ms:
                used.record(-1, now_ms)
                average = self._waits.setdefault(listener, SampledAverage(AVERAGE_WINDOWS))
                average.record(throttle_ms, now_ms)
            return throttle_ms

    def accept_rates(self) -> dict[tuple[str, ...], float]:
        """Connections per second of the addresses that connected last."""
        now_ms = int(self._clock_s() * 1_000)
        with self._lock:
            last = list(itertools.islice(reversed(self._used.items()), _MOST_EXPORTED))
            return {(address,): used.measure(now_ms) for address, used in last}

    def throttle_times(self) -> dict[tuple[str, ...], float]:
        """The average throttle time of the connections refused lately, by listener."""
        now_ms = int(self._clock_s() * 1_000)
        with self._lock:
            return {(listener,): average.measure(now_ms) for listener, average in self._waits.items()}


class HeldSockets:
    """Refused connections of one Acceptor that are closed later; used on its thread only. Above a thousand
    the one that is due first is closed at once.
    """

    def __init__(self, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._clock_s = clock_s
        self._heap: list[tuple[float, int, socket.socket]] = []
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._heap)

    def hold(self, sock: socket.socket, for_ms: int) -> None:
        heapq.heappush(self._heap, (self._clock_s() + for_ms / 1_000, next(self._numbers), sock))
        if len(self._heap) > _MOST_HELD:
            heapq.heappop(self._heap)[2].close()

    def close_due(self) -> float:
        """Closes those whose time has come. Returns the seconds until the next one's; 0 when there is none."""
        now_s = self._clock_s()
        while self._heap and self._heap[0][0] <= now_s:
            heapq.heappop(self._heap)[2].close()
        return self._heap[0][0] - now_s if self._heap else 0.0

    def close_all(self) -> None:
        while self._heap:
            self._heap.pop()[2].close()
