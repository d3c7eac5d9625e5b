"""AlterReplicaLogDirs (KIP-113): moves replicas between the log directories of this broker."""

from __future__ import annotations

from collections.abc import Mapping

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import AlterReplicaLogDirsRequest
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition


def handle(_request: Request, message: AlterReplicaLogDirsRequest, ctx: ApiContext) -> Fields:
    """Responds when the moves have begun, or which could not. DescribeLogDirs tells how far they are."""
    return _response(ctx.leadership.alter_log_dirs(_wanted(message)))


def error_response(message: AlterReplicaLogDirsRequest, error: KafkaError) -> Fields:
    """The same error for every partition."""
    return _response(dict.fromkeys(_wanted(message), error.error_code))


def _wanted(message: AlterReplicaLogDirsRequest) -> Mapping[TopicPartition, str]:
    """The directory of each partition: the last one that is named for it."""
    return {
        TopicPartition(topic.name, index): log_dir.path
        for log_dir in message.dirs
        for topic in log_dir.topics
        for index in topic.partitions
    }


def _response(errors: Mapping[TopicPartition, Errors]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for (topic, index), error in errors.items():
        topics.setdefault(topic, []).append({"partition_index": index, "error_code": error})
    return {"results": [{"topic_name": name, "partitions": rows} for name, rows in topics.items()]}
