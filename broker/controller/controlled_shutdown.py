"""Moves leadership from a stopping broker to other brokers (KAFKA-340; doControlledShutdown)."""

from __future__ import annotations

import structlog

from broker.controller.context import ControllerContext
from broker.controller.rules.leader_selector import Election
from broker.controller.rules.states import PartitionState, Replica, ReplicaState
from broker.controller.term import Term
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)


def controlled_shutdown(term: Term, broker_id: int, broker_epoch: int) -> list[TopicPartition]:
    """Returns the partitions that the broker still leads and that another broker may still take over.

    A partition without a live replica elsewhere cannot be moved, however long the broker waits. So the last
    broker of a cluster may stop at once, whereas Kafka lets it use up all its retries. A later epoch than the known
    one is of a broker whose new registration this controller has not seen yet. Raises :class:`KafkaError`
    BROKER_NOT_AVAILABLE or STALE_BROKER_EPOCH (KIP-380).
    """
    context = term.context
    known = context.broker_epoch(broker_id)
    if known is None:
        raise KafkaError(Errors.BROKER_NOT_AVAILABLE, f"broker {broker_id} is not registered")
    if broker_epoch != NO_EPOCH and broker_epoch < known:
        raise KafkaError(
            Errors.STALE_BROKER_EPOCH,
            f"broker {broker_id} has epoch {known}, the request says {broker_epoch}",
        )
    context.shutting_down.add(broker_id)
    movable = [
        replica.topic_partition
        for replica in context.replicas_on({broker_id})
        if _is_movable(context, replica.topic_partition)
    ]
    led = [p for p in movable if context.leaders[p].leader == broker_id]
    followed = [p for p in movable if context.leaders[p].leader != broker_id]
    if led:
        term.partitions.to_online(led, Election.CONTROLLED_SHUTDOWN)
    # The elections made it a follower of the partitions it led, and took it out of their ISRs.
    online = {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE}
    stoppable = [Replica(p, broker_id) for p in followed]
    term.replicas.to_offline(r for r in stoppable if context.replica_state(r) in online)
    remaining = [
        p for p in led if context.leaders[p].leader == broker_id and _has_other(context, p, broker_id)
    ]
    _log.info(
        "controlled_shutdown",
        broker=broker_id,
        led=len(led),
        followed=len(followed),
        remaining=[str(p) for p in remaining],
    )
    return remaining


def _is_movable(context: ControllerContext, partition: TopicPartition) -> bool:
    return (
        len(context.replicas(partition)) > 1
        and partition in context.leaders
        and context.state(partition) in {PartitionState.ONLINE, PartitionState.OFFLINE}
        and not context.is_being_deleted(partition.topic)
    )


def _has_other(context: ControllerContext, partition: TopicPartition, broker_id: int) -> bool:
    """Whether another broker has a live replica that could catch up and take over."""
    return any(other != broker_id for other in context.online_replicas(partition))
