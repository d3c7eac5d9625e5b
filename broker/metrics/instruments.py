"""Counters and histograms: plain objects that are read when a scrape happens.

Nothing here imports prometheus_client, so metrics cost no start-up time. `exposition` converts the
instruments to text. Names and help texts belong to the registry.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Generic, TypeVar

Child = TypeVar("Child")
Labels = tuple[str, ...]
Buckets = tuple[list[tuple[str, float]], float]
GaugeFunction = Callable[[], float | Mapping[Labels, float]]

# Milliseconds: from a tenth of one to ten seconds.
DEFAULT_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10000)


class HotCounter:
    """A counter cell for a hot path: its single writer thread does ``cell.value += n``, without a lock or
    a call.

    Two threads that write to one cell may lose counts. Use one cell per thread; the registry adds them up.
    """

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Counter:
    """A counter that any thread may increment."""

    __slots__ = ("_lock", "_value")

    def __init__(self) -> None:
        self._lock = threading.Lock()  # lock order 94
        self._value: float = 0

    def inc(self, amount: float = 1) -> None:
        """Adds ``amount``, which must not be negative."""
        with self._lock:
            self._value += amount

    @property
    def value(self) -> float:
        return self._value


class _Labelled(Generic[Child]):
    """Instruments by label values. Code that uses one often should keep the child that
    :meth:`labels` returns.
    """

    __slots__ = ("_children", "_lock", "_make", "names")

    def __init__(self, names: Sequence[str], make: Callable[[], Child]) -> None:
        self.names = tuple(names)
        self._make = make
        self._lock = threading.Lock()  # lock order 93
        self._children: dict[Labels, Child] = {}

    def labels(self, *values: str) -> Child:
        """The instrument for these label values, created on first use."""
        child = self._children.get(values)
        if child is not None:
            return child
        if len(values) != len(self.names):
            raise ValueError(
                f"{len(self.names)} label values are expected ({', '.join(self.names)}): {values}"
            )
        with self._lock:
            return self._children.setdefault(values, self._make())

    def remove(self, *values: str) -> None:
        """Removes a child, for example when its topic is deleted."""
        with self._lock:
            self._children.pop(values, None)

    def children(self) -> dict[Labels, Child]:
        with self._lock:
            return dict(self._children)


class LabelledCounter(_Labelled[Counter]):
    """Counters by label values."""

    __slots__ = ()

    def __init__(self, names: Sequence[str]) -> None:
        super().__init__(names, Counter)

    def snapshot(self) -> dict[Labels, float]:
        return {values: child.value for values, child in self.children().items()}


class Histogram:
    """Counts observations per bucket (upper bounds are inclusive), and their sum. Any thread may observe."""

    __slots__ = ("_counts", "_lock", "_sum", "bounds")

    def __init__(self, bounds: Sequence[float] = DEFAULT_BUCKETS) -> None:
        self.bounds = tuple(bounds)
        self._lock = threading.Lock()  # lock order 95
        self._counts = [0] * (len(self.bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        place = bisect_left(self.bounds, value)
        with self._lock:
            self._counts[place] += 1
            self._sum += value

    @property
    def count(self) -> int:
        return sum(self._counts)

    def snapshot(self) -> tuple[list[tuple[str, float]], float]:
        """Cumulative counts by upper bound, the last one ``+Inf``, and the sum of all observations."""
        with self._lock:
            counts, total = list(self._counts), self._sum
        cumulative: list[tuple[str, float]] = []
        running = 0
        for bound, count in zip([*map(str, self.bounds), "+Inf"], counts, strict=True):
            running += count
            cumulative.append((bound, running))
        return cumulative, total


class LabelledHistogram(_Labelled[Histogram]):
    """Histograms by label values."""

    __slots__ = ()

    def __init__(self, names: Sequence[str], bounds: Sequence[float]) -> None:
        super().__init__(names, partial(Histogram, bounds))
