"""Connects the group coordinator with the local replicas of `__consumer_offsets`, and both coordinators with the
leadership changes of their topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.log.log import Log
from broker.metrics.registry import Metrics
from broker.replication.leadership import LeadershipListener
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_verification import TransactionVerification
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition


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
    )
    coordinator.startup()
    steps.undo_by("GroupCoordinator", coordinator.shutdown)
    return coordinator


class Coordinator(Protocol):
    """The part of a coordinator that follows the leadership of its topic's partitions."""

    @property
    def on_election(self) -> Callable[[int, int], None]: ...
    @property
    def on_resignation(self) -> Callable[[int, int | None], None]: ...


def leadership_listener(
    groups: Callable[[], Coordinator], transactions: Callable[[], Coordinator]
) -> LeadershipListener:
    """Loads and unloads groups and transactions on leadership changes. The coordinators are asked for only when
    needed, because they are created after the replicas that store their state.
    """
    coordinators = {GROUP_METADATA_TOPIC: groups, TRANSACTION_STATE_TOPIC: transactions}

    def on_leader(topic_partition: TopicPartition, leader_epoch: int) -> None:
        coordinator = coordinators.get(topic_partition.topic)
        if coordinator is not None:
            coordinator().on_election(topic_partition.partition, leader_epoch)

    def on_follower(topic_partition: TopicPartition, leader_epoch: int | None) -> None:
        coordinator = coordinators.get(topic_partition.topic)
        if coordinator is not None:
            coordinator().on_resignation(topic_partition.partition, leader_epoch)

    return LeadershipListener(on_leader, on_follower)
