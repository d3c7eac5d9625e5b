"""Metadata: brokers, topics, leaders. Encoded responses are cached (``metadata_bodies``): encoding
takes milliseconds.
"""

from __future__ import annotations

from typing import Any, Final

from broker.config.topic_name import topic_name_problem
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.codec import ZERO_UUID
from broker.protocol.control_messages import PartitionInfo
from broker.protocol.epochs import NO_CONTROLLER, NO_LEADER
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import MetadataRequest, MetadataRequestTopic
from broker.security.acls import ResourceType
from broker.server.access import NOT_ASKED, authorized_cluster_operations, authorized_operations
from broker.server.admission import RULES
from broker.server.apis.context import ApiContext
from broker.server.apis.metadata_access import may_create, visible_topics
from broker.server.apis.metadata_bodies import (
    BodyKey,
    BytesKey,
    MetadataBodies,
    MetadataTopics,
    TopicKey,
    Wanted,
)
from broker.server.apis.metadata_wait import MetadataWait
from broker.server.metadata_cache import Snapshot
from broker.utils.topic_partition import INTERNAL_TOPICS

_RULE: Final = RULES[ApiKey.METADATA]
_FIRST_UPDATE_MS: Final = 5_000
_IDS_UNUSED: Final = (10, 11)  # versions that have the field, but whose responses cannot name unknown topics
_CLUSTER_OPERATIONS: Final = range(8, 11)  # the versions that can ask for them


_bodies: MetadataBodies[BodyKey] = MetadataBodies()
_bodies_by_bytes: MetadataBodies[BytesKey] = MetadataBodies()
_topic_bytes = MetadataTopics()


def recall(request: Request, ctx: ApiContext) -> bytes | None:
    """The body that answered the same bytes before, if every principal may see it and nothing has changed since.
    Clients repeat their requests, and reading a hundred names takes longer than the rest.
    """
    if ctx.access is not None or not _is_settled(ctx):
        return None
    return _bodies_by_bytes.get(ctx.metadata_cache.snapshot, _bytes_key(request))


def _bytes_key(request: Request) -> BytesKey:
    return request.api_version, request.connection.listener_name, bytes(request.body)


def handle(request: Request, message: MetadataRequest, ctx: ApiContext) -> None:
    """Responds from the cache of encoded bodies if possible."""
    if _is_settled(ctx):
        # Larger requests come to a handler, and their bytes would take memory.
        keeps_bytes = ctx.access is None and len(request.body) <= _RULE.here_bytes
        _answer(request, message, ctx, _bytes_key(request) if keeps_bytes else None)
    else:  # starting, or a leader is gone: the controller's update comes soon
        MetadataWait(
            ctx,
            request,
            _FIRST_UPDATE_MS,
            lambda: _is_settled(ctx),
            lambda: _answer_late(request, message, ctx),
        ).start()


def _is_settled(ctx: ApiContext) -> bool:
    return _is_known(ctx) and not ctx.gone_brokers.is_word_awaited()


def _is_known(ctx: ApiContext) -> bool:
    return bool(ctx.metadata_cache.snapshot.brokers)


def _answer_late(request: Request, message: MetadataRequest, ctx: ApiContext) -> None:
    if _is_known(ctx):
        _answer(request, message, ctx)
    else:
        # If a response has no brokers, librdkafka 2.11+ drops this one for good; after a closed
        # connection, it retries.
        request.close_connection()


