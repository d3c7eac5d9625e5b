"""CreateTopics: each topic has its own error; responds when all created topics have leaders."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Mapping
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.config.describe import topic_entries
from broker.controller.rules.new_topic import check_request
from broker.controller.topic_admin import CreatedTopic, NewTopic, Seen, TopicAdmin
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.codec import ZERO_UUID
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.listed import Listed
from broker.protocol.requests import CreatableTopic, CreateTopicsRequest
from broker.security.acls import AclOperation, ResourceType
from broker.server.access import allowed, allowed_names, cluster_allowed
from broker.server.apis.context import ApiContext
from broker.server.apis.metadata_wait import await_led
from broker.server.apis.told_configs import ToldConfigs
from broker.utils.topic_partition import CLUSTER_METADATA_TOPIC

_UNKNOWN: Final = -1  # partitions or replicas of a topic that was not created
_A_LOOK: Final = 500  # topics, at 0.05 ms each
_STRICT_FROM: Final = 6  # KIP-599: what is above controller_mutation_rate is refused

Result = dict[str, object]
_SHOWN: Final[Result] = {}
# The principal may not see the topic's configs. As in Kafka, also in the row of a topic that is refused.
_HIDDEN: Final[Result] = {"topic_config_error_code": Errors.TOPIC_AUTHORIZATION_FAILED}
_told = ToldConfigs("topics")


def handle(request: Request, message: CreateTopicsRequest, ctx: ApiContext) -> Fields | None:
    quota = ctx.quotas.of_mutations(request, strict_from=_STRICT_FROM)
    if not ctx.controller.is_active:
        refusal = KafkaError(Errors.NOT_CONTROLLER, f"broker {ctx.broker_id} is not the controller")
        return error_response(message, refusal)
    usual = ctx.dynamic_config.config.int("num.partitions")
    check_request(_partitions_of(topic, usual) for topic in message.topics)
    names = Counter(topic.name for topic in message.topics)
    validate_only = bool(codec.get(message, "validate_only", False))
    # For one topic there is nothing to save. For several, refused topics are not delayed and cause no
    # new reads.
    creates_all = cluster_allowed(ctx, request, AclOperation.CREATE, told=False)
    told_of = [name for name in names if name != CLUSTER_METADATA_TOPIC]
    described = allowed_names(ctx, request, AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, told_of)
    looks = _Looks(ctx.topic_admin) if validate_only or len(message.topics) > 1 else None
    results: dict[str, bytes] = {}
    created: dict[str, int] = {}
    ids: dict[str, uuid.UUID] = {}
    for topic in message.topics:
        if topic.name in results:
            continue  # named more than once: it already has its error
        if topic.name == CLUSTER_METADATA_TOPIC:
            # Whoever asks, and however often: as in Kafka.
            error = KafkaError(Errors.INVALID_REQUEST, "this is the name of KRaft's log, not of a topic")
            results[topic.name] = _encoded(request, _refused(topic.name, error))
            continue
        try:
            if names[topic.name] > 1:
                raise KafkaError(Errors.INVALID_REQUEST, "the request names this topic more than once")
            if not creates_all and not allowed(
                ctx, request, AclOperation.CREATE, ResourceType.TOPIC, topic.name
            ):
                raise KafkaError(Errors.TOPIC_AUTHORIZATION_FAILED)
            new = _new_topic(topic)
            if looks:
                outcome = looks.validate(new, aged=len(created))
            if not validate_only:
                outcome = ctx.topic_admin.create_topic(new, spend=quota.record)
            if topic.name in described:
                results[topic.name] = _created(request, topic.name, outcome, ctx)
            else:
                results[topic.name] = _encoded(request, _undescribed(topic.name, outcome))
            created[topic.name] = outcome.partitions
            ids[topic.name] = outcome.topic_id or ZERO_UUID
        except KafkaError as error:
            refused = _refused(topic.name, error) | (_SHOWN if topic.name in described else _HIDDEN)
            results[topic.name] = _encoded(request, refused)
    if validate_only or not created:
        return _listed(message, results)

    def finish(late: set[str]) -> None:
        for name in late:
            error = KafkaError(Errors.REQUEST_TIMED_OUT, "the topic was created, but has no leaders yet")
            results[name] = _encoded(request, _refused(name, error) | {"topic_id": ids[name]})
        ctx.respond(request, _listed(message, results))

    await_led(ctx, request, created, codec.to_ms(message.timeout), finish)
    return None


def error_response(message: CreateTopicsRequest, error: KafkaError) -> Fields:
    """The same error for every topic."""
    return {"topics": [_refused(topic.name, error) for topic in message.topics]}


class _Looks:
    """The cluster's state as last read, for validating many topics."""

    def __init__(self, admin: TopicAdmin) -> None:
        self._admin = admin
        self._seen: Seen | None = None
        self._left = 0
        self._aged = 0

    def validate(self, new: NewTopic, aged: int) -> CreatedTopic:
        """Like ``TopicAdmin.validate``.

        ``aged`` increases with every slow operation. State read before then must not refuse a topic, because
        meanwhile another topic may have been deleted or a broker may have joined.
        """
        seen = self._seen if self._seen and self._left else self._look(aged)
        self._left -= 1
        try:
            return self._admin.validate(new, seen)
        except KafkaError:
            if aged == self._aged:
                raise
        return self._admin.validate(new, self._look(aged))

    def _look(self, aged: int) -> Seen:
        self._seen, self._left, self._aged = self._admin.look(), _A_LOOK, aged
        return self._seen


