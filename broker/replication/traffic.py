"""The counters of a ReplicaManager, and the log line for refused records."""

from __future__ import annotations

import time
from dataclasses import dataclass

import structlog

from broker.cluster.isr import NotEnoughReplicasError
from broker.protocol.errors import KafkaError
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Traffic:
    """Counters that the metrics read; written on the hot path without a lock."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    replication_bytes_out: int = 0
    failed_produces: int = 0
    failed_fetches: int = 0
    isr_shrinks: int = 0
    isr_expands: int = 0
    last_error_log_ns: int = 0


def log_refusal(topic_partition: TopicPartition, error: KafkaError, traffic: Traffic) -> None:
    """Logs at most one line a second: a producer may repeat its mistake as fast as it can."""
    now_ns = time.monotonic_ns()
    if now_ns - traffic.last_error_log_ns <= 1_000_000_000:
        return
    traffic.last_error_log_ns = now_ns
    if isinstance(error, NotEnoughReplicasError):
        _log.warning(
            "not_enough_replicas",
            partition=str(topic_partition),
            replicas=list(error.shortage.replicas),
            isr=list(error.shortage.isr),
            missing=list(error.shortage.missing),
            min_insync_replicas=error.shortage.required,
            refused_so_far=traffic.failed_produces,
            action="bring the missing brokers back, or wait until they have caught up",
        )
        return
    _log.warning(
        "produce_refused",
        partition=str(topic_partition),
        error=error.error_code.name,
        reason=error.message,
        refused_so_far=traffic.failed_produces,
    )
