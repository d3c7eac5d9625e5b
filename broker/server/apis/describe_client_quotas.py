"""DescribeClientQuotas (KIP-546, KIP-612): the quotas in the store that match a filter."""

from __future__ import annotations

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.listed import Listed
from broker.protocol.requests import DescribeClientQuotasRequest
from broker.quotas.described import Described, Filter, FilterError, described, parse_filter
from broker.quotas.entities import IPS
from broker.server.apis.answer_budget import SETTING, AnswerBudget
from broker.server.apis.context import ApiContext
from broker.zookeeper import quota_nodes


def handle(request: Request, message: DescribeClientQuotasRequest, ctx: ApiContext) -> Fields | None:
    try:
        asked = parse_filter(
            [(each.entity_type, each.match_type, each.match) for each in message.components],
            strict=message.strict,
        )
    except FilterError as error:
        code = Errors.UNSUPPORTED_VERSION if error.unsupported else Errors.INVALID_REQUEST
        raise KafkaError(code, str(error)) from error
    budget = AnswerBudget(request, ctx.config.int(SETTING))
    elements = []
    for entry in _matching(asked, ctx):
        element = codec.encode_element(request.api_key, request.api_version, "entries", _fields(entry))
        refusal = budget.refusal(len(element), "an entity with its quotas")
        if refusal is not Errors.NONE:
            raise KafkaError(refusal, f"the answer would take more than {SETTING}: ask for fewer entities")
        elements.append(element)
    return Listed({"error_code": Errors.NONE, "error_message": None}, "entries", elements)


def error_response(message: DescribeClientQuotasRequest, error: KafkaError) -> Fields:
    return {"error_code": error.error_code, "error_message": error.message, "entries": None}


def _matching(asked: Filter, ctx: ApiContext) -> list[Described]:
    paths = [
        path
        for path in quota_nodes.entity_paths(ctx.store)
        if (asked.of_ips if path.startswith(f"{IPS}/") else asked.of_clients)
    ]
    matching = []
    for path, config in quota_nodes.entity_configs(ctx.store, paths).items():
        try:
            entry = described(path, config)
        except ValueError as error:
            raise KafkaError(
                Errors.UNKNOWN_SERVER_ERROR, f"/config/{path} has a value that is no number: {error}"
            ) from error
        if entry is not None and asked.covers(entry.entity):
            matching.append(entry)
    return matching


def _fields(entry: Described) -> Fields:
    return {
        "entity": [{"entity_type": type_, "entity_name": name} for type_, name in entry.entity.items()],
        "values": [{"key": key, "value": value} for key, value in sorted(entry.values.items())],
    }
