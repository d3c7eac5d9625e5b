"""LeaderAndIsr, StopReplica and UpdateMetadata: the controller's word, in one shape for all their versions."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import structlog

from broker.cluster.partition_state import PartitionState
from broker.network.request_channel import Request
from broker.protocol import codec
from broker.protocol.codec import ZERO_UUID
from broker.protocol.errors import Errors, KafkaError
from broker.replication.leadership import StopState, UntoldError
from broker.server.apis.context import ApiContext
from broker.server.metadata_cache import BrokerInfo, MetadataUpdate, PartitionInfo
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
UNKNOWN_EPOCH = -1


def require_fresh_broker_epoch(message: Any, ctx: ApiContext) -> None:
    """Raises STALE_BROKER_EPOCH for a request to an earlier life of this broker (KIP-380)."""
    epoch = codec.get(message, "broker_epoch", UNKNOWN_EPOCH)
    current = ctx.broker_epoch()
    if epoch != UNKNOWN_EPOCH and epoch < current:
        raise KafkaError(Errors.STALE_BROKER_EPOCH, f"request for broker epoch {epoch}, now {current}")


def log_refused(error: KafkaError) -> None:
    """Of a request of which nothing is done."""
    _log.warning("controller_request_refused", error=error.error_code.name, reason=error.message)


def leader_and_isr(request: Request, message: Any, ctx: ApiContext) -> Mapping[str, Any] | None:
    """Applies the leaders; answers an error per partition, by topic id from version 5 on.

    None, and the connection is closed, where the store does not say what decides. No controller, Kafka's neither, gives
    an order again that was answered with a partition's error, and each does so where no answer came, until this
    broker's session ends.
    """
    try:
        require_fresh_broker_epoch(message, ctx)
        states = list(partition_states(message))
        results = ctx.leadership.apply(message.controller_epoch, states)
    except KafkaError as error:
        log_refused(error)
        return {"error_code": error.error_code, "partition_errors": [], "topics": []}
    except UntoldError as error:
        _log.warning(
            "leader_and_isr_not_answered",
            reason=str(error),
            action="connection closed; the controller sends it again until ZooKeeper says which topic there is",
        )
        request.close_connection()
        return None
    topics: dict[uuid.UUID, list[Mapping[str, Any]]] = {}
    errors = []
    for state in states:
        topic, index = state.topic_partition
        outcome = {
            "topic_name": topic,
            "partition_index": index,
            "error_code": results[state.topic_partition],
        }
        errors.append(outcome)
        topics.setdefault(state.topic_id or ZERO_UUID, []).append(outcome)
    by_topic = [{"topic_id": topic_id, "partition_errors": rows} for topic_id, rows in topics.items()]
    return {"error_code": Errors.NONE, "partition_errors": errors, "topics": by_topic}


def partition_states(message: Any) -> Iterator[PartitionState]:
    """The states of a LeaderAndIsr request, grouped by topic or not."""
    for topic in codec.get(message, "topic_states", ()):
        for state in topic.partition_states:
            yield _partition_state(topic.topic_name, codec.get(topic, "topic_id"), state)
    for state in codec.get(message, "ungrouped_partition_states", ()):
        yield _partition_state(state.topic_name, None, state)


def _partition_state(topic: str, topic_id: uuid.UUID | None, state: Any) -> PartitionState:
    return PartitionState(
        TopicPartition(topic, state.partition_index),
        topic_id,
        state.controller_epoch,
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        state.partition_epoch,
        tuple(state.replicas),
        tuple(codec.get(state, "adding_replicas", ())),
        tuple(codec.get(state, "removing_replicas", ())),
        bool(codec.get(state, "is_new", False)),
        codec.get(state, "leader_recovery_state", 0),
    )


def stop_replica(_request: Request, message: Any, ctx: ApiContext) -> Mapping[str, Any]:
    """Stops and deletes replicas; an error per partition."""
    try:
        require_fresh_broker_epoch(message, ctx)
        results = ctx.leadership.stop(message.controller_epoch, list(stop_states(message)))
    except KafkaError as error:
        log_refused(error)
        return {"error_code": error.error_code, "partition_errors": []}
    errors = [
        {"topic_name": topic, "partition_index": index, "error_code": error}
        for (topic, index), error in results.items()
    ]
    return {"error_code": Errors.NONE, "partition_errors": errors}


def stop_states(message: Any) -> Iterator[StopState]:
    """The partitions of a StopReplica request; before version 3 one flag says for all whether to delete."""
    for topic in codec.get(message, "topic_states", ()):
        for state in topic.partition_states:
            topic_partition = TopicPartition(topic.topic_name, state.partition_index)
            yield StopState(topic_partition, state.leader_epoch, state.delete_partition)
    delete = bool(codec.get(message, "delete_partitions", False))
    for topic in codec.get(message, "topics", ()):
        for index in topic.partition_indexes:
            yield StopState(TopicPartition(topic.name, index), UNKNOWN_EPOCH, delete)
    for partition in codec.get(message, "ungrouped_partitions", ()):
        topic_partition = TopicPartition(partition.topic_name, partition.partition_index)
        yield StopState(topic_partition, UNKNOWN_EPOCH, delete)


def update_metadata(request: Request, message: Any, ctx: ApiContext) -> Mapping[str, Any]:
    """Takes the controller's view of the cluster."""
    try:
        require_fresh_broker_epoch(message, ctx)
        update = _metadata_update(message, request)
        with ctx.leadership.obeying(message.controller_epoch):
            before = set(ctx.metadata_cache.alive_broker_ids())
            deleted = ctx.metadata_cache.update(update)
    except KafkaError as error:
        log_refused(error)
        return {"error_code": error.error_code}
    for topic in {topic_partition.topic for topic_partition in deleted}:
        if not ctx.metadata_cache.contains(topic):
            ctx.group_coordinator.on_topic_deleted(topic)
    after = set(ctx.metadata_cache.alive_broker_ids())
    if before != after:
        _log.info("live_brokers_changed", before=sorted(before), after=sorted(after))
        ctx.replica_manager.on_brokers_changed()
    return {"error_code": Errors.NONE}


def _metadata_update(message: Any, request: Request) -> MetadataUpdate:
    topics = codec.get(message, "topic_states", ())
    partitions = [
        (topic.topic_name, _partition_info(state)) for topic in topics for state in topic.partition_states
    ]
    partitions += [
        (state.topic_name, _partition_info(state))
        for state in codec.get(message, "ungrouped_partition_states", ())
    ]
    topic_ids = {topic.topic_name: topic_id for topic in topics if (topic_id := codec.get(topic, "topic_id"))}
    brokers = [_broker_info(broker, request) for broker in message.live_brokers]
    return MetadataUpdate(message.controller_id, brokers, topic_ids, partitions)


def _partition_info(state: Any) -> PartitionInfo:
    offline = tuple(codec.get(state, "offline_replicas", ()))
    return PartitionInfo(
        state.partition_index,
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        offline,
    )


def _broker_info(broker: Any, request: Request) -> BrokerInfo:
    endpoints = codec.get(broker, "endpoints")
    if endpoints is None:  # version 0 knows one address
        return BrokerInfo(broker.id_, {request.connection.listener_name: (broker.v0_host, broker.v0_port)})
    by_listener = {
        codec.get(endpoint, "listener") or "PLAINTEXT": (endpoint.host, endpoint.port)
        for endpoint in endpoints
    }
    return BrokerInfo(broker.id_, by_listener, codec.get(broker, "rack"))
