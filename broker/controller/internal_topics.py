"""Raises the replication factor of internal topics that were created when the cluster was too small for it.

The first consumer of a cluster with one broker creates ``__consumer_offsets`` with one replica. Kafka would
refuse to create it, or leave it at one replica for ever. When brokers have joined, the active controller adds
replicas by a reassignment. Existing replicas keep their order, so no leader moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence

import structlog

from broker.controller.context import ControllerContext
from broker.controller.reassignment import Reassignments
from broker.controller.rules.replica_assignment import ReplicaAssignment
from broker.controller.settings import RAISE_INTERNAL_TOPICS, ControllerSettings
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)


def added_replicas(
    assignment: Mapping[int, Sequence[int]], racks: Mapping[int, str | None], factor: int
) -> dict[int, tuple[int, ...]]:
    """New replica lists for the partitions with fewer than ``factor`` replicas, as far as there are
    brokers. Pure.

    ``racks`` maps the live brokers to their racks, which count only if every broker has one. A rack without a
    replica of the partition is preferred, then the broker with the fewest replicas of the topic, then the
    lowest id.
    """
    load = Counter(broker_id for replicas in assignment.values() for broker_id in replicas)
    aware = None not in racks.values()
    raised = {}
    for number, present in sorted(assignment.items()):
        replicas = list(present)
        while len(replicas) < factor and (fresh := sorted(racks.keys() - set(replicas))):
            used = {racks[broker_id] for broker_id in replicas if broker_id in racks} if aware else set()
            chosen = min(fresh, key=lambda b: (aware and racks[b] in used, load[b], b))
            replicas.append(chosen)
            load[chosen] += 1
        if len(replicas) > len(present):
            raised[number] = tuple(replicas)
    return raised


class InternalTopics:
    """The check that raises the replication factor of internal topics. It runs on the controller's thread.
    ``later(delay_ms, key, action)`` enqueues a delayed event.
    """

    def __init__(
        self,
        context: ControllerContext,
        reassignments: Reassignments,
        settings: Callable[[], ControllerSettings],
        later: Callable[[int, Hashable, Callable[[], None]], None],
    ) -> None:
        self._context = context
        self._reassignments = reassignments
        self._settings = settings
        self._later = later
        self._is_due = False

    def check_later(self) -> None:
        """Schedules a check after brokers joined or an internal topic was created. The delay lets brokers
        that join together be handled together.
        """
        settings = self._settings()
        if settings.raise_internal_topics and not self._is_due:
            self._is_due = True
            self._later(settings.internal_topics_delay_ms, "internal_topics", self._check)

    def _check(self) -> None:
        self._is_due = False
        if not self._settings().raise_internal_topics:
            return
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        for topic, factor in self._settings().internal_topic_factors.items():
            if topic in self._context.topics and not self._context.is_being_deleted(topic):
                moves |= self._moves(topic, factor)
        if moves:
            self._reassignments.start(moves)

    def _moves(self, topic: str, factor: int) -> dict[TopicPartition, ReplicaAssignment]:
        """The reassignments of the topic. Partitions with a dead replica are skipped: a broker that is down
        for a while is not replaced.
        """
        context = self._context
        live = context.live_ids
        present = {
            partition.partition: context.replicas(partition)
            for partition in context.partitions([topic])
            if set(context.replicas(partition)) <= live and not context.is_being_reassigned(partition)
        }
        racks = {broker_id: context.brokers[broker_id].registration.rack for broker_id in live}
        raised = added_replicas(present, racks, factor)
        if raised:
            _log.info(
                "internal_topic_replication_raised",
                topic=topic,
                partitions=len(raised),
                replicas_before=min(len(present[number]) for number in raised),
                replicas=max(len(replicas) for replicas in raised.values()),
                wanted=factor,
                live_brokers=sorted(live),
                config=RAISE_INTERNAL_TOPICS,
            )
        return {
            TopicPartition(topic, number): ReplicaAssignment(present[number]).reassign_to(replicas)
            for number, replicas in raised.items()
        }
