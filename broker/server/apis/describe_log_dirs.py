"""DescribeLogDirs (KIP-113, space since KIP-827): the replicas in each log directory,
and failed directories.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from broker.log.dirs.log_dir import LogDir
from broker.log.free_space import space_at
from broker.log.log import Log
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import DescribeLogDirsRequest
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition

_UNKNOWN_BYTES = -1


def handle(_request: Request, message: DescribeLogDirsRequest, ctx: ApiContext) -> Fields:
    """Every directory, with the requested partitions, or all if none are named."""
    wanted = None
    if message.topics is not None:
        wanted = {
            TopicPartition(topic.topic, index) for topic in message.topics for index in topic.partitions
        }
    logs = ctx.log_manager
    results = []
    for log_dir in logs.dirs.all:
        if log_dir.health.failure is None:
            here = [log for tp in logs.partitions_in(log_dir) if (log := logs.get(tp)) is not None]
            results.append(_working(log_dir, here, wanted))
        else:
            results.append(_row(log_dir, Errors.KAFKA_STORAGE_ERROR))
    return {"error_code": Errors.NONE, "results": results}


def error_response(_message: DescribeLogDirsRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code, "results": []}


def _working(log_dir: LogDir, logs: Iterable[Log], wanted: Collection[TopicPartition] | None) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for log in logs:
        topic, index = log.topic_partition
        if wanted is None or log.topic_partition in wanted:
            row = {
                "partition_index": index,
                "partition_size": log.size_bytes,
                "offset_lag": max(log.high_watermark - log.log_end_offset, 0),
                "is_future_key": False,
            }
            topics.setdefault(topic, []).append(row)
    try:
        space = space_at(log_dir.path)
    except OSError as error:
        log_dir.health.report("ask for the free space", error)
        return _row(log_dir, Errors.KAFKA_STORAGE_ERROR)
    rows = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return _row(log_dir, Errors.NONE, rows, space.total_bytes, space.free_bytes)


def _row(
    log_dir: LogDir,
    error: Errors,
    topics: Collection[Fields] = (),
    total_bytes: int = _UNKNOWN_BYTES,
    usable_bytes: int = _UNKNOWN_BYTES,
) -> Fields:
    return {
        "error_code": error,
        "log_dir": str(log_dir.path.absolute()),
        "topics": list(topics),
        "total_bytes": total_bytes,
        "usable_bytes": usable_bytes,
    }
