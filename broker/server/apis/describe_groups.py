"""DescribeGroups: the groups' state, protocol and members, with each member's subscription and assignment."""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.describe import UNKNOWN_GROUP, GroupDescription, MemberDescription
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.listed import Listed
from broker.protocol.requests import DescribeGroupsRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import NOT_ASKED, allowed, authorized_operations
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext

_DENIED: Final = GroupDescription(Errors.GROUP_AUTHORIZATION_FAILED)


def handle(request: Request, message: DescribeGroupsRequest, ctx: ApiContext) -> Fields:
    """Describes each group once, even if it is named several times."""
    asked = codec.get(message, "include_authorized_operations", False)
    budget = AnswerBudget(request, ctx.config.int(SETTING), later=Errors.COORDINATOR_LOAD_IN_PROGRESS)
    elements = []
    for group_id in dict.fromkeys(message.groups):
        description, operations = _DENIED, NOT_ASKED
        if allowed(ctx, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            description = _within(budget, group_id, ctx)
            if asked and description.error is Errors.NONE:
                operations = authorized_operations(ctx, request, ResourceType.GROUP, group_id)
        element = _group(group_id, description, operations)
        elements.append(codec.encode_element(request.api_key, request.api_version, "groups", element))
    return Listed({"throttle_time": 0}, "groups", elements)


def _within(budget: AnswerBudget, group_id: str, ctx: ApiContext) -> GroupDescription:
    """The group's description, or its error if the response has no room for it."""
    # Once the response is full, further groups are not even read.
    description = UNKNOWN_GROUP if budget.full else ctx.group_coordinator.describe(group_id)
    error = budget.refusal(_size(description), f"group {group_id}")
    return description if error is Errors.NONE else GroupDescription(error)


def _size(description: GroupDescription) -> int:
    """Its approximate size in the response, without the group's name, which took as much in the request."""
    texts = text_bytes(description.protocol_type) + text_bytes(description.protocol)
    return ROW_BYTES + texts + sum(map(_member_size, description.members))


def _member_size(member: MemberDescription) -> int:
    names = (member.member_id, member.group_instance_id, member.client_id, member.client_host)
    return ROW_BYTES + sum(map(text_bytes, names)) + len(member.metadata) + len(member.assignment)


def error_response(message: DescribeGroupsRequest, error: KafkaError) -> Fields:
    refused = GroupDescription(error.error_code)
    return {
        "throttle_time": 0,
        "groups": [_group(group_id, refused, NOT_ASKED) for group_id in dict.fromkeys(message.groups)],
    }


def _group(
    group_id: str,
    description: GroupDescription,
    operations: int,
) -> Fields:
    return {
        "error_code": description.error,
        "group_id": group_id,
        "group_state": description.state,
        "protocol_type": description.protocol_type,
        "protocol_data": description.protocol,
        "members": [_member(member) for member in description.members],
        "authorized_operations": operations,
    }


def _member(member: MemberDescription) -> Fields:
    return {
        "member_id": member.member_id,
        "group_instance_id": member.group_instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "member_metadata": member.metadata,
        "member_assignment": member.assignment,
    }
