"""LeaderAndIsr, StopReplica and UpdateMetadata: the controller's requests, in one form for all
their versions.
"""

from __future__ import annotations

from typing import Any

import structlog

from broker.network.request_channel import Request
from broker.protocol.control_messages import (
    ControlResponse,
    LeaderAndIsrRequest,
    MetadataUpdate,
    ReplicaError,
    StopReplicaRequest,
)
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.replication.leadership import UntoldError
from broker.server.apis.context import ApiContext

_log = structlog.get_logger(__name__)


def leader_and_isr(request: Request, message: Any, ctx: ApiContext) -> Fields | None:
    """Applies the leaders; responds with an error per partition.

    Returns None and closes the connection if the result depends on which topic exists now, and the store did
    not tell. No controller, including Kafka's, repeats a request that was answered with an error for a
    partition. Every controller repeats it when there was no response, until this broker's session ends.
    """
    order = LeaderAndIsrRequest.of(message)
    try:
        _require_fresh(order.broker_epoch, ctx)
        results = ctx.leadership.apply(order.controller_epoch, order.roles)
    except KafkaError as error:
        return _refused(error).leader_and_isr_fields()
    except UntoldError as error:
        _log.warning(
            "leader_and_isr_not_answered",
            reason=str(error),
            action="connection closed; the controller sends it again until ZooKeeper says which topic there is",
        )
        request.close_connection()
        return None
    rows = [
        ReplicaError(topic, role.topic_id, index, results[role.topic_partition])
        for role in order.roles
        for topic, index in (role.topic_partition,)
    ]
    return ControlResponse(Errors.NONE, rows).leader_and_isr_fields()


def stop_replica(_request: Request, message: Any, ctx: ApiContext) -> Fields:
    """Stops and deletes replicas; responds with an error per partition."""
    order = StopReplicaRequest.of(message)
    try:
        _require_fresh(order.broker_epoch, ctx)
        results = ctx.leadership.stop(order.controller_epoch, order.states)
    except KafkaError as error:
        return _refused(error).stop_replica_fields()
    rows = [ReplicaError(topic, None, index, error) for (topic, index), error in results.items()]
    return ControlResponse(Errors.NONE, rows).stop_replica_fields()


def update_metadata(request: Request, message: Any, ctx: ApiContext) -> Fields:
    """Applies the controller's view of the cluster."""
    update = MetadataUpdate.of(message, request.connection.listener_name)
    try:
        _require_fresh(update.broker_epoch, ctx)
        with ctx.leadership.obeying(update.controller_epoch):
            before = set(ctx.metadata_cache.alive_broker_ids())
            deleted = ctx.metadata_cache.update(update)
    except KafkaError as error:
        return _refused(error).update_metadata_fields()
    after = set(ctx.metadata_cache.alive_broker_ids())
    if before != after:
        _log.info("live_brokers_changed", before=sorted(before), after=sorted(after))
        ctx.replica_manager.on_brokers_changed()
    if deleted:  # before the answer: the controller says of a new topic of the same name afterwards
        ctx.group_coordinator.on_partitions_deleted(deleted)
    return ControlResponse(Errors.NONE).update_metadata_fields()


def _require_fresh(broker_epoch: int, ctx: ApiContext) -> None:
    """Raises STALE_BROKER_EPOCH for a request to an earlier process of this broker (KIP-380)."""
    current = ctx.broker_epoch()
    if broker_epoch != NO_EPOCH and broker_epoch < current:
        raise KafkaError(Errors.STALE_BROKER_EPOCH, f"request for broker epoch {broker_epoch}, now {current}")


def _refused(error: KafkaError) -> ControlResponse:
    """The response to a request that was not carried out."""
    _log.warning("controller_request_refused", error=error.error_code.name, reason=error.message)
    return ControlResponse(error.error_code)
