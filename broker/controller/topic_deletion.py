"""Deletes topics: first the replicas on every broker, then the znodes. Kafka's TopicDeletionManager.

A topic with a replica on a dead broker cannot be deleted yet. It serves no requests and waits until the
broker is back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

import structlog

from broker.controller.office import Office
from broker.controller.partition_machine import PartitionMachine
from broker.controller.replica_machine import ReplicaMachine
from broker.controller.rules.states import PartitionState, Replica, ReplicaState

_log = structlog.get_logger(__name__)
_R = ReplicaState


class TopicDeletion:
    """The deletions in progress; Kafka's TopicDeletionManager. It runs on the controller's thread.
    ``on_deleted(topic)`` is called for each topic whose deletion is complete.
    """

    def __init__(
        self,
        office: Office,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
        on_deleted: Callable[[str], None],
    ) -> None:
        self._context = office.context
        self._store = office.store
        self._batch = office.batch
        self._partitions = partitions
        self._replicas = replicas
        self._on_deleted = on_deleted

    def enqueue(self, topics: Collection[str]) -> None:
        """Starts to delete existing topics that are marked for deletion."""
        self._context.topics_to_delete.update(topics)
        self.resume()

    def is_under_way(self, topic: str) -> bool:
        """Whether the topic's deletion is in progress and not waiting for a broker. For any thread."""
        return topic in self._context.topics_to_delete and topic not in self._context.deletion_ineligible

    def resume_for(self, topics: Iterable[str]) -> None:
        """Continues the deletion of these topics: brokers of their replicas are back."""
        back = self._context.topics_to_delete.intersection(topics)
        if back:
            self._context.deletion_ineligible -= back
            self.resume()

    def fail_replicas(self, replicas: Collection[Replica]) -> None:
        """Makes the topics wait: the replicas' brokers died, or failed to delete them."""
        failed = [r for r in replicas if self._context.is_being_deleted(r.topic)]
        started = [r for r in failed if self._context.replica_state(r) is _R.DELETION_STARTED]
        self._replicas.move(started, _R.DELETION_INELIGIBLE)
        self._mark_ineligible({replica.topic for replica in failed})

    def complete_replicas(self, replicas: Collection[Replica]) -> None:
        """Called when the brokers have deleted the replicas."""
        done = [r for r in replicas if self._context.replica_state(r) is _R.DELETION_STARTED]
        self._replicas.move(done, _R.DELETION_SUCCESSFUL)
        self.resume()

    def resume(self) -> None:
        """Starts every deletion that can start, and completes every deletion whose replicas are all gone."""
        startable = []
        for topic in sorted(self._context.topics_to_delete):
            states = {self._context.replica_state(r) for r in self._replicas_of(topic)}
            if states <= {_R.DELETION_SUCCESSFUL}:
                self._complete(topic)
            elif _R.DELETION_STARTED not in states and topic not in self._context.deletion_ineligible:
                startable.append(topic)
        if startable:
            self._start(startable)

    def _replicas_of(self, topic: str) -> list[Replica]:
        return self._context.replicas_of(self._context.partitions([topic]))

    def _start(self, topics: Collection[str]) -> None:
        """Informs clients first, so that they stop sending requests; then the brokers delete."""
        partitions = list(self._context.partitions(topics))
        unseen = [p for p in partitions if self._context.state(p) is not PartitionState.NON_EXISTENT]
        self._partitions.to_offline(unseen)
        self._partitions.to_non_existent(unseen)
        self._batch.update_metadata_everywhere(partitions)
        self._batch.flush()
        for topic in topics:
            self._start_replicas(topic)

    def _start_replicas(self, topic: str) -> None:
        pending = [
            r
            for r in self._replicas_of(topic)
            if self._context.replica_state(r) is not _R.DELETION_SUCCESSFUL
        ]
        dead = [r for r in pending if not self._context.is_online(r, even_shutting_down=True)]
        alive = [r for r in pending if r not in set(dead)]
        self._replicas.to_offline(pending)
        self._replicas.move(dead, _R.DELETION_INELIGIBLE)
        if dead:
            self._mark_ineligible({topic})
        self._replicas.to_deletion_started(alive)

    def _mark_ineligible(self, topics: Collection[str]) -> None:
        newly = self._context.topics_to_delete.intersection(topics) - self._context.deletion_ineligible
        if newly:
            self._context.deletion_ineligible |= newly
            _log.warning(
                "topic_deletion_waits",
                topics=sorted(newly),
                reason="a replica's broker is down",
                action="it goes on when the broker is back",
            )

    def _complete(self, topic: str) -> None:
        replicas = self._replicas_of(topic)
        self._replicas.move(replicas, _R.NON_EXISTENT)
        partitions = sorted(self._context.topics[topic].partitions)
        self._store.delete_topic(topic, partitions)
        self._context.remove_topic(topic)
        self._context.topics_to_delete.discard(topic)
        self._context.deletion_ineligible.discard(topic)
        self._on_deleted(topic)
        _log.info("topic_deleted", topic=topic, partitions=len(partitions))
