"""Checks what may be created: names, numbers and assignments of topics and partitions. Pure. Refusals
are KafkaErrors.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property

from broker.config.topic_name import topic_name_problem
from broker.protocol.errors import Errors, KafkaError

Assignment = Mapping[int, tuple[int, ...]]
# The limit of Kafka's KRaft controller for one request. A typing error must not fill disks and memory.
MAX_NEW_PARTITIONS = 10_000


class TopicNames:
    """The existing topics of a snapshot. They are looked up by name, and by their form in metric names."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)

    def __contains__(self, topic: str) -> bool:
        return topic in self._names

    def alike(self, topic: str) -> list[str]:
        """Existing topics that differ from ``topic`` only in '.' and '_'."""
        return sorted(other for other in self._by_plain.get(_plain(topic), ()) if other != topic)

    @cached_property
    def _by_plain(self) -> Mapping[str, Sequence[str]]:
        found: dict[str, list[str]] = {}
        for name in self._names:
            found.setdefault(_plain(name), []).append(name)
        return found


def _plain(topic: str) -> str:
    return topic.replace(".", "_")


def check_name(topic: str, existing: TopicNames) -> None:
    """Raises INVALID_TOPIC_EXCEPTION, also for a name that differs from an existing one only in '.' and '_'.

    Metric names have '_' in place of '.', so two such topics would collide.
    """
    problem = topic_name_problem(topic)
    if problem is not None:
        raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic {topic[:300]!r}: {problem}")
    if "." not in topic and "_" not in topic:
        return
    collisions = existing.alike(topic)
    if collisions:
        raise KafkaError(
            Errors.INVALID_TOPIC_EXCEPTION,
            f"topic '{topic}' collides with existing topics: {', '.join(collisions)} "
            "('.' and '_' are one in metric names)",
        )


def check_request(partitions: Iterable[int]) -> None:
    """Raises POLICY_VIOLATION if the topics of a request have far too many new partitions in total."""
    total = sum(max(count, 0) for count in partitions)
    if total > MAX_NEW_PARTITIONS:
        raise KafkaError(
            Errors.POLICY_VIOLATION,
            f"{total} partitions are more than one request may make, {MAX_NEW_PARTITIONS}: "
            "make them by several requests if they are really wanted",
        )


def check_counts(partitions: int, replication_factor: int, brokers: int) -> None:
    """Raises INVALID_PARTITIONS, POLICY_VIOLATION for far too many, or INVALID_REPLICATION_FACTOR."""
    if partitions <= 0:
        raise KafkaError(
            Errors.INVALID_PARTITIONS, f"number of partitions {partitions} must be larger than 0"
        )
    if partitions > MAX_NEW_PARTITIONS:
        raise KafkaError(
            Errors.POLICY_VIOLATION,
            f"{partitions} partitions are more than one request may make, {MAX_NEW_PARTITIONS}: "
            "add them by several requests if they are really wanted",
        )
    if replication_factor <= 0:
        raise KafkaError(
            Errors.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} must be larger than 0",
        )
    if replication_factor > brokers:
        raise KafkaError(
            Errors.INVALID_REPLICATION_FACTOR,
            f"replication factor {replication_factor} is larger than the number of live brokers, {brokers}: "
            "start more brokers or ask for fewer replicas",
        )


def check_new_assignment(assignment: Assignment, brokers: Collection[int]) -> None:
    """Checks a manual assignment of a whole topic. Raises INVALID_REPLICA_ASSIGNMENT."""
    if sorted(assignment) != list(range(len(assignment))):
        _refuse(f"partitions {sorted(assignment)} are not numbered from 0 without gaps")
    sizes = {len(replicas) for replicas in assignment.values()}
    if len(sizes) != 1:
        _refuse(f"all partitions must have the same number of replicas, not {sorted(sizes)}")
    check_replicas(assignment.values(), brokers, sizes.pop())


def check_replicas(
    replica_lists: Iterable[Sequence[int]], brokers: Collection[int], replication_factor: int
) -> None:
    """Raises INVALID_REPLICA_ASSIGNMENT."""
    for replicas in replica_lists:
        if not replicas:
            _refuse("a partition needs a replica")
        if len(set(replicas)) != len(replicas):
            _refuse(f"replicas {list(replicas)} name a broker twice")
        if len(replicas) != replication_factor:
            _refuse(
                f"replicas {list(replicas)} are {len(replicas)}, the topic's other partitions "
                f"have {replication_factor}"
            )
        unknown = sorted(set(replicas) - set(brokers))
        if unknown:
            _refuse(f"brokers {unknown} are not registered; {sorted(brokers)} are")


def check_partition_count(present: int, wanted: int) -> None:
    """Raises INVALID_PARTITIONS: partitions are only ever added."""
    if wanted < present:
        raise KafkaError(
            Errors.INVALID_PARTITIONS,
            f"the topic has {present} partitions, which is more than the {wanted} asked for; "
            "partitions cannot be taken away",
        )
    if wanted == present:
        raise KafkaError(Errors.INVALID_PARTITIONS, f"the topic has {present} partitions already")


def _refuse(message: str) -> None:
    raise KafkaError(Errors.INVALID_REPLICA_ASSIGNMENT, message)
