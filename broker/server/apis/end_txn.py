"""EndTxn: commits or aborts a transaction."""

from __future__ import annotations

from typing import Final

from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import EndTxnRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.producer_fenced import answered

_FENCED_KNOWN_FROM: Final = 2


def handle(request: Request, message: EndTxnRequest, ctx: ApiContext) -> Fields | None:
    """Responds when the decision is stored; the markers are written afterwards."""
    transactional_id = message.transactional_id
    if not allowed(ctx, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return {"error_code": Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}

    def ended(error: Errors) -> None:
        told = answered(error, request.api_version, _FENCED_KNOWN_FROM)
        ctx.respond(request, {"error_code": told})

    producer = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)
    ctx.transaction_coordinator.end(transactional_id, producer, message.committed, ended)
    return None


def error_response(_message: EndTxnRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code}
