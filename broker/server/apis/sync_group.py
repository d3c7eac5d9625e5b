"""SyncGroup: responds when the group's leader has sent the assignments."""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.messages import SyncRequest, SyncResult
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import SyncGroupRequest
from broker.server.apis.context import ApiContext

_PROTOCOL_NEEDED_FROM: Final = 5  # KIP-559


def handle(request: Request, message: SyncGroupRequest, ctx: ApiContext) -> Fields | None:
    """Responds when the leader's assignment is stored."""
    protocol_type = codec.get(message, "protocol_type")
    protocol_name = codec.get(message, "protocol_name")
    if request.api_version >= _PROTOCOL_NEEDED_FROM and (protocol_type is None or protocol_name is None):
        return _fields(SyncResult(Errors.INCONSISTENT_GROUP_PROTOCOL))
    sync = SyncRequest(
        member_id=message.member_id,
        generation_id=message.generation_id,
        group_instance_id=codec.get(message, "group_instance_id"),
        protocol_type=protocol_type,
        protocol_name=protocol_name,
        assignments={one.member_id: one.assignment for one in message.assignments},
        respond=lambda result: ctx.respond(request, _fields(result)),
    )
    ctx.group_coordinator.sync(message.group_id, sync)
    return None


def error_response(_message: SyncGroupRequest, error: KafkaError) -> Fields:
    return _fields(SyncResult(error.error_code))


def _fields(result: SyncResult) -> Fields:
    return {
        "error_code": result.error,
        "protocol_type": result.protocol_type,
        "protocol_name": result.protocol_name,
        "assignment": result.assignment,
    }
