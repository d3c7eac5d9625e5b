"""ControlledShutdown: the controller's answer to a broker that is about to stop."""

from __future__ import annotations

from functools import partial

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import ControlledShutdownRequest
from broker.server.apis.context import ApiContext

UNKNOWN_EPOCH = -1


def handle(request: Request, message: ControlledShutdownRequest, ctx: ApiContext) -> Fields | None:
    broker_epoch = codec.get(message, "broker_epoch", UNKNOWN_EPOCH)
    ctx.controller.controlled_shutdown(message.broker_id, broker_epoch, partial(ctx.respond, request))
    return None


def error_response(_message: ControlledShutdownRequest, error: KafkaError) -> Fields:
    return refused_whole(error.error_code)


def refused_whole(code: Errors) -> Fields:
    """The answer to a request of which nothing is done."""
    return {"error_code": code, "remaining_partitions": []}
