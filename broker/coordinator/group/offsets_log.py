"""Writes to __consumer_offsets: one batch per append, through the ReplicaManager, answered by callback."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from broker.coordinator.group.messages import ProducerOfBatch
from broker.protocol.errors import Errors
from broker.protocol.produce_messages import PartitionResponse
from broker.record.batch import Record, build_batch
from broker.record.validator import AppendOrigin
from broker.replication.transaction_verification import Guards
from broker.utils.clock import Clock
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition

AppendCallback = Callable[[Mapping[TopicPartition, PartitionResponse]], None]
AppendedCallback = Callable[[Errors, int], None]


class Appender(Protocol):
    """The function that appends batches to a log: the ReplicaManager's ``append_records``."""

    def __call__(
        self,
        *,
        timeout_ms: int,
        required_acks: int,
        entries: Mapping[TopicPartition, memoryview],
        callback: AppendCallback,
        origin: AppendOrigin,
        guards: Guards | None = None,
    ) -> None: ...


class OffsetsLog:
    """The writer to __consumer_offsets, or to the internal ``topic`` of another coordinator. It has no state;
    the caller is responsible for the order.
    """

    def __init__(
        self, appender: Appender, timeout_ms: int, clock: Clock, topic: str = GROUP_METADATA_TOPIC
    ) -> None:
        self._topic = topic
        self._appender = appender
        self._timeout_ms = timeout_ms
        self._clock = clock

    def append(
        self,
        partition: int,
        records: Sequence[tuple[bytes, bytes | None]],
        required_acks: int,
        callback: AppendedCallback,
        *,
        producer: ProducerOfBatch | None = None,
        timeout_ms: int | None = None,
    ) -> None:
        """Appends records, in the transaction of ``producer`` if there is one. ``callback`` is called once, on
        any thread, with the error and the first record's offset. Without ``timeout_ms`` it waits as long as
        for every append.
        """
        now_ms = self._clock.wall_ms()
        batch = _batch([Record(key, value, (), now_ms) for key, value in records], producer)
        topic_partition = TopicPartition(self._topic, partition)

        def appended(responses: Mapping[TopicPartition, PartitionResponse]) -> None:
            response = responses[topic_partition]
            callback(response.error, response.base_offset)

        self._appender(
            timeout_ms=self._timeout_ms if timeout_ms is None else timeout_ms,
            required_acks=required_acks,
            entries={topic_partition: memoryview(bytearray(batch))},
            callback=appended,
            origin=AppendOrigin.COORDINATOR,
            guards=None if producer is None or producer.guard is None else {topic_partition: producer.guard},
        )


def _batch(records: Sequence[Record], producer: ProducerOfBatch | None) -> bytes:
    if producer is None:
        return build_batch(records)
    # Kafka's coordinator, too, writes sequence 0 each time: nobody checks it.
    return build_batch(
        records,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        base_sequence=0,
        transactional=True,
    )
