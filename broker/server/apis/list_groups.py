"""ListGroups: the groups that this broker coordinates."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import ListGroupsRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed_names, cluster_allowed
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext


def handle(request: Request, message: ListGroupsRequest, ctx: ApiContext) -> Fields:
    error, overviews = ctx.group_coordinator.list_groups(
        codec.get(message, "states_filter", ()), codec.get(message, "types_filter", ())
    )
    # Whoever may describe the cluster sees all groups; others see those that they may describe.
    if not cluster_allowed(ctx, request, AclOperation.DESCRIBE, told=False):
        names = (overview.group_id for overview in overviews)
        seen = allowed_names(ctx, request, AclOperation.DESCRIBE, ResourceType.GROUP, names)
        overviews = [overview for overview in overviews if overview.group_id in seen]
    size = sum(
        ROW_BYTES + text_bytes(overview.group_id) + text_bytes(overview.protocol_type)
        for overview in overviews
    )
    refusal = AnswerBudget(request, ctx.config.int(SETTING)).refusal(size, f"{len(overviews)} groups")
    if refusal is not Errors.NONE:
        return {"error_code": refusal, "groups": []}
    groups = [
        {
            "group_id": overview.group_id,
            "protocol_type": overview.protocol_type,
            "group_state": overview.state,
            "group_type": overview.kind,
        }
        for overview in overviews
    ]
    return {"error_code": error, "groups": groups}


def error_response(_message: ListGroupsRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code, "groups": []}
