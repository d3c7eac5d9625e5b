"""ConsumerGroupHeartbeat (KIP-848): responds when what it has changed is stored."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Final

from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.messages import HeartbeatRequest, HeartbeatResult
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatTopicPartitions,
)
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed, allowed_names
from broker.server.apis.context import ApiContext

_OWN_ID_FROM: Final = 1
_REFRESH_MS: Final = 600_000


def handle(request: Request, message: ConsumerGroupHeartbeatRequest, ctx: ApiContext) -> Fields | None:
    """Refuses it if the group may not be read, or a subscribed topic not be described, as Kafka 4 does."""
    if not ctx.group_coordinator.consumers.enabled:
        return _fields(HeartbeatResult(Errors.UNSUPPORTED_VERSION))
    if not allowed(ctx, request, AclOperation.READ, ResourceType.GROUP, message.group_id):
        return _fields(HeartbeatResult(Errors.GROUP_AUTHORIZATION_FAILED))
    names = message.subscribed_topic_names
    if names and ctx.access is not None:
        seen = allowed_names(ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, names)
        if not seen.issuperset(names):
            return _fields(HeartbeatResult(Errors.TOPIC_AUTHORIZATION_FAILED))
    heartbeat = HeartbeatRequest(
        member_id=message.member_id,
        member_epoch=message.member_epoch,
        respond=lambda result: ctx.respond(request, _fields(result)),
        client_id=request.client_id or "",
        client_host=f"/{request.connection.client_address}",
        instance_id=message.instance_id,
        rack_id=message.rack_id,
        rebalance_timeout_ms=codec.to_ms(message.rebalance_timeout),
        subscribed_names=None if names is None else frozenset(names),
        server_assignor=message.server_assignor,
        makes_own_id=request.api_version >= _OWN_ID_FROM,
        may_describe=lambda found: allowed_names(
            ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, found
        ),
        rights=_rights(ctx),
        subscribed_regex=codec.get(message, "subscribed_topic_regex"),
        owned=None if message.topic_partitions is None else _owned(message.topic_partitions),
    )
    ctx.group_coordinator.consumers.heartbeat(message.group_id, heartbeat)
    return None


def error_response(_message: ConsumerGroupHeartbeatRequest, error: KafkaError) -> Fields:
    return _fields(HeartbeatResult(error.error_code))


def _rights(ctx: ApiContext) -> object:
    """What the rights of clients depend on. Those of an authorizer that does not say when they change are read again
    as often as Kafka 4.1 does (the default of group.consumer.regex.refresh.interval.ms).
    """
    if ctx.access is None:
        return None
    version = ctx.access.authorizer.version()
    return ctx.clock.monotonic_ms() // _REFRESH_MS if version is None else version


def _owned(topics: Iterable[ConsumerGroupHeartbeatTopicPartitions]) -> Assignment:
    owned: dict[uuid.UUID, frozenset[int]] = {}
    for topic in topics:
        topic_id = topic.topic_id or codec.ZERO_UUID
        owned[topic_id] = owned.get(topic_id, frozenset()) | frozenset(topic.partitions)
    return owned


def _fields(result: HeartbeatResult) -> Fields:
    assignment = None
    if result.assignment is not None:
        topics = [
            {"topic_id": topic_id, "partitions": sorted(numbers)}
            for topic_id, numbers in result.assignment.items()
        ]
        assignment = {"topic_partitions": topics}
    return {
        "error_code": result.error,
        "error_message": result.error_message,
        "member_id": result.member_id,
        "member_epoch": result.member_epoch,
        "heartbeat_interval": result.heartbeat_interval_ms,
        "assignment": assignment,
    }
