"""FindCoordinator: the broker that leads the group's partition of __consumer_offsets, or the transactional id's
partition of __transaction_state.

Share groups do not exist in Kafka 3.9's ZooKeeper mode: INVALID_REQUEST.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import FindCoordinatorRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import DENIED, allowed
from broker.server.apis.context import ApiContext
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, TopicPartition

_NO_NODE: Final[Fields] = {"node_id": -1, "host": "", "port": -1}
_GROUP: Final = 0
_TRANSACTION: Final = 1
_SHARE: Final = 2
_DESCRIBED: Final[Mapping[int, ResourceType]] = {
    _GROUP: ResourceType.GROUP,
    _TRANSACTION: ResourceType.TRANSACTIONAL_ID,
}


def handle(request: Request, message: FindCoordinatorRequest, ctx: ApiContext) -> Fields:
    """One coordinator, or from version 4 on one per key, even if a key is named several times."""
    key_type = codec.get(message, "key_type", _GROUP)
    keys = codec.get(message, "coordinator_keys")
    if keys is None:
        return {"throttle_time": 0, **_coordinator(request, message.key, key_type, ctx)}
    coordinators = [{"key": key, **_coordinator(request, key, key_type, ctx)} for key in dict.fromkeys(keys)]
    return {"throttle_time": 0, "coordinators": coordinators}


def error_response(message: FindCoordinatorRequest, error: KafkaError) -> Fields:
    """The same error for every key."""
    refusal = _refusal(error.error_code, error.message)
    keys = codec.get(message, "coordinator_keys", ())
    return {
        "throttle_time": 0,
        **refusal,
        "coordinators": [{"key": key, **refusal} for key in dict.fromkeys(keys)],
    }


def _coordinator(request: Request, key: str, key_type: int, ctx: ApiContext) -> Fields:
    kind = _DESCRIBED.get(key_type)
    if kind is None:
        reason = "share groups are not supported" if key_type == _SHARE else f"unknown key type {key_type}"
        return _refusal(Errors.INVALID_REQUEST, reason)
    if not allowed(ctx, request, AclOperation.DESCRIBE, kind, key):
        return _refusal(DENIED[kind], None)
    if not ctx.metadata_cache.alive_broker_ids():
        return _refusal(Errors.COORDINATOR_NOT_AVAILABLE, "this broker does not know the cluster yet")
    of_group = key_type == _GROUP
    topic = GROUP_METADATA_TOPIC if of_group else TRANSACTION_STATE_TOPIC
    if not ctx.metadata_cache.contains(topic):
        ctx.auto_topics.ensure_internal(topic)
        return _refusal(Errors.COORDINATOR_NOT_AVAILABLE, f"{topic} is being created")
    coordinator = ctx.group_coordinator if of_group else ctx.transaction_coordinator
    partition = TopicPartition(topic, coordinator.partition_for(key))
    info = ctx.metadata_cache.partition_info(partition)
    listener = request.connection.listener_name
    endpoint = None if info is None else ctx.metadata_cache.endpoint(info.leader, listener)
    if info is None or endpoint is None:
        return _refusal(Errors.COORDINATOR_NOT_AVAILABLE, f"{partition} has no live leader")
    host, port = endpoint
    return {
        "error_code": Errors.NONE,
        "error_message": None,
        "node_id": info.leader,
        "host": host,
        "port": port,
    }


def _refusal(error: Errors, reason: str | None) -> Fields:
    return {"error_code": error, "error_message": reason, **_NO_NODE}
