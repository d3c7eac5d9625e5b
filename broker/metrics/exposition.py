"""The metrics as Prometheus text.

This is the only module that imports prometheus_client; it is loaded by the first scrape.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from typing import Any

import structlog
from prometheus_client import CONTENT_TYPE_PLAIN_0_0_4, CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from broker.metrics.instruments import Counter, Histogram, LabelledCounter, LabelledHistogram
from broker.metrics.registry import Gauge, Histograms, HotCounters, Metrics, Registered

_log = structlog.get_logger(__name__)
CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4


class Exposition:
    """Prometheus's view of one :class:`Metrics` and of the process: memory, CPU,
    file descriptors, threads.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._failed: set[str] = set()
        self._escapes = False
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self) -> bytes:
        """The response body of `/metrics`, of type :data:`CONTENT_TYPE`."""
        try:
            return generate_latest(self._registry)
        except UnicodeEncodeError:  # a name from outside has half of a surrogate pair, as JSON allows
            self._escapes = True
            try:
                return generate_latest(self._registry)
            finally:
                self._escapes = False

    def collect(self) -> Iterator[Metric]:
        """Called by prometheus_client for each page."""
        yield _process_threads()
        for registered in self._metrics.registered():
            family = self._family(registered)
            if family is not None:
                yield _escaped(family) if self._escapes else family

    def _family(self, registered: Registered) -> Metric | None:
        try:
            return _family_of(registered)
        except Exception as error:  # one failing gauge must not hide the others
            if registered.name not in self._failed:
                self._failed.add(registered.name)
                _log.warning("metric_failed", metric=registered.name, error=repr(error))
            return None


def _escaped(family: Metric) -> Metric:
    """The metric with label values that UTF-8 can write."""
    family.samples = [
        sample._replace(
            labels={
                name: value.encode(errors="backslashreplace").decode()
                for name, value in sample.labels.items()
            }
        )
        for sample in family.samples
    ]
    return family


def _family_of(registered: Registered) -> Metric:
    name, help_, instrument = registered.name, registered.help, registered.instrument
    match instrument:
        case Gauge():
            return _gauge(name, help_, instrument)
        case Histograms():
            family = HistogramMetricFamily(name, help_, labels=instrument.names)
            for labels, (buckets, total) in instrument.function().items():
                family.add_metric(labels, buckets, total)
            return family
        case HotCounters():
            return CounterMetricFamily(name, help_, value=sum(cell.value for cell in instrument.cells))
        case Counter():
            return CounterMetricFamily(name, help_, value=instrument.value)
        case LabelledCounter():
            counters = CounterMetricFamily(name, help_, labels=instrument.names)
            for labels, value in instrument.snapshot().items():
                counters.add_metric(labels, value)
            return counters
        case Histogram():
            buckets, total = instrument.snapshot()
            return HistogramMetricFamily(name, help_, buckets=buckets, sum_value=total)
        case LabelledHistogram():
            histograms = HistogramMetricFamily(name, help_, labels=instrument.names)
            for labels, child in instrument.children().items():
                buckets, total = child.snapshot()
                histograms.add_metric(labels, buckets, total)
            return histograms


def _gauge(name: str, help_: str, gauge: Gauge) -> Metric:
    value: Any = gauge.function()
    # A function may read a counter that is kept elsewhere; the name shows it.
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    if not gauge.names:
        return kind(name, help_, value=float(value))
    if not isinstance(value, Mapping):
        raise TypeError(f"{name} has labels {gauge.names}, its function must give a mapping")
    family = kind(name, help_, labels=gauge.names)
    for labels, number in value.items():
        family.add_metric(labels, float(number))
    return family


def _process_threads() -> Metric:
    family = GaugeMetricFamily("process_threads", "Number of threads, as counted by the kernel.")
    try:
        family.add_metric((), len(os.listdir("/proc/self/task")))  # noqa: PTH208 - a count, no paths
    except OSError:
        family.add_metric((), threading.active_count())
    return family
