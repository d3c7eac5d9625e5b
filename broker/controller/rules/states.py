"""The states of partitions and replicas in the controller, and the transitions between them. Pure.

Partitions (Kafka's PartitionStateMachine)::

    NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> NON_EXISTENT        (NEW may also go OFFLINE)

Replicas (Kafka's ReplicaStateMachine)::

    NON_EXISTENT -> NEW -> ONLINE <-> OFFLINE -> DELETION_STARTED -> DELETION_SUCCESSFUL -> NON_EXISTENT
                                         ^             |
                                         +-- DELETION_INELIGIBLE (a broker is down; retried when it is back)
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from broker.utils.topic_partition import TopicPartition


class Replica(NamedTuple):
    """One copy of a partition."""

    topic_partition: TopicPartition
    broker_id: int

    @property
    def topic(self) -> str:
        return self.topic_partition.topic


class PartitionState(Enum):
    """The state of a partition. NEW has an assignment but no leader yet, ONLINE has a leader, OFFLINE lost
    its leader.
    """

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"


class ReplicaState(Enum):
    """The state of a replica. DELETION_INELIGIBLE waits for its broker."""

    NON_EXISTENT = "non-existent"
    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETION_STARTED = "deletion started"
    DELETION_SUCCESSFUL = "deletion successful"
    DELETION_INELIGIBLE = "deletion ineligible"


_P, _R = PartitionState, ReplicaState

PARTITION_PREDECESSORS: Mapping[PartitionState, frozenset[PartitionState]] = {
    _P.NEW: frozenset({_P.NON_EXISTENT}),
    _P.ONLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.OFFLINE: frozenset({_P.NEW, _P.ONLINE, _P.OFFLINE}),
    _P.NON_EXISTENT: frozenset({_P.OFFLINE}),
}

REPLICA_PREDECESSORS: Mapping[ReplicaState, frozenset[ReplicaState]] = {
    _R.NEW: frozenset({_R.NON_EXISTENT}),
    _R.ONLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.OFFLINE: frozenset({_R.NEW, _R.ONLINE, _R.OFFLINE, _R.DELETION_INELIGIBLE}),
    _R.DELETION_STARTED: frozenset({_R.OFFLINE}),
    _R.DELETION_SUCCESSFUL: frozenset({_R.DELETION_STARTED}),
    _R.DELETION_INELIGIBLE: frozenset({_R.OFFLINE, _R.DELETION_STARTED}),
    _R.NON_EXISTENT: frozenset({_R.DELETION_SUCCESSFUL}),
}


class StateChangeFailed(Exception):
    """A transition that is not allowed: a bug in the controller. Kafka's StateChangeFailedException."""


def check_partition(partition: TopicPartition, before: PartitionState, after: PartitionState) -> None:
    """Raises :class:`StateChangeFailed`."""
    if before not in PARTITION_PREDECESSORS[after]:
        raise StateChangeFailed(f"partition {partition} is {before.value} and cannot become {after.value}")


def check_replica(replica: Replica, before: ReplicaState, after: ReplicaState) -> None:
    """Raises :class:`StateChangeFailed`."""
    if before not in REPLICA_PREDECESSORS[after]:
        raise StateChangeFailed(
            f"replica of {replica.topic_partition} on broker {replica.broker_id} is {before.value} "
            f"and cannot become {after.value}"
        )
