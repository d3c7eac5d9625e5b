"""Heartbeat: a consumer's most frequent request, answered at once."""

from __future__ import annotations

from broker.coordinator.group.messages import MemberIdentity
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import HeartbeatRequest
from broker.server.apis.context import ApiContext


def handle(_request: Request, message: HeartbeatRequest, ctx: ApiContext) -> Fields:
    identity = MemberIdentity(message.member_id, codec.get(message, "group_instance_id"))
    error = ctx.group_coordinator.heartbeat(message.group_id, identity, message.generation_id)
    return {"error_code": error}


def error_response(_message: HeartbeatRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code}
