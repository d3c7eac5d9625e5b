"""InitProducerId for idempotent producers. Transactional ones are refused: there is no transaction coordinator yet."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import InitProducerIdRequest
from broker.record.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from broker.server.apis.context import ApiContext


def handle(request: Request, message: InitProducerIdRequest, ctx: ApiContext) -> Fields | None:
    """A new producer id in epoch 0; answered later where a block must be asked of the controller."""
    if message.transactional_id is not None:
        return _fields(Errors.UNSUPPORTED_VERSION)

    def answer(taken: int | KafkaError) -> None:
        if isinstance(taken, KafkaError):
            ctx.respond(request, _fields(taken.error_code))
        else:
            ctx.respond(request, _fields(Errors.NONE, taken, 0))

    ctx.producer_ids.take(answer)
    return None


def _fields(
    error: Errors, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
) -> Fields:
    return {
        "throttle_time": 0,
        "error_code": error,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
