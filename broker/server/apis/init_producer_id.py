"""InitProducerId for idempotent producers. Transactional ids are refused: there is no transaction
coordinator yet.
"""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import InitProducerIdRequest
from broker.server.apis.context import ApiContext


def handle(request: Request, message: InitProducerIdRequest, ctx: ApiContext) -> Fields | None:
    """A new producer id with epoch 0. Responds later if a block must first be requested
    from the controller.
    """
    if message.transactional_id is not None:
        return _fields(Errors.UNSUPPORTED_VERSION)

    def answer(taken: int | KafkaError) -> None:
        if isinstance(taken, KafkaError):
            ctx.respond(request, _fields(taken.error_code))
        else:
            ctx.respond(request, _fields(Errors.NONE, taken, 0))

    ctx.producer_ids.take(answer)
    return None


def _fields(error: Errors, producer_id: int = -1, producer_epoch: int = -1) -> Fields:
    return {
        "error_code": error,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
