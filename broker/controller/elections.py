"""Elections on request: ElectLeaders (KIP-183, KIP-460), and the znode of tools before Kafka 2.4.

Kafka's processReplicaLeaderElection.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

import structlog

from broker.controller.office import Office
from broker.controller.partition_machine import PartitionMachine
from broker.controller.rules.leader_selector import Election
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import BadZnodeError

_log = structlog.get_logger(__name__)


class ElectionType(IntEnum):
    """The type of an election, as on the wire."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectionResult:
    """The result of one partition's election; Kafka's PartitionResult of ElectLeaders. With an error, no
    ``leader`` was elected. ``message`` is for people.
    """

    error: Errors
    message: str | None = None
    leader: int | None = None


class Elections:
    """The elections on request during one term; Kafka's processReplicaLeaderElection. It runs on the
    controller's thread. The Term owns it.
    """

    def __init__(
        self,
        office: Office,
        partitions: PartitionMachine,
    ) -> None:
        self._context = office.context
        self._store = office.store
        self._cluster = office.cluster
        self._partitions = partitions

    def elect(
        self, kind: ElectionType, partitions: Iterable[TopicPartition] | None
    ) -> Mapping[TopicPartition, ElectionResult]:
        """Elects leaders of the given partitions, or of all (None). With None, partitions that need no
        election are left out of the result.

        Preferred: the first replica of the assignment, if it is alive and in sync. Unclean: for partitions
        without a live leader, a live ISR member, or else any live replica, whatever the topic's config says.
        """
        wanted = list(self._context.partitions() if partitions is None else dict.fromkeys(partitions))
        results = {partition: self._refusal(kind, partition) for partition in wanted}
        electable = [partition for partition, result in results.items() if result is None]
        election = Election.PREFERRED if kind is ElectionType.PREFERRED else Election.UNCLEAN
        elected = self._partitions.to_online(electable, election) if electable else {}
        told = {
            partition: result
            or (
                ElectionResult(Errors.NONE, None, elected[partition].leader)
                if partition in elected
                else self._unavailable(kind, partition)
            )
            for partition, result in results.items()
        }
        if partitions is None:
            return {p: result for p, result in told.items() if result.error is not Errors.ELECTION_NOT_NEEDED}
        return told

    def _refusal(self, kind: ElectionType, partition: TopicPartition) -> ElectionResult | None:
        """The error for a partition that gets no election; None if it gets one."""
        context = self._context
        replicas = context.replicas(partition)
        if not replicas:
            return ElectionResult(Errors.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
        if context.is_being_deleted(partition.topic):
            return ElectionResult(Errors.INVALID_TOPIC_EXCEPTION, "The topic is being deleted")
        state = context.leaders.get(partition)
        if state is None:  # it never had a leader, so there is nothing to elect from
            return self._unavailable(kind, partition)
        needed = (
            state.leader != replicas[0]
            if kind is ElectionType.PREFERRED
            else state.leader not in context.brokers
        )
        return None if needed else ElectionResult(Errors.ELECTION_NOT_NEEDED)

    def _unavailable(self, kind: ElectionType, partition: TopicPartition) -> ElectionResult:
        context = self._context
        state = context.leaders.get(partition)
        live = context.online_replicas(partition)
        where = f"replicas {list(context.replicas(partition))}, live {live}, in sync {list(state.isr if state else ())}"
        if kind is ElectionType.PREFERRED:
            text = f"the preferred leader of {partition} is not alive and in sync: {where}"
            return ElectionResult(Errors.PREFERRED_LEADER_NOT_AVAILABLE, text)
        text = f"no replica of {partition} lives: {where}"
        return ElectionResult(Errors.ELIGIBLE_LEADERS_NOT_AVAILABLE, text)

    def take_up_znode(self) -> None:
        """Elects the preferred leaders that the znode lists. Deleting the znode is the answer to the tool."""
        try:
            partitions = self._cluster.preferred_election_request()
        except BadZnodeError as error:
            _log.error("znode_unreadable", reason=str(error), action="it is deleted")
            partitions = []
        if partitions is None:
            return
        results = self.elect(ElectionType.PREFERRED, partitions)
        _log.info(
            "preferred_leaders_elected",
            asked_by="/admin/preferred_replica_election",
            partitions=len(partitions),
            failed={
                str(partition): result.error.name
                for partition, result in results.items()
                if result.error not in {Errors.NONE, Errors.ELECTION_NOT_NEEDED}
            },
        )
        self._store.delete_preferred_election_request()
