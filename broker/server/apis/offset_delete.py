"""OffsetDelete (KIP-496): deletes offsets of a group whose members do not subscribe to their topics."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import OffsetDeleteRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.partition_errors import PartitionErrors, topics_with_errors
from broker.utils.topic_partition import TopicPartition


def handle(request: Request, message: OffsetDeleteRequest, ctx: ApiContext) -> None:
    """Responds when the tombstones are written. An error of the group is told once, without partitions."""
    refused: PartitionErrors = {}
    wanted: list[TopicPartition] = []
    for topic in message.topics:
        may_read = allowed(ctx, request, AclOperation.READ, ResourceType.TOPIC, topic.name)
        for partition in topic.partitions:
            topic_partition = TopicPartition(topic.name, partition.partition_index)
            if not may_read:
                refused[topic_partition] = Errors.TOPIC_AUTHORIZATION_FAILED
            elif ctx.metadata_cache.contains_partition(topic_partition):
                wanted.append(topic_partition)
            else:
                refused[topic_partition] = Errors.UNKNOWN_TOPIC_OR_PARTITION

    def deleted(error: Errors, errors: PartitionErrors) -> None:
        ctx.respond(request, _fields(error, refused | errors if error is Errors.NONE else {}))

    ctx.group_coordinator.delete_offsets(message.group_id, wanted, deleted)


def error_response(_message: OffsetDeleteRequest, error: KafkaError) -> Fields:
    return _fields(error.error_code, {})


def _fields(error: Errors, errors: PartitionErrors) -> Fields:
    return {"error_code": error, "topics": topics_with_errors(errors)}
