"""Replication's metrics, by Kafka's names: partitions, traffic, waiting requests and followed partitions."""

from __future__ import annotations

from collections.abc import Callable

from broker.cluster.isr import behind_ms
from broker.cluster.partition import Partition
from broker.metrics.registry import Metrics
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.traffic import Traffic
from broker.utils.clock import Clock


def register_metrics(
    metrics: Metrics,
    replicas: ReplicaManager,
    fetchers: ReplicaFetcherManager,
    follower_quota: ReplicationQuota,
    clock: Clock,
    *,
    max_transaction_timeout_ms: int,
) -> None:
    """Registers gauges that are read at each scrape; they cost nothing between scrapes."""
    _register_partitions(metrics, replicas)
    _register_transactions(metrics, replicas, max_transaction_timeout_ms)
    _register_traffic(metrics, replicas.traffic)
    metrics.gauge(
        "kafka_server_delayedoperationpurgatory_purgatorysize",
        "Requests waiting in a purgatory",
        lambda: {(purgatory.name,): float(len(purgatory)) for purgatory in replicas.purgatories},
        labels=("delayedoperation",),
    )
    metrics.gauge(
        "kafka_server_replicafetchermanager_followedpartitions",
        "Partitions that this broker follows",
        lambda: float(fetchers.partition_count),
    )
    metrics.gauge(
        "landline_follower_behind_ms",
        "Longest time that a follower in the ISR has been behind this leader, in milliseconds, over all partitions",
        lambda: followers_behind_ms(replicas, clock.monotonic_ms()),
        labels=("follower",),
    )
    for direction, quota in (("leader", replicas.leader_quota), ("follower", follower_quota)):
        metrics.gauge(
            f"kafka_server_{direction}replication_byterate",
            f"Bytes per second of throttled replication, as {direction}",
            quota.rate,
        )


def replica_counts(replicas: ReplicaManager) -> dict[str, int]:
    """The counts that operators watch, over this broker's partitions."""
    partitions = replicas.partitions()
    return {
        "partition_count": len(partitions),
        "leader_count": sum(partition.is_leader for partition in partitions),
        "under_replicated_partitions": sum(partition.is_under_replicated for partition in partitions),
        "under_min_isr_partitions": sum(partition.is_under_min_isr for partition in partitions),
        "at_min_isr_partitions": sum(partition.is_at_min_isr for partition in partitions),
        "reassigning_partitions": sum(partition.is_being_reassigned for partition in partitions),
    }


def followers_behind_ms(replicas: ReplicaManager, now_ms: int) -> dict[tuple[str, ...], float]:
    """By follower: the longest time that it has been behind in a partition led here, while in its ISR."""
    longest: dict[int, int] = {}
    for partition in replicas.partitions():
        if partition.is_leader:
            followers = partition.followers.copy()
            behind = behind_ms(partition.isr.committed, followers, partition.log.log_end_offset, now_ms)
            for broker_id, ms in behind.items():
                longest[broker_id] = max(longest.get(broker_id, 0), ms)
    return {(str(broker_id),): float(ms) for broker_id, ms in longest.items()}


def _register_partitions(metrics: Metrics, replicas: ReplicaManager) -> None:
    for name, help_text, key in (
        ("partitioncount", "Partitions with a replica here", "partition_count"),
        ("leadercount", "Partitions led here", "leader_count"),
        (
            "underreplicatedpartitions",
            "Partitions led here with replicas out of sync",
            "under_replicated_partitions",
        ),
        (
            "underminisrpartitioncount",
            "Partitions led here with an ISR below min.insync.replicas",
            "under_min_isr_partitions",
        ),
        (
            "atminisrpartitioncount",
            "Partitions led here with an ISR of exactly min.insync.replicas",
            "at_min_isr_partitions",
        ),
        ("reassigningpartitions", "Partitions led here that are being reassigned", "reassigning_partitions"),
    ):
        metrics.gauge(f"kafka_server_replicamanager_{name}", help_text, _count(replicas, key))
    metrics.gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas offline because their log directory failed",
        lambda: float(replicas.offline_count),
    )


def _register_transactions(metrics: Metrics, replicas: ReplicaManager, max_timeout_ms: int) -> None:
    metrics.gauge(
        "kafka_cluster_partition_laststableoffsetlag",
        "How far a partition's last stable offset is behind its high watermark, in offsets",
        lambda: {
            (partition.topic_partition.topic, str(partition.topic_partition.partition)): float(
                _stable_lag(partition)
            )
            for partition in replicas.partitions()
        },
        labels=("topic", "partition"),
    )
    metrics.gauge(
        "kafka_server_replicamanager_partitionswithlatetransactionscount",
        "Partitions led here with a transaction that should have timed out five minutes ago",
        lambda: float(
            sum(
                partition.is_leader and partition.log.producers.has_late_transaction(max_timeout_ms)
                for partition in replicas.partitions()
            )
        ),
    )
    metrics.gauge(
        "kafka_server_replicamanager_produceridcount",
        "Producers known to the partitions here",
        lambda: float(sum(len(each.log.producer_state.producers) for each in replicas.partitions())),
    )


def _stable_lag(partition: Partition) -> int:
    stable = partition.log.last_stable_offset()  # first, because the high watermark only rises
    return partition.log.high_watermark - stable


def _count(replicas: ReplicaManager, key: str) -> Callable[[], float]:
    return lambda: float(replica_counts(replicas)[key])


def _register_traffic(metrics: Metrics, traffic: Traffic) -> None:
    of_topics, of_replicas = "kafka_server_brokertopicmetrics_", "kafka_server_replicamanager_"
    for name, help_text, attribute in (
        (of_topics + "messagesin_total", "Records appended by clients", "messages_in"),
        (of_topics + "bytesin_total", "Bytes appended by clients", "bytes_in"),
        (of_topics + "bytesout_total", "Bytes fetched by consumers", "bytes_out"),
        (of_topics + "replicationbytesout_total", "Bytes fetched by followers", "replication_bytes_out"),
        (of_topics + "failedproducerequests_total", "Failed appends to a partition", "failed_produces"),
        (of_topics + "failedfetchrequests_total", "Failed reads of a partition", "failed_fetches"),
        (of_replicas + "isrshrinks_total", "ISR changes that remove replicas", "isr_shrinks"),
        (of_replicas + "isrexpands_total", "ISR changes that add a replica", "isr_expands"),
    ):
        metrics.gauge(name, help_text, _attribute(traffic, attribute))


def _attribute(traffic: Traffic, name: str) -> Callable[[], float]:
    return lambda: float(getattr(traffic, name))
