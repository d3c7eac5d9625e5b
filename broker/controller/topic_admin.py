"""Creates and deletes topics and adds partitions, on the broker that is the controller.
Kafka's ZkAdminManager.

It checks a request completely before it writes the znodes. The controller sees the znodes change and does
the rest.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import structlog

from broker.config.broker_config import BrokerConfig
from broker.config.client_floors import below_floors
from broker.config.problems import ConfigError
from broker.config.topic_config import check_topic_configs
from broker.config.topic_name import topic_name_problem
from broker.controller.rules import new_topic as topic_validation
from broker.controller.rules.placement import assign_replicas
from broker.protocol.errors import Errors, KafkaError
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.refusals import refusal_of
from broker.zookeeper.store import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    StoreError,
)
from broker.zookeeper.znodes import TopicAssignment

_log = structlog.get_logger(__name__)
BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create, as CreateTopics requests it. A number of -1 means the broker's default. With an
    ``assignment`` both numbers must be -1.
    """

    name: str
    partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignment: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic in the CreateTopics response; Kafka's CreatableTopicResult. ``topic_id`` is None if the topic
    was only validated.
    """

    topic_id: uuid.UUID | None
    partitions: int
    replication_factor: int
    configs: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Seen:
    """A snapshot of the cluster: its topics, and its live brokers with their racks."""

    topics: topic_validation.TopicNames
    racks: Mapping[int, str | None]


def _free(_partitions: int) -> None:
    """Changes that cost nothing."""


def _nothing() -> None:
    """So does a deletion."""


class TopicAdmin:
    """Creates and deletes topics and adds partitions; Kafka's ZkAdminManager. Thread-safe: changes run one
    at a time, validations in parallel. It refuses a request with a :class:`KafkaError` that has Kafka's
    error code.
    """

    def __init__(self, config: BrokerConfig, store: ClusterStore) -> None:
        self._config = config
        self._store = store
        self._lock = threading.Lock()  # lock order 14

    def update_config(self, config: BrokerConfig) -> None:
        """Applies dynamic changes of the broker's defaults."""
        self._config = config

    def create_topic(
        self, topic: NewTopic, *, validate_only: bool = False, spend: Callable[[int], None] = _free
    ) -> CreatedTopic:
        """``spend`` gets the number of partitions before they are created, and may raise KafkaError; so in
        the other methods.

        Raises INVALID_TOPIC_EXCEPTION, TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS,
        INVALID_REPLICATION_FACTOR, INVALID_REPLICA_ASSIGNMENT, INVALID_CONFIG, INVALID_REQUEST.
        """
        with self._store_answers(f"CreateTopics {topic.name}"):
            if validate_only:
                return self._validated(topic, self._look())[0]
            with self._lock:
                created, assignment = self._validated(topic, self._look())
                spend(len(assignment))
                topic_id = self._write(topic.name, assignment, created.configs)
        return replace(created, topic_id=topic_id)

    def look(self) -> Seen:
        """A snapshot of the cluster for :meth:`validate`; one snapshot serves many topics.
        Raises REQUEST_TIMED_OUT.
        """
        with self._store_answers("CreateTopics"):
            return self._look()

    def validate(self, topic: NewTopic, seen: Seen) -> CreatedTopic:
        """Returns or raises what :meth:`create_topic` would, without reading the store again and without
        waiting for a change in progress.
        """
        with self._store_answers(f"CreateTopics {topic.name}"):
            return self._validated(topic, seen)[0]

    def _look(self) -> Seen:
        return Seen(topic_validation.TopicNames(self._store.topics()), self._racks())

    def _validated(self, topic: NewTopic, seen: Seen) -> tuple[CreatedTopic, Mapping[int, tuple[int, ...]]]:
        topic_validation.check_name(topic.name, seen.topics)
        if topic.name in seen.topics:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, self._why_it_exists(topic.name))
        assignment = self._assignment_of(topic, seen.racks)
        configs = self._checked_configs(topic.name, topic.configs)
        return CreatedTopic(None, len(assignment), len(assignment[0]), configs), assignment

    def delete_topic(self, topic: str, *, spend: Callable[[], None] = _nothing) -> None:
        """Marks the topic; the controller deletes it. Raises
        UNKNOWN_TOPIC_OR_PARTITION, TOPIC_DELETION_DISABLED, and what ``spend`` raises before that.
        """
        if not self._config.bool("delete.topic.enable"):
            raise KafkaError(
                Errors.TOPIC_DELETION_DISABLED, "topics cannot be deleted here: delete.topic.enable is false"
            )
        with self._store_answers(f"DeleteTopics {topic}"), self._lock:
            # A name such as "t/partitions", or none, may be the path of another znode.
            if topic_name_problem(topic) is not None or not self._store.topic_exists(topic):
                raise _unknown(topic)
            spend()
            try:
                self._store.mark_topic_for_deletion(topic)
            except NoNodeError as error:  # the controller has just deleted it, by an earlier request
                raise _unknown(topic) from error
        _log.info("topic_marked_for_deletion", topic=topic)

    def create_partitions(
        self,
        topic: str,
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        *,
        validate_only: bool = False,
        spend: Callable[[int], None] = _free,
    ) -> None:
        """Raises the topic's number of partitions to ``count``. ``assignments`` has the replicas of the new
        partitions; None means Kafka's round-robin placement.

        Raises UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION (it is being deleted), INVALID_PARTITIONS,
        INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR, REASSIGNMENT_IN_PROGRESS.
        """
        request = f"CreatePartitions {topic}"
        with self._store_answers(request), nullcontext() if validate_only else self._lock:
            present = self._store.topic_assignment(topic)
            if present is None:
                raise _unknown(topic)
            if self._store.is_marked_for_deletion(topic):
                raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, f"topic '{topic}' is being deleted")
            if present.adding_replicas or present.removing_replicas:
                raise KafkaError(
                    Errors.REASSIGNMENT_IN_PROGRESS,
                    f"replicas of topic '{topic}' are being moved: try again later",
                )
            topic_validation.check_partition_count(len(present.partitions), count)
            added = self._added_partitions(present, count, assignments)
            if validate_only:
                return
            spend(len(added))
            extended = replace(present, partitions={**present.partitions, **added})
            try:
                self._store.set_topic_assignment(topic, extended)
            except BadVersionError as error:
                raise KafkaError(
                    Errors.INVALID_REQUEST, f"topic '{topic}' was changed at the same time: try again"
                ) from error
        _log.info("partitions_added_to_topic", topic=topic, partitions=sorted(added), total=count)

    @contextmanager
    def _store_answers(self, request: str) -> Iterator[None]:
        try:
            yield
        except StoreError as error:
            raise refusal_of(error, request=request) from error

    def _why_it_exists(self, topic: str) -> str:
        if self._store.is_marked_for_deletion(topic):
            return f"topic '{topic}' is being deleted: try again when it is gone"
        return f"topic '{topic}' already exists"

    def _racks(self) -> dict[int, str | None]:
        return {broker_id: live.registration.rack for broker_id, live in self._store.brokers().items()}

    def _assignment_of(self, topic: NewTopic, racks: Mapping[int, str | None]) -> dict[int, tuple[int, ...]]:
        if topic.assignment:
            if (topic.partitions, topic.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT):
                raise KafkaError(
                    Errors.INVALID_REQUEST,
                    "both an assignment and a number of partitions or replicas were given: leave the numbers at -1",
                )
            topic_validation.check_new_assignment(topic.assignment, racks)
            return dict(sorted(topic.assignment.items()))
        partitions = self._or_default(topic.partitions, "num.partitions")
        replication_factor = self._or_default(topic.replication_factor, "default.replication.factor")
        topic_validation.check_counts(partitions, replication_factor, len(racks))
        return assign_replicas(racks, partitions, replication_factor)

    def _or_default(self, value: int, key: str) -> int:
        return self._config.int(key) if value == BROKER_DEFAULT else value

    def _checked_configs(self, topic: str, configs: Mapping[str, str | None]) -> dict[str, str]:
        unset = sorted(name for name, value in configs.items() if value is None)
        if unset:
            raise KafkaError(Errors.INVALID_CONFIG, f"no value is given for {', '.join(unset)}")
        checked = {name: value for name, value in configs.items() if value is not None}
        try:
            self._config.topic_log_config(checked)
            problems = below_floors(self._config.static_values, check_topic_configs(checked)[0], topic)
            if problems:
                raise ConfigError(problems)
        except ConfigError as error:
            told = "; ".join(f"{problem.key}: {problem.message}" for problem in error.problems)
            raise KafkaError(Errors.INVALID_CONFIG, told) from error
        return checked

    def _write(
        self, topic: str, assignment: Mapping[int, tuple[int, ...]], configs: Mapping[str, str]
    ) -> uuid.UUID:
        try:
            topic_id = self._store.create_topic(topic, assignment, configs)
        except NodeExistsError as error:
            raise KafkaError(Errors.TOPIC_ALREADY_EXISTS, f"topic '{topic}' already exists") from error
        _log.info(
            "topic_created",
            topic=topic,
            topic_id=str(topic_id),
            partitions=len(assignment),
            replication_factor=len(assignment[0]),
            configs=dict(configs),
        )
        return topic_id

    def _added_partitions(
        self, present: TopicAssignment, count: int, assignments: Sequence[Sequence[int]] | None
    ) -> dict[int, tuple[int, ...]]:
        racks = self._racks()
        first = len(present.partitions)
        replicas_of_first = present.partitions[0]
        replication_factor = len(replicas_of_first)
        if assignments is None:
            topic_validation.check_counts(count - first, replication_factor, len(racks))
            start = next((i for i, broker in enumerate(sorted(racks)) if broker >= replicas_of_first[0]), 0)
            return assign_replicas(
                racks,
                count - first,
                replication_factor,
                first_partition=first,
                start_index=start,
                start_shift=start,
            )
        if len(assignments) != count - first:
            raise KafkaError(
                Errors.INVALID_REPLICA_ASSIGNMENT,
                f"{count - first} partitions are to be added, but {len(assignments)} assignments are given",
            )
        topic_validation.check_replicas(assignments, racks, replication_factor)
        return {first + number: tuple(replicas) for number, replicas in enumerate(assignments)}


def _unknown(topic: str) -> KafkaError:
    return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, f"topic '{topic}' does not exist")
