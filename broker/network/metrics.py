"""Network metrics under Kafka's names: connections, idle time of the Processors, and request times."""

from __future__ import annotations

from broker.metrics.registry import Metrics
from broker.network.socket_server import SocketServer
from broker.protocol.api_keys import ApiKey


def register_metrics(metrics: Metrics, sockets: SocketServer) -> None:
    """Registers functions that are called at each scrape; they cost nothing between scrapes."""
    metrics.gauge(
        "kafka_network_socketserver_networkprocessoravgidlepercent",
        "Share of time that the network threads are idle, 0 to 1",
        sockets.avg_idle_percent,
    )
    metrics.gauge(
        "kafka_server_socketserver_connectioncount",
        "Open connections",
        lambda: float(sockets.connection_count),
    )
    metrics.gauge(
        "kafka_network_socketserver_authentications",
        "Authentications by SASL since the start, and connections closed because their session had expired",
        lambda: {(result,): float(count) for result, count in sockets.logins.counts().items()},
        labels=("result",),
    )
    metrics.histograms(
        "kafka_network_requestmetrics_totaltimems",
        "Time from a request's receipt until its response is passed to the socket, in milliseconds",
        lambda: {(ApiKey(key).name,): times for key, times in sockets.total_times().items()},
        labels=("request",),
    )
