"""DescribeLogDirs (KIP-113, space since KIP-827): the replicas in each log directory,
and failed directories.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator

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
            rows = _rows(here, wanted, lambda log: log.high_watermark)
            moving = _rows(logs.futures_in(log_dir), wanted, lambda log: _end_of(log, ctx), future=True)
            results.append(_working(log_dir, [*rows, *moving]))
        else:
            results.append(_row(log_dir, Errors.KAFKA_STORAGE_ERROR))
    return {"error_code": Errors.NONE, "results": results}


def error_response(_message: DescribeLogDirsRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code, "results": []}


def _end_of(future: Log, ctx: ApiContext) -> int:
    """Where the log ends that ``future`` is the copy of."""
    log = ctx.log_manager.get(future.topic_partition)
    return future.log_end_offset if log is None else log.log_end_offset


def _rows(
    logs: Iterable[Log],
    wanted: Collection[TopicPartition] | None,
    goal: Callable[[Log], int],
    *,
    future: bool = False,
) -> Iterator[tuple[str, Fields]]:
    """A row for each wanted log, with its topic. The lag is how far it is behind ``goal``."""
    for log in logs:
        topic, index = log.topic_partition
        if wanted is None or log.topic_partition in wanted:
            yield (
                topic,
                {
                    "partition_index": index,
                    "partition_size": log.size_bytes,
                    "offset_lag": max(goal(log) - log.log_end_offset, 0),
                    "is_future_key": future,
                },
            )


def _working(log_dir: LogDir, partitions_by_topic: Iterable[tuple[str, Fields]]) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for topic, row in partitions_by_topic:
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
