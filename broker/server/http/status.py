"""The content of /status, besides the broker's identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from broker.controller.controller import KafkaController
from broker.log.log_manager import LogManager
from broker.replication.metrics import replica_counts
from broker.replication.replica_manager import ReplicaManager
from broker.server.lifecycle.startup_steps import StartupSteps
from broker.server.metadata_cache import MetadataCache
from broker.zookeeper.cluster_store import ClusterStore


def running_status(
    *,
    cluster_id: str,
    controller: KafkaController,
    broker_epoch: int,
    listeners: Sequence[str],
    steps: StartupSteps,
    store: ClusterStore,
    cache: MetadataCache,
    replicas: ReplicaManager,
    logs: LogManager,
) -> Mapping[str, Any]:
    """The content for a running broker."""
    return {
        "cluster_id": cluster_id,
        "controller_id": cache.controller_id,
        "is_controller": controller.is_active,
        "broker_epoch": broker_epoch,
        "listeners": listeners,
        "startup_ms": steps.total_ms,
        "startup_steps": [{"step": timing.step, "ms": timing.ms} for timing in steps.timings],
        "zookeeper_state": "CONNECTED" if store.state_name == "CONNECTED" else "CONNECTING",
        "live_brokers": sorted(cache.alive_broker_ids()),
        **replica_counts(replicas),
        "offline_partitions": offline_partitions(cache),
        **disk_status(logs),
        "leading": partition_rows(replicas),
    }


# The content while the broker is not running: the same fields, so that none is missing for readers.
NOT_RUNNING: Final[Mapping[str, Any]] = {
    "cluster_id": None,
    "controller_id": -1,
    "is_controller": False,
    "broker_epoch": -1,
    "listeners": [],
    "startup_ms": None,
    "startup_steps": [],
    "zookeeper_state": "CONNECTING",
    "live_brokers": [],
    "partition_count": 0,
    "leader_count": 0,
    "under_replicated_partitions": 0,
    "under_min_isr_partitions": 0,
    "at_min_isr_partitions": 0,
    "reassigning_partitions": 0,
    "offline_partitions": 0,
    "offline_log_dirs": {},
    "refusing_log_dirs": {},
    "leading": [],
    "config_file": None,
}


def disk_status(logs: LogManager) -> Mapping[str, Any]:
    """The failed directories with the reason, and those that refuse clients' records."""
    healths = [log_dir.health for log_dir in logs.dirs.all]
    return {
        "offline_log_dirs": {str(health.path): health.failure for health in healths if health.failure},
        "refusing_log_dirs": {str(health.path): health.refusal for health in healths if health.refusal},
    }


def offline_partitions(cache: MetadataCache) -> int:
    """Partitions of the cluster without a live leader, as far as this broker knows."""
    snapshot = cache.snapshot
    return sum(
        info.leader not in snapshot.brokers for topic in snapshot.topics.values() for info in topic.values()
    )


def partition_rows(replicas: ReplicaManager) -> list[Mapping[str, Any]]:
    """The partitions led here, for deciding whether a broker may be stopped."""
    return [
        {
            "topic": partition.topic_partition.topic,
            "partition": partition.topic_partition.partition,
            "replicas": list(partition.state.replicas),
            "isr": sorted(partition.isr.certain),
            "min_insync_replicas": partition.log.config.min_insync_replicas,
        }
        for partition in replicas.partitions()
        if partition.is_leader
    ]
