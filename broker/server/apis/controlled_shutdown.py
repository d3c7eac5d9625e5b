"""ControlledShutdown: the controller's response to a broker that is about to stop."""

from __future__ import annotations

from functools import partial

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import ControlledShutdownRequest
from broker.server.apis.context import ApiContext


def handle(request: Request, message: ControlledShutdownRequest, ctx: ApiContext) -> Fields | None:
    broker_epoch = codec.get(message, "broker_epoch", NO_EPOCH)
    ctx.controller.controlled_shutdown(message.broker_id, broker_epoch, partial(ctx.respond, request))
    return None


def error_response(_message: ControlledShutdownRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code, "remaining_partitions": []}