def _answer(
    request: Request, message: MetadataRequest, ctx: ApiContext, bytes_key: BytesKey | None = None
) -> None:
    """``bytes_key``: where :func:`recall` is to find the response."""
    if request.api_version in _IDS_UNUSED and any(_asks_by_id(topic) for topic in message.topics or ()):
        request.respond_fields(_all_refused(message))
        return
    snapshot = ctx.metadata_cache.snapshot
    listener = request.connection.listener_name
    try:
        wanted = _wanted(message, request.api_version)
    except KafkaError:
        request.respond_fields(_all_refused(message))
        return
    refused: list[Fields] = []
    if ctx.access is not None:
        wanted, refused = visible_topics.shown(request, wanted, snapshot, ctx.access)
    asks_operations = bool(codec.get(message, "include_topic_authorized_operations", False))
    operations = _cluster_operations(request, message, ctx)
    key = (request.api_version, listener, wanted, operations)
    # Operations of topics depend on the principal.
    is_shared = not (refused or asks_operations)
    body = _bodies.get(snapshot, key) if is_shared else None
    complete = body is not None
    if body is None:
        topics, complete = _topics(message, wanted, snapshot, request, ctx)
        topics += [_encode(request.api_version, row) for row in refused]
        fields = _fields(snapshot, listener, operations, ctx)
        body = codec.encode_around(request.api_key, request.api_version, fields, "topics", topics)
        if complete and is_shared:
            _bodies.put(snapshot, key, body)
    if complete and is_shared and bytes_key is not None:
        _bodies_by_bytes.put(snapshot, bytes_key, body)
    request.respond_body(body)


def _cluster_operations(request: Request, message: MetadataRequest, ctx: ApiContext) -> int:
    asked = request.api_version in _CLUSTER_OPERATIONS and message.include_cluster_authorized_operations
    return authorized_cluster_operations(ctx, request) if asked else NOT_ASKED


def _wanted(message: MetadataRequest, version: int) -> Wanted | None:
    """The requested names or ids, each once; None for all. Version 0 requests all topics with
    an empty list. Raises KafkaError INVALID_REQUEST if a topic has neither.
    """
    topics = message.topics
    if topics is None or (version == 0 and not topics):
        return None
    wanted: dict[Any, None] = dict.fromkeys(codec.get(topic, "topic_id") or topic.name for topic in topics)
    if None in wanted:
        raise KafkaError(Errors.INVALID_REQUEST, "a topic has neither name nor id")
    return tuple(wanted)


def _asks_by_id(topic: MetadataRequestTopic) -> bool:
    return topic.name is None or codec.get(topic, "topic_id") is not None


def _all_refused(message: MetadataRequest) -> Fields:
    """No brokers, and INVALID_REQUEST for each topic: so Kafka answers a request for ids that comes too early. One for
    a topic with neither name nor id gets the same.
    """
    rows: list[Fields] = [
        {
            "error_code": Errors.INVALID_REQUEST,
            "name": topic.name or "",
            "topic_id": codec.get(topic, "topic_id") or ZERO_UUID,
            "is_internal": False,
            "partitions": [],
            "topic_authorized_operations": NOT_ASKED,
        }
        for topic in message.topics or ()
    ]
    return {
        "brokers": [],
        "cluster_id": None,
        "controller_id": NO_CONTROLLER,
        "topics": rows,
        "cluster_authorized_operations": NOT_ASKED,
    }


def _fields(snapshot: Snapshot, listener: str, operations: int, ctx: ApiContext) -> Fields:
    brokers = []
    for broker in snapshot.brokers.values():
        endpoint = broker.endpoints.get(listener)
        if endpoint is not None:
            host, port = endpoint
            brokers.append({"node_id": broker.broker_id, "host": host, "port": port, "rack": broker.rack})
    return {
        "brokers": brokers,
        "cluster_id": ctx.cluster_id,
        "controller_id": ctx.metadata_cache.controller_id,
        "topics": (),
        "cluster_authorized_operations": operations,
    }


