"""TxnOffsetCommit: a producer commits a group's offsets in its transaction (KIP-98, KIP-447)."""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.commits import CommitErrors
from broker.coordinator.group.messages import (
    NO_GENERATION,
    NO_MEMBER_ID,
    MemberIdentity,
    ProducerOfBatch,
)
from broker.coordinator.group.records import OffsetAndMetadata
from broker.coordinator.group.txn_commits import TransactionalCommit
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition

# Older producers crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296).
_LOADING_FROM: Final = 2
# The first version whose clients know TRANSACTION_ABORTABLE.
_ABORTABLE_FROM: Final = 4


def handle(request: Request, message: TxnOffsetCommitRequest, ctx: ApiContext) -> Fields | None:
    """Responds when the offsets are in the log. Each partition that does not exist gets its own error."""
    _require_access(request, message, ctx)
    now_ms = ctx.clock.wall_ms()
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    answer: CommitErrors = {}
    for topic in message.topics:
        may_read = allowed(ctx, request, AclOperation.READ, ResourceType.TOPIC, topic.name)
        for committed in topic.partitions:
            partition = TopicPartition(topic.name, committed.partition_index)
            if not may_read:
                answer[partition] = Errors.TOPIC_AUTHORIZATION_FAILED
            elif ctx.metadata_cache.contains_partition(partition):
                offsets[partition] = _offset(committed, now_ms)
            else:
                answer[partition] = Errors.UNKNOWN_TOPIC_OR_PARTITION
    if not offsets:
        return _fields(answer)
    is_old = request.api_version < _LOADING_FROM

    def stored(errors: CommitErrors) -> None:
        if is_old:
            errors = {partition: _for_old(error) for partition, error in errors.items()}
        ctx.respond(request, _fields(answer | errors))

    ctx.group_coordinator.transactions.commit(
        message.group_id,
        message.transactional_id,
        TransactionalCommit(
            ProducerOfBatch(message.producer_id, message.producer_epoch),
            MemberIdentity(
                codec.get(message, "member_id", NO_MEMBER_ID), codec.get(message, "group_instance_id")
            ),
            codec.get(message, "generation_id", NO_GENERATION),
            offsets,
            stored,
        ),
        knows_abortable=request.api_version >= _ABORTABLE_FROM,
    )
    return None


def _require_access(request: Request, message: TxnOffsetCommitRequest, ctx: ApiContext) -> None:
    transactional_id, group_id = message.transactional_id, message.group_id
    if not allowed(ctx, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        raise KafkaError(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not allowed(ctx, request, AclOperation.READ, ResourceType.GROUP, group_id):
        raise KafkaError(Errors.GROUP_AUTHORIZATION_FAILED)


def error_response(message: TxnOffsetCommitRequest, error: KafkaError) -> Fields:
    partitions = [TopicPartition(t.name, p.partition_index) for t in message.topics for p in t.partitions]
    return _fields(dict.fromkeys(partitions, error.error_code))


def _for_old(error: Errors) -> Errors:
    return Errors.COORDINATOR_NOT_AVAILABLE if error is Errors.COORDINATOR_LOAD_IN_PROGRESS else error


def _offset(committed: TxnOffsetCommitRequestPartition, now_ms: int) -> OffsetAndMetadata:
    return OffsetAndMetadata(
        committed.committed_offset,
        codec.get(committed, "committed_leader_epoch", NO_EPOCH),
        committed.committed_metadata or "",
        now_ms,
    )


def _fields(errors: CommitErrors) -> Fields:
    topics: dict[str, list[Fields]] = {}
    for (topic, partition), error in errors.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": error})
    return {
        "throttle_time": 0,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }
