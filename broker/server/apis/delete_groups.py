"""DeleteGroups: deletes groups without members, and their offsets; each group has its own error."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from functools import partial

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import DeleteGroupsRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext


def handle(request: Request, message: DeleteGroupsRequest, ctx: ApiContext) -> Fields | None:
    """Responds when every group has its tombstones or its error."""
    group_ids: list[str] = []
    denied: dict[str, Errors] = {}
    for group_id in dict.fromkeys(message.groups_names):
        if allowed(ctx, request, AclOperation.DELETE, ResourceType.GROUP, group_id):
            group_ids.append(group_id)
        else:
            denied[group_id] = Errors.GROUP_AUTHORIZATION_FAILED
    if not group_ids:
        return _fields(denied)
    results: dict[str, Errors] = {}
    lock = threading.Lock()  # lock order 72

    def deleted(group_id: str, error: Errors) -> None:
        with lock:
            results[group_id] = error
            complete = len(results) == len(group_ids)
        if complete:
            ctx.respond(request, _fields(results | denied))

    for group_id in group_ids:
        ctx.group_coordinator.delete(group_id, partial(deleted, group_id))
    return None


def error_response(message: DeleteGroupsRequest, error: KafkaError) -> Fields:
    return _fields(dict.fromkeys(message.groups_names, error.error_code))


def _fields(results: Mapping[str, Errors]) -> Fields:
    return {
        "results": [{"group_id": group_id, "error_code": error} for group_id, error in results.items()],
    }
