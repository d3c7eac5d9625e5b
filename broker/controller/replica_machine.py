"""Moves replicas between states: informs their brokers, and takes offline replicas out of the ISR.

Kafka's ZkReplicaStateMachine.
"""

from __future__ import annotations

from collections.abc import Iterable

import structlog

from broker.controller.eligible_replicas import EligibleReplicas
from broker.controller.office import Office
from broker.controller.partition_machine import MAX_ATTEMPTS, PartitionMachine
from broker.controller.rules import leader_selector
from broker.controller.rules.states import Replica, ReplicaState
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.store import BadVersionError
from broker.zookeeper.znodes import LeaderAndIsr

_log = structlog.get_logger(__name__)


class ReplicaMachine:
    """The states of all replicas; Kafka's ZkReplicaStateMachine. It runs on the controller's thread. Every
    ``to_*`` method sends the requests it has collected, unless it says otherwise.
    """

    def __init__(
        self,
        office: Office,
        partitions: PartitionMachine,
        eligible: EligibleReplicas,
    ) -> None:
        self._context = office.context
        self._store = office.store
        self._batch = office.batch
        self._partitions = partitions
        self._eligible = eligible

    def startup(self) -> None:
        """Sends every live replica its leader at the start of a term. :meth:`retire_offline` handles the
        dead replicas.
        """
        replicas = self._context.replicas_of(self._context.partitions())
        for replica in replicas:
            self._context.replica_states[replica] = ReplicaState.OFFLINE
        online = [replica for replica in replicas if self._context.is_online(replica)]
        self._batch.mark_full(self._context.brokers)
        self.to_online(online)

    def retire_offline(self) -> None:
        """Takes dead replicas out of the ISRs: the last step at the start of a term.

        Unlike in Kafka it runs after the leader elections. Elections already drop dead replicas from the ISR,
        so a partition whose leader died is written only once and has a leader sooner.
        """
        replicas = self._context.replicas_of(self._context.partitions())
        self.to_offline([replica for replica in replicas if not self._context.is_online(replica)])

    def to_new(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            self._context.move_replica(replica, ReplicaState.NEW)
            state = self._context.leaders.get(replica.topic_partition)
            if state is not None:
                partition = replica.topic_partition
                self._batch.add_leader_and_isr([replica.broker_id], partition, state, is_new=True)
        self._batch.flush()

    def to_online(self, replicas: Iterable[Replica]) -> None:
        """Sends LeaderAndIsr to replicas that come back. New replicas got theirs when their partition got
        a leader.
        """
        for replica in replicas:
            partition = replica.topic_partition
            was_new = self._context.replica_state(replica) is ReplicaState.NEW
            self._context.move_replica(replica, ReplicaState.ONLINE)
            state = self._context.leaders.get(partition)
            if state is not None and not was_new and not self._context.is_being_deleted(partition.topic):
                self._batch.add_leader_and_isr([replica.broker_id], partition, state)
        self._batch.flush()

    def to_offline(self, replicas: Iterable[Replica]) -> None:
        offline: dict[TopicPartition, set[int]] = {}
        for replica in replicas:
            self._context.move_replica(replica, ReplicaState.OFFLINE)
            offline.setdefault(replica.topic_partition, set()).add(replica.broker_id)
            self._batch.add_stop_replica([replica.broker_id], replica.topic_partition, delete=False)
        self._batch.update_metadata_everywhere(offline)
        self._remove_from_isr(
            {p: ids for p, ids in offline.items() if not self._context.is_being_deleted(p.topic)}
        )
        self._batch.flush()

    def to_deletion_started(self, replicas: Iterable[Replica]) -> None:
        for replica in replicas:
            self._context.move_replica(replica, ReplicaState.DELETION_STARTED)
            self._batch.add_stop_replica([replica.broker_id], replica.topic_partition, delete=True)
        self._batch.flush()

    def remove(self, replicas: Iterable[Replica]) -> None:
        """Removes replicas that a reassignment drops: they leave the ISR, are stopped, deleted and forgotten.

        It does not wait for the brokers to delete. On a broker that is down, the log stays as an
        unused leftover.
        """
        gone = list(replicas)
        if not gone:
            return
        self.to_offline(gone)
        self.to_deletion_started(gone)
        self.move(gone, ReplicaState.DELETION_SUCCESSFUL)
        self.move(gone, ReplicaState.NON_EXISTENT)

    def move(self, replicas: Iterable[Replica], target: ReplicaState) -> None:
        """Changes states only, where brokers need no request or get it elsewhere."""
        for replica in replicas:
            self._context.move_replica(replica, target)

    def _remove_from_isr(self, offline: dict[TopicPartition, set[int]]) -> None:
        remaining = offline
        for _ in range(MAX_ATTEMPTS):
            states = {}
            for partition, removed in remaining.items():
                state = self._context.leaders.get(partition)
                if state is None:
                    continue
                live = self._context.online_replicas(partition)
                changed = leader_selector.remove_from_isr(state, removed, live, self._context.epoch)
                if changed is not None:
                    states[partition] = changed
            remaining = {}
            for partition, result in self._store.update_partition_states(
                self._eligible.noted(states)
            ).items():
                if isinstance(result, LeaderAndIsr):
                    self._on_isr_shrunk(partition, offline[partition], result)
                elif isinstance(result, BadVersionError):
                    remaining[partition] = offline[partition]
                else:
                    _log.error("isr_not_written", partition=str(partition), reason=str(result))
            if not remaining:
                return
            self._partitions.read_again(list(remaining))
        _log.error("isr_not_shrunk", partitions=[str(p) for p in remaining], reason="state keeps changing")

    def _on_isr_shrunk(self, partition: TopicPartition, removed: set[int], state: LeaderAndIsr) -> None:
        before = self._context.leaders[partition]
        _log.info(
            "replicas_left_isr",
            partition=str(partition),
            replicas=sorted(removed),
            leader=state.leader,
            leader_before=before.leader,
            isr=list(state.isr),
            isr_before=list(before.isr),
            leader_epoch=state.leader_epoch,
        )
        self._context.leaders[partition] = state
        staying = [broker_id for broker_id in self._context.replicas(partition) if broker_id not in removed]
        self._batch.add_leader_and_isr(staying, partition, state)
