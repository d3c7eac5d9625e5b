"""Metrics that show how close this broker came to losing its ZooKeeper session."""

from __future__ import annotations

from broker.metrics.registry import Metrics
from broker.zookeeper.store import Store


def register_metrics(metrics: Metrics, store: Store, session_timeout_ms: int) -> None:
    """Registers the gauges, which are read at each scrape."""
    metrics.gauge(
        "landline_zookeeper_longest_silence_ms",
        "Longest time in which this broker heard nothing of ZooKeeper; idle: a third of its session's time-out",
        lambda: float(store.longest_silence_ms),
    )
    metrics.gauge(
        "landline_zookeeper_session_timeout_ms",
        "The time-out that this broker asks for: a session of which nothing is heard for so long ends",
        lambda: float(session_timeout_ms),
    )
