"""DeleteRecords (KIP-107): moves the start of logs that are led here, and waits for the logs of the followers.

Followers learn of the new start from their next fetch and report their own with the one after it. Retention
deletes the segments later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from broker.cluster.partition import Partition
from broker.protocol.errors import Errors, KafkaError
from broker.utils.purgatory import DelayedOperation
from broker.utils.topic_partition import INTERNAL_TOPICS, TopicPartition

INVALID_LOW_WATERMARK: Final = -1


class DeletedRecords(NamedTuple):
    """The result for one partition. ``low_watermark`` is the smallest log start of the live replicas."""

    low_watermark: int
    error: Errors


Callback = Callable[[Mapping[TopicPartition, DeletedRecords]], None]
PartitionOf = Callable[[TopicPartition], Partition]


class DelayedDeleteRecords(DelayedOperation):
    """A DeleteRecords request that waits for followers; Kafka's DelayedDeleteRecords. ``pending`` maps a
    partition to the log start that every live replica must reach; the other ``results`` are final. The
    purgatory owns it until it is complete.

    ``partition_of`` raises :class:`KafkaError` for a partition that is not here.
    """

    def __init__(
        self,
        timeout_ms: int,
        pending: dict[TopicPartition, int],
        results: dict[TopicPartition, DeletedRecords],
        partition_of: PartitionOf,
        callback: Callback,
    ) -> None:
        super().__init__(timeout_ms)
        self._pending = pending
        self._results = results
        self._partition_of = partition_of
        self._callback = callback

    def can_complete(self) -> bool:
        # Each fetch of a follower asks, for each of its partitions. So only the first one that is waited for is
        # looked at, and the next once that is done.
        while self._pending:
            if not self._is_settled(next(iter(self._pending))):
                return False
        return True

    def _is_settled(self, topic_partition: TopicPartition) -> bool:
        try:
            reached = self._partition_of(topic_partition).low_watermark()
        except KafkaError as error:
            result = DeletedRecords(INVALID_LOW_WATERMARK, error.error_code)
        else:
            if reached < self._pending[topic_partition]:
                return False
            result = DeletedRecords(reached, Errors.NONE)
        del self._pending[topic_partition]
        self._results[topic_partition] = result
        return True

    def on_complete(self) -> None:
        for topic_partition in list(self._pending):
            if not self._is_settled(topic_partition):
                result = self._results[topic_partition]
                self._results[topic_partition] = result._replace(error=Errors.REQUEST_TIMED_OUT)
        self._callback(self._results)


def delete_local_records(
    offsets: Mapping[TopicPartition, int],
    partition_of: PartitionOf,
    on_moved: Callable[[TopicPartition], None],
) -> tuple[dict[TopicPartition, DeletedRecords], dict[TopicPartition, int]]:
    """Moves the start of each log to its offset, -1 for its high watermark. Returns the results, and the
    offsets that not all live replicas have reached yet. ``on_moved`` is called for each partition that moved.
    """
    results: dict[TopicPartition, DeletedRecords] = {}
    pending: dict[TopicPartition, int] = {}
    for topic_partition, offset in offsets.items():
        try:
            if topic_partition.topic in INTERNAL_TOPICS:
                raise KafkaError(
                    Errors.INVALID_TOPIC_EXCEPTION, f"{topic_partition.topic} is an internal topic"
                )
            wanted, reached = partition_of(topic_partition).delete_records(offset)
        except KafkaError as error:
            results[topic_partition] = DeletedRecords(INVALID_LOW_WATERMARK, error.error_code)
            continue
        on_moved(topic_partition)
        results[topic_partition] = DeletedRecords(reached, Errors.NONE)
        if reached < wanted:
            pending[topic_partition] = wanted
    return results, pending
