"""The coordinators of a broker, for groups and for transactions, and what partition leaders need for transactions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from broker.config.broker_config import BrokerConfig
from broker.coordinator.group.group_coordinator import GroupCoordinator
from broker.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from broker.metrics.registry import Metrics
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.replication.leadership import LeadershipListener
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_markers import TransactionMarkers
from broker.replication.transaction_verification import TransactionVerification
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.server.offsets_topic import start_group_coordinator
from broker.server.producer_ids import ProducerIdManager
from broker.server.transaction_topic import start_transaction_coordinator
from broker.server.transactions import start_verification
from broker.utils.clock import Clock
from broker.utils.timer import Timer
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition


class Coordinators:
    """Both coordinators over one broker's replicas. ``steps`` stop what is started.

    ``config`` is called each time that a dynamic config is needed. Start the groups first: the transactions'
    markers complete their offsets.
    """

    groups: GroupCoordinator
    transactions: TransactionCoordinator
    verification: TransactionVerification
    markers: TransactionMarkers

    def __init__(
        self,
        config: Callable[[], BrokerConfig],
        replicas: ReplicaManager,
        cache: MetadataCache,
        steps: StartupSteps,
        *,
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
        clock: Clock,
        metrics: Metrics,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._cache = cache
        self._steps = steps
        self._make_channel = make_channel
        self._clock = clock
        self._metrics = metrics

    def start_groups(self, timer: Timer) -> None:
        """Starts the group coordinator, verification and markers."""
        config, broker_id = self._config(), self._replicas.broker_id
        self.verification = start_verification(
            self._config,
            broker_id,
            self._replicas,
            self._cache,
            self._steps,
            own_coordinator=lambda: self.transactions,
            make_channel=self._make_channel,
            metrics=self._metrics,
        )
        self.groups = start_group_coordinator(
            config,
            broker_id,
            self._replicas,
            self._cache,
            self._steps,
            timer=timer,
            clock=self._clock,
            metrics=self._metrics,
            verification=self.verification,
        )
        self.markers = TransactionMarkers(
            self._replicas,
            self._clock,
            config.int("request.timeout.ms"),
            self.groups.transactions.on_marker,
        )

    def start_transactions(self, producer_ids: ProducerIdManager) -> None:
        """Starts the transaction coordinator."""
        self.transactions = start_transaction_coordinator(
            self._config(),
            self._replicas,
            self._cache,
            self._steps,
            producer_ids=producer_ids,
            make_channel=self._make_channel,
            own_markers=self.markers,
            clock=self._clock,
            metrics=self._metrics,
        )


class Coordinator(Protocol):
    """The part of a coordinator that follows the leadership of its topic's partitions."""

    @property
    def on_election(self) -> Callable[[int, int], None]: ...
    @property
    def on_resignation(self) -> Callable[[int, int | None], None]: ...


def leadership_listener(coordinators: Callable[[], Coordinators]) -> LeadershipListener:
    """Loads and unloads groups and transactions on leadership changes. The coordinators are asked for only when
    needed, because they are created after the replicas that store their state.
    """

    def of(topic_partition: TopicPartition) -> Coordinator | None:
        if topic_partition.topic == GROUP_METADATA_TOPIC:
            return coordinators().groups
        if topic_partition.topic == TRANSACTION_STATE_TOPIC:
            return coordinators().transactions
        return None

    def on_leader(topic_partition: TopicPartition, leader_epoch: int) -> None:
        coordinator = of(topic_partition)
        if coordinator is not None:
            coordinator.on_election(topic_partition.partition, leader_epoch)

    def on_follower(topic_partition: TopicPartition, leader_epoch: int | None) -> None:
        coordinator = of(topic_partition)
        if coordinator is not None:
            coordinator.on_resignation(topic_partition.partition, leader_epoch)

    return LeadershipListener(on_leader, on_follower)
