"""Metrics that show how close this broker came to losing its ZooKeeper session, and which servers of the ensemble serve
at all.
"""

from __future__ import annotations

from broker.metrics.registry import Metrics
from broker.zookeeper.servers import Servers
from broker.zookeeper.store import Store


def register_metrics(metrics: Metrics, store: Store, session_timeout_ms: int) -> None:
    """Registers the gauges, which are read at each scrape."""
    metrics.gauge(
        "landline_zookeeper_longest_silence_ms",
        "Longest time without a message from ZooKeeper; on an idle broker a third of the session time-out",
        lambda: float(store.longest_silence_ms),
    )
    metrics.gauge(
        "landline_zookeeper_recent_silence_ms",
        "Longest time without a message from ZooKeeper in the last five to ten minutes",
        lambda: float(store.recent_silence_ms),
    )
    metrics.gauge(
        "landline_zookeeper_session_timeout_ms",
        "Session time-out that this broker requests; a session that is silent for longer expires",
        lambda: float(session_timeout_ms),
    )


def register_servers(metrics: Metrics, servers: Servers) -> None:
    """Registers the gauge of the ensemble's servers."""
    metrics.gauge(
        "landline_zookeeper_server_serves",
        "1 if a server of zookeeper.connect serves, 0 if it does not answer this broker or has no quorum",
        lambda: {(server,): float(serves) for server, serves in servers.serving().items()},
        labels=("server",),
    )
