"""The partitions of __consumer_offsets that this broker coordinates, and the groups in them.

One lock covers both, so that no group appears in a partition that was just given up. The coordinator does the
loading. Leader epochs identify elections, which may be reported late or out of order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NamedTuple

from broker.coordinator.common.led_partitions import LedPartitions
from broker.coordinator.group.cell import GroupCell
from broker.coordinator.group.open_groups import OpenGroups
from broker.protocol.errors import Errors
from broker.replication.transaction_markers import OffsetsMarker
from broker.utils.topic_partition import TopicPartition

_NONE_REMOVED: Final[AbstractSet[TopicPartition]] = frozenset()


class Meanwhile(NamedTuple):
    """What happened while a partition was being loaded, and is to be taken up before its groups are served: deleted
    partitions, and the transaction markers that were appended, in their order.
    """

    deleted: AbstractSet[TopicPartition]
    markers: list[OffsetsMarker]


class GroupRegistry:
    """The groups and partitions of this coordinator. It owns its lock, which is never held while a group's
    lock is taken.

    Invariants: a cell is found here only while its partition is owned. A deletion of partitions is noted for each
    load that it finds under way, and for no later one: another broker may have been coordinator before that. A marker
    is noted for the load of its partition: one that is appended later must not be taken up before it.
    """

    def __init__(self, partition_for: Callable[[str], int], max_groups: int) -> None:
        self._partition_for = partition_for
        self._max_groups = max_groups
        self._lock = threading.Lock()  # lock order 34
        self._cells: dict[str, GroupCell] = {}
        self._led = LedPartitions()
        self._open = OpenGroups()
        # By partition that is being loaded.
        self._deleted: dict[int, set[TopicPartition]] = {}
        self._markers: dict[int, list[OffsetsMarker]] = {}

    def find(self, group_id: str) -> GroupCell | None:
        return self._cells.get(group_id)

    def cells(self) -> list[GroupCell]:
        with self._lock:
            return list(self._cells.values())

    @property
    def is_loading(self) -> bool:
        return self._led.is_loading

    def refusal(self, group_id: str) -> Errors | None:
        """The error for a group that this broker does not serve (now); None if it does."""
        if group_id in self._cells:
            return None
        return self._led.refusal(self._partition_for(group_id))

    def get_or_create(self, group_id: str, make: Callable[[str, int], GroupCell]) -> GroupCell | Errors:
        """The group's cell, which is created if necessary. An error if the group belongs to another broker or
        there are too many groups.
        """
        partition = self._partition_for(group_id)
        with self._lock:
            refusal = self._led.refusal(partition)
            if refusal is not None:
                return refusal
            cell = self._cells.get(group_id)
            if cell is None:
                if len(self._cells) >= self._max_groups:
                    return Errors.GROUP_MAX_SIZE_REACHED
                cell = self._cells[group_id] = make(group_id, partition)
            return cell

    def noting_transaction(self, cell: GroupCell, producer_id: int) -> Callable[[], None]:
        """A producer begins to commit offsets of the group in a transaction: :meth:`note_marker` finds the group
        from now on. Returns what is to be called when the commit is answered; only the first call counts.
        """
        with self._lock:
            if self._cells.get(cell.group.group_id) is not cell:
                return _nothing
            self._open.begin(cell, producer_id)
        pending = [producer_id]

        def finish() -> None:
            with self._lock:
                if pending:
                    self._open.finish(cell, pending.pop())

        return finish

    def note_marker(self, marker: OffsetsMarker) -> list[GroupCell]:
        """A marker was appended. Returns the cells that may have offsets in the producer's transaction: none while
        the partition is being loaded, because :meth:`publish` tells it to those who load it.
        """
        with self._lock:
            noted = self._markers.get(marker.partition)
            if noted is not None:
                noted.append(marker)
                return []
            return self._open.of(marker.partition, marker.producer_id)

    def forget_ended(self, partition: int, producer_id: int) -> None:
        """Forgets the cells that have no offsets of the producer any more."""
        with self._lock:
            self._open.forget_ended(partition, producer_id)

    def forget_all_ended(self) -> None:
        """The same for all producers, of whom groups and topics with offsets may have been deleted."""
        with self._lock:
            known = self._open.producers()
        for partition, producer_id in known:
            self.forget_ended(partition, producer_id)

    def remove(self, cell: GroupCell) -> None:
        """Removes a dead group, unless a new group has taken its name."""
        with self._lock:
            if self._cells.get(cell.group.group_id) is cell:
                del self._cells[cell.group.group_id]

    def continues(self, partition: int, leader_epoch: int) -> bool:
        """Whether this election only continues the ownership: with the next epoch in sequence, no other
        broker led in between.

        This happens when a follower dies. Members' waiting requests go on.
        """
        with self._lock:
            return self._led.continues(partition, leader_epoch)

    def begin_loading(self, partition: int, leader_epoch: int) -> list[GroupCell] | None:
        """Handles an election. Returns the cells of the earlier ownership, to be unloaded, or None if this
        election is stale.
        """
        with self._lock:
            if not self._led.begin_loading(partition, leader_epoch):
                return None
            taken = self._take(partition)
            self._deleted[partition], self._markers[partition] = set(), []
            return taken

    def is_current(self, partition: int, leader_epoch: int) -> bool:
        """Whether the load that started with this epoch is still needed."""
        return self._led.is_current(partition, leader_epoch)

    def note_deleted(self, deleted: Iterable[TopicPartition]) -> list[GroupCell]:
        """Partitions were deleted. Returns the cells from which their offsets are to be removed; :meth:`publish` tells
        it to those who load others.
        """
        with self._lock:
            for noted in self._deleted.values():
                noted.update(deleted)
            return list(self._cells.values())

    def publish(
        self,
        partition: int,
        leader_epoch: int,
        cells: Iterable[GroupCell],
        removed: AbstractSet[TopicPartition] = _NONE_REMOVED,
    ) -> Meanwhile | None:
        """Ends the loading; from now on requests are served. Returns None if it came too late.

        If more partitions were deleted meanwhile than those whose offsets were ``removed``, or markers were appended,
        it returns these and the loading goes on. A marker is returned once.
        """
        with self._lock:
            if not self._led.is_current(partition, leader_epoch):
                return None
            found = Meanwhile(self._deleted[partition] - removed, self._markers[partition])
            if any(found):
                self._markers[partition] = []
                return found
            del self._deleted[partition], self._markers[partition]
            self._led.publish(partition, leader_epoch)
            for cell in cells:
                self._cells[cell.group.group_id] = cell
                self._open.load(cell)
            return found

    def resign(self, partition: int, leader_epoch: int | None) -> list[GroupCell] | None:
        """Gives up a partition that another broker leads, or that is gone (no epoch). Returns its cells, or
        None if stale.
        """
        with self._lock:
            return self._take(partition) if self._led.resign(partition, leader_epoch) else None

    def _take(self, partition: int) -> list[GroupCell]:
        taken = [cell for cell in self._cells.values() if cell.partition == partition]
        for cell in taken:
            del self._cells[cell.group.group_id]
        self._open.drop(partition)
        self._deleted.pop(partition, None)
        self._markers.pop(partition, None)
        return taken


def _nothing() -> None:
    pass
