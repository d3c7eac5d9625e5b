"""What the broker tells of its log directories: in /status, and as metrics named after Kafka's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from broker.log.free_space import space_at
from broker.log.log_dir_health import LogDirHealth
from broker.log.log_manager import LogManager
from broker.metrics.registry import Metrics
from broker.replication.replica_manager import ReplicaManager


def disk_status(logs: LogManager) -> Mapping[str, Any]:
    """Which directories failed and why, and which take no records of clients."""
    healths = [log_dir.health for log_dir in logs.dirs.all]
    return {
        "offline_log_dirs": {str(health.path): health.failure for health in healths if health.failure},
        "refusing_log_dirs": {str(health.path): health.refusal for health in healths if health.refusal},
    }


def register_disk_stats(metrics: Metrics, logs: LogManager, replicas: ReplicaManager) -> None:
    """Registers what is read at each scrape."""
    metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Log directories that failed",
        lambda: float(len(logs.dirs.failed)),
    )
    metrics.gauge(
        "kafka_server_replicamanager_offlinereplicacount",
        "Replicas given up because their log directory failed",
        lambda: float(replicas.offline_count),
    )
    for name, help_text, measure in (
        ("kafka_log_logmanager_logdirectoryoffline", "1 for a log directory that failed", _is_offline),
        ("landline_log_dir_free_bytes", "Free space of a log directory's file system", _free_bytes),
        (
            "landline_log_dir_refuses_produce",
            "1 for a log directory below its floor of free space, or full: clients' records are refused",
            _refuses,
        ),
    ):
        metrics.gauge(name, help_text, _per_dir(logs, measure), labels=("logdirectory",))
    metrics.gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Partitions of a log directory that are compacted no more, for something in them is damaged",
        lambda: {(str(d.path),): float(len(logs.cleaner.uncleanable_in(d))) for d in logs.dirs.all},
        labels=("logdirectory",),
    )
    metrics.gauge(
        "landline_log_dir_damaged_places",
        "Places in a log directory's files that were met and found damaged",
        lambda: {(str(d.path),): float(logs.damages_in(d)) for d in logs.dirs.all},
        labels=("logdirectory",),
    )


def _per_dir(
    logs: LogManager, measure: Callable[[LogDirHealth], float]
) -> Callable[[], Mapping[tuple[str, ...], float]]:
    return lambda: {(str(log_dir.path),): measure(log_dir.health) for log_dir in logs.dirs.all}


def _is_offline(health: LogDirHealth) -> float:
    return float(health.failure is not None)


def _refuses(health: LogDirHealth) -> float:
    return float(health.refusal is not None)


def _free_bytes(health: LogDirHealth) -> float:
    return _free_at(health.path) if health.failure is None else 0.0


def _free_at(path: Path) -> float:
    try:
        return float(space_at(path).free_bytes)
    except OSError:
        return 0.0
