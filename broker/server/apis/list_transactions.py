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
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext

_ANY_DURATION: Final = -1
_DESCRIBE: Final = AclOperation.DESCRIBE
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID


def handle(request: Request, message: ListTransactionsRequest, ctx: ApiContext) -> Fields:
    listed = ctx.transaction_coordinator.list_transactions(
        message.producer_id_filters,
        message.state_filters,
        codec.get(message, "duration_filter", _ANY_DURATION),
    )
    access = ctx.access
    budget = AnswerBudget(request, ctx.config.int(SETTING))
    elements: list[bytes] = []
    for overview in listed.transactions:
        name = overview.transactional_id
        if access is not None and not access.allows(request, _DESCRIBE, _TRANSACTIONAL_ID, name, told=False):
            continue
        # At the first one without room the rest is not looked at: it may be hundreds of thousands.
        refusal = budget.refusal(ROW_BYTES + text_bytes(name), f"transactional id {len(elements) + 1}")
        if refusal is not Errors.NONE:
            return _refused(refusal)
        elements.append(
            codec.encode_element(
                request.api_key,
                request.api_version,
                "transaction_states",
                {
                    "transactional_id": name,
                    "producer_id": overview.producer_id,
                    "transaction_state": overview.state,
                },
            )
        )
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
