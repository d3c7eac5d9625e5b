"""ConsumerGroupDescribe (KIP-848): the groups' epochs and members, with their assignments and targets."""

from __future__ import annotations

from typing import Final

from broker.coordinator.group.consumer.assignors import Assignment
from broker.coordinator.group.consumer.member import ConsumerMember
from broker.coordinator.group.consumer_groups import ConsumerGroupDescription
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.listed import Listed
from broker.protocol.requests import ConsumerGroupDescribeRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import NOT_ASKED, allowed, allowed_names, authorized_operations
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext

# The types of members (KIP-1099), in version 1.
_CLASSIC: Final = 0
_CONSUMER: Final = 1
_DENIED: Final = ConsumerGroupDescription(Errors.GROUP_AUTHORIZATION_FAILED)
_UNSUPPORTED: Final = ConsumerGroupDescription(Errors.UNSUPPORTED_VERSION)
_HIDDEN: Final = ConsumerGroupDescription(
    Errors.TOPIC_AUTHORIZATION_FAILED,
    "The described group uses topics that the client is not authorized to describe.",
)
_NOT_READ: Final = ConsumerGroupDescription(Errors.NONE)


def handle(request: Request, message: ConsumerGroupDescribeRequest, ctx: ApiContext) -> Fields:
    """Describes each group once, even if it is named several times."""
    consumers = ctx.group_coordinator.consumers
    budget = AnswerBudget(request, ctx.config.int(SETTING), later=Errors.COORDINATOR_LOAD_IN_PROGRESS)
    elements = []
    for group_id in dict.fromkeys(message.group_ids):
        description, operations = _DENIED, NOT_ASKED
        if not consumers.enabled:
            description = _UNSUPPORTED
        elif allowed(ctx, request, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
            # Once the response is full, further groups are not even read.
            description = _NOT_READ if budget.full else consumers.describe(group_id)
            refusal = budget.refusal(_size(description), f"group {group_id}")
            if refusal is not Errors.NONE:
                description = ConsumerGroupDescription(refusal)
            elif not _may_see(request, description, ctx):
                description = _HIDDEN
            elif message.include_authorized_operations and description.error is Errors.NONE:
                operations = authorized_operations(ctx, request, ResourceType.GROUP, group_id)
        element = _group(group_id, description, operations, ctx)
        elements.append(codec.encode_element(request.api_key, request.api_version, "groups", element))
    return Listed({"throttle_time": 0}, "groups", elements)


def error_response(message: ConsumerGroupDescribeRequest, error: KafkaError) -> Fields:
    refused = ConsumerGroupDescription(error.error_code)
    return {
        "groups": [
            _group(group_id, refused, NOT_ASKED, None) for group_id in dict.fromkeys(message.group_ids)
        ]
    }


def _may_see(request: Request, description: ConsumerGroupDescription, ctx: ApiContext) -> bool:
    """Whether the principal may describe all topics of the group, as Kafka 4 has it."""
    if ctx.access is None:
        return True
    names = {name for member, _ in description.members for name in member.topics}
    for member, target in description.members:
        ids = member.assigned.keys() | target.keys()
        names |= {name for topic_id in ids if (name := ctx.metadata_cache.topic_name(topic_id)) is not None}
    return allowed_names(ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, names) == names


def _size(description: ConsumerGroupDescription) -> int:
    """Its approximate size in the response."""
    return ROW_BYTES + sum(_member_size(member, target) for member, target in description.members)


def _member_size(member: ConsumerMember, target: Assignment) -> int:
    partitions = sum(
        ROW_BYTES + 4 * len(numbers) for one in (member.assigned, target) for numbers in one.values()
    )
    return ROW_BYTES + sum(map(text_bytes, (*member.texts, *member.subscribed_names))) + partitions


def _group(
    group_id: str, description: ConsumerGroupDescription, operations: int, ctx: ApiContext | None
) -> Fields:
    return {
        "error_code": description.error,
        "error_message": description.error_message,
        "group_id": group_id,
        "group_state": description.state,
        "group_epoch": description.epoch,
        "assignment_epoch": description.assignment_epoch,
        "assignor_name": description.assignor,
        "members": [_member(member, target, ctx) for member, target in description.members],
        "authorized_operations": operations,
    }


def _member(member: ConsumerMember, target: Assignment, ctx: ApiContext | None) -> Fields:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.member_epoch,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "subscribed_topic_names": sorted(member.subscribed_names),
        "subscribed_topic_regex": member.subscribed_regex,
        "assignment": {"topic_partitions": _assignment(member.assigned, ctx)},
        "target_assignment": {"topic_partitions": _assignment(target, ctx)},
        "member_type": _CONSUMER if member.classic is None else _CLASSIC,
    }


def _assignment(assignment: Assignment, ctx: ApiContext | None) -> list[Fields]:
    """Topics that have been deleted meanwhile are left out: they have no name."""
    return [
        {"topic_id": topic_id, "topic_name": name, "partitions": sorted(numbers)}
        for topic_id, numbers in assignment.items()
        if ctx is not None and (name := ctx.metadata_cache.topic_name(topic_id)) is not None
    ]
