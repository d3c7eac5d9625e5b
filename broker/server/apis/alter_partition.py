"""AlterPartition (KIP-497, KIP-704, KIP-841, KIP-903): leaders request ISR changes from the controller."""

from __future__ import annotations

from functools import partial
from typing import Any

from broker.network.request_channel import Request
from broker.protocol.alter_partition_messages import AlterPartitionRequest, AlterPartitionResponse
from broker.protocol.errors import KafkaError
from broker.protocol.fields import Fields
from broker.server.apis.context import ApiContext


def handle(request: Request, message: Any, ctx: ApiContext) -> Fields | None:
    ctx.controller.alter_partition(AlterPartitionRequest.of(message), partial(_answer, ctx, request))
    return None


def error_response(_message: Any, error: KafkaError) -> Fields:
    return AlterPartitionResponse(error.error_code).fields()


def _answer(ctx: ApiContext, request: Request, response: AlterPartitionResponse) -> None:
    ctx.respond(request, response.fields())
