"""Connects the group coordinator with the local replicas of `__consumer_offsets`."""

from __future__ import annotations

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.log.log import Log
from broker.metrics.registry import Metrics
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_verification import TransactionVerification
from broker.server.cluster_topics import TopicsOfCluster
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition


def start_group_coordinator(
    config: BrokerConfig,
    broker_id: int,
    replicas: ReplicaManager,
    cache: MetadataCache,
    steps: StartupSteps,
    *,
    timer: Timer,
    clock: Clock,
    metrics: Metrics,
    verification: TransactionVerification,
) -> GroupCoordinator:
    """Starts a coordinator that stores its groups in this broker's replicas. ``steps`` stop it."""
    # A separate scheduler, as in Kafka: loading groups after a failover must not delay ISR checks
    # and checkpoints.
    scheduler = KafkaScheduler(1, "group-metadata-manager")
    scheduler.startup()
    steps.undo_by("GroupScheduler", scheduler.shutdown)

    def log_of(partition: int) -> Log | None:
        return replicas.local_log(TopicPartition(GROUP_METADATA_TOPIC, partition))

    coordinator = GroupCoordinator(
        config,
        broker_id,
        replicas.append_records,
        log_of,
        lambda: cache.partition_count(GROUP_METADATA_TOPIC),
        timer=timer,
        scheduler=scheduler,
        clock=clock,
        metrics=metrics,
        verification=verification,
        topics=TopicsOfCluster(cache),
    )
    coordinator.startup()
    steps.undo_by("GroupCoordinator", coordinator.shutdown)
    return coordinator
