"""DeleteTopics, by name or by id: responds when the topics are gone.

A topic with a replica on a dead broker is gone for clients; its name becomes free when the broker is back.
"""

from __future__ import annotations

import uuid
from functools import partial

from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.codec import ZERO_UUID
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import DeleteTopicsRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.metadata_wait import MetadataWait

Result = dict[str, object]
_FIRST_WITH_DELETION_DISABLED = 3
_STRICT_FROM = 5  # KIP-599: what is above controller_mutation_rate is refused


def handle(request: Request, message: DeleteTopicsRequest, ctx: ApiContext) -> Fields | None:
    quota = ctx.quotas.of_mutations(request, strict_from=_STRICT_FROM)
    if not ctx.controller.is_active:
        refusal = KafkaError(Errors.NOT_CONTROLLER, f"broker {ctx.broker_id} is not the controller")
        return error_response(message, refusal)
    wanted = _wanted(message)
    results: list[Result] = []
    marked: set[str] = set()
    for topic in wanted:
        name = _name(topic, ctx)
        result = _result(topic, Errors.NONE, None)
        results.append(result)
        try:
            _check(topic, name)
            assert name is not None
            _check_allowed(request, name, result, ctx)
            count = ctx.metadata_cache.partition_count(name) or 0
            if name not in marked:  # one that is named again is deleted once
                ctx.topic_admin.delete_topic(name, spend=partial(quota.record, count))
            result["name"] = name
            marked.add(name)
        except KafkaError as error:
            result |= {"error_code": _code(error, request.api_version), "error_message": error.message}
    if not marked:
        return _response(results)

    def is_gone(name: str) -> bool:
        return not ctx.metadata_cache.contains(name) and not ctx.controller.is_deleting(name)

    def finish() -> None:
        late = {name for name in marked if not is_gone(name)}
        for result in results:
            if result["error_code"] is Errors.NONE and result["name"] in late:
                result |= {
                    "error_code": Errors.REQUEST_TIMED_OUT,
                    "error_message": "the topic is marked for deletion, but not gone yet",
                }
        ctx.respond(request, _response(results))

    timeout_ms = codec.to_ms(message.timeout)
    MetadataWait(ctx, request, timeout_ms, lambda: all(map(is_gone, marked)), finish).start()
    return None


def error_response(message: DeleteTopicsRequest, error: KafkaError) -> Fields:
    """The same error for every topic."""
    return _response([_result(topic, error.error_code, error.message) for topic in _wanted(message)])


def _wanted(message: DeleteTopicsRequest) -> list[tuple[str | None, uuid.UUID | None]]:
    """``(name, topic id)`` of each topic; versions before 6 only have names."""
    names = codec.get(message, "topic_names")
    if names is not None:
        return [(name, None) for name in names]
    return [(topic.name, topic.topic_id) for topic in message.topics]


def _name(topic: tuple[str | None, uuid.UUID | None], ctx: ApiContext) -> str | None:
    name, topic_id = topic
    return name if topic_id is None else ctx.metadata_cache.topic_name(topic_id)


def _check(topic: tuple[str | None, uuid.UUID | None], name: str | None) -> None:
    if topic[0] is not None and topic[1] is not None:
        raise KafkaError(Errors.INVALID_REQUEST, "a topic is named by its name or by its id, not by both")
    if name is None and topic[1] is not None:
        raise KafkaError(Errors.UNKNOWN_TOPIC_ID, f"no topic has the id {topic[1]}")
    if name is None:
        raise KafkaError(Errors.INVALID_REQUEST, "neither a name nor an id is given")


def _check_allowed(request: Request, name: str, result: Result, ctx: ApiContext) -> None:
    """Raises if the principal may not delete the topic. The name of one that it named by id is told only to
    whom may describe it.
    """
    if result["name"] is None:
        if not allowed(ctx, request, AclOperation.DESCRIBE, ResourceType.TOPIC, name):
            raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED)
        result["name"] = name
    if not allowed(ctx, request, AclOperation.DELETE, ResourceType.TOPIC, name):
        raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED)


def _code(error: KafkaError, version: int) -> Errors:
    disabled = error.error_code is Errors.TOPIC_DELETION_DISABLED
    return (
        Errors.INVALID_REQUEST if disabled and version < _FIRST_WITH_DELETION_DISABLED else error.error_code
    )


def _result(topic: tuple[str | None, uuid.UUID | None], error: Errors, text: str | None) -> Result:
    name, topic_id = topic
    return {"name": name, "topic_id": topic_id or ZERO_UUID, "error_code": error, "error_message": text}


def _response(results: list[Result]) -> Fields:
    return {"responses": results}
