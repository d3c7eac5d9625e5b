"""ListPartitionReassignments (KIP-455): which partitions are being moved, as the controller knows it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from broker.controller.reassignment_requests import listed
from broker.network.request_channel import Request
from broker.protocol.errors import KafkaError
from broker.server.apis.context import ApiContext


def handle(request: Request, message: Any, ctx: ApiContext) -> Mapping[str, Any] | None:
    ctx.controller.list_partition_reassignments(message, partial(ctx.respond, request))
    return None


def error_response(_message: Any, error: KafkaError) -> Mapping[str, Any]:
    return listed(error.error_code, error.message, {})
