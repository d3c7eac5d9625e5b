"""OffsetFetch; from version 8 on for several groups at once (KIP-709)."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from broker.coordinator.group.describe import NO_MEMBER, FetchedOffset
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.listed import Listed
from broker.protocol.requests import OffsetFetchRequest, OffsetFetchRequestTopic, OffsetFetchRequestTopics
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed, allowed_names
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition

_GROUP_ERROR_FROM: Final = 2
_GROUPS_FROM: Final = 8


def is_dear(message: OffsetFetchRequest, _ctx: ApiContext) -> bool:
    """Whether all offsets of a group are requested: a few bytes can request thousands of them."""
    groups = codec.get(message, "groups")
    return message.topics is None if groups is None else any(group.topics is None for group in groups)


def handle(request: Request, message: OffsetFetchRequest, ctx: ApiContext) -> Fields:
    """Committed offsets from memory; -1 for a partition without one."""
    require_stable = codec.get(message, "require_stable", False)
    budget = AnswerBudget(request, ctx.config.int(SETTING), later=Errors.COORDINATOR_LOAD_IN_PROGRESS)
    if request.api_version >= _GROUPS_FROM:
        elements = []
        members = {
            one.group_id: (codec.get(one, "member_id"), codec.get(one, "member_epoch", -1))
            for one in message.groups
        }
        for group_id, partitions in _groups(message).items():
            fields = {
                "group_id": group_id,
                **_group(
                    request,
                    group_id,
                    partitions,
                    budget,
                    ctx,
                    require_stable=require_stable,
                    member=members[group_id],
                ),
            }
            elements.append(codec.encode_element(request.api_key, request.api_version, "groups", fields))
        return Listed({}, "groups", elements)
    partitions = None if message.topics is None else _partitions(message.topics)
    fields = _group(request, message.group_id, partitions, budget, ctx, require_stable=require_stable)
    if request.api_version < _GROUP_ERROR_FROM and fields["error_code"] is not Errors.NONE:
        return _per_partition(message, fields["error_code"])
    return fields


def error_response(message: OffsetFetchRequest, error: KafkaError) -> Fields:
    """The error in the version's field for it: per group, for the group, or per partition."""
    if codec.get(message, "groups") is not None:
        refused = [
            {"group_id": group_id, "error_code": error.error_code, "topics": []}
            for group_id in dict.fromkeys(g.group_id for g in message.groups)
        ]
        return {"groups": refused}
    return {**_per_partition(message, error.error_code), "error_code": error.error_code}


def _groups(message: OffsetFetchRequest) -> Mapping[str, Collection[TopicPartition] | None]:
    """The partitions requested per group, None for all. A group named twice is answered once, for both."""
    asked: dict[str, dict[TopicPartition, None] | None] = {}
    for group in message.groups:
        partitions = asked.setdefault(group.group_id, {})
        if group.topics is None:
            asked[group.group_id] = None
        elif partitions is not None:
            partitions.update(dict.fromkeys(_partitions(group.topics)))
    return asked


def _group(
    request: Request,
    group_id: str,
    partitions: Collection[TopicPartition] | None,
    budget: AnswerBudget,
    ctx: ApiContext,
    *,
    require_stable: bool,
    member: tuple[str | None, int] = NO_MEMBER,
) -> dict[str, Any]:
    """The group's error and offsets; no offsets if the response has no room for them."""
    if not allowed(ctx, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return {"error_code": Errors.GROUP_AUTHORIZATION_FAILED, "topics": []}
    hidden: dict[TopicPartition, FetchedOffset] = {}
    if partitions is not None and ctx.access is not None:
        hidden = _hidden(request, partitions, ctx)
        partitions = [partition for partition in partitions if partition not in hidden]
    error = Errors.NONE
    offsets: Mapping[TopicPartition, FetchedOffset] = {}
    if not budget.full:  # otherwise they are not even read
        error, offsets = ctx.group_coordinator.fetch_offsets(
            group_id, partitions, require_stable=require_stable, member=member
        )
    if partitions is None and ctx.access is not None:
        names = {partition.topic for partition in offsets}
        seen = allowed_names(ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
        offsets = {partition: fetched for partition, fetched in offsets.items() if partition.topic in seen}
    refusal = budget.refusal(_size(offsets), f"the offsets of group {group_id}")
    if refusal is not Errors.NONE:
        return {"error_code": refusal, "topics": []}
    if error is Errors.NONE:
        offsets = {**offsets, **hidden} if hidden else offsets
    return {"error_code": error, "topics": _topics(offsets)}


def _hidden(
    request: Request, partitions: Collection[TopicPartition], ctx: ApiContext
) -> dict[TopicPartition, FetchedOffset]:
    """The rows of those partitions whose topics the principal may not describe."""
    denied = FetchedOffset(error=Errors.TOPIC_AUTHORIZATION_FAILED)
    names = {partition.topic for partition in partitions}
    refused = {
        name for name in names if not allowed(ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    }
    return {partition: denied for partition in partitions if partition.topic in refused}


def _size(offsets: Mapping[TopicPartition, FetchedOffset]) -> int:
    """Their approximate size in the response. A topic's name counts once, in whatever order its
    partitions come.
    """
    names = {partition.topic for partition in offsets}
    texts = sum(text_bytes(fetched.metadata) for fetched in offsets.values())
    return ROW_BYTES * (1 + len(offsets)) + sum(map(text_bytes, names)) + texts


def _partitions(topics: Iterable[OffsetFetchRequestTopic | OffsetFetchRequestTopics]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _per_partition(message: OffsetFetchRequest, error: Errors) -> Fields:
    refused = FetchedOffset(error=error)
    return {"topics": _topics(dict.fromkeys(_partitions(message.topics or ()), refused))}


def _topics(offsets: Mapping[TopicPartition, FetchedOffset]) -> list[Fields]:
    topics: dict[str, list[Fields]] = {}
    for (topic, partition), fetched in offsets.items():
        topics.setdefault(topic, []).append(
            {
                "partition_index": partition,
                "committed_offset": fetched.offset,
                "committed_leader_epoch": fetched.leader_epoch,
                "metadata": fetched.metadata,
                "error_code": fetched.error,
            }
        )
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
