"""DescribeTransactions: the state, producer and partitions of transactional ids that this broker coordinates."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from broker.coordinator.transaction.describe import TransactionDescription
from broker.coordinator.transaction.partitions import count
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.listed import Listed
from broker.protocol.requests import DescribeTransactionsRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed, allowed_names
from broker.server.apis.answer_budget import ROW_BYTES, SETTING, AnswerBudget, text_bytes
from broker.server.apis.context import ApiContext

_DENIED: Final = TransactionDescription(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
_PARTITION_BYTES: Final = 4


def handle(request: Request, message: DescribeTransactionsRequest, ctx: ApiContext) -> Fields:
    """Describes each transactional id once, even if it is named several times."""
    budget = AnswerBudget(request, ctx.config.int(SETTING), later=Errors.COORDINATOR_LOAD_IN_PROGRESS)
    elements = []
    for name in dict.fromkeys(message.transactional_ids):
        description = _DENIED
        if allowed(ctx, request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name):
            description = ctx.transaction_coordinator.describe(name)
            error = budget.refusal(_size(description), f"transactional id {name}")
            if error is not Errors.NONE:
                description = TransactionDescription(error)
        shown = allowed_names(ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, description.partitions)
        element = _state(name, description, shown)
        elements.append(
            codec.encode_element(request.api_key, request.api_version, "transaction_states", element)
        )
    return Listed({"throttle_time": 0}, "transaction_states", elements)


def error_response(message: DescribeTransactionsRequest, error: KafkaError) -> Fields:
    refused = TransactionDescription(error.error_code)
    names = dict.fromkeys(message.transactional_ids)
    return {"transaction_states": [_state(name, refused, set()) for name in names]}


def _size(description: TransactionDescription) -> int:
    topics = sum(ROW_BYTES + text_bytes(topic) for topic in description.partitions)
    return ROW_BYTES + topics + _PARTITION_BYTES * count(description.partitions)


def _state(name: str, description: TransactionDescription, shown: set[str]) -> Fields:
    return {
        "error_code": description.error,
        "transactional_id": name,
        "transaction_state": description.state,
        "transaction_timeout": description.timeout_ms,
        # As a datetime, because the codec takes a negative number for no time at all; Kafka sends -1.
        "transaction_start_time": datetime.fromtimestamp(description.start_ms / 1_000, UTC),
        "producer_id": description.producer_id,
        "producer_epoch": description.producer_epoch,
        "topics": [
            {"topic": topic, "partitions": sorted(numbers)}
            for topic, numbers in description.partitions.items()
            if topic in shown
        ],
    }
