"""The broker's metrics by name: made once by BrokerServer and handed down to whoever counts.

Names are Kafka's JMX names in Prometheus style, lower case: ``kafka.server:type=ReplicaManager,
name=UnderReplicatedPartitions`` is ``kafka_server_replicamanager_underreplicatedpartitions``; meters lose
their ``PerSec`` and end in ``_total``. `docs/metrics.md` lists them. Writing them out is `exposition`'s part.
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
    """A value asked for when it is scraped. With labels, the function gives a mapping from their values."""

    function: GaugeFunction
    names: tuple[str, ...] = ()


@dataclass(slots=True)
class Histograms:
    """Histograms by label values that are kept elsewhere: asked for when they are scraped."""

    function: Callable[[], Mapping[Labels, Buckets]]
    names: tuple[str, ...]


@dataclass(slots=True)
class HotCounters:
    """All cells of one name: the metric is their sum."""

    cells: list[HotCounter] = field(default_factory=list)


Instrument = Gauge | Histograms | HotCounters | Counter | LabelledCounter | Histogram | LabelledHistogram


@dataclass(frozen=True, slots=True)
class Registered:
    """One metric as scraped."""

    name: str
    help: str
    instrument: Instrument


class Metrics:
    """Thread-safe. Asking again for a counter or histogram of a name gives the same one; a gauge is
    replaced.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # lock order 92
        self._registered: dict[str, Registered] = {}

    def gauge(self, name: str, help_: str, function: GaugeFunction, labels: Sequence[str] = ()) -> None:
        """Exports what ``function`` returns at each scrape: a number, or with ``labels`` numbers by label
        values.

        The function must be quick and take no lock that is held for long; one that raises is left out.
        """
        with self._lock:
            self._put(name, help_, Gauge(function, tuple(labels)))

    def histograms(
        self, name: str, help_: str, function: Callable[[], Mapping[Labels, Buckets]], labels: Sequence[str]
    ) -> None:
        """Exports histograms that ``function`` gives at each scrape: cumulative counts by bound, and the sum."""
        with self._lock:
            self._put(name, help_, Histograms(function, tuple(labels)))

    @overload
    def counter(self, name: str, help_: str) -> Counter: ...
    @overload
    def counter(self, name: str, help_: str, labels: Sequence[str]) -> LabelledCounter: ...
    def counter(self, name: str, help_: str, labels: Sequence[str] = ()) -> Counter | LabelledCounter:
        """A count for any thread. ``_total`` is added to the name where it lacks it."""
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
        """Observations by upper bounds; times are in milliseconds, as Kafka's are."""
        if labels:
            return self._get_or_put(name, help_, LabelledHistogram(labels, buckets))
        return self._get_or_put(name, help_, Histogram(buckets))

    def registered(self) -> list[Registered]:
        """Every metric, by name."""
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
