"""OffsetForLeaderEpoch: the end offset of an epoch in this leader's log (KIP-101, KIP-320)."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.offsets import UNKNOWN_OFFSET
from broker.protocol.requests import OffsetForLeaderEpochRequest, OffsetForLeaderPartition
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed, cluster_allowed
from broker.server.apis.context import ApiContext, require_leader
from broker.utils.topic_partition import TopicPartition


def handle(request: Request, message: OffsetForLeaderEpochRequest, ctx: ApiContext) -> Fields:
    """One result per partition; -1 for an epoch unknown here. Followers need CLUSTER_ACTION, consumers may
    describe the topic instead.
    """
    is_broker = cluster_allowed(ctx, request, AclOperation.CLUSTER_ACTION, told=False)
    topics = []
    for topic in message.topics:
        denied = not is_broker and not allowed(
            ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, topic.topic
        )
        rows = [_answer(topic.topic, wanted, ctx, denied=denied) for wanted in topic.partitions]
        topics.append({"topic": topic.topic, "partitions": rows})
    return {"throttle_time": 0, "topics": topics}


def _answer(topic: str, wanted: OffsetForLeaderPartition, ctx: ApiContext, *, denied: bool) -> Fields:
    error, epoch, end_offset = Errors.NONE, NO_EPOCH, UNKNOWN_OFFSET
    try:
        if denied:
            raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED)
        topic_partition = TopicPartition(topic, wanted.partition)
        partition = require_leader(topic_partition, codec.get(wanted, "current_leader_epoch", NO_EPOCH), ctx)
        epoch, end_offset = partition.log.end_offset_for_epoch(wanted.leader_epoch)
    except KafkaError as refusal:
        error = refusal.error_code
    return {
        "partition": wanted.partition,
        "error_code": error,
        "leader_epoch": epoch,
        "end_offset": end_offset,
    }
