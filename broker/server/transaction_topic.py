"""Connects the transaction coordinator with the local replicas of `__transaction_state`, and with the brokers that
write transaction markers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.offsets_log import OffsetsLog
from broker.coordinator.transaction.marker_channel_manager import TransactionMarkerChannelManager
from broker.coordinator.transaction.markers import MarkerErrors, TxnMarker
from broker.coordinator.transaction.memory import TransactionMemory
from broker.coordinator.transaction.metrics import register_metrics
from broker.coordinator.transaction.partition import PartitionParts
from broker.coordinator.transaction.partitions import each_of
from broker.coordinator.transaction.settings import TransactionSettings
from broker.coordinator.transaction.state_manager import TransactionStateManager
from broker.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from broker.log.log import Log
from broker.metrics.registry import Metrics
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_markers import OwnMarker, TransactionMarkers
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.server.producer_ids import ProducerIdManager
from broker.utils.clock import Clock
from broker.utils.line_budget import LineBudget
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition

_TOMBSTONES_TIMEOUT_MS: Final = 30_000


def start_transaction_coordinator(
    config: BrokerConfig,
    replicas: ReplicaManager,
    cache: MetadataCache,
    steps: StartupSteps,
    *,
    producer_ids: ProducerIdManager,
    make_channel: Callable[[BrokerAddress, str], BrokerChannel],
    own_markers: TransactionMarkers,
    clock: Clock,
    metrics: Metrics,
) -> TransactionCoordinator:
    """Starts a coordinator that stores its transactions in this broker's replicas. ``steps`` stop it."""
    # A separate scheduler, as in Kafka: loading transactions after a failover must not delay ISR checks.
    scheduler = KafkaScheduler(1, "transaction-log-manager")
    scheduler.startup()
    steps.undo_by("TransactionScheduler", scheduler.shutdown)
    settings = TransactionSettings.from_config(config)
    lines = LineBudget(clock.monotonic_ms, per_second=1, at_once=1)
    memory = TransactionMemory(settings.max_bytes, lines)

    def append_markers(
        markers: Sequence[TxnMarker], respond: Callable[[Sequence[MarkerErrors]], None]
    ) -> None:
        own_markers.append([_own(marker) for marker in markers], respond)

    markers = TransactionMarkerChannelManager(
        replicas.broker_id,
        cache,
        make_channel,
        scheduler=scheduler,
        clock=clock,
        append_markers=append_markers,
    )
    steps.undo_by("TransactionMarkerChannelManager", markers.shutdown)
    parts = PartitionParts(
        OffsetsLog(replicas.append_records, _TOMBSTONES_TIMEOUT_MS, clock, TRANSACTION_STATE_TOPIC),
        clock,
        memory,
        replicas.putting_off,
        # The producer waits for the answer that its transaction will end, not for the markers.
        lambda completion: replicas.after_answers(partial(markers.send, completion)),
    )

    def log_of(partition: int) -> Log | None:
        return replicas.local_log(TopicPartition(TRANSACTION_STATE_TOPIC, partition))

    states = TransactionStateManager(parts, log_of, scheduler=scheduler, load_bytes=settings.load_bytes)
    coordinator = TransactionCoordinator(
        settings,
        states,
        memory,
        producer_ids.take,
        lambda: cache.partition_count(TRANSACTION_STATE_TOPIC),
        scheduler=scheduler,
        clock=clock,
    )
    register_metrics(metrics, states, memory, markers)
    coordinator.startup()
    steps.undo_by("TransactionCoordinator", coordinator.shutdown)
    return coordinator


def _own(marker: TxnMarker) -> OwnMarker:
    """A marker for partitions that this broker leads."""
    return OwnMarker(
        marker.producer_id,
        marker.producer_epoch,
        marker.committed,
        marker.coordinator_epoch,
        list(each_of(marker.partitions)),
    )
