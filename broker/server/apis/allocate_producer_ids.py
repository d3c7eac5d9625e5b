"""AllocateProducerIds (KIP-730): a broker requests its next thousand producer ids from the controller."""

from __future__ import annotations

from functools import partial

from broker.network.request_channel import Request
from broker.protocol.errors import KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import AllocateProducerIdsRequest
from broker.server.apis.context import ApiContext


def handle(request: Request, message: AllocateProducerIdsRequest, ctx: ApiContext) -> Fields | None:
    answer = partial(_answer, ctx, request)
    ctx.controller.allocate_producer_ids(message.broker_id, message.broker_epoch, answer)
    return None


def error_response(_message: AllocateProducerIdsRequest, error: KafkaError) -> Fields:
    return {
        "error_code": error.error_code,
        "producer_id_start": 0,
        "producer_id_len": 0,
    }


def _answer(ctx: ApiContext, request: Request, fields: Fields) -> None:
    ctx.respond(request, fields)
