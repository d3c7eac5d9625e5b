"""Heartbeat: a consumer's most frequent request, answered at once."""

from __future__ import annotations

from functools import cache

from broker.coordinator.group.messages import MemberIdentity
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import HeartbeatRequest
from broker.server.apis.context import ApiContext


def handle(request: Request, message: HeartbeatRequest, ctx: ApiContext) -> bytes:
    identity = MemberIdentity(message.member_id, codec.get(message, "group_instance_id"))
    error = ctx.group_coordinator.heartbeat(message.group_id, identity, message.generation_id)
    return _answer(request.api_version, error)


@cache
def _answer(version: int, error: Errors) -> bytes:
    """The body of the response. It has only an error, so there are few of them."""
    return codec.encode(ApiKey.HEARTBEAT, version, "response", {"error_code": error})


def error_response(_message: HeartbeatRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code}
