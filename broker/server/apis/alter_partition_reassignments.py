"""AlterPartitionReassignments (KIP-455): the controller starts, overrides or
cancels partition reassignments.
"""

from __future__ import annotations

from typing import Final

from broker.controller.reassignment_requests import Refused, altered
from broker.network.request_channel import Request
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import AlterPartitionReassignmentsRequest
from broker.server.apis.context import ApiContext

_MOST_HERE: Final = 512  # partitions whose response is built on the controller's thread


def handle(request: Request, message: AlterPartitionReassignmentsRequest, ctx: ApiContext) -> Fields | None:
    many = sum(len(topic.partitions) for topic in message.topics) > _MOST_HERE

    def answer(outcome: Refused | Errors) -> None:
        def tell() -> None:
            if isinstance(outcome, Errors):
                ctx.respond(request, altered(message, outcome, None, {}))
            else:
                ctx.respond(request, altered(message, Errors.NONE, None, outcome))

        if not (many and ctx.submit_for(request, tell, dear=True)):
            tell()

    ctx.controller.alter_partition_reassignments(message, answer)
    return None


def error_response(message: AlterPartitionReassignmentsRequest, error: KafkaError) -> Fields:
    return altered(message, error.error_code, error.message, {})
