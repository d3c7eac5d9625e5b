"""Handles requests for reassignments: AlterPartitionReassignments and ListPartitionReassignments (KIP-455),
and the znode ``/admin/reassign_partitions`` of tools before Kafka 2.4.

This module validates requests; ``reassignment`` carries them out. For each partition the latest request
applies, whichever way it came.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

import structlog

from broker.controller.office import Office
from broker.controller.reassignment import Reassignments
from broker.controller.rules.replica_assignment import (
    ReplicaAssignment,
    check_alive,
    check_move,
    check_target,
)
from broker.controller.slices import Slices, at_once
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import BadZnodeError

_log = structlog.get_logger(__name__)
_NOBODY = ReplicaAssignment(())

_SLICE: Final = 1_000  # partitions, of 3 µs each
_LINES: Final = 20

Refused = Mapping[TopicPartition, KafkaError]


class Wishes:
    """The content of an AlterPartitionReassignments request, checked as far as possible without knowledge of
    the cluster. It has the latest target of each partition (None for a cancellation), or why it is
    ``refused``. For any thread.
    """

    def __init__(self, message: AlterPartitionReassignmentsRequest) -> None:
        self.targets: dict[TopicPartition, Sequence[int] | None] = {}
        self.refused: dict[TopicPartition, KafkaError] = {}
        for topic in message.topics:
            for row in topic.partitions:
                self.targets[TopicPartition(topic.name, row.partition_index)] = row.replicas
        for partition, target in self.targets.items():
            if target is not None:
                try:
                    check_target(target)
                except KafkaError as error:
                    self.refused[partition] = error
        for partition in self.refused:
            del self.targets[partition]


class ReassignmentRequests:
    """The handling of reassignment requests. It runs on the controller's thread."""

    def __init__(
        self,
        office: Office,
        reassignments: Reassignments,
    ) -> None:
        self._context = office.context
        self._store = office.store
        self._cluster = office.cluster
        self._reassignments = reassignments

    def alter(self, message: AlterPartitionReassignmentsRequest) -> Fields:
        """The fields of an AlterPartitionReassignments response, which is sent once the moves
        have started.
        """
        return altered(message, Errors.NONE, None, at_once(self.alter_in_slices(Wishes(message))))

    def alter_in_slices(self, wishes: Wishes) -> Slices[Refused]:
        """Like :meth:`alter`, in slices; returns the refused partitions. Nothing starts before the
        last slice.
        """
        refused = dict(wishes.refused)
        moves: list[TopicPartition] = []
        for number, (partition, target) in enumerate(wishes.targets.items(), 1):
            try:
                self._judge(partition, target)
                moves.append(partition)
            except KafkaError as error:
                refused[partition] = error
            if number % _SLICE == 0:
                yield
        refused |= self._begin({partition: wishes.targets[partition] for partition in moves})
        for told, refusal in islice(refused.items(), _LINES):
            _log.warning("reassignment_refused", partition=str(told), reason=str(refusal))
        if len(refused) > _LINES:
            _log.warning("reassignments_refused", partitions=len(refused), told=_LINES)
        return refused

    def _begin(
        self, wishes: Mapping[TopicPartition, Sequence[int] | None]
    ) -> dict[TopicPartition, KafkaError]:
        """Validates again, because the results of earlier slices may be outdated, and starts the valid moves.
        There are at most as many as partitions.
        """
        refused: dict[TopicPartition, KafkaError] = {}
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        for partition, target in wishes.items():
            try:
                moves[partition] = self._judge(partition, target)
            except KafkaError as error:
                refused[partition] = error
        self._forget(lambda partition, _replicas: partition in moves)
        return refused | self._reassignments.start(moves)

    def list(self, message: ListPartitionReassignmentsRequest) -> Fields:
        """The fields of a ListPartitionReassignments response: the moves of all partitions, or of the
        named ones.
        """
        moving = self._context.reassignments()
        if message.topics is not None:
            asked = {TopicPartition(t.name, index) for t in message.topics for index in t.partition_indexes}
            moving = {partition: move for partition, move in moving.items() if partition in asked}
        topics: dict[str, list[Fields]] = {}
        for partition, move in moving.items():
            row = {
                "partition_index": partition.partition,
                "replicas": move.replicas,
                "adding_replicas": move.adding,
                "removing_replicas": move.removing,
            }
            topics.setdefault(partition.topic, []).append(row)
        return listed(Errors.NONE, None, topics)

    def _judge(self, partition: TopicPartition, target: Sequence[int] | None) -> ReplicaAssignment:
        """The move to ``target``, or the cancellation if None. The caller has checked the target itself.
        Raises KafkaError with Kafka's code.
        """
        context = self._context
        present = context.assignment(partition)
        before = present or _NOBODY
        if target is None:
            if not before.is_being_reassigned:
                raise KafkaError(
                    Errors.NO_REASSIGNMENT_IN_PROGRESS, f"{partition} is not being moved: nothing to cancel"
                )
            after = before.cancelled()
        else:
            check_alive(target, before, context.live_ids)
            after = before.reassign_to(target)
        if present is None or context.is_being_deleted(partition.topic):
            raise _unknown()
        check_move(after, context.leaders.get(partition), context.online_replicas(partition))
        return after

    # -- the znode of old tools

    def take_up_znode(self) -> None:
        """Starts the moves in the znode. The znode stays until they are done, because the old tools
        read it.
        """
        wanted = self._wanted()
        if not wanted:
            return
        moves: dict[TopicPartition, ReplicaAssignment] = {}
        failed: dict[TopicPartition, str] = {}
        for partition, target in wanted.items():
            try:
                moves[partition] = self._judge_old(partition, target)
            except KafkaError as error:
                failed[partition] = str(error)
        failed |= {partition: str(error) for partition, error in self._reassignments.start(moves).items()}
        for partition, reason in failed.items():
            _log.warning("reassignment_refused", partition=str(partition), reason=reason)
        if failed:
            self._forget(lambda partition, _replicas: partition in failed)

    def _judge_old(self, partition: TopicPartition, target: tuple[int, ...]) -> ReplicaAssignment:
        """Validates as Kafka does: a move to a dead broker waits for it."""
        check_target(target)
        before = self._context.assignment(partition)
        if before is None or self._context.is_being_deleted(partition.topic):
            raise _unknown()
        after = before.reassign_to(target)
        online = self._context.online_replicas(partition)
        check_move(after, self._context.leaders.get(partition), online)
        return after

    def on_finished(self, targets: Mapping[TopicPartition, tuple[int, ...]]) -> None:
        """Removes finished moves from the znode."""
        self._forget(lambda partition, replicas: targets.get(partition) == replicas)

    def _forget(self, is_done: Callable[[TopicPartition, tuple[int, ...]], bool]) -> None:
        wanted = self._wanted()
        if wanted is None:
            return
        left = {partition: ids for partition, ids in wanted.items() if not is_done(partition, ids)}
        if len(left) < len(wanted) or not wanted:
            self._store.put_reassignment_request(left)

    def _wanted(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """The moves in the znode; None if it does not exist or cannot be read."""
        try:
            return self._cluster.reassignment_request()
        except BadZnodeError as error:
            _log.error("znode_unreadable", reason=str(error), action="mend it or delete it")
            return None


def altered(
    message: AlterPartitionReassignmentsRequest, error: Errors, text: str | None, refused: Refused
) -> Fields:
    """The fields of an AlterPartitionReassignments response, which has each partition once, as in Kafka. With an error
    for the whole request it has no rows.
    """

    def row(topic: str, index: int) -> Fields:
        refusal = refused.get(TopicPartition(topic, index))
        code = Errors.NONE if refusal is None else refusal.error_code
        return {
            "partition_index": index,
            "error_code": code,
            "error_message": None if refusal is None else str(refusal),
        }

    topics: dict[str, dict[int, None]] = {}
    for topic in () if error is not Errors.NONE else message.topics:
        if topic.partitions:
            topics.setdefault(topic.name, {}).update((p.partition_index, None) for p in topic.partitions)
    return {
        "error_code": error,
        "error_message": text,
        "responses": [
            {"name": name, "partitions": [row(name, index) for index in indexes]}
            for name, indexes in topics.items()
        ],
    }


def listed(error: Errors, text: str | None, topics: Mapping[str, Sequence[Fields]]) -> Fields:
    """The fields of a ListPartitionReassignments response."""
    return {
        "error_code": error,
        "error_message": text,
        "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
    }


def _unknown() -> KafkaError:
    return KafkaError(Errors.UNKNOWN_TOPIC_OR_PARTITION, "The partition does not exist.")
