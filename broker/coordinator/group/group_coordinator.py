"""The group coordinator: takes requests of consumer groups and answers by callback. Kafka's GroupCoordinator.

It finds the group, lets the pure modules decide under the group's lock (:mod:`.cell`), and keeps track of the
partitions of __consumer_offsets that this broker leads (:mod:`.ownership`). No method blocks. Callbacks run
on any thread, with no lock held. The API modules handle the wire format.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial
from typing import Final

from broker.config.broker_config import BrokerConfig
from broker.coordinator.common.partitioning import partition_for
from broker.coordinator.common.replay import ReadableLog
from broker.coordinator.group import commits, describe, dispatch, joining, listing
from broker.coordinator.group.cell import GroupCell
from broker.coordinator.group.commits import CommitRequest, DeleteOffsetsCallback
from broker.coordinator.group.consumer.messages import ClusterTopics, no_topics
from broker.coordinator.group.consumer_groups import ConsumerGroups
from broker.coordinator.group.describe import (
    UNKNOWN_GROUP,
    CommittedOffsets,
    FetchedOffset,
    GroupDescription,
    GroupOverview,
)
from broker.coordinator.group.dispatch import LeaveCallback
from broker.coordinator.group.group import Group
from broker.coordinator.group.memory import Admission, GroupMemory
from broker.coordinator.group.messages import (
    NO_MEMBER_ID,
    JoinRequest,
    JoinResult,
    MemberIdentity,
    Moment,
    SyncRequest,
    SyncResult,
)
from broker.coordinator.group.metrics import register_metrics
from broker.coordinator.group.offsets_log import Appender, OffsetsLog
from broker.coordinator.group.ownership import Ownership
from broker.coordinator.group.registry import GroupRegistry
from broker.coordinator.group.settings import GroupSettings
from broker.coordinator.group.transactions import GroupTransactions
from broker.coordinator.group.weights import group_weight
from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.replication.transaction_verification import TransactionVerification
from broker.utils.clock import Clock
from broker.utils.line_budget import LineBudget
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition

_MAX_NAME_BYTES: Final = 0x7FFF
_UUID_SUFFIX_BYTES: Final = 37
# Limits on log lines about group state changes, because journald takes 10,000 lines in 30 s from a broker.
_LINES_A_SECOND: Final = 10
_LINES_AT_ONCE: Final = 100


class GroupCoordinator:
    """The coordinator of this broker's consumer groups; Kafka's GroupCoordinator. Thread-safe. ``appender``
    is ``ReplicaManager.append_records``. ``log_of`` returns the local log of a partition of
    __consumer_offsets. ``partition_count`` returns the topic's number of partitions, or None if it does not
    exist yet. ``topics`` returns the cluster's topics as last known.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        appender: Appender,
        log_of: Callable[[int], ReadableLog | None],
        partition_count: Callable[[], int | None],
        *,
        timer: Timer,
        scheduler: KafkaScheduler,
        clock: Clock,
        metrics: Metrics | None = None,
        verification: TransactionVerification | None = None,
        topics: Callable[[], ClusterTopics] = no_topics,
    ) -> None:
        self._broker_id = broker_id
        self._settings = GroupSettings.from_config(config)
        self._limits = self._settings.limits
        self._topics = topics
        self._partition_count = partition_count
        self._timer = timer
        self._scheduler = scheduler
        self._clock = clock
        self._store = OffsetsLog(appender, self._settings.commit_timeout_ms, clock)
        clock_ms = clock.monotonic_ms
        self._lines = LineBudget(clock_ms, per_second=_LINES_A_SECOND, at_once=_LINES_AT_ONCE)
        self._memory = GroupMemory(self._limits.max_bytes, LineBudget(clock_ms, per_second=1, at_once=1))
        self._registry = GroupRegistry(self.partition_for, self._limits.max_groups)
        self._ownership = Ownership(
            self._registry, log_of, self._make_cell, scheduler=scheduler, clock=clock, limits=self._limits
        )
        #: The commits of offsets in transactions, and the ends of those transactions.
        self.transactions = GroupTransactions(
            self._registry,
            verification or TransactionVerification(),
            refusal_of=self._refusal,
            cell_of=self._made_cell,
            admission_of=self._admits,
            partition_for=self.partition_for,
            metadata_max_chars=self._settings.metadata_max_chars,
        )
        #: The consumer groups of KIP-848.
        self.consumers = ConsumerGroups(
            self._registry,
            self._limits,
            topics,
            enabled=self._settings.consumers_enabled,
            refusal_of=self._refusal,
            cell_of=self._made_cell,
            admission_of=self._admits,
        )
        self._active = False
        if metrics is not None:
            register_metrics(metrics, self._registry, self._memory, self._ownership.load_times)

    # -- start and stop

    def startup(self) -> None:
        """Starts to serve requests. Elections may have been reported before."""
        self._active = True
        period_ms = self._settings.retention_check_interval_ms
        self._scheduler.schedule("delete-expired-group-metadata", self.delete_expired, period_ms, period_ms)

    def shutdown(self) -> None:
        """Answers all waiting requests with NOT_COORDINATOR and refuses later ones."""
        self._active = False
        self._ownership.resign_all()

    def on_election(self, partition: int, leader_epoch: int) -> None:
        """This broker now leads the partition. Its groups are loaded in the background."""
        self._ownership.on_election(partition, leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        """Another broker now leads the partition. ``leader_epoch`` is None if this broker's replica
        is gone.
        """
        self._ownership.on_resignation(partition, leader_epoch)

    def on_partitions_deleted(self, deleted: Collection[TopicPartition]) -> None:
        """Removes the offsets of deleted partitions; :class:`Ownership` does so in groups that are being loaded. They
        are gone when this returns: what is committed later is for a new topic of the same name.
        """
        every = frozenset(deleted)
        for cell in self._registry.note_deleted(every):
            cell.run(partial(commits.remove_partitions, deleted=every, forget=self._forgetting(cell)))

    def delete_expired(self) -> None:
        """Removes offsets older than ``offsets.retention.minutes``, and groups that have become empty."""
        retention_ms = self._settings.retention_ms
        for cell in self._registry.cells():
            forget = self._forgetting(cell)
            cell.run(partial(commits.expire, retention_ms=retention_ms, forget=forget))
        self._registry.forget_all_ended()

    def partition_for(self, group_id: str) -> int:
        """The partition of __consumer_offsets that stores the group."""
        return partition_for(group_id, self._partition_count() or self._settings.offsets_partitions)

    # -- requests

    def new_member_id(self, client_id: str, group_instance_id: str | None) -> str:
        """A member id in Kafka's form: the instance id or the client id, and a random UUID."""
        name = (group_instance_id or client_id)[: _MAX_NAME_BYTES // 4 - _UUID_SUFFIX_BYTES]
        return f"{name}-{uuid.uuid4()}"

    def join(self, group_id: str, request: JoinRequest) -> None:
        error = self._refusal(group_id) or self._join_error(request)
        if error is not None:
            request.respond(JoinResult(request.member_id, error))
            return
        if request.member_id != NO_MEMBER_ID:
            found: GroupCell | Errors = self._registry.find(group_id) or Errors.UNKNOWN_MEMBER_ID
        elif self._registry.find(group_id) is not None or self._has_room(
            group_id, joining.weight_of(request)
        ):
            found = self._registry.get_or_create(group_id, self._new_cell)
        else:
            found = Errors.GROUP_MAX_SIZE_REACHED
        if isinstance(found, Errors):
            request.respond(JoinResult(request.member_id, found))
            return
        admits = self._admits(group_id)
        limits, topics = self._limits, self._topics
        found.run(lambda group, now: dispatch.join(group, request, now, limits, topics, admits=admits))
        admits.tell()

    def sync(self, group_id: str, request: SyncRequest) -> None:
        error = self._refusal(group_id)
        if error is Errors.COORDINATOR_LOAD_IN_PROGRESS:
            # A rebalance is not stored in the log, so it is lost: the member starts over with JoinGroup.
            error = Errors.REBALANCE_IN_PROGRESS
        cell = self._registry.find(group_id)
        if error is not None or cell is None:
            request.respond(SyncResult(error or Errors.UNKNOWN_MEMBER_ID))
            return
        admits = self._admits(group_id)
        cell.run(lambda group, now: dispatch.sync(group, request, now, self._limits, admits))
        admits.tell()

    def heartbeat(self, group_id: str, identity: MemberIdentity, generation_id: int) -> Errors:
        """Handles a heartbeat. While groups are being loaded, heartbeats are accepted unchecked."""
        error = self._refusal(group_id)
        if error is not None:
            return Errors.NONE if error is Errors.COORDINATOR_LOAD_IN_PROGRESS else error
        cell = self._registry.find(group_id)
        if cell is None:
            return Errors.UNKNOWN_MEMBER_ID
        limits, topics = self._limits, self._topics
        return cell.ask(
            lambda group, now: dispatch.heartbeat(group, identity, generation_id, now, limits, topics=topics)
        )

    def leave(self, group_id: str, members: Sequence[MemberIdentity], respond: LeaveCallback) -> None:
        """Removes members. ``respond`` gets the group's error and, without one, each member's error."""
        error = self._refusal(group_id)
        cell = self._registry.find(group_id)
        if error is not None:
            respond(error, [])
        elif cell is None:
            respond(Errors.NONE, [Errors.UNKNOWN_MEMBER_ID] * len(members))
        elif cell.is_dead:
            respond(Errors.COORDINATOR_NOT_AVAILABLE, [])
        else:
            cell.run(lambda group, now: dispatch.leave(group, members, respond, now, self._limits))

    def commit(self, group_id: str, request: CommitRequest) -> None:
        found = self._refusal(group_id, allow_empty=True) or self._committing_cell(group_id, request)
        if isinstance(found, Errors):
            request.respond(dict.fromkeys(request.offsets, found))
            return
        max_chars = self._settings.metadata_max_chars
        admits = self._admits(group_id)
        found.run(lambda group, now: commits.commit(group, request, now, max_chars, admits))
        admits.tell()

    def fetch_offsets(
        self,
        group_id: str,
        partitions: Iterable[TopicPartition] | None,
        *,
        require_stable: bool,
        member: tuple[str | None, int] = describe.NO_MEMBER,
    ) -> tuple[Errors, dict[TopicPartition, FetchedOffset]]:
        """The group's error and its offsets. With ``partitions`` None it returns all offsets. ``member``: the id and
        epoch of the member that asks.
        """
        error = self._refusal(group_id, allow_empty=True)
        if error is not None:
            return error, {}
        cell = self._registry.find(group_id)
        if cell is None:
            return Errors.NONE, dict.fromkeys(partitions or (), describe.NO_OFFSET)
        error, noted = cell.ask(
            lambda group, _now: describe.note_for_member(group, partitions, require_stable, member)
        )
        return error, describe.fetched(noted)

    def describe(self, group_id: str) -> GroupDescription:
        """Describes a group. A group that does not exist is described as Dead, as in Kafka."""
        error = self._refusal(group_id, allow_empty=True)
        if error is not None:
            return GroupDescription(error)
        cell = self._registry.find(group_id)
        if cell is None:
            return UNKNOWN_GROUP
        head, members = cell.ask(lambda group, _now: describe.note(group))
        return describe.with_members(head, members)

    def list_groups(self, states: Iterable[str], types: Iterable[str]) -> tuple[Errors, list[GroupOverview]]:
        """Lists the groups of this coordinator. An empty filter matches everything; filters ignore case."""
        if not self._active:
            return Errors.COORDINATOR_NOT_AVAILABLE, []
        error = Errors.COORDINATOR_LOAD_IN_PROGRESS if self._registry.is_loading else Errors.NONE
        return error, listing.overviews(self._registry.cells(), states, types)

    def committed_offsets(self, most: int) -> tuple[list[CommittedOffsets], int]:
        """The offsets of the groups coordinated here, and how many groups and offsets are left out because there are
        more than ``most`` together. Groups with members come first, then those without, each by name.
        """
        return listing.committed_offsets(self._registry.cells(), most)

    def delete(self, group_id: str, respond: Callable[[Errors], None]) -> None:
        error = self._refusal(group_id, allow_empty=True)
        cell = self._registry.find(group_id)
        if error is not None or cell is None:
            respond(error or Errors.GROUP_ID_NOT_FOUND)
            return
        forget = self._forgetting(cell)
        cell.run(lambda group, now: commits.delete_group(group, now, respond, forget))

    def delete_offsets(
        self, group_id: str, partitions: Sequence[TopicPartition], respond: DeleteOffsetsCallback
    ) -> None:
        """Deletes offsets to whose topics no member subscribes."""
        error = self._refusal(group_id)
        cell = self._registry.find(group_id)
        if error is not None or cell is None:
            respond(error or Errors.GROUP_ID_NOT_FOUND, {})
            return
        forget = self._forgetting(cell)
        cell.run(lambda group, now: commits.delete_offsets(group, now, partitions, respond, forget))

    # -- internal

    def _refusal(self, group_id: str, *, allow_empty: bool = False) -> Errors | None:
        if (not group_id and not allow_empty) or not _fits(group_id):
            return Errors.INVALID_GROUP_ID
        if not self._active:
            return Errors.COORDINATOR_NOT_AVAILABLE
        return self._registry.refusal(group_id)

    def _join_error(self, request: JoinRequest) -> Errors | None:
        limits = self._limits
        if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
            return Errors.INVALID_SESSION_TIMEOUT
        said = sum(len(name) + len(metadata) for name, metadata in request.protocols)
        if said + len(request.client_id) > limits.max_member_bytes:
            return Errors.INVALID_REQUEST
        names = [request.protocol_type, request.group_instance_id or "", *(n for n, _ in request.protocols)]
        return None if all(map(_fits, names)) else Errors.INVALID_REQUEST  # it could not be stored

    def _has_room(self, group_id: str, more: int) -> bool:
        """Whether there is memory for the group and for ``more``. If not, this is logged."""
        admits = self._admits(group_id)
        has_room = admits(group_weight(group_id) + more)
        admits.tell()
        return has_room

    def _admits(self, group_id: str) -> Admission:
        return Admission(self._memory, group_id)

    def _committing_cell(self, group_id: str, request: CommitRequest) -> GroupCell | Errors:
        """The cell for a commit. Without a generation the group is created if necessary. With one it must
        exist, because the generation belongs to an earlier group.
        """
        cell = self._registry.find(group_id)
        if cell is not None:
            return cell
        return Errors.ILLEGAL_GENERATION if request.generation_id >= 0 else self._made_cell(group_id)

    def _made_cell(self, group_id: str) -> GroupCell | Errors:
        """The group's cell, which is created if there is memory for it."""
        cell = self._registry.find(group_id)
        if cell is not None:
            return cell
        if not self._has_room(group_id, 0):
            return Errors.INVALID_COMMIT_OFFSET_SIZE
        return self._registry.get_or_create(group_id, self._new_cell)

    def _forgetting(self, cell: GroupCell) -> Callable[[], None]:
        return lambda: self._registry.remove(cell)

    def _new_cell(self, group_id: str, partition: int) -> GroupCell:
        now = Moment(self._clock.monotonic_ms(), self._clock.wall_ms())
        cell = self._make_cell(Group(group_id, now), partition)
        cell.count()
        return cell

    def _make_cell(self, group: Group, partition: int) -> GroupCell:
        return GroupCell(
            group,
            partition,
            store=self._store,
            timer=self._timer,
            clock=self._clock,
            limits=self._limits,
            memory=self._memory,
            lines=self._lines,
        )


def _fits(name: str) -> bool:
    return len(name) * 4 <= _MAX_NAME_BYTES or len(name.encode()) <= _MAX_NAME_BYTES
