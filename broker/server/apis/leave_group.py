"""LeaveGroup; from version 3 on for several members at once (KIP-345)."""

from __future__ import annotations

from collections.abc import Sequence

from broker.coordinator.group.messages import MemberIdentity
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import LeaveGroupRequest
from broker.server.apis.context import ApiContext


def handle(request: Request, message: LeaveGroupRequest, ctx: ApiContext) -> None:
    """Responds with the group's error and each member's. Before version 3, the one member's error is
    the group's.
    """
    batched = codec.get(message, "members")
    if batched is None:
        members = [MemberIdentity(message.member_id)]
    else:
        members = [MemberIdentity(member.member_id, member.group_instance_id) for member in batched]

    def left(error: Errors, errors: Sequence[Errors]) -> None:
        if batched is None and error is Errors.NONE:
            error = errors[0]
        ctx.respond(request, _fields(error, members, errors))

    ctx.group_coordinator.leave(message.group_id, members, left)


def error_response(_message: LeaveGroupRequest, error: KafkaError) -> Fields:
    return _fields(error.error_code, (), ())


def _fields(error: Errors, members: Sequence[MemberIdentity], errors: Sequence[Errors]) -> Fields:
    return {
        "error_code": error,
        "members": [
            {"member_id": m.member_id, "group_instance_id": m.group_instance_id, "error_code": member_error}
            for m, member_error in zip(members, errors, strict=False)
        ],
    }
