"""Produce 0 to 2, whose clients send messages of magic 0 and 1: each partition's become a record batch.

:mod:`.produce` appends them. As in Kafka 3.9, these versions may also have a batch of magic 2.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Final

from broker.protocol.errors import Errors, KafkaError
from broker.protocol.produce_messages import PartitionResponse, ProducedTopic
from broker.record.conversion import up_converted
from broker.record.message_set import MAGIC_AT, begins_old
from broker.server.apis.context import ApiContext
from broker.server.apis.produce_verification import Verified
from broker.utils.topic_partition import TopicPartition

# Kafka appends nothing, and that is no error.
_NOTHING: Final = PartitionResponse(Errors.NONE)
_NO_BYTES: Final = memoryview(b"")


def converted(
    topics: Sequence[ProducedTopic], writable: Container[str], ctx: ApiContext
) -> tuple[list[ProducedTopic], Verified]:
    """The topics with batches in place of messages, and the responses of those partitions that need no append. For a
    handler's thread.

    Topics that are not ``writable``, and partitions that this broker does not have, stay as they are.
    """
    told: dict[TopicPartition, PartitionResponse] = {}
    found: list[ProducedTopic] = []
    for topic, partitions in topics:
        rows = partitions
        if topic in writable:
            rows = [
                (index, _batch(TopicPartition(topic, index), records, told, ctx)) for index, records in rows
            ]
        found.append((topic, rows))
    return found, Verified({}, told)


def _batch(
    topic_partition: TopicPartition,
    records: memoryview | None,
    told: dict[TopicPartition, PartitionResponse],
    ctx: ApiContext,
) -> memoryview | None:
    """The records as a batch; no bytes if ``told`` has the response. What is no message stays as it is, for the log
    to judge.
    """
    replicas = ctx.replica_manager
    partition = replicas.partition(topic_partition)
    if partition is None or records is None or not (len(records) <= MAGIC_AT or begins_old(records)):
        return records
    try:
        partition.require_leader()  # before the messages are judged
        batch = up_converted(records, partition.log.rules)
    except KafkaError as error:
        told[topic_partition] = replicas.append_refused(topic_partition, error)
        return _NO_BYTES
    if batch is None:
        told[topic_partition] = _NOTHING
        return _NO_BYTES
    return memoryview(bytearray(batch))
