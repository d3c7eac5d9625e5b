"""AlterPartition (KIP-497, KIP-704, KIP-841, KIP-903): leaders' changes of their ISRs, for the controller."""

from __future__ import annotations

from functools import partial
from typing import Any

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.server.apis.context import ApiContext


def handle(request: Request, message: Any, ctx: ApiContext) -> Fields | None:
    ctx.controller.alter_partition(message, partial(_answer, ctx, request))
    return None


def error_response(_message: Any, error: KafkaError) -> Fields:
    return refused_whole(error.error_code)


def refused_whole(code: Errors) -> Fields:
    """The answer to a request of which nothing is done."""
    return {"throttle_time": 0, "error_code": code, "topics": []}


def _answer(ctx: ApiContext, request: Request, fields: Fields) -> None:
    ctx.respond(request, {"throttle_time": 0, **fields})
