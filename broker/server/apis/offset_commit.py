"""OffsetCommit. Version 0, which Kafka stored in ZooKeeper, commits to the group like the others."""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.commits import CommitErrors, CommitRequest
from broker.coordinator.group.messages import NO_GENERATION, NO_MEMBER_ID, MemberIdentity
from broker.coordinator.group.records import OffsetAndMetadata
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import OffsetCommitRequest, OffsetCommitRequestPartition
from broker.record.header import NO_TIMESTAMP
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.partition_errors import encode_commit_response, topics_with_errors
from broker.utils.topic_partition import TopicPartition

_DEFAULT_RETENTION_MS: Final = -1
_MEMBER_EPOCHS_FROM: Final = 9  # KIP-848
_READ: Final = AclOperation.READ
_TOPIC: Final = ResourceType.TOPIC


def handle(request: Request, message: OffsetCommitRequest, ctx: ApiContext) -> bytes | None:
    """Responds when the offsets are stored. Each partition that does not exist gets its own error."""
    version = request.api_version
    now_ms = ctx.clock.wall_ms()
    expire_ms = _expire_timestamp_ms(message, now_ms)
    offsets: dict[TopicPartition, OffsetAndMetadata] = {}
    answer: CommitErrors = {}
    for topic in message.topics:
        name = topic.name
        may_read = allowed(ctx, request, _READ, _TOPIC, name)
        for committed in topic.partitions:
            partition = TopicPartition(name, committed.partition_index)
            if not may_read:
                answer[partition] = Errors.TOPIC_AUTHORIZATION_FAILED
            elif ctx.metadata_cache.contains_partition(partition):
                offsets[partition] = _offset(committed, now_ms, expire_ms)
            else:
                answer[partition] = Errors.UNKNOWN_TOPIC_OR_PARTITION
    if answer and not offsets:
        return encode_commit_response(version, answer)
    member = MemberIdentity(
        codec.get(message, "member_id", NO_MEMBER_ID), codec.get(message, "group_instance_id")
    )
    generation_id = codec.get(message, "generation_id_or_member_epoch", NO_GENERATION)

    def stored(errors: CommitErrors) -> None:
        ctx.respond(request, encode_commit_response(version, answer | errors))

    knows_epochs = version >= _MEMBER_EPOCHS_FROM
    commit = CommitRequest(member, generation_id, offsets, stored, knows_epochs)
    ctx.group_coordinator.commit(message.group_id, commit)
    return None


def error_response(message: OffsetCommitRequest, error: KafkaError) -> Fields:
    partitions = [TopicPartition(t.name, p.partition_index) for t in message.topics for p in t.partitions]
    return {"topics": topics_with_errors(dict.fromkeys(partitions, error.error_code))}


def _expire_timestamp_ms(message: OffsetCommitRequest, now_ms: int) -> int | None:
    """When the offsets expire: versions 2 to 4 may set a retention time; None for the default."""
    retention = codec.get(message, "retention_time")
    retention_ms = _DEFAULT_RETENTION_MS if retention is None else codec.to_ms(retention)
    return None if retention_ms == _DEFAULT_RETENTION_MS else now_ms + retention_ms


def _offset(committed: OffsetCommitRequestPartition, now_ms: int, expire_ms: int | None) -> OffsetAndMetadata:
    timestamp_ms = codec.get(committed, "commit_timestamp", NO_TIMESTAMP)
    return OffsetAndMetadata(
        committed.committed_offset,
        codec.get(committed, "committed_leader_epoch", NO_EPOCH),
        committed.committed_metadata or "",
        now_ms if timestamp_ms == NO_TIMESTAMP else timestamp_ms,
        expire_ms,
    )
