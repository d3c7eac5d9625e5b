"""The broker's metrics by name. BrokerServer creates the registry and passes it to all parts that count.

Names are Kafka's JMX names in Prometheus style, in lower case: ``kafka.server:type=ReplicaManager,
name=UnderReplicatedPartitions`` is ``kafka_server_replicamanager_underreplicatedpartitions``. Meters lose
their ``PerSec`` and end in ``_total``. `docs/metrics.md` lists all metrics. `exposition` writes them as text.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeVar, overload

from broker.metrics.instruments import (
    DEFAULT_BUCKETS,
    Buckets,
    Counter,
    GaugeFunction,
    Histogram,
    HotCounter,
    LabelledCounter,
    LabelledHistogram,
    Labels,
)

_NAME: Final = r"[a-z_][a-z0-9_]*"
T = TypeVar("T", Counter, LabelledCounter, Histogram, LabelledHistogram)


@dataclass(slots=True)
class Gauge:
    """A value that is read at each scrape. With labels, the function returns a mapping from label values."""

    function: GaugeFunction
    names: tuple[str, ...] = ()


@dataclass(slots=True)
class Histograms:
    """Histograms by label values that are kept elsewhere and read at each scrape."""

    function: Callable[[], Mapping[Labels, Buckets]]
    names: tuple[str, ...]


@dataclass(slots=True)
class HotCounters:
    """All cells of one counter; the metric is their sum."""

    cells: list[HotCounter] = field(default_factory=list)


Instrument = Gauge | Histograms | HotCounters | Counter | LabelledCounter | Histogram | LabelledHistogram


@dataclass(frozen=True, slots=True)
class Registered:
    """A registered metric: its name, help text and instrument."""

    name: str
    help: str
    instrument: Instrument


class Metrics:
    """The broker's registry of metrics. Thread-safe. Registering a counter or histogram again returns the
    existing one; a gauge is replaced.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # lock order 92
        self._registered: dict[str, Registered] = {}

    def gauge(self, name: str, help_: str, function: GaugeFunction, labels: Sequence[str] = ()) -> None:
        """Exports what ``function`` returns at each scrape: a number, or with ``labels`` numbers by
        label values.

        The function must be quick and take no lock that is held for long. If it raises, the metric is
        left out.
        """
        with self._lock:
            self._put(name, help_, Gauge(function, tuple(labels)))

    def histograms(
        self, name: str, help_: str, function: Callable[[], Mapping[Labels, Buckets]], labels: Sequence[str]
    ) -> None:
        """Exports histograms that ``function`` returns at each scrape: cumulative counts by bound, and
        the sum.
        """
        with self._lock:
            self._put(name, help_, Histograms(function, tuple(labels)))

    @overload
    def counter(self, name: str, help_: str) -> Counter: ...
    @overload
    def counter(self, name: str, help_: str, labels: Sequence[str]) -> LabelledCounter: ...
    def counter(self, name: str, help_: str, labels: Sequence[str] = ()) -> Counter | LabelledCounter:
        """A counter for any thread. ``_total`` is appended to the name if it is missing."""
        if labels:
            return self._get_or_put(name, help_, LabelledCounter(labels))
        return self._get_or_put(name, help_, Counter())

    def hot_counter(self, name: str, help_: str = "") -> HotCounter:
        """A new cell of the counter ``name``, for one writing thread on a hot path."""
        cell = HotCounter()
        with self._lock:
            known = self._registered.get(name)
            if known is None:
                known = self._put(name, help_, HotCounters())
            if not isinstance(known.instrument, HotCounters):
                raise TypeError(f"{name} is a {type(known.instrument).__name__} already")
            known.instrument.cells.append(cell)
        return cell

    @overload
    def histogram(self, name: str, help_: str, *, buckets: Sequence[float] = ...) -> Histogram: ...
    @overload
    def histogram(
        self, name: str, help_: str, labels: Sequence[str], buckets: Sequence[float] = ...
    ) -> LabelledHistogram: ...
    def histogram(
        self,
        name: str,
        help_: str,
        labels: Sequence[str] = (),
        buckets: Sequence[float] = DEFAULT_BUCKETS,
    ) -> Histogram | LabelledHistogram:
        """A histogram by upper bounds; times are in milliseconds, as in Kafka."""
        if labels:
            return self._get_or_put(name, help_, LabelledHistogram(labels, buckets))
        return self._get_or_put(name, help_, Histogram(buckets))

    def registered(self) -> list[Registered]:
        """All metrics, sorted by name."""
        with self._lock:
            return sorted(self._registered.values(), key=lambda registered: registered.name)

    def _get_or_put(self, name: str, help_: str, instrument: T) -> T:
        with self._lock:
            known = self._registered.get(name)
            if known is None:
                self._put(name, help_, instrument)
                return instrument
            if not isinstance(known.instrument, type(instrument)):
                raise TypeError(f"{name} is a {type(known.instrument).__name__} already")
            return known.instrument

    def _put(self, name: str, help_: str, instrument: Instrument) -> Registered:
        if not re.fullmatch(_NAME, name):
            raise ValueError(f"{name!r} is no metric name: lower case letters, digits and _ are")
        registered = self._registered[name] = Registered(name, help_, instrument)
        return registered
