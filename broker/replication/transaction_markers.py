"""Appends transaction markers to the partitions that this broker leads.

It serves WriteTxnMarkers. The transaction coordinator calls it directly for partitions that its own broker
leads, so that both ways are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import NamedTuple

import structlog

from broker.log.producers.markers import TransactionMarker, build_marker
from broker.protocol.errors import Errors
from broker.protocol.produce_messages import ACKS_ALL, PartitionResponse
from broker.record.validator import AppendOrigin
from broker.replication.replica_manager import ReplicaManager
from broker.utils.clock import Clock
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition

_log = structlog.get_logger(__name__)
MarkerErrors = Mapping[TopicPartition, Errors]


class OwnMarker(NamedTuple):
    """The end of a producer's transaction on some partitions that this broker leads."""

    producer_id: int
    producer_epoch: int
    committed: bool
    coordinator_epoch: int
    partitions: Sequence[TopicPartition]


class OffsetsMarker(NamedTuple):
    """A marker that was appended to a ``partition`` of __consumer_offsets, at ``offset``."""

    partition: int
    producer_id: int
    offset: int
    committed: bool


class TransactionMarkers:
    """The appends of markers. Thread-safe, without state.

    ``on_offsets_marker`` is called for each marker in __consumer_offsets that is replicated, before the appends
    are answered, on any thread and with no lock held. If it fails, so has the marker, as in Kafka: it is sent again.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        clock: Clock,
        timeout_ms: int,
        on_offsets_marker: Callable[[OffsetsMarker], None] = lambda _marker: None,
    ) -> None:
        self._replicas = replicas
        self._clock = clock
        self._timeout_ms = timeout_ms
        self._on_offsets_marker = on_offsets_marker

    def append(self, markers: Sequence[OwnMarker], then: Callable[[Sequence[MarkerErrors]], None]) -> None:
        """Appends the markers in their order, with acks=all. ``then`` is called once, at once or later, on any
        thread, with each marker's errors by partition.

        The errors are NONE, UNKNOWN_TOPIC_OR_PARTITION if there is no such replica here, and those of
        :meth:`LogAppender.append_as_leader` and of acks=all: NOT_LEADER_OR_FOLLOWER, INVALID_PRODUCER_EPOCH,
        TRANSACTION_COORDINATOR_FENCED, NOT_ENOUGH_REPLICAS, REQUEST_TIMED_OUT and others. A negative producer
        id is INVALID_PRODUCER_ID_MAPPING, a negative epoch INVALID_PRODUCER_EPOCH.
        """
        if not markers:
            then([])
            return
        results: list[MarkerErrors] = [{}] * len(markers)
        done = count(1)  # its next() is atomic

        def finished(number: int, errors: MarkerErrors) -> None:
            results[number] = errors
            if next(done) == len(markers):
                then(results)

        for number, marker in enumerate(markers):
            self._append(marker, lambda errors, number=number: finished(number, errors))  # type: ignore[misc]

    def _append(self, marker: OwnMarker, then: Callable[[MarkerErrors], None]) -> None:
        errors: dict[TopicPartition, Errors] = {}
        led: list[TopicPartition] = []
        for partition in marker.partitions:
            if self._replicas.partition(partition) is None:
                errors[partition] = Errors.UNKNOWN_TOPIC_OR_PARTITION
            else:
                led.append(partition)

        def appended(responses: Mapping[TopicPartition, PartitionResponse]) -> None:
            for partition, response in responses.items():
                errors[partition] = response.error
                if response.error is Errors.NONE and partition.topic == GROUP_METADATA_TOPIC:
                    errors[partition] = self._tell(
                        OffsetsMarker(
                            partition.partition, marker.producer_id, response.base_offset, marker.committed
                        )
                    )
            then(errors)

        # It would be in the log as the batch of no producer, or of a producer without an epoch.
        if marker.producer_id < 0 or marker.producer_epoch < 0:
            is_nobody = marker.producer_id < 0
            wrong = Errors.INVALID_PRODUCER_ID_MAPPING if is_nobody else Errors.INVALID_PRODUCER_EPOCH
            errors |= dict.fromkeys(led, wrong)
            led.clear()
        if not led:
            then(errors)
            return
        content = TransactionMarker(marker.committed, marker.coordinator_epoch)
        batch = build_marker(marker.producer_id, marker.producer_epoch, content, now_ms=self._clock.wall_ms())
        # Each append writes its offset into the batch.
        entries = {partition: memoryview(bytearray(batch)) for partition in led}
        self._replicas.append_records(
            timeout_ms=self._timeout_ms,
            required_acks=ACKS_ALL,
            entries=entries,
            callback=appended,
            origin=AppendOrigin.COORDINATOR,
        )

    def _tell(self, marker: OffsetsMarker) -> Errors:
        """Reports a marker. Whatever fails there, who sent it must get an answer: without one it waits for ever."""
        try:
            self._on_offsets_marker(marker)
        except Exception:
            _log.exception(
                "offsets_marker_failed", partition=marker.partition, producer_id=marker.producer_id
            )
            return Errors.UNKNOWN_SERVER_ERROR
        return Errors.NONE
