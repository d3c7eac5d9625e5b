"""The server's metrics under Kafka's names: the broker's state, request handlers, APIs and known
live brokers.
"""

from __future__ import annotations

from broker import __version__
from broker.metrics.registry import Metrics
from broker.server.apis.table import Apis
from broker.server.lifecycle.broker_state import StateKeeper
from broker.server.metadata_cache import MetadataCache
from broker.server.request_handler_pool import RequestHandlerPool
from broker.utils.compiled import compiled_by


def register_metrics(
    metrics: Metrics, keeper: StateKeeper, cache: MetadataCache, pool: RequestHandlerPool, apis: Apis
) -> None:
    """Registers functions that are called at each scrape; they cost nothing between scrapes."""
    metrics.gauge(
        "kafka_server_kafkaserver_brokerstate",
        "The broker's state, as Kafka's number",
        lambda: float(keeper.state),
    )
    metrics.gauge(
        "landline_build_info",
        "1, with the version and the compiler of the request path's modules (no: they run as Python)",
        lambda: {(__version__, compiled_by()): 1.0},
        labels=("version", "compiled"),
    )
    metrics.gauge(
        "kafka_server_metadatacache_livebrokers",
        "Live brokers known to this broker",
        lambda: float(len(cache.alive_broker_ids())),
    )
    metrics.gauge(
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent",
        "Share of time that the request handlers are idle, 0 to 1",
        pool.avg_idle_percent,
    )
    metrics.gauge(
        "kafka_network_requestmetrics_requests_total",
        "Requests served",
        lambda: {(key.name,): float(stats.requests) for key, stats in apis.stats.items()},
        labels=("request",),
    )
    metrics.gauge(
        "kafka_network_requestmetrics_errors_total",
        "Requests that failed with an unexpected error",
        lambda: {(key.name,): float(stats.errors) for key, stats in apis.stats.items()},
        labels=("request",),
    )
    metrics.gauge(
        "kafka_network_requestmetrics_localtimems_total",
        "Time spent in an API's handler, in milliseconds",
        lambda: {(key.name,): stats.local_ns / 1e6 for key, stats in apis.stats.items()},
        labels=("request",),
    )
