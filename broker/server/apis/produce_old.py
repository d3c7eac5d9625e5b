"""Produce 0 to 2, whose clients send messages of magic 0 and 1: each partition's become a record batch.

:mod:`.produce` appends them. As in Kafka 3.9, these versions may also have a batch of magic 2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container, Sequence
from typing import Final

from broker.protocol.errors import Errors, KafkaError
from broker.protocol.produce_messages import PartitionResponse, ProducedTopic
from broker.record.conversion import up_converted
from broker.record.message_set import MAGIC_AT, begins_old
from broker.server.apis.context import ApiContext, why_absent
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

    Topics that are not ``writable`` stay as they are. Nothing is converted for partitions that are named twice, which
    :mod:`.produce` refuses, or that this broker does not have.
    """
    told: dict[TopicPartition, PartitionResponse] = {}
    named = Counter((topic, index) for topic, partitions in topics for index, _ in partitions)
    found: list[ProducedTopic] = []
    for topic, partitions in topics:
        rows = partitions
        if topic in writable:
            rows = [
                (
                    index,
                    _batch(TopicPartition(topic, index), records, told, ctx)
                    if named[topic, index] == 1
                    else _NO_BYTES,
                )
                for index, records in rows
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
    if records is None or not (len(records) <= MAGIC_AT or begins_old(records)):
        return records
    if partition is None:  # told here, because several messages look like several batches
        told[topic_partition] = PartitionResponse(why_absent(topic_partition, ctx))
        return _NO_BYTES
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
