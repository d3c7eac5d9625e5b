"""CreateTopics v0 to v7: each topic has its own error; the answer waits until all that were created have
leaders.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from broker.config.describe import topic_entries
from broker.controller.topic_admin import CreatedTopic, NewTopic
from broker.controller.topic_validation import check_request
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.codec import ZERO_UUID
from broker.protocol.errors import Errors, KafkaError
from broker.server.apis.context import ApiContext
from broker.server.apis.metadata_wait import await_led

Result = dict[str, Any]


def handle(request: Request, message: Any, ctx: ApiContext) -> Mapping[str, Any] | None:
    if not ctx.controller.is_active:
        refusal = KafkaError(Errors.NOT_CONTROLLER, f"broker {ctx.broker_id} is not the controller")
        return error_response(message, refusal)
    usual = ctx.dynamic_config.config.int("num.partitions")
    check_request(_partitions_of(topic, usual) for topic in message.topics)
    names = Counter(topic.name for topic in message.topics)
    validate_only = bool(codec.get(message, "validate_only", False))
    results: dict[str, Result] = {}
    created: dict[str, int] = {}
    for topic in message.topics:
        try:
            if names[topic.name] > 1:
                raise KafkaError(Errors.INVALID_REQUEST, "the request names this topic more than once")
            outcome = ctx.topic_admin.create_topic(_new_topic(topic), validate_only=validate_only)
            results[topic.name] = _created(topic.name, outcome, ctx)
            created[topic.name] = outcome.partitions
        except KafkaError as error:
            results[topic.name] = _refused(topic.name, error)
    if validate_only or not created:
        return _response(results)

    def finish(late: set[str]) -> None:
        for name in late:
            error = KafkaError(Errors.REQUEST_TIMED_OUT, "the topic was created, but has no leaders yet")
            results[name] = _refused(name, error)
        ctx.respond(request, _response(results))

    await_led(ctx, created, codec.to_ms(message.timeout), finish)
    return None


def error_response(message: Any, error: KafkaError) -> Mapping[str, Any]:
    """The same error for every topic."""
    return _response({topic.name: _refused(topic.name, error) for topic in message.topics})


def _new_topic(topic: Any) -> NewTopic:
    assignment = {row.partition_index: tuple(row.broker_ids) for row in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, "the assignment names a partition more than once")
    configs = {config.name: config.value for config in topic.configs}
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignment, configs)


def _partitions_of(topic: Any, usual: int) -> int:
    return len(topic.assignments) or (usual if topic.num_partitions < 0 else topic.num_partitions)


def _created(name: str, topic: CreatedTopic, ctx: ApiContext) -> Result:
    """From version 5 on the answer tells the topic's configs (KIP-525), from 7 on its id."""
    entries = topic_entries(ctx.dynamic_config.config, topic.configs, None)
    return {
        "name": name,
        "topic_id": topic.topic_id or ZERO_UUID,
        "error_code": Errors.NONE,
        "error_message": None,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
        "configs": [
            {
                "name": entry.key.name,
                "value": entry.value,
                "read_only": entry.read_only,
                "config_source": entry.source,
                "is_sensitive": entry.key.sensitive,
            }
            for entry in entries
        ],
    }


def _refused(name: str, error: KafkaError) -> Result:
    return {
        "name": name,
        "topic_id": ZERO_UUID,
        "error_code": error.error_code,
        "error_message": error.message or None,
        "num_partitions": -1,
        "replication_factor": -1,
        "configs": [],
    }


def _response(results: Mapping[str, Result]) -> Mapping[str, Any]:
    return {"throttle_time": 0, "topics": list(results.values())}
