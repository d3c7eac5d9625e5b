"""ListOffsets: the offset for a timestamp, or of one end of the log. Version 0: where segments begin."""

from __future__ import annotations

from collections import Counter

from broker.cluster.partition import Partition
from broker.log.old_offsets import offsets_before, visible
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fetch_requests import CONSUMER_REPLICA_ID, DEBUGGING_REPLICA_ID, READ_COMMITTED
from broker.protocol.fields import Fields
from broker.protocol.offsets import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    UNKNOWN_OFFSET,
)
from broker.protocol.requests import ListOffsetsPartition, ListOffsetsRequest
from broker.record.header import NO_TIMESTAMP
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext, require_leader
from broker.server.apis.strangers import introduce
from broker.utils.topic_partition import TopicPartition

_ENDS = frozenset({LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP})
# The first versions that may ask for these; smaller timestamps mean nothing in any.
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL_TIMESTAMP: 8, LATEST_TIERED_TIMESTAMP: 9}
_NOTHING = (NO_TIMESTAMP, UNKNOWN_OFFSET, NO_EPOCH)
_MOST_KEPT = 1_000  # partitions that may wait while their sender is looked up


def is_dear(message: ListOffsetsRequest, _ctx: ApiContext) -> bool:
    """Whether files must be searched for a timestamp; the ends of a log are known in memory. Version 0 looks at all
    segments of each log.
    """
    first = next((p for topic in message.topics for p in topic.partitions), None)
    return hasattr(first, "max_num_offsets") or any(
        p.timestamp not in _ENDS for topic in message.topics for p in topic.partitions
    )


def handle(request: Request, message: ListOffsetsRequest, ctx: ApiContext) -> Fields | None:
    """Consumers see offsets up to the high watermark, or with READ_COMMITTED up to the last stable offset;
    replicas and the debugging consumer see those up to the log end. From version 1 on, a partition that is
    named twice gets INVALID_REQUEST each time and is not searched, as in Kafka. So does each of an unknown
    isolation level.
    """
    if message.replica_id < 0 or ctx.peers.knows(request.connection):
        return _answers(request, message, ctx)

    if sum(len(topic.partitions) for topic in message.topics) > _MOST_KEPT:
        close = request.close_connection  # a broker retries, and is known by then
        introduce(request, ctx, close, close, keeps_body=False)
        return None

    def answer(*, refused: bool) -> None:
        def work() -> None:
            request.respond_fields(_answers(request, message, ctx, refused=refused))

        if not ctx.submit_for(request, work, dear=True):
            request.close_connection()

    introduce(request, ctx, lambda: answer(refused=False), lambda: answer(refused=True), keeps_body=False)
    return None


def _answers(
    request: Request, message: ListOffsetsRequest, ctx: ApiContext, *, refused: bool = False
) -> Fields:
    mentions = Counter((topic.name, p.partition_index) for topic in message.topics for p in topic.partitions)
    twice = {mention for mention, count in mentions.items() if count > 1 and request.api_version > 0}
    # Neither 0 nor READ_COMMITTED.
    is_wrong = bool(codec.get(message, "isolation_level", 0) >> 1)
    topics = []
    for topic in message.topics:
        if allowed(ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.name):
            rows = [
                _row(p, Errors.INVALID_REQUEST)
                if is_wrong or (topic.name, p.partition_index) in twice
                else _answer(topic.name, p, message, request, ctx, refused=refused)
                for p in topic.partitions
            ]
        else:
            rows = [_row(p, Errors.TOPIC_AUTHORIZATION_FAILED) for p in topic.partitions]
        topics.append({"name": topic.name, "partitions": rows})
    return {"throttle_time": 0, "topics": topics}


def _answer(
    topic: str,
    wanted: ListOffsetsPartition,
    message: ListOffsetsRequest,
    request: Request,
    ctx: ApiContext,
    *,
    refused: bool,
) -> Fields:
    error = Errors.NONE
    timestamp, offset, epoch = _NOTHING
    try:
        _check_meaning(wanted.timestamp, request.api_version)
        topic_partition = TopicPartition(topic, wanted.partition_index)
        partition = require_leader(
            topic_partition,
            codec.get(wanted, "current_leader_epoch", NO_EPOCH),
            ctx,
            or_follower=message.replica_id == DEBUGGING_REPLICA_ID,
        )
        if refused:
            raise KafkaError(Errors.CLUSTER_AUTHORIZATION_FAILED)
        if request.api_version == 0:
            return {
                **_row(wanted, Errors.NONE),
                "old_style_offsets": _find_old(
                    partition, wanted, ctx, from_replica=message.replica_id != CONSUMER_REPLICA_ID
                ),
            }
        timestamp, offset, epoch = _find(
            partition,
            wanted.timestamp,
            from_replica=message.replica_id != CONSUMER_REPLICA_ID,
            committed_only=codec.get(message, "isolation_level", 0) == READ_COMMITTED,
        )
    except KafkaError as refusal:
        error = refusal.error_code
        if error is Errors.OFFSET_NOT_AVAILABLE and request.api_version < 5:
            error = Errors.LEADER_NOT_AVAILABLE
    return _row(wanted, error, timestamp, offset, epoch)


def _check_meaning(timestamp: int, version: int) -> None:
    """Raises UNSUPPORTED_VERSION for a timestamp that means something else than a time, and not yet in this version."""
    if timestamp < LATEST_TIERED_TIMESTAMP or version < _SINCE.get(timestamp, 0):
        raise KafkaError(
            Errors.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning in version {version}"
        )


def _row(
    wanted: ListOffsetsPartition,
    error: Errors,
    timestamp: int = NO_TIMESTAMP,
    offset: int = UNKNOWN_OFFSET,
    epoch: int = NO_EPOCH,
) -> Fields:
    return {
        "partition_index": wanted.partition_index,
        "error_code": error,
        "timestamp": timestamp,
        "offset": offset,
        "leader_epoch": epoch,
    }


def _find_old(
    partition: Partition, wanted: ListOffsetsPartition, ctx: ApiContext, *, from_replica: bool
) -> list[int]:
    """The offsets of version 0, falling."""
    log = partition.log
    if wanted.max_num_offsets < 0:  # so Kafka's answer, which has no check
        raise KafkaError(Errors.UNKNOWN_SERVER_ERROR, f"{wanted.max_num_offsets} offsets asked for")
    with log.failing("look at the segments of"):
        found = offsets_before(log, wanted.timestamp, wanted.max_num_offsets, ctx.clock.wall_ms())
    return found if from_replica else visible(found, log.high_watermark)


def _find(
    partition: Partition, timestamp: int, *, from_replica: bool, committed_only: bool
) -> tuple[int, int, int]:
    """(timestamp, offset, leader epoch), with -1 for anything missing."""
    log = partition.log
    if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
        start = log.log_start_offset
        return NO_TIMESTAMP, start, log.leader_epochs.epoch_for_offset(start)
    end = log.log_end_offset if from_replica else log.fetchable_end(committed_only=committed_only)
    if not from_replica and partition.high_watermark_is_behind_term:
        # A new leader may know a lower high watermark than the previous one reported.
        raise KafkaError(Errors.OFFSET_NOT_AVAILABLE)
    if timestamp == LATEST_TIMESTAMP:
        return NO_TIMESTAMP, end, partition.state.leader_epoch
    if timestamp == LATEST_TIERED_TIMESTAMP:
        return _NOTHING
    found = log.offset_for_timestamp(timestamp)
    if found is None or found.offset >= end:
        return _NOTHING
    return found.timestamp, found.offset, found.leader_epoch
