"""AlterPartitionReassignments v0 (KIP-455): the controller begins, overrides or cancels moves of partitions."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from broker.controller.reassignment_requests import altered
from broker.network.request_channel import Request
from broker.protocol.errors import KafkaError
from broker.server.apis.context import ApiContext


def handle(request: Request, message: Any, ctx: ApiContext) -> Mapping[str, Any] | None:
    ctx.controller.alter_partition_reassignments(message, partial(ctx.respond, request))
    return None


def error_response(message: Any, error: KafkaError) -> Mapping[str, Any]:
    return altered(message, error.error_code, error.message, {})
