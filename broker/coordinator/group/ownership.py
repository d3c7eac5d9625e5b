"""Starts and stops coordinating a partition of __consumer_offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import structlog

from broker.coordinator.common.load_times import LoadTimes
from broker.coordinator.common.loading import Loading
from broker.coordinator.common.replay import ReadableLog
from broker.coordinator.group import commits
from broker.coordinator.group.cell import GroupCell
from broker.coordinator.group.consumer import heartbeats
from broker.coordinator.group.consumer.unstored import Unstored
from broker.coordinator.group.group import Group
from broker.coordinator.group.loader import Offsets, Replay, replay
from broker.coordinator.group.messages import Effects, GroupLimits, Moment
from broker.coordinator.group.rebalance import prepare_rebalance, unload
from broker.coordinator.group.records import GroupRecord
from broker.coordinator.group.registry import GroupRegistry
from broker.coordinator.group.states import GroupState
from broker.coordinator.group.transactions import end_in
from broker.replication.transaction_markers import OffsetsMarker
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)


class Ownership:
    """The loading of groups on election, on the scheduler's threads, and their unloading on resignation. The
    registry holds all state.

    A log that cannot be read is retried while this broker leads the partition. Serving a partial load would
    tell consumers that their offsets are gone.
    """

    def __init__(
        self,
        registry: GroupRegistry,
        log_of: Callable[[int], ReadableLog | None],
        make_cell: Callable[[Group, int], GroupCell],
        *,
        scheduler: KafkaScheduler,
        clock: Clock,
        limits: GroupLimits,
    ) -> None:
        self._registry = registry
        self._log_of = log_of
        self._make_cell = make_cell
        self._clock = clock
        self._limits = limits
        self._loading = Loading(scheduler, "groups", registry.is_current, self._load, clock=clock)

    @property
    def load_times(self) -> LoadTimes:
        return self._loading.times

    def on_election(self, partition: int, leader_epoch: int) -> None:
        if self._registry.continues(partition, leader_epoch):
            return
        former = self._registry.begin_loading(partition, leader_epoch)
        if former is None:
            _log.info("group_election_is_stale", partition=partition, leader_epoch=leader_epoch)
            return
        self._unload(former)
        self._loading.schedule(partition, leader_epoch)

    def on_resignation(self, partition: int, leader_epoch: int | None) -> None:
        cells = self._registry.resign(partition, leader_epoch)
        if cells is None:
            _log.info("group_resignation_is_stale", partition=partition, leader_epoch=leader_epoch)
        elif cells:
            self._unload(cells)
            _log.info("group_metadata_unloaded", partition=partition, groups=len(cells))

    def resign_all(self) -> None:
        self._unload(self._registry.cells())

    def _unload(self, cells: list[GroupCell]) -> None:
        for cell in cells:
            cell.run(unload)

    def _load(self, partition: int, leader_epoch: int) -> bool:
        started_ms = self._clock.monotonic_ms()
        log = self._log_of(partition)
        if log is None:
            raise LookupError(f"__consumer_offsets-{partition} is led here but has no log")
        loaded = replay(log, partition, lambda: self._registry.is_current(partition, leader_epoch))
        if loaded is None:
            return False
        cells = [self._make_cell(group, partition) for group in self._groups(loaded)]
        served = self._publish(partition, leader_epoch, cells)
        if served is None:
            return False
        cells = served
        for cell in cells:
            cell.run(self._start)
        say = _log.info if cells else _log.debug  # most of the 50 partitions of a young cluster are empty
        say(
            "group_metadata_loaded",
            partition=partition,
            leader_epoch=leader_epoch,
            groups=len(cells),
            offsets=sum(len(cell.group.offsets) for cell in cells),
            took_ms=self._clock.monotonic_ms() - started_ms,
        )
        return True

    def _publish(self, partition: int, leader_epoch: int, cells: list[GroupCell]) -> list[GroupCell] | None:
        """Begins to serve the groups. Returns those that are left, or None if it came too late. Of partitions that
        were deleted while the log was read, offsets are removed first: whoever commits one later means a new topic.
        Before that, transactions end by the markers that were appended meanwhile: what the producer commits later is
        of its next transaction, whose marker must not decide about these offsets.
        """
        left = cells
        removed: set[TopicPartition] = set()
        is_changed = False
        while found := self._registry.publish(partition, leader_epoch, left, removed):
            deleted, markers = found
            if not deleted and not markers:
                return left
            is_changed = True
            _end_transactions(left, markers)
            if deleted:
                for cell in left:
                    cell.run(partial(commits.remove_partitions, deleted=deleted, forget=_is_not_known_yet))
                left = [cell for cell in left if not cell.is_dead]
                removed |= deleted
        if is_changed:
            self._unload(left)  # what they hold was counted
        return None

    def _start(self, group: Group, now: Moment) -> Effects:
        """Starts all sessions now. A group with more members than ``group.max.size`` rebalances. One that is served
        by another broker by now has ended, and must not remove members in the log of that one.
        """
        if group.state is GroupState.DEAD:
            return []
        if group.consumer is not None:
            heartbeats.start(group.consumer, now, self._limits.consumers)
            group.wake_by(group.consumer.next_deadline_ms())
        if len(group.members) > self._limits.max_size:
            return prepare_rebalance(group, now, self._limits)
        return []

    def _groups(self, loaded: Replay) -> list[Group]:
        now = Moment(self._clock.monotonic_ms(), self._clock.wall_ms())
        group_ids = loaded.groups.keys() | {g for g, offsets in loaded.offsets.items() if offsets}
        open_offsets_of = _by_group(loaded.transactions)
        group_ids |= open_offsets_of.keys()
        consumer_groups = {g: stored for g, stored in loaded.consumer_groups.items() if stored.exists}
        group_ids |= consumer_groups.keys() | {g for g, keys in loaded.stale_keys.items() if keys}
        groups = []
        for group_id in sorted(group_ids):
            group = _restore(group_id, loaded.groups.get(group_id), now)
            if group_id in consumer_groups:
                group.consumer = consumer_groups[group_id].restore()
            stale = dict.fromkeys(loaded.stale_keys.get(group_id, ()))
            if stale:
                unstored = Unstored() if group.consumer is None else group.consumer.unstored
                unstored.note_all(stale)
                group.leftover = unstored if group.consumer is None else None
            group.offsets.load(loaded.offsets.get(group_id, {}))
            for producer_id, offsets in open_offsets_of.get(group_id, ()):
                group.offsets.load_transaction(producer_id, offsets)
            groups.append(group)
        return groups


def _end_transactions(cells: Iterable[GroupCell], markers: Sequence[OffsetsMarker]) -> None:
    """Ends transactions in cells that nobody else knows yet."""
    for cell in cells:
        if cell.group.offsets.in_transactions:
            for marker in markers:
                end_in(cell, marker)


def _is_not_known_yet() -> None:
    """Does nothing: the registry is not told about a group that has ended before it is served."""


def _restore(group_id: str, record: GroupRecord | None, now: Moment) -> Group:
    if record is None:
        return Group(group_id, now)
    try:
        return Group.from_record(group_id, record, now)
    except ValueError as error:
        _log.warning(
            "group_record_skipped", group=group_id, reason=str(error), action="its members join again"
        )
        return Group(group_id, now)


def _by_group(transactions: Mapping[int, Mapping[str, Offsets]]) -> dict[str, list[tuple[int, Offsets]]]:
    """Each group's offsets in open transactions, with their producer ids."""
    found: dict[str, list[tuple[int, Offsets]]] = {}
    for producer_id, by_group in transactions.items():
        for group_id, offsets in by_group.items():
            if offsets:
                found.setdefault(group_id, []).append((producer_id, offsets))
    return found
