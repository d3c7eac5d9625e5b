"""Creates the parts that a partition leader needs for transactions: verification and markers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.coordinator.common.partitioning import partition_for
from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.coordinator.transaction.transaction_coordinator import TransactionCoordinator
from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.replication.add_partitions_to_txn import AddPartitionsToTxnManager
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.replication.replica_manager import ReplicaManager
from broker.replication.transaction_verification import Question, TransactionVerification, Unverified
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.utils.topic_partition import TRANSACTION_STATE_TOPIC, TopicPartition

# Another broker may know the answer: this one is not the coordinator, or starts or stops.
_ELSEWHERE: Final = frozenset({Errors.NOT_COORDINATOR, Errors.COORDINATOR_NOT_AVAILABLE})


def start_verification(
    config: Callable[[], BrokerConfig],
    broker_id: int,
    replicas: ReplicaManager,
    cache: MetadataCache,
    steps: StartupSteps,
    *,
    own_coordinator: Callable[[], TransactionCoordinator],
    make_channel: Callable[[BrokerAddress, str], BrokerChannel],
    metrics: Metrics,
) -> TransactionVerification:
    """The verification of transactions by their coordinators. ``config`` is called each time, because
    ``transaction.partition.verification.enable`` is a dynamic config. ``steps`` stop it. ``own_coordinator`` is
    this broker's, which is started later: it is asked for only when it coordinates something.
    """

    def coordinator_of(transactional_id: str) -> BrokerAddress | None:
        partitions = cache.partition_count(TRANSACTION_STATE_TOPIC)
        if not partitions:
            return None
        number = partition_for(transactional_id, partitions)
        info = cache.partition_info(TopicPartition(TRANSACTION_STATE_TOPIC, number))
        return None if info is None else cache.broker_address(info.leader)

    def ask_own(question: Question) -> Unverified | None:
        (transactional_id, producer_id, epoch), partitions, _ = question
        known = own_coordinator().partitions_of(transactional_id, ProducerIdAndEpoch(producer_id, epoch))
        if isinstance(known, Errors):
            return None if known in _ELSEWHERE else dict.fromkeys(partitions, known)
        return {
            partition: Errors.TRANSACTION_ABORTABLE
            for partition in partitions
            if partition.partition not in known.get(partition.topic, ())
        }

    sender = AddPartitionsToTxnManager(broker_id, coordinator_of, make_channel, ask_own, metrics)
    steps.undo_by("AddPartitionsToTxnManager", sender.shutdown)
    return TransactionVerification(
        replicas.partition, sender, lambda: config().bool("transaction.partition.verification.enable")
    )
