"""InitProducerId: a producer id and epoch for an idempotent producer, or for a transactional id."""

from __future__ import annotations

from functools import partial
from typing import Final

from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.coordinator.transaction.transaction_coordinator import InitProducerId, InitProducerIdResult
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import InitProducerIdRequest
from broker.record.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed, cluster_allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.producer_fenced import answered

_FENCED_KNOWN_FROM: Final = 4


def handle(request: Request, message: InitProducerIdRequest, ctx: ApiContext) -> Fields | None:
    """A new producer id with epoch 0, or for a transactional id the next epoch. Responds later if a block must
    first be requested from the controller, or when the epoch is stored.
    """
    transactional_id = message.transactional_id
    if transactional_id is None:
        if not _may_be_idempotent(request, ctx):
            return _fields(Errors.CLUSTER_AUTHORIZATION_FAILED)
    elif not allowed(ctx, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _fields(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    expected = ProducerIdAndEpoch(
        codec.get(message, "producer_id", NO_PRODUCER_ID),
        codec.get(message, "producer_epoch", NO_PRODUCER_EPOCH),
    )
    if (expected.producer_id == NO_PRODUCER_ID) != (expected.epoch == NO_PRODUCER_EPOCH):
        return _fields(Errors.INVALID_REQUEST)
    if transactional_id is None:
        ctx.producer_ids.take(partial(_taken, request, ctx))
        return None

    def stored(result: InitProducerIdResult) -> None:
        error = answered(result.error, request.api_version, _FENCED_KNOWN_FROM)
        ctx.respond(request, _fields(error, *result.producer))

    ctx.transaction_coordinator.init_producer_id(
        InitProducerId(
            transactional_id,
            codec.to_ms(message.transaction_timeout),
            None if expected.producer_id == NO_PRODUCER_ID else expected,
            stored,
        )
    )
    return None


def error_response(_message: InitProducerIdRequest, error: KafkaError) -> Fields:
    return _fields(error.error_code)


def _taken(request: Request, ctx: ApiContext, taken: int | KafkaError) -> None:
    if isinstance(taken, KafkaError):
        ctx.respond(request, _fields(taken.error_code))
    else:
        ctx.respond(request, _fields(Errors.NONE, taken, 0))


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
