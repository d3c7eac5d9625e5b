"""JoinGroup: responds when the members of the next generation are known."""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.messages import JoinRequest, JoinResult
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import JoinGroupRequest
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext

_KNOWN_MEMBER_ID_FROM: Final = 4  # KIP-394
_NULLABLE_PROTOCOL_FROM: Final = 7
_SKIP_ASSIGNMENT_FROM: Final = 9  # KIP-814


def is_dear(message: JoinGroupRequest, ctx: ApiContext) -> bool:
    """Whether the broker assigns the group's partitions, among all of its members: a consumer group (KIP-848), which
    members of the classic protocol may join.
    """
    return ctx.group_coordinator.consumers.has(message.group_id)


def handle(request: Request, message: JoinGroupRequest, ctx: ApiContext) -> None:
    """Responds when the group has its next generation, or at once with an error for the member."""
    version = request.api_version
    client_id = request.client_id or ""
    instance_id = codec.get(message, "group_instance_id")
    session_timeout_ms = codec.to_ms(message.session_timeout)
    rebalance_timeout = codec.get(message, "rebalance_timeout")
    join = JoinRequest(
        member_id=message.member_id,
        new_member_id=ctx.group_coordinator.new_member_id(client_id, instance_id),
        group_instance_id=instance_id,
        client_id=client_id,
        client_host=f"/{request.connection.client_address}",
        # Version 0 has one time-out for both purposes.
        rebalance_timeout_ms=session_timeout_ms if version == 0 else codec.to_ms(rebalance_timeout),
        session_timeout_ms=session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple({protocol.name: protocol.metadata for protocol in message.protocols}.items()),
        respond=lambda result: ctx.respond(request, _fields(_within(request, result, ctx), version)),
        require_known_member_id=version >= _KNOWN_MEMBER_ID_FROM and instance_id is None,
        supports_skipping_assignment=version >= _SKIP_ASSIGNMENT_FROM,
    )
    ctx.group_coordinator.join(message.group_id, join)


def _within(request: Request, result: JoinResult, ctx: ApiContext) -> JoinResult:
    """The result, or an error if its members' data exceed a response's limit: the leader can rejoin as often
    as it likes.
    """
    if not result.members:
        return result
    size = sum(
        ROW_BYTES + text_bytes(m.member_id) + text_bytes(m.group_instance_id) + len(m.metadata)
        for m in result.members
    )
    budget = AnswerBudget(request, ctx.config.int(SETTING), alone=Errors.GROUP_MAX_SIZE_REACHED)
    error = budget.refusal(size, f"what {len(result.members)} members say of themselves")
    return result if error is Errors.NONE else JoinResult(result.member_id, error)


def error_response(message: JoinGroupRequest, error: KafkaError) -> Fields:
    return _fields(JoinResult(message.member_id, error.error_code), 0)


def _fields(result: JoinResult, version: int) -> Fields:
    protocol_name = result.protocol_name
    if protocol_name is None and version < _NULLABLE_PROTOCOL_FROM:
        protocol_name = ""
    return {
        "error_code": result.error,
        "generation_id": result.generation_id,
        "protocol_type": result.protocol_type,
        "protocol_name": protocol_name,
        "leader": result.leader_id,
        "skip_assignment": result.skip_assignment,
        "member_id": result.member_id,
        "members": [
            {"member_id": m.member_id, "group_instance_id": m.group_instance_id, "metadata": m.metadata}
            for m in result.members
        ],
    }
