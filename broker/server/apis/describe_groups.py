"""DescribeGroups, versions 0 to 5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from broker.coordinator.group.describe import GroupDescription, MemberDescription
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.server.apis.context import ApiContext

_NOT_ASKED: Final = -(1 << 31)
# Without an authorizer everything may be done that can be done to a group: bits 3 READ, 6 DELETE, 8 DESCRIBE.
_ALL_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8


def handle(_request: Request, message: Any, ctx: ApiContext) -> Mapping[str, Any]:
    asked = codec.get(message, "include_authorized_operations", False)
    return {
        "throttle_time": 0,
        "groups": [
            _group(group_id, ctx.group_coordinator.describe(group_id), asked) for group_id in message.groups
        ],
    }


def error_response(message: Any, error: KafkaError) -> Mapping[str, Any]:
    refused = GroupDescription(error.error_code)
    return {"throttle_time": 0, "groups": [_group(group_id, refused, False) for group_id in message.groups]}


def _group(
    group_id: str,
    description: GroupDescription,
    asked: bool,
) -> Mapping[str, Any]:
    return {
        "error_code": description.error,
        "group_id": group_id,
        "group_state": description.state,
        "protocol_type": description.protocol_type,
        "protocol_data": description.protocol,
        "members": [_member(member) for member in description.members],
        "authorized_operations": _ALL_OPERATIONS
        if asked and description.error is Errors.NONE
        else _NOT_ASKED,
    }


def _member(member: MemberDescription) -> Mapping[str, Any]:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
