"""InitProducerId for idempotent producers. Transactional ids are refused: there is no transaction
coordinator yet.
"""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import InitProducerIdRequest
from broker.record.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed, cluster_allowed
from broker.server.apis.context import ApiContext


def handle(request: Request, message: InitProducerIdRequest, ctx: ApiContext) -> Fields | None:
    """A new producer id with epoch 0. Responds later if a block must first be requested
    from the controller.
    """
    transactional_id = message.transactional_id
    if transactional_id is not None:
        may_write = allowed(ctx, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)
        error = Errors.UNSUPPORTED_VERSION if may_write else Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        return _fields(error)
    if not _may_be_idempotent(request, ctx):
        return _fields(Errors.CLUSTER_AUTHORIZATION_FAILED)

    def answer(taken: int | KafkaError) -> None:
        if isinstance(taken, KafkaError):
            ctx.respond(request, _fields(taken.error_code))
        else:
            ctx.respond(request, _fields(Errors.NONE, taken, 0))

    ctx.producer_ids.take(answer)
    return None


def _may_be_idempotent(request: Request, ctx: ApiContext) -> bool:
    """Whoever may write any topic may write it idempotently (KIP-679)."""
    access = ctx.access
    return (
        access is None
        or cluster_allowed(ctx, request, AclOperation.IDEMPOTENT_WRITE, told=False)
        or access.allows_any(request, AclOperation.WRITE, ResourceType.TOPIC)
    )


def _fields(
    error: Errors, producer_id: int = NO_PRODUCER_ID, producer_epoch: int = NO_PRODUCER_EPOCH
) -> Fields:
    return {
        "error_code": error,
        "producer_id": producer_id,
        "producer_epoch": producer_epoch,
    }
