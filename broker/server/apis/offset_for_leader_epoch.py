"""OffsetForLeaderEpoch: the end offset of an epoch in this leader's log (KIP-101, KIP-320)."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import OffsetForLeaderEpochRequest, OffsetForLeaderPartition
from broker.server.apis.context import ApiContext, require_leader
from broker.utils.topic_partition import TopicPartition


def handle(_request: Request, message: OffsetForLeaderEpochRequest, ctx: ApiContext) -> Fields:
    """One result per partition; -1 for an epoch unknown here."""
    return {
        "throttle_time": 0,
        "topics": [
            {"topic": topic.topic, "partitions": [_answer(topic.topic, p, ctx) for p in topic.partitions]}
            for topic in message.topics
        ],
    }


def _answer(topic: str, wanted: OffsetForLeaderPartition, ctx: ApiContext) -> Fields:
    error, epoch, end_offset = Errors.NONE, -1, -1
    try:
        topic_partition = TopicPartition(topic, wanted.partition)
        partition = require_leader(topic_partition, codec.get(wanted, "current_leader_epoch", -1), ctx)
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as refusal:
        error = refusal.error_code
    return {
        "partition": wanted.partition,
        "error_code": error,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }
