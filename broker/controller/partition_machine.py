"""Moves partitions between states: writes their leaders to the store and informs the brokers.

Kafka's ZkPartitionStateMachine. ``leader_selector`` chooses the leaders.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

import structlog

from broker.controller.eligible_replicas import EligibleReplicas
from broker.controller.office import Office
from broker.controller.rules import leader_selector
from broker.controller.rules.leader_selector import Election
from broker.controller.rules.states import PartitionState, Replica, ReplicaState
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.controller_store import ControllerMovedError
from broker.zookeeper.store import BadVersionError, NodeExistsError
from broker.zookeeper.znodes import LeaderAndIsr, LeaderRecoveryState

_log = structlog.get_logger(__name__)
MAX_ATTEMPTS = 5


class PartitionMachine:
    """The states of all partitions; Kafka's ZkPartitionStateMachine. It runs on the controller's thread.
    ``unclean_allowed(topics)`` returns the topics whose config allows unclean elections.
    """

    def __init__(
        self,
        office: Office,
        eligible: EligibleReplicas,
        unclean_allowed: Callable[[list[str]], set[str]],
        on_elected: Callable[[bool], None],
    ) -> None:
        self._context = office.context
        self._store = office.store
        self._cluster = office.cluster
        self._batch = office.batch
        self._eligible = eligible
        self._unclean_allowed = unclean_allowed
        self._on_elected = on_elected

    def startup(self) -> None:
        """Sets the states at the start of a term: ONLINE if the leader lives, OFFLINE if it does not, NEW if
        the partition never had a leader.
        """
        context = self._context
        for partition in context.partitions():
            state = context.leaders.get(partition)
            if state is None:
                context.partition_states[partition] = PartitionState.NEW
            elif state.leader in context.online_replicas(partition, even_shutting_down=True):
                context.partition_states[partition] = PartitionState.ONLINE
            else:
                context.partition_states[partition] = PartitionState.OFFLINE
        self.bring_online()

    def bring_online(self, topic: str | None = None) -> None:
        """Tries to elect a leader for every partition without one, or only for those of ``topic``. Topics
        that are being deleted are skipped.
        """
        partitions = [
            partition
            for partition in self._context.partitions_in({PartitionState.OFFLINE, PartitionState.NEW})
            if not self._context.is_being_deleted(partition.topic) and topic in {None, partition.topic}
        ]
        if partitions:
            self.to_online(partitions, Election.OFFLINE)

    def to_new(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._context.move_partition(partition, PartitionState.NEW)

    def to_offline(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._context.move_partition(partition, PartitionState.OFFLINE)

    def to_non_existent(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self._context.move_partition(partition, PartitionState.NON_EXISTENT)

    def to_online(
        self, partitions: Iterable[TopicPartition], election: Election
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Gives new partitions their first leader, elects a leader for the others, and sends the
        resulting requests.

        Returns the partitions that got a leader. A partition without an electable replica keeps its state.
        """
        wanted = list(partitions)
        new = [p for p in wanted if self._context.state(p) is PartitionState.NEW]
        adopted = dict.fromkeys(self._initialize(new) if new else ())
        known = set(new)
        to_elect = [*(p for p in wanted if p not in known), *adopted]
        elected = {
            p: self._context.leaders[p] for p in new if p in self._context.leaders and p not in adopted
        }
        if to_elect:
            elected |= self._elect(to_elect, election)
        self._batch.flush()
        return elected

    def raise_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr]:
        """Keeps the leaders but raises their leader epochs, because the replicas have changed, and informs
        all replicas.

        Kafka's updateLeaderEpochAndSendRequest. Returns the partitions written; those that never had a leader
        are skipped.
        """
        context = self._context

        def choose(remaining: list[TopicPartition]) -> Mapping[TopicPartition, LeaderAndIsr]:
            return {
                p: leader_selector.raise_epoch(context.leaders[p], context.replicas(p), context.epoch)
                for p in remaining
            }

        def on_written(partition: TopicPartition, state: LeaderAndIsr) -> None:
            context.leaders[partition] = state
            self._tell_replicas(partition, state, is_new=False)

        known = [partition for partition in partitions if partition in context.leaders]
        written = self._write(known, choose, on_written, "leader_epoch_not_raised")
        self._batch.flush()
        return written

    def _initialize(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        """Writes the first states. Returns the partitions that turned out to have a state already."""
        context = self._context
        states = {}
        for partition in partitions:
            online = context.online_replicas(partition)
            state = leader_selector.initial_state(context.replicas(partition), online, context.epoch)
            if state is None:
                _log.warning(
                    "new_partition_has_no_live_replica",
                    partition=str(partition),
                    replicas=list(context.replicas(partition)),
                    action="it waits for one of them",
                )
            else:
                states[partition] = state
        adopted = []
        for partition, result in self._store.create_partition_states(self._eligible.noted(states)).items():
            if isinstance(result, LeaderAndIsr):
                self._set_leader(partition, result, is_new=True)
            elif isinstance(result, NodeExistsError):
                adopted.append(partition)
            else:
                _log.error("partition_not_created", partition=str(partition), reason=str(result))
        found = self._cluster.partition_states(adopted)
        for partition, state in found.items():
            context.leaders[partition] = state
            context.move_partition(partition, PartitionState.OFFLINE)
        return list(found)

    def _set_leader(self, partition: TopicPartition, state: LeaderAndIsr, *, is_new: bool) -> None:
        self._context.leaders[partition] = state
        self._context.move_partition(partition, PartitionState.ONLINE)
        self._tell_replicas(partition, state, is_new=is_new)

    def _tell_replicas(self, partition: TopicPartition, state: LeaderAndIsr, *, is_new: bool) -> None:
        told = self._context.online_replicas(partition, even_shutting_down=True)
        new = [
            broker_id
            for broker_id in told
            if is_new or self._context.replica_state(Replica(partition, broker_id)) is ReplicaState.NEW
        ]
        self._batch.add_leader_and_isr(new, partition, state, is_new=True)
        self._batch.add_leader_and_isr([b for b in told if b not in new], partition, state)

    def _elect(
        self, partitions: list[TopicPartition], election: Election
    ) -> dict[TopicPartition, LeaderAndIsr]:
        return self._write(
            partitions,
            lambda remaining: self._choose(remaining, election),
            lambda partition, state: self._on_leader_elected(partition, state, election),
            "leader_not_elected",
        )

    def _write(
        self,
        partitions: list[TopicPartition],
        choose: Callable[[list[TopicPartition]], Mapping[TopicPartition, LeaderAndIsr]],
        on_written: Callable[[TopicPartition, LeaderAndIsr], None],
        complaint: str,
    ) -> dict[TopicPartition, LeaderAndIsr]:
        """Writes the states that ``choose`` returns. Retries partitions whose state changed in
        the meantime.
        """
        written: dict[TopicPartition, LeaderAndIsr] = {}
        remaining = partitions
        for _ in range(MAX_ATTEMPTS):
            results = self._store.update_partition_states(self._eligible.noted(choose(remaining)))
            remaining = []
            for partition, result in results.items():
                if isinstance(result, LeaderAndIsr):
                    on_written(partition, result)
                    written[partition] = result
                elif isinstance(result, BadVersionError):
                    remaining.append(partition)
                else:
                    _log.error("leader_not_written", partition=str(partition), reason=str(result))
            if not remaining:
                return written
            self.read_again(remaining)
        _log.error(complaint, partitions=[str(p) for p in remaining], reason="state keeps changing")
        return written

    def _choose(
        self, partitions: list[TopicPartition], election: Election
    ) -> Mapping[TopicPartition, LeaderAndIsr]:
        known = [partition for partition in partitions if partition in self._context.leaders]
        lost = self._without_live_isr(known) if election in {Election.OFFLINE, Election.UNCLEAN} else []
        eligible = self._eligible.of(lost)
        unclean = self._unclean_topics(lost) if election is Election.OFFLINE else set()
        chosen = {}
        for partition in known:
            unclean_allowed = election is Election.UNCLEAN or partition.topic in unclean
            elected = self._choose_one(
                partition, election, eligible.get(partition, ()), unclean_allowed=unclean_allowed
            )
            if elected is not None:
                chosen[partition] = elected
            elif election is Election.OFFLINE:
                self._tell_offline(partition)
        return chosen

    def _choose_one(
        self,
        partition: TopicPartition,
        election: Election,
        eligible: Collection[int],
        *,
        unclean_allowed: bool,
    ) -> LeaderAndIsr | None:
        context = self._context
        state, replicas, epoch = context.leaders[partition], context.replicas(partition), context.epoch
        if election is Election.CONTROLLED_SHUTDOWN:
            live = context.online_replicas(partition, even_shutting_down=True)
            return leader_selector.elect_controlled_shutdown(
                state, replicas, live, context.shutting_down, epoch
            )
        live = context.online_replicas(partition)
        if election is Election.PREFERRED:
            return leader_selector.elect_preferred(state, replicas, live, epoch)
        if election is Election.REASSIGN:
            return leader_selector.elect_reassign(state, replicas, live, epoch)
        return leader_selector.elect_offline(
            state, replicas, live, epoch, unclean_allowed=unclean_allowed, eligible=eligible
        )

    def _tell_offline(self, partition: TopicPartition) -> None:
        _log.error(
            "partition_has_no_leader",
            partition=str(partition),
            isr=list(self._context.leaders[partition].isr),
            replicas=list(self._context.replicas(partition)),
            live=self._context.online_replicas(partition),
            action="start a broker of the ISR, or give up its records by the topic's "
            "unclean.leader.election.enable=true",
        )

    def _without_live_isr(self, partitions: list[TopicPartition]) -> list[TopicPartition]:
        context = self._context
        return [
            partition
            for partition in partitions
            if not set(context.online_replicas(partition)) & set(context.leaders[partition].isr)
        ]

    def _unclean_topics(self, partitions: list[TopicPartition]) -> set[str]:
        topics = {partition.topic for partition in partitions}
        return self._unclean_allowed(sorted(topics)) if topics else set()

    def _on_leader_elected(self, partition: TopicPartition, state: LeaderAndIsr, election: Election) -> None:
        before = self._context.leaders[partition]
        in_sync = state.leader in before.isr
        clean = in_sync or state.recovery_state is LeaderRecoveryState.RECOVERED
        log = _log.info if clean else _log.warning
        log(
            "leader_elected",
            partition=str(partition),
            reason=election.value,
            leader=state.leader,
            leader_before=before.leader,
            isr=list(state.isr),
            isr_before=list(before.isr),
            leader_epoch=state.leader_epoch,
            clean=clean,
            in_sync=in_sync,
        )
        if state.leader != before.leader or election is not Election.REASSIGN:
            self._on_elected(clean)
        self._set_leader(partition, state, is_new=False)

    def read_again(self, partitions: list[TopicPartition]) -> None:
        """Reads the states again after a failed conditional write. Raises ControllerMovedError if a later
        controller wrote one.
        """
        for partition, state in self._cluster.partition_states(partitions).items():
            if state.controller_epoch > self._context.epoch:
                raise ControllerMovedError(
                    f"{partition} was written by the controller of epoch {state.controller_epoch}, "
                    f"this one's is {self._context.epoch}"
                )
            self._context.leaders[partition] = state