def _topics(
    message: MetadataRequest,
    wanted: Wanted | None,
    snapshot: Snapshot,
    request: Request,
    ctx: ApiContext,
) -> tuple[list[bytes], bool]:
    """The encoded topics, and whether every topic was found: only then may the body be cached."""
    asked = bool(codec.get(message, "include_topic_authorized_operations", False))
    version = request.api_version

    def known_topic(name: str) -> bytes:
        operations = authorized_operations(ctx, request, ResourceType.TOPIC, name) if asked else NOT_ASKED
        return _known_topic(name, snapshot, (version, request.connection.listener_name, name, operations))

    if wanted is None:
        return [known_topic(topic) for topic in snapshot.topics], True
    topics = []
    missing: list[str] = []
    complete = True
    for item in wanted:
        name = item if isinstance(item, str) else snapshot.topic_names.get(item)
        if name is not None and name in snapshot.topics:
            topics.append(known_topic(name))
            continue
        complete = False
        if name is None:
            unknown = {"error_code": Errors.UNKNOWN_TOPIC_ID, "name": None, "topic_id": item}
            topics.append(_encode(version, {**unknown, "is_internal": False, "partitions": []}))
            continue
        row = _missing_topic(name, missing, message, request, ctx)
        if asked and row["error_code"] is not Errors.TOPIC_AUTHORIZATION_FAILED:
            row = {
                **row,
                "topic_authorized_operations": authorized_operations(ctx, request, ResourceType.TOPIC, name),
            }
        topics.append(_encode(version, row))
    if missing:
        for internal in INTERNAL_TOPICS.intersection(missing):
            ctx.auto_topics.ensure_internal(internal)
        # The controller gets the broker's request, so the client's quota is asked here.
        quota = ctx.quotas.of_mutations(request, strict_from=0)
        ctx.auto_topics.ensure((topic for topic in missing if topic not in INTERNAL_TOPICS), quota.record)
    return topics, complete


def _missing_topic(
    name: str, missing: list[str], message: MetadataRequest, request: Request, ctx: ApiContext
) -> Fields:
    error = Errors.UNKNOWN_TOPIC_OR_PARTITION
    creates = codec.get(message, "allow_auto_topic_creation", True) and ctx.auto_topics.enabled
    if creates and not may_create(request, name, ctx.access):
        error = Errors.TOPIC_AUTHORIZATION_FAILED
    elif topic_name_problem(name) is not None:
        error = Errors.INVALID_TOPIC_EXCEPTION
    elif creates:
        missing.append(name)
        error = Errors.LEADER_NOT_AVAILABLE
    return {
        "error_code": error,
        "name": name,
        "topic_id": ZERO_UUID,
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [],
    }


def _known_topic(name: str, snapshot: Snapshot, key: TopicKey) -> bytes:
    version, listener, _, operations = key
    return _topic_bytes.get(
        snapshot, key, lambda: _encode(version, _topic(name, snapshot, listener, operations))
    )


def _encode(version: int, topic: Fields) -> bytes:
    return codec.encode_element(ApiKey.METADATA, version, "topics", topic)


def _topic(name: str, snapshot: Snapshot, listener: str, operations: int) -> Fields:
    partitions = sorted(snapshot.topics[name].values(), key=lambda info: info.partition_index)
    return {
        "error_code": Errors.NONE,
        "name": name,
        "topic_id": snapshot.topic_ids.get(name, ZERO_UUID),
        "is_internal": name in INTERNAL_TOPICS,
        "partitions": [_partition(info, snapshot, listener) for info in partitions],
        "topic_authorized_operations": operations,
    }


def _partition(info: PartitionInfo, snapshot: Snapshot, listener: str) -> Fields:
    leader = snapshot.brokers.get(info.leader)
    error = Errors.NONE
    if leader is None:
        error = Errors.LEADER_NOT_AVAILABLE
    elif listener not in leader.endpoints:
        error = Errors.LISTENER_NOT_FOUND
    return {
        "error_code": error,
        "partition_index": info.partition_index,
        "leader_id": info.leader if error is Errors.NONE else NO_LEADER,
        "leader_epoch": info.leader_epoch,
        "replica_nodes": info.replicas,
        "isr_nodes": info.isr,
        "offline_replicas": [
            replica
            for replica in info.replicas
            if replica in info.offline_replicas or replica not in snapshot.brokers
        ],
    }
