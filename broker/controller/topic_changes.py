"""Handles topics that are created, get more partitions, or are marked for deletion in the store."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import replace

import structlog

from broker.controller.office import Office
from broker.controller.partition_machine import PartitionMachine
from broker.controller.replica_machine import ReplicaMachine
from broker.controller.rules.leader_selector import Election
from broker.controller.settings import ControllerSettings
from broker.controller.topic_deletion import TopicDeletion
from broker.controller.watches import Watches
from broker.utils.topic_partition import INTERNAL_TOPICS, TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.store import BadVersionError, Watch
from broker.zookeeper.znodes import TopicAssignment

_log = structlog.get_logger(__name__)


class TopicChanges:
    """The controller's handling of changed topics. It runs on the controller's thread.
    ``on_internal_topic()`` is called when an internal topic was created.
    """

    def __init__(
        self,
        office: Office,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        deletion: TopicDeletion,
        *,
        watches: Watches,
        settings: Callable[[], ControllerSettings],
        on_internal_topic: Callable[[], None],
    ) -> None:
        self._context = office.context
        self._store = office.store
        self._cluster = office.cluster
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion
        self._watches = watches
        self._settings = settings
        self._on_internal_topic = on_internal_topic
        # The store's thread puts in the topics that may have changed.
        self._noticed: deque[str] = deque()

    def load(self) -> None:
        """Loads all topics at the start of a term. Each topic's watch is set before the topic is read."""
        topics = self._cluster.topics()
        for topic in topics:
            self._watch_topic(topic)
        for topic, assignment in self._cluster.topic_assignments(topics).items():
            self._context.put_topic(topic, self._with_topic_id(topic, assignment))
        self._context.knows_all_topics = len(self._context.topics) == len(topics)

    def marked_for_deletion(self) -> set[str]:
        """The topics to delete at the start of a term."""
        marked = self._cluster.topics_to_delete()
        if not self._settings().delete_topic_enable:
            self._refuse_deletions(marked)
            return set()
        return self._existing(marked)

    def _existing(self, marked: Iterable[str]) -> set[str]:
        """The marked topics that exist. Deletion marks of unknown topics are removed."""
        topics = set(marked)
        unknown = topics - self._context.topics.keys()
        for topic in sorted(unknown):
            self._store.unmark_topic_for_deletion(topic)
        return topics - unknown

    def _refuse_deletions(self, topics: Iterable[str]) -> None:
        for topic in topics:
            _log.warning("topic_deletion_refused", topic=topic, config="delete.topic.enable=false")
            self._store.unmark_topic_for_deletion(topic)

    def _with_topic_id(self, topic: str, assignment: TopicAssignment) -> TopicAssignment:
        """Gives a topic id to a topic that an old broker created without one (KIP-516)."""
        if assignment.topic_id is not None:
            return assignment
        given = replace(assignment, topic_id=znodes.random_uuid())
        try:
            return self._store.set_topic_assignment(topic, given)
        except BadVersionError:
            found = self._cluster.topic_assignment(topic)
            return assignment if found is None else self._with_topic_id(topic, found)

    def on_topics_changed(self) -> None:
        found = self._cluster.topics()
        self._forget(self._context.topics.keys() - set(found))
        new = [topic for topic in found if topic not in self._context.topics]
        for topic in new:
            self._watch_topic(topic)
        partitions: list[TopicPartition] = []
        for topic, assignment in self._cluster.topic_assignments(new).items():
            partitions += self._context.put_topic(topic, self._with_topic_id(topic, assignment))
        if partitions:
            _log.info("topics_created", topics=new, partitions=len(partitions))
            self._create_partitions(partitions)
            if INTERNAL_TOPICS.intersection(new):
                self._on_internal_topic()

    def _forget(self, missing: Iterable[str]) -> None:
        """Forgets topics whose znodes were removed by hand. A topic created later with the same name is a
        new topic.
        """
        for topic in sorted(missing):
            if self._context.is_being_deleted(topic):
                continue
            _log.warning(
                "topic_removed_by_hand",
                topic=topic,
                znode=znodes.topic_path(topic),
                action="brokers keep its files; kafka-topics.sh --delete would have removed them",
            )
            self._watches.drop(("topic", topic))
            self._context.remove_topic(topic)

    def on_known_topics_changed(self) -> None:
        """Takes up partitions that were added to known topics. All topics are read together: with a new connection
        to the store there are thousands of them, and a broker's death would wait behind them.
        """
        noticed: dict[str, None] = {}
        while self._noticed:
            noticed[self._noticed.popleft()] = None
        known = [topic for topic in noticed if topic in self._context.topics]
        partitions: list[TopicPartition] = []
        for topic, found in self._cluster.topic_assignments(known).items():
            partitions += self._added(topic, self._context.topics[topic], found)
        if partitions:
            self._create_partitions(partitions)

    def _added(self, topic: str, known: TopicAssignment, found: TopicAssignment) -> list[TopicPartition]:
        """The topic's new partitions. Known ones keep the replicas that they have here, since only this controller
        changes them.
        """
        assignment = replace(
            found,
            partitions={**found.partitions, **known.partitions},
            adding_replicas=known.adding_replicas,
            removing_replicas=known.removing_replicas,
        )
        if self._context.is_being_deleted(topic):
            _log.warning("partitions_not_added", topic=topic, reason="the topic is being deleted")
            return []
        partitions = self._context.put_topic(topic, assignment)
        if partitions:
            _log.info("partitions_added", topic=topic, partitions=[p.partition for p in partitions])
        return partitions

    def _create_partitions(self, partitions: list[TopicPartition]) -> None:
        self._partitions.to_new(partitions)
        self._replicas.to_new(self._context.replicas_of(partitions))
        self._partitions.to_online(partitions, Election.OFFLINE)
        self._replicas.to_online(self._context.replicas_of(partitions))

    def on_deletions_changed(self) -> None:
        marked = [t for t in self._cluster.topics_to_delete() if not self._context.is_being_deleted(t)]
        if not marked:
            return
        if not self._settings().delete_topic_enable:
            self._refuse_deletions(marked)
            return
        self.on_topics_changed()  # reads topics that were created and marked at once
        topics = self._existing(marked)
        _log.info("topics_to_delete", topics=sorted(topics))
        self._deletion.enqueue(topics)

    def _watch_topic(self, topic: str) -> None:
        def watch(enqueue: Callable[[], None]) -> Watch:
            def notice() -> None:
                self._noticed.append(topic)
                enqueue()

            return self._cluster.watch_topic(topic, notice)

        self._watches.put(("topic", topic), watch, self.on_known_topics_changed, event="known_topics")
