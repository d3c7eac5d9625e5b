"""Moves partitions to other brokers (KIP-455). It follows the phases of Kafka's onPartitionReassignment.

RS is all replicas, ORS the original ones, TRS the target, AR those added and RR those removed::

    U1  the topic's znode: RS = ORS + TRS, AR, RR                U2  the same in memory
    A1  leader epoch + 1, LeaderAndIsr to RS                     A2  AR become NEW
        ... until TRS is in the ISR ...
    B1  AR become ONLINE                                         B2  RS = TRS in memory
    B3  a leader in TRS, leader epoch + 1, LeaderAndIsr to TRS
    B4  RR leave the ISR, StopReplica                            B5  StopReplica with deletion
    B6  the topic's znode: RS = TRS                              B7  remove it from the old tools' znode
    B8  UpdateMetadata to all

Replicas that an override or a cancellation no longer needs are in both AR and RR. They are removed right
after U2, by the steps B4 to B6.

Invariant: **the topic's znode names every broker that may hold a replica until all of them are deleted**.
So a controller may die at any point, and the next one can finish with :meth:`Reassignments.resume`. Many
partitions take each step together, with one write per topic znode and one request per broker.
``replica_assignment`` decides which moves are allowed; ``reassignment_requests`` receives the requests
for them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

import structlog

from broker.controller.context import with_replicas
from broker.controller.office import Office
from broker.controller.partition_machine import MAX_ATTEMPTS, PartitionMachine
from broker.controller.replica_machine import ReplicaMachine
from broker.controller.rules.leader_selector import Election
from broker.controller.rules.replica_assignment import ReplicaAssignment, may_drop_unneeded
from broker.controller.rules.states import Replica, ReplicaState
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.refusals import refusal_of
from broker.zookeeper.store import BadVersionError, NoNodeError, TooLargeError

_log = structlog.get_logger(__name__)

Moves = Mapping[TopicPartition, ReplicaAssignment]


class Reassignments:
    """The reassignments in progress. It runs on the controller's thread. ``on_finished(targets)`` is step B7;
    it gets the partitions that have reached their target.
    """

    def __init__(
        self,
        office: Office,
        partitions: PartitionMachine,
        replicas: ReplicaMachine,
    ) -> None:
        self._context = office.context
        self._store = office.store
        self._cluster = office.cluster
        self._batch = office.batch
        self._partitions = partitions
        self._replicas = replicas
        self.on_finished: Callable[[Mapping[TopicPartition, tuple[int, ...]]], None] = lambda _targets: None

    def start(self, moves: Moves) -> dict[TopicPartition, KafkaError]:
        """Starts reassignments, or overrides and cancels those in progress. Returns the partitions whose
        topic's znode could not be written, with the reason.

        The caller has checked the moves, and that their partitions exist.
        """
        before = {partition: self._context.assignment(partition) for partition in moves}
        changed = {partition: move for partition, move in moves.items() if move != before[partition]}
        lost = self._write_znodes(changed)
        for partition in changed.keys() - lost.keys():
            was, move = before[partition], changed[partition]
            _log.info(
                "reassignment_started",
                partition=str(partition),
                replicas=list(move.replicas),
                target=list(move.target),
                adding=list(move.adding),
                removing=list(move.removing),
                overrides=was is not None and was.is_being_reassigned,
            )
        self._advance([partition for partition in moves if partition not in lost])
        return lost

    def resume(self, broker_ids: Collection[int] | None = None) -> None:
        """Continues the reassignments of an earlier term, or those that wait for the given brokers, which
        are back.
        """
        waiting = [
            partition
            for partition, move in self._context.reassignments().items()
            if broker_ids is None or set(move.target) & set(broker_ids)
        ]
        if waiting:
            _log.info("reassignments_resumed", partitions=[str(partition) for partition in waiting])
            self._advance(waiting)

    def on_isr_changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Finishes the reassignments whose target replicas are now all in sync."""
        moving = self._context.reassignments()
        concerned = [partition for partition in partitions if partition in moving]
        self._drop_unneeded(concerned)
        self._finish([partition for partition in concerned if self._is_complete(partition)])

    def _is_complete(self, partition: TopicPartition) -> bool:
        assignment = self._context.assignment(partition)
        return assignment is not None and assignment.is_complete(self._context.leaders.get(partition))

    def _advance(self, partitions: list[TopicPartition]) -> None:
        self._drop_unneeded(partitions)
        leaderless = [p for p in partitions if p not in self._context.leaders]
        self._bring_in([p for p in partitions if p in self._context.leaders and not self._is_complete(p)])
        if leaderless:  # they never had a leader: a live added replica may become the first
            self._replicas.move(self._without_state(leaderless), ReplicaState.NEW)
            self._partitions.to_online(leaderless, Election.OFFLINE)
        self._finish([p for p in partitions if self._is_complete(p)])

    # -- phase A

    def _bring_in(self, partitions: list[TopicPartition]) -> None:
        """Does A2 before A1, because A2 only changes memory. So new replicas get one request, which marks
        them as new.
        """
        self._replicas.move(self._without_state(partitions), ReplicaState.NEW)
        self._partitions.raise_epochs(partitions)

    def _without_state(self, partitions: Iterable[TopicPartition]) -> list[Replica]:
        return [
            replica
            for replica in self._context.replicas_of(partitions)
            if self._context.replica_state(replica) is ReplicaState.NON_EXISTENT
        ]

    def _drop_unneeded(self, partitions: Iterable[TopicPartition]) -> None:
        """Removes replicas that are no longer needed. If one of them leads, a remaining replica is
        elected first.
        """
        context = self._context
        moves = {p: move for p in partitions if (move := context.assignment(p)) is not None and move.unneeded}
        ready = {
            p: move
            for p, move in moves.items()
            if may_drop_unneeded(move, context.leaders.get(p), context.online_replicas(p))
        }
        if not moves:
            return
        context.put_assignments({p: move.without_unneeded() for p, move in ready.items()})
        led = [
            p
            for p, move in ready.items()
            if p in context.leaders and context.leaders[p].leader in move.unneeded
        ]
        self._partitions.to_online(led, Election.REASSIGN)
        self._replicas.remove(
            [Replica(p, broker_id) for p, move in ready.items() for broker_id in move.unneeded]
        )
        self._write_znodes({p: move.without_unneeded() for p, move in ready.items()})
        for partition in moves.keys() - ready.keys():
            _log.warning(
                "reassignment_waits",
                partition=str(partition),
                reason=f"of the in-sync replicas only {list(moves[partition].unneeded)} live, which are to go",
                action="start another of the in-sync replicas",
            )

    # -- phase B

    def _finish(self, partitions: list[TopicPartition]) -> None:
        if not partitions:
            return
        moving = {p: move for p in partitions if (move := self._context.assignment(p)) is not None}
        added = [Replica(p, broker_id) for p, move in moving.items() for broker_id in move.target]
        new = [replica for replica in added if self._context.replica_state(replica) is ReplicaState.NEW]
        self._replicas.to_online(new)
        done = {p: ReplicaAssignment(move.target) for p, move in moving.items()}
        self._context.put_assignments(done)
        elected = self._partitions.to_online(done, Election.REASSIGN)
        waiting = {p: move for p, move in moving.items() if move.is_being_reassigned and p not in elected}
        if waiting:
            self._wait_for_leader(waiting)
        finished = {p: done[p].replicas for p in moving if p not in waiting}
        moved = [p for p in finished if moving[p].is_being_reassigned]
        self._replicas.remove([Replica(p, broker_id) for p in moved for broker_id in moving[p].removing])
        self._write_znodes({p: done[p] for p in moved})
        self.on_finished(finished)
        self._batch.update_metadata_everywhere(finished)
        self._batch.flush()
        for partition in moved:
            _log.info(
                "reassignment_finished",
                partition=str(partition),
                replicas=list(finished[partition]),
                removed=list(moving[partition].removing),
            )

    def _wait_for_leader(self, moves: Moves) -> None:
        """Waits because all target replicas are in sync but none is alive. Nothing is deleted before one of
        them leads.
        """
        self._context.put_assignments(moves)
        _log.warning(
            "reassignment_waits",
            partitions=[str(partition) for partition in moves],
            reason="no replica of the target lives",
            action="it goes on when one is back",
        )

    # -- the topics' znodes

    def _write_znodes(self, changes: Moves) -> dict[TopicPartition, KafkaError]:
        """Does U1 and U2, or B6. Returns why a partition's topic could not be written."""
        by_topic: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in changes.items():
            by_topic.setdefault(partition.topic, {})[partition.partition] = assignment
        lost: dict[TopicPartition, KafkaError] = {}
        for topic, assignments in by_topic.items():
            error = self._write_znode(topic, assignments)
            if error is not None:
                lost |= {TopicPartition(topic, number): error for number in assignments}
        return lost

    def _write_znode(self, topic: str, assignments: Mapping[int, ReplicaAssignment]) -> KafkaError | None:
        """Writes one topic's znode. Partitions that someone adds at the same time are kept; the topic's watch
        reports them.
        """
        known = with_replicas(self._context.topics[topic], assignments)
        wanted = known
        for _ in range(MAX_ATTEMPTS):
            try:
                written = self._store.set_topic_assignment(topic, wanted)
            except BadVersionError:
                found = self._cluster.topic_assignment(topic)
                if found is None:
                    break
                wanted = with_replicas(found, assignments)
                continue
            except NoNodeError:
                break
            except TooLargeError as error:
                return refusal_of(error, request=f"a reassignment of {topic}")
            self._context.topics[topic] = replace(known, version=written.version)
            return None
        _log.error("assignment_not_written", topic=topic, reason="the topic is gone or keeps changing")
        return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
