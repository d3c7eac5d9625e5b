"""ListPartitionReassignments (KIP-455): ongoing reassignments, from the controller's state."""

from __future__ import annotations

from functools import partial

from broker.controller.reassignment_requests import listed
from broker.network.request_channel import Request
from broker.protocol.errors import KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import ListPartitionReassignmentsRequest
from broker.server.apis.context import ApiContext


def handle(request: Request, message: ListPartitionReassignmentsRequest, ctx: ApiContext) -> Fields | None:
    ctx.controller.list_partition_reassignments(message, partial(ctx.respond, request))
    return None


def error_response(_message: ListPartitionReassignmentsRequest, error: KafkaError) -> Fields:
    return listed(error.error_code, error.message, {})
