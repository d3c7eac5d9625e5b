"""The active controller's view of the cluster. Kafka's ControllerContext."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace

from broker.controller.rules.replica_assignment import ReplicaAssignment
from broker.controller.rules.states import (
    PartitionState,
    Replica,
    ReplicaState,
    check_partition,
    check_replica,
)
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import LeaderAndIsr, LiveBroker, TopicAssignment


class ControllerContext:
    """The active controller's view of the cluster; Kafka's ControllerContext. It lives for one term. The
    controller's thread owns it; other threads may only read copies, for the metrics and the status page.
    """

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.brokers: dict[int, LiveBroker] = {}
        self.shutting_down: set[int] = set()
        self.topics: dict[str, TopicAssignment] = {}
        #: Whether ``topics`` has all there are: each could be read when the term began.
        self.knows_all_topics = False
        self.topic_names: dict[uuid.UUID, str] = {}
        self.leaders: dict[TopicPartition, LeaderAndIsr] = {}
        self.partition_states: dict[TopicPartition, PartitionState] = {}
        self.replica_states: dict[Replica, ReplicaState] = {}
        self.failed_dirs: dict[int, set[TopicPartition]] = {}
        self.topics_to_delete: set[str] = set()
        self.deletion_ineligible: set[str] = set()

    # -- brokers

    @property
    def live_ids(self) -> set[int]:
        """Registered brokers that are not shutting down."""
        return self.brokers.keys() - self.shutting_down

    def broker_epoch(self, broker_id: int) -> int | None:
        live = self.brokers.get(broker_id)
        return None if live is None else live.epoch

    def is_online(self, replica: Replica, *, even_shutting_down: bool = False) -> bool:
        """Whether the replica's broker is registered and its log directory works."""
        broker_id = replica.broker_id
        if broker_id not in self.brokers or (broker_id in self.shutting_down and not even_shutting_down):
            return False
        return replica.topic_partition not in self.failed_dirs.get(broker_id, ())

    def online_replicas(self, partition: TopicPartition, *, even_shutting_down: bool = False) -> list[int]:
        """The ids of the online replicas, in assignment order."""
        return [
            broker_id
            for broker_id in self.replicas(partition)
            if self.is_online(Replica(partition, broker_id), even_shutting_down=even_shutting_down)
        ]

    # -- topics

    def put_topic(self, topic: str, assignment: TopicAssignment) -> list[TopicPartition]:
        """Stores a topic's assignment and returns its new partitions."""
        self.topics[topic] = assignment
        if assignment.topic_id is not None:
            self.topic_names[assignment.topic_id] = topic
        partitions = [TopicPartition(topic, number) for number in sorted(assignment.partitions)]
        return [partition for partition in partitions if partition not in self.partition_states]

    def remove_topic(self, topic: str) -> None:
        assignment = self.topics.pop(topic, None)
        if assignment is None:
            return
        if assignment.topic_id is not None:
            self.topic_names.pop(assignment.topic_id, None)
        for number, replicas in assignment.partitions.items():
            partition = TopicPartition(topic, number)
            self.leaders.pop(partition, None)
            self.partition_states.pop(partition, None)
            for broker_id in replicas:
                self.replica_states.pop(Replica(partition, broker_id), None)
                self.failed_dirs.get(broker_id, set()).discard(partition)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        assignment = self.topics.get(topic)
        return None if assignment is None else assignment.topic_id

    def replicas(self, partition: TopicPartition) -> tuple[int, ...]:
        assignment = self.topics.get(partition.topic)
        return () if assignment is None else assignment.partitions.get(partition.partition, ())

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment | None:
        """The partition's assignment, or None if the partition does not exist."""
        topic = self.topics.get(partition.topic)
        number = partition.partition
        if topic is None or number not in topic.partitions:
            return None
        adding, removing = topic.adding_replicas.get(number, ()), topic.removing_replicas.get(number, ())
        return ReplicaAssignment(topic.partitions[number], adding, removing)

    def put_assignments(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> None:
        """Sets the replicas of existing partitions. The state machines change the replicas' states."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in assignments.items():
            by_topic.setdefault(partition.topic, {})[partition.partition] = assignment
        for topic, changes in by_topic.items():
            self.topics[topic] = with_replicas(self.topics[topic], changes)

    def reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments in progress, without those of topics that are being deleted."""
        found = {}
        for topic, assignment in self.topics.items():
            if not self.is_being_deleted(topic):
                numbers = sorted({*assignment.adding_replicas, *assignment.removing_replicas})
                for partition in (TopicPartition(topic, number) for number in numbers):
                    moving = self.assignment(partition)
                    if moving is not None and moving.is_being_reassigned:
                        found[partition] = moving
        return found

    def is_being_reassigned(self, partition: TopicPartition) -> bool:
        assignment = self.assignment(partition)
        return assignment is not None and assignment.is_being_reassigned

    def partitions(self, topics: Iterable[str] | None = None) -> Iterator[TopicPartition]:
        for topic in self.topics if topics is None else topics:
            for number in self.topics[topic].partitions:
                yield TopicPartition(topic, number)

    def replicas_on(self, broker_ids: Collection[int]) -> list[Replica]:
        return [
            Replica(partition, broker_id)
            for partition in self.partitions()
            for broker_id in self.replicas(partition)
            if broker_id in broker_ids
        ]

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        return [
            Replica(partition, broker_id)
            for partition in partitions
            for broker_id in self.replicas(partition)
        ]

    def is_being_deleted(self, topic: str) -> bool:
        return topic in self.topics_to_delete

    # -- states

    def state(self, partition: TopicPartition) -> PartitionState:
        return self.partition_states.get(partition, PartitionState.NON_EXISTENT)

    def move_partition(self, partition: TopicPartition, target: PartitionState) -> None:
        """Raises :class:`~broker.controller.rules.states.StateChangeFailed`."""
        check_partition(partition, self.state(partition), target)
        if target is PartitionState.NON_EXISTENT:
            self.partition_states.pop(partition, None)
        else:
            self.partition_states[partition] = target

    def partitions_in(self, states: Collection[PartitionState]) -> list[TopicPartition]:
        return [partition for partition, state in self.partition_states.items() if state in states]

    def replica_state(self, replica: Replica) -> ReplicaState:
        return self.replica_states.get(replica, ReplicaState.NON_EXISTENT)

    def move_replica(self, replica: Replica, target: ReplicaState) -> None:
        """Raises :class:`~broker.controller.rules.states.StateChangeFailed`."""
        check_replica(replica, self.replica_state(replica), target)
        if target is ReplicaState.NON_EXISTENT:
            self.replica_states.pop(replica, None)
        else:
            self.replica_states[replica] = target

    def topic_replicas_in(self, topic: str, states: Collection[ReplicaState]) -> list[Replica]:
        return [
            replica
            for replica in self.replicas_of(self.partitions([topic]))
            if self.replica_state(replica) in states
        ]

    # -- for the metrics and the status page: called on any thread, so they look at copies

    def reassignments_copied(self) -> list[tuple[str, int, tuple[int, ...], tuple[int, ...]]]:
        """The reassignments in progress: topic, partition, adding and removing replicas."""
        return [
            (
                topic,
                number,
                assignment.adding_replicas.get(number, ()),
                assignment.removing_replicas.get(number, ()),
            )
            for topic, assignment in list(self.topics.items())
            for number in {*assignment.adding_replicas, *assignment.removing_replicas}
        ]

    def offline_partitions_count(self) -> int:
        return sum(
            1
            for partition, state in list(self.partition_states.items())
            if state in {PartitionState.OFFLINE, PartitionState.NEW}
            and partition.topic not in self.topics_to_delete
        )

    def preferred_replica_imbalance_count(self) -> int:
        return sum(
            1
            for partition, state in list(self.leaders.items())
            if (replicas := self.replicas(partition))
            and state.leader != replicas[0]
            and partition.topic not in self.topics_to_delete
        )

    def partitions_count(self) -> int:
        return len(self.partition_states)


def with_replicas(topic: TopicAssignment, changes: Mapping[int, ReplicaAssignment]) -> TopicAssignment:
    """A copy of the topic's assignment in which some partitions have other replicas."""
    partitions, adding, removing = (
        dict(topic.partitions),
        dict(topic.adding_replicas),
        dict(topic.removing_replicas),
    )
    for number, assignment in changes.items():
        partitions[number] = assignment.replicas
        for moving, ids in ((adding, assignment.adding), (removing, assignment.removing)):
            moving.pop(number, None)
            if ids:
                moving[number] = ids
    return replace(topic, partitions=partitions, adding_replicas=adding, removing_replicas=removing)


def endpoints_by_id(brokers: Mapping[int, LiveBroker], listener: str) -> dict[int, tuple[str, int]]:
    """``(host, port)`` of each broker that has the listener."""
    return {
        broker_id: (endpoint.host, endpoint.port)
        for broker_id, live in brokers.items()
        if (endpoint := live.registration.endpoint(listener)) is not None
    }
