"""A produce with acks=all that waits until its records are committed; Kafka's DelayedProduce."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from broker.cluster.partition import Partition
from broker.cluster.results import Awaited
from broker.protocol.errors import Errors
from broker.protocol.produce_messages import PartitionResponse
from broker.utils.purgatory import DelayedOperation
from broker.utils.topic_partition import TopicPartition

Responses = Mapping[TopicPartition, PartitionResponse]


class DelayedProduce(DelayedOperation):
    """A produce with acks=all that waits; Kafka's DelayedProduce. ``pending`` maps a partition to what must
    be committed there; the other ``responses`` are final. The produce purgatory owns it until it is complete.
    """

    def __init__(
        self,
        timeout_ms: int,
        pending: dict[TopicPartition, Awaited],
        responses: dict[TopicPartition, PartitionResponse],
        partition_of: Callable[[TopicPartition], Partition | None],
        callback: Callable[[Responses], None],
    ) -> None:
        super().__init__(timeout_ms)
        self._pending = pending
        self._responses = responses
        self._partition_of = partition_of
        self._callback = callback

    def can_complete(self) -> bool:
        for topic_partition, awaited in list(self._pending.items()):
            partition = self._partition_of(topic_partition)
            error = Errors.NOT_LEADER_OR_FOLLOWER if partition is None else partition.has_reached(awaited)
            if error is None:
                continue
            del self._pending[topic_partition]
            if error is not Errors.NONE:
                self._fail(topic_partition, error, self._reason(partition, error))
        return not self._pending

    def on_complete(self) -> None:
        for topic_partition in self._pending:
            self._fail(topic_partition, Errors.REQUEST_TIMED_OUT)
        self._callback(self._responses)

    @staticmethod
    def _reason(partition: Partition | None, error: Errors) -> str | None:
        if partition is None or error is not Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND:
            return None
        shortage = partition.shortage()
        return (
            None if shortage is None else f"{partition.topic_partition}: {shortage}; the records were written"
        )

    def _fail(self, topic_partition: TopicPartition, error: Errors, message: str | None = None) -> None:
        start_offset = self._responses[topic_partition].log_start_offset
        self._responses[topic_partition] = PartitionResponse(
            error, log_start_offset=start_offset, message=message
        )
