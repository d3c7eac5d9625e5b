"""Creates the parts that a partition leader needs for transactions: verification and markers."""

from __future__ import annotations

from collections.abc import Callable

from broker.config.broker_config import BrokerConfig
from broker.coordinator.common.partitioning import partition_for
from broker.metrics.registry import Metrics
from broker.replication.add_partitions_to_txn import AddPartitionsToTxnManager
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_verification import TransactionVerification
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.utils.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition


def start_verification(
    config: Callable[[], BrokerConfig],
    broker_id: int,
    replicas: ReplicaManager,
    cache: MetadataCache,
    steps: StartupSteps,
    *,
    make_channel: Callable[[BrokerAddress, str], BrokerChannel],
    metrics: Metrics,
) -> TransactionVerification:
    """The verification of transactions by their coordinators. ``config`` is called each time, because
    ``transaction.partition.verification.enable`` is a dynamic config. ``steps`` stop it.
    """

    def coordinator_of(transactional_id: str) -> BrokerAddress | None:
        partitions = cache.partition_count(TRANSACTION_STATE_TOPIC)
        if not partitions:
            return None
        number = partition_for(transactional_id, partitions)
        info = cache.partition_info(TopicPartition(TRANSACTION_STATE_TOPIC, number))
        return None if info is None else cache.broker_address(info.leader)

    sender = AddPartitionsToTxnManager(broker_id, coordinator_of, make_channel, metrics)
    steps.undo_by("AddPartitionsToTxnManager", sender.shutdown)
    return TransactionVerification(
        replicas.partition, sender, lambda: config().bool("transaction.partition.verification.enable")
    )
