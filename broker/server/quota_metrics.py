"""The metrics of the client quotas and of connection rates under Kafka's names: ``kafka.server:type=Produce``
with ``byte-rate`` is ``kafka_server_produce_byterate``.
"""

from __future__ import annotations

from collections.abc import Callable

from broker.metrics.registry import Metrics
from broker.network.ip_rates import IpConnectionRates
from broker.quotas.client_quota_manager import ClientQuotaManager
from broker.server.quotas import QuotaManagers

_CLIENT = ("user", "client_id")
Read = Callable[[], dict[tuple[str, ...], float]]


def register_metrics(metrics: Metrics, quotas: QuotaManagers, ip_rates: IpConnectionRates) -> None:
    """Registers functions that are called at each scrape. They return the thousand clients used last, and
    none of a quota that was never set.
    """
    for kind, rate, help_text, manager in (
        ("produce", "byterate", "Bytes per second produced, for the produce quota", quotas.produce),
        ("fetch", "byterate", "Bytes per second fetched, for the fetch quota", quotas.fetch),
        ("request", "requesttime", "Percent of a thread used, for the request quota", quotas.request),
        (
            "controllermutation",
            "mutationrate",
            "Partitions created and deleted per second, for the controller mutation quota",
            quotas.controller_mutation,
        ),
    ):
        prefix = f"kafka_server_{kind}_"
        metrics.gauge(prefix + rate, help_text, _rates(manager, quotas), labels=_CLIENT)
        metrics.gauge(
            prefix + "throttletime",
            "Average time that clients are throttled by this quota, in milliseconds",
            _throttle_times(manager, quotas),
            labels=_CLIENT,
        )
        metrics.gauge(
            prefix + "queuesize", "Throttles by this quota that have not ended", _queue_size(manager, quotas)
        )
    metrics.gauge(
        "kafka_server_request_exemptrequesttime",
        "Percent of a thread used by brokers' requests, which are not throttled",
        quotas.exempt_rate,
    )
    metrics.gauge(
        "kafka_server_controllermutation_tokens",
        "Partitions that may be created or deleted at once",
        lambda: quotas.controller_mutation.tokens(quotas.now_ms),
        labels=_CLIENT,
    )
    metrics.gauge(
        "kafka_server_socketservermetrics_connectionacceptrate",
        "Connections per second of addresses with a connection_creation_rate",
        ip_rates.accept_rates,
        labels=("ip",),
    )
    metrics.gauge(
        "kafka_server_socketservermetrics_ipconnectionacceptthrottletime",
        "Average time after which connections above connection_creation_rate are closed, in milliseconds",
        ip_rates.throttle_times,
        labels=("listener",),
    )


def _rates(manager: ClientQuotaManager, quotas: QuotaManagers) -> Read:
    return lambda: manager.rates(quotas.now_ms)


def _throttle_times(manager: ClientQuotaManager, quotas: QuotaManagers) -> Read:
    return lambda: manager.throttle_times(quotas.now_ms)


def _queue_size(manager: ClientQuotaManager, quotas: QuotaManagers) -> Callable[[], float]:
    return lambda: float(manager.queue_size(quotas.now_ms))
