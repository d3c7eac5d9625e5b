"""The log's metrics, by Kafka's names: for each partition's log and for the log directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from broker.log.free_space import Space, space_at
from broker.log.log import Log
from broker.log.log_dir_health import LogDirHealth
from broker.log.log_manager import LogManager
from broker.metrics.registry import Metrics

_NO_SPACE: Final = Space(0, 0, None)


def register_metrics(metrics: Metrics, logs: LogManager, of_partitions: Callable[[], Iterable[Log]]) -> None:
    """Registers gauges that are read at each scrape. ``of_partitions`` returns the logs of the partitions
    hosted here. A loaded log that the controller has not mentioned yet is not reported.
    """
    _register_logs(metrics, of_partitions)
    _register_dirs(metrics, logs)


def _register_logs(metrics: Metrics, of_partitions: Callable[[], Iterable[Log]]) -> None:
    measures: tuple[tuple[str, str, Callable[[Log], int]], ...] = (
        ("size", "Size of a partition's segments, in bytes", lambda log: log.size_bytes),
        ("logendoffset", "End offset of a partition's log", lambda log: log.log_end_offset),
        ("logstartoffset", "Start offset of a partition's log", lambda log: log.log_start_offset),
        ("numlogsegments", "Number of a partition's segments", lambda log: log.num_segments),
    )
    for name, help_text, measure in measures:
        metrics.gauge(
            f"kafka_log_log_{name}",
            help_text,
            _per_log(of_partitions, measure),
            labels=("topic", "partition"),
        )


def _per_log(
    of_partitions: Callable[[], Iterable[Log]], measure: Callable[[Log], int]
) -> Callable[[], Mapping[tuple[str, ...], float]]:
    return lambda: {
        (log.topic_partition.topic, str(log.topic_partition.partition)): float(measure(log))
        for log in of_partitions()
    }


def _register_dirs(metrics: Metrics, logs: LogManager) -> None:
    metrics.gauge(
        "kafka_log_logmanager_offlinelogdirectorycount",
        "Failed log directories",
        lambda: float(len(logs.dirs.failed)),
    )
    for name, help_text, measure in (
        ("kafka_log_logmanager_logdirectoryoffline", "1 for a failed log directory, else 0", _is_offline),
        ("landline_log_dir_total_bytes", "Size of a log directory's file system, in bytes", _total_bytes),
        ("landline_log_dir_free_bytes", "Free space of a log directory's file system, in bytes", _free_bytes),
        (
            "landline_log_dir_refuses_produce",
            "1 for a log directory that refuses clients' records: full, or below its minimum free space",
            _refuses,
        ),
    ):
        metrics.gauge(name, help_text, _per_dir(logs, measure), labels=("logdirectory",))
    metrics.gauge(
        "kafka_log_logcleanermanager_uncleanable_partitions_count",
        "Partitions of a log directory that are not compacted because of damaged data",
        lambda: {(str(d.path),): float(len(logs.cleaner.uncleanable_in(d))) for d in logs.dirs.all},
        labels=("logdirectory",),
    )
    metrics.gauge(
        "landline_log_dir_damaged_places",
        "Damaged places found in a log directory's files",
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
    return float(_space_of(health).free_bytes)


def _total_bytes(health: LogDirHealth) -> float:
    return float(_space_of(health).total_bytes)


def _space_of(health: LogDirHealth) -> Space:
    """None at all if the directory failed."""
    try:
        return _NO_SPACE if health.failure is not None else space_at(health.path)
    except OSError:
        return _NO_SPACE
