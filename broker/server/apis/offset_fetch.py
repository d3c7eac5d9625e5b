"""OffsetFetch, versions 0 to 9; from version 8 on for several groups at once (KIP-709)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from broker.coordinator.group.describe import FetchedOffset
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import TopicPartition

_GROUP_ERROR_FROM: Final = 2
_GROUPS_FROM: Final = 8


def is_dear(message: Any) -> bool:
    """Whether all the offsets of a group are asked for: thousands of them, for a few bytes."""
    groups = codec.get(message, "groups")
    return message.topics is None if groups is None else any(group.topics is None for group in groups)


def handle(request: Request, message: Any, ctx: ApiContext) -> Mapping[str, Any]:
    """Committed offsets from memory: what was acknowledged, -1 where there is none."""
    require_stable = codec.get(message, "require_stable", False)
    if request.api_version >= _GROUPS_FROM:
        groups = [
            {"group_id": g.group_id, **_group(g.group_id, g.topics, require_stable, ctx)}
            for g in message.groups
        ]
        return {"throttle_time": 0, "groups": groups}
    fields = _group(message.group_id, message.topics, require_stable, ctx)
    if request.api_version < _GROUP_ERROR_FROM and fields["error_code"] is not Errors.NONE:
        return _per_partition(message, fields["error_code"])
    return {"throttle_time": 0, **fields}


def error_response(message: Any, error: KafkaError) -> Mapping[str, Any]:
    """In the place that the version has for it: group by group, the group's, or each partition's."""
    groups = codec.get(message, "groups")
    if groups is not None:
        refused = [{"group_id": g.group_id, "error_code": error.error_code, "topics": []} for g in groups]
        return {"throttle_time": 0, "groups": refused}
    return {**_per_partition(message, error.error_code), "error_code": error.error_code}


def _group(
    group_id: str,
    topics: Sequence[Any] | None,
    require_stable: bool,
    ctx: ApiContext,
) -> dict[str, Any]:
    error, offsets = ctx.group_coordinator.fetch_offsets(
        group_id, None if topics is None else _partitions(topics), require_stable=require_stable
    )
    return {"error_code": error, "topics": _topics(offsets)}


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, index) for topic in topics for index in topic.partition_indexes]


def _per_partition(message: Any, error: Errors) -> Mapping[str, Any]:
    refused = FetchedOffset(error=error)
    return {"throttle_time": 0, "topics": _topics(dict.fromkeys(_partitions(message.topics or ()), refused))}


def _topics(offsets: Mapping[TopicPartition, FetchedOffset]) -> list[Mapping[str, Any]]:
    topics: dict[str, list[Mapping[str, Any]]] = {}
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
