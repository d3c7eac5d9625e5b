"""ListTransactions: the transactional ids that this broker coordinates."""

from __future__ import annotations

from typing import Final

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.listed import Listed
from broker.protocol.requests import ListTransactionsRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed_names
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext

_ANY_DURATION: Final = -1


def handle(request: Request, message: ListTransactionsRequest, ctx: ApiContext) -> Fields:
    listed = ctx.transaction_coordinator.list_transactions(
        message.producer_id_filters,
        message.state_filters,
        codec.get(message, "duration_filter", _ANY_DURATION),
    )
    names = (overview.transactional_id for overview in listed.transactions)
    seen = allowed_names(ctx, request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, names)
    overviews = [overview for overview in listed.transactions if overview.transactional_id in seen]
    size = sum(ROW_BYTES + text_bytes(overview.transactional_id) for overview in overviews)
    budget = AnswerBudget(request, ctx.config.int(SETTING))
    refusal = budget.refusal(size, f"{len(overviews)} transactional ids")
    if refusal is not Errors.NONE:
        return _refused(refusal)
    elements = [
        codec.encode_element(
            request.api_key,
            request.api_version,
            "transaction_states",
            {
                "transactional_id": overview.transactional_id,
                "producer_id": overview.producer_id,
                "transaction_state": overview.state,
            },
        )
        for overview in overviews
    ]
    around = {
        "throttle_time": 0,
        "error_code": listed.error,
        "unknown_state_filters": list(listed.unknown_states),
    }
    return Listed(around, "transaction_states", elements)


def error_response(_message: ListTransactionsRequest, error: KafkaError) -> Fields:
    return _refused(error.error_code)


def _refused(error: Errors) -> Fields:
    return {"error_code": error, "unknown_state_filters": [], "transaction_states": []}
