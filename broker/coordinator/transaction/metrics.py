"""Gauges of the transaction coordinator, named after Kafka's (``kafka.coordinator.transaction``)."""

from __future__ import annotations

from typing import Final

from broker.coordinator.common.load_times import register_load_times
from broker.coordinator.transaction.marker_channel_manager import TransactionMarkerChannelManager
from broker.coordinator.transaction.memory import TransactionMemory
from broker.coordinator.transaction.state_manager import TransactionStateManager
from broker.metrics.registry import Metrics
from broker.utils.topic_partition import TRANSACTION_STATE_TOPIC

_MARKERS: Final = "kafka_coordinator_transaction_transactionmarkerchannelmanager_"


def register_metrics(
    metrics: Metrics,
    states: TransactionStateManager,
    memory: TransactionMemory,
    markers: TransactionMarkerChannelManager,
) -> None:
    """Registers the gauges. Their values are computed at each scrape."""
    metrics.gauge(
        _MARKERS + "unknowndestinationqueuesize",
        "Markers that wait for a leader of their partitions",
        lambda: markers.unknown_destinations,
    )
    metrics.gauge(
        _MARKERS + "logappendretryqueuesize",
        "Ended transactions whose last record is appended again",
        lambda: markers.log_append_retries,
    )
    register_load_times(
        metrics,
        "kafka_server_transactioncoordinatormetrics_",
        TRANSACTION_STATE_TOPIC,
        states.load_times,
    )
    metrics.gauge(
        "landline_transactional_ids",
        "Transactional ids coordinated here",
        lambda: sum(partition.size for partition in states.partitions()),
    )
    metrics.gauge(
        "landline_transaction_bytes",
        "Memory used by transactional ids and their transactions, in bytes",
        lambda: memory.held,
    )