def _new_topic(topic: CreatableTopic) -> NewTopic:
    assignment = {row.partition_index: tuple(row.broker_ids) for row in topic.assignments}
    if len(assignment) != len(topic.assignments):
        raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, "the assignment names a partition more than once")
    configs = {config.name: config.value for config in topic.configs}
    return NewTopic(topic.name, topic.num_partitions, topic.replication_factor, assignment, configs)


def _partitions_of(topic: CreatableTopic, usual: int) -> int:
    return len(topic.assignments) or (usual if topic.num_partitions < 0 else topic.num_partitions)


def _created(request: Request, name: str, topic: CreatedTopic, ctx: ApiContext) -> bytes:
    """From version 5 on the response contains the topic's configs (KIP-525), from 7 on its id."""
    config = ctx.dynamic_config.config
    values = {
        "name": name,
        "topic_id": topic.topic_id or ZERO_UUID,
        "error_code": Errors.NONE,
        "error_message": None,
        "num_partitions": topic.partitions,
        "replication_factor": topic.replication_factor,
    }
    key = tuple(sorted(topic.configs.items()))
    return _told.element(request, values, config, key, lambda: _configs(config, topic.configs)).element


def _configs(config: BrokerConfig, overrides: Mapping[str, str]) -> list[Result]:
    return [
        {
            "name": entry.key.name,
            "value": entry.value,
            "read_only": entry.read_only,
            "config_source": entry.source,
            "is_sensitive": entry.key.sensitive,
        }
        for entry in topic_entries(config, overrides, None)
    ]


def _refused(name: str, error: KafkaError) -> Result:
    return {
        "name": name,
        "topic_id": ZERO_UUID,
        "error_code": error.error_code,
        "error_message": error.message or None,
        "num_partitions": _UNKNOWN,
        "replication_factor": _UNKNOWN,
        "configs": [],
    }


def _undescribed(name: str, topic: CreatedTopic) -> Result:
    """The row of a created topic whose configs the principal may not see."""
    return {
        **_refused(name, KafkaError(Errors.NONE)),
        "topic_id": topic.topic_id or ZERO_UUID,
        **_HIDDEN,
    }


def _encoded(request: Request, result: Result) -> bytes:
    return codec.encode_element(request.api_key, request.api_version, "topics", result)


def _listed(message: CreateTopicsRequest, results: Mapping[str, bytes]) -> Fields:
    """A row for each row of the request, also for a topic that it names again."""
    return Listed({}, "topics", [results[topic.name] for topic in message.topics])
