"""CreatePartitions (KIP-195): responds when the new partitions have leaders."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Final

from broker.controller.rules.new_topic import check_request
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import CreatePartitionsRequest, CreatePartitionsTopic
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.metadata_wait import await_led
from broker.server.quotas import MutationQuota

Result = dict[str, object]
_STRICT_FROM: Final = 3  # KIP-599: what is above controller_mutation_rate is refused


def handle(request: Request, message: CreatePartitionsRequest, ctx: ApiContext) -> Fields | None:
    quota = ctx.quotas.of_mutations(request, strict_from=_STRICT_FROM)
    if not ctx.controller.is_active:
        refusal = KafkaError(Errors.NOT_CONTROLLER, f"broker {ctx.broker_id} is not the controller")
        return error_response(message, refusal)
    names = Counter(topic.name for topic in message.topics)
    denied = {
        name for name in names if not allowed(ctx, request, AclOperation.ALTER, ResourceType.TOPIC, name)
    }
    known = ctx.metadata_cache.partition_count
    check_request(
        topic.count - (known(topic.name) or 0) for topic in message.topics if topic.name not in denied
    )
    results: dict[str, Result] = {}
    extended: dict[str, int] = {}
    for topic in message.topics:
        try:
            if names[topic.name] > 1:
                raise KafkaError(Errors.INVALID_REQUEST, "the request names this topic more than once")
            if topic.name in denied:
                raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED)
            _extend(topic, ctx, quota, validate_only=message.validate_only)
            results[topic.name] = _result(topic.name, Errors.NONE, None)
            extended[topic.name] = topic.count
        except KafkaError as error:
            results[topic.name] = _result(topic.name, error.error_code, error.message)
    if message.validate_only or not extended:
        return _response(results)

    def finish(late: set[str]) -> None:
        for name in late:
            text = "the partitions were added, but have no leaders yet"
            results[name] = _result(name, Errors.REQUEST_TIMED_OUT, text)
        ctx.respond(request, _response(results))

    await_led(ctx, request, extended, codec.to_ms(message.timeout), finish)
    return None


def error_response(message: CreatePartitionsRequest, error: KafkaError) -> Fields:
    """The same error for every topic."""
    return _response({t.name: _result(t.name, error.error_code, error.message) for t in message.topics})


def _extend(
    topic: CreatePartitionsTopic, ctx: ApiContext, quota: MutationQuota, *, validate_only: bool
) -> None:
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(assignment.broker_ids) for assignment in topic.assignments]
    ctx.topic_admin.create_partitions(
        topic.name, topic.count, assignments, validate_only=validate_only, spend=quota.record
    )


def _result(name: str, error: Errors, text: str | None) -> Result:
    return {"name": name, "error_code": error, "error_message": text}


def _response(results: Mapping[str, Result]) -> Fields:
    return {"results": list(results.values())}
