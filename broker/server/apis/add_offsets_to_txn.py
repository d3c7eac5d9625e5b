"""AddOffsetsToTxn: the producer will commit offsets of a group in its transaction, so the group's partition of
__consumer_offsets becomes a part of it.
"""

from __future__ import annotations

from typing import Final

from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import AddOffsetsToTxnRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.producer_fenced import answered
from broker.utils.topic_partition import GROUP_METADATA_TOPIC

_FENCED_KNOWN_FROM: Final = 2


def handle(request: Request, message: AddOffsetsToTxnRequest, ctx: ApiContext) -> Fields | None:
    """Responds when the change is stored."""
    transactional_id, group_id = message.transactional_id, message.group_id
    if not allowed(ctx, request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return _fields(Errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    if not allowed(ctx, request, AclOperation.READ, ResourceType.GROUP, group_id):
        return _fields(Errors.GROUP_AUTHORIZATION_FAILED)

    def added(error: Errors) -> None:
        ctx.respond(request, _fields(answered(error, request.api_version, _FENCED_KNOWN_FROM)))

    ctx.transaction_coordinator.add_partitions(
        transactional_id,
        ProducerIdAndEpoch(message.producer_id, message.producer_epoch),
        {GROUP_METADATA_TOPIC: frozenset({ctx.group_coordinator.partition_for(group_id)})},
        added,
    )
    return None


def error_response(_message: AddOffsetsToTxnRequest, error: KafkaError) -> Fields:
    return _fields(error.error_code)


def _fields(error: Errors) -> Fields:
    return {"error_code": error}
