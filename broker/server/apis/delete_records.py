"""DeleteRecords (KIP-107): deletes all records before an offset, by moving the start of the log there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import DeleteRecordsRequest
from broker.replication.delayed_delete_records import INVALID_LOW_WATERMARK, DeletedRecords
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition

# Longer waits end after this time, as a produce's.
_LONGEST_WAIT_MS: Final = 300_000
Results = Mapping[TopicPartition, DeletedRecords]


def handle(request: Request, message: DeleteRecordsRequest, ctx: ApiContext) -> None:
    """Responds when all live replicas of each partition begin at the new offset, or at the time-out."""
    refused: dict[TopicPartition, DeletedRecords] = {}
    offsets: dict[TopicPartition, int] = {}
    for topic in message.topics:
        may = allowed(ctx, request, AclOperation.DELETE, ResourceType.TOPIC, topic.name)
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if not may:
                refused[topic_partition] = _refused(Errors.TOPIC_AUTHORIZATION_FAILED)
            elif not ctx.metadata_cache.contains_partition(topic_partition):
                refused[topic_partition] = _refused(Errors.UNKNOWN_TOPIC_OR_PARTITION)
            else:
                offsets[topic_partition] = partition.offset

    def answer(results: Results) -> None:
        ctx.respond(request, _response({**results, **refused}))

    timeout_ms = min(codec.to_ms(message.timeout), _LONGEST_WAIT_MS)
    ctx.replica_manager.delete_records(offsets, timeout_ms, answer)


def error_response(message: DeleteRecordsRequest, error: KafkaError) -> Fields:
    """The same error for every partition."""
    return _response(
        {
            TopicPartition(topic.name, partition.partition_index): _refused(error.error_code)
            for topic in message.topics
            for partition in topic.partitions
        }
    )


def _refused(error: Errors) -> DeletedRecords:
    return DeletedRecords(INVALID_LOW_WATERMARK, error)


def _response(results: Results) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for (topic, partition), (low_watermark, error) in results.items():
        row = {"partition_index": partition, "low_watermark": low_watermark, "error_code": error}
        topics.setdefault(topic, []).append(row)
    return {"topics": [{"name": name, "partitions": rows} for name, rows in topics.items()]}
