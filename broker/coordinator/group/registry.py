"""The partitions of __consumer_offsets that this broker coordinates, and the groups in them.

One lock covers both, so that no group appears in a partition that was just given up. The coordinator does the
loading. Leader epochs identify elections, which may be reported late or out of order.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from broker.coordinator.common.led_partitions import LedPartitions
from broker.coordinator.group.cell import GroupCell
from broker.protocol.errors import Errors


class GroupRegistry:
    """The groups and partitions of this coordinator. It owns its lock, which is never held while a group's
    lock is taken.

    Invariant: a cell is found here only while its partition is owned.
    """

    def __init__(self, partition_for: Callable[[str], int], max_groups: int) -> None:
        self._partition_for = partition_for
        self._max_groups = max_groups
        self._lock = threading.Lock()  # lock order 34
        self._cells: dict[str, GroupCell] = {}
        self._led = LedPartitions()
        # Cells that may have offsets in open transactions, by partition, each with its current number of commits in
        # progress.
        self._in_transactions: dict[int, dict[GroupCell, int]] = {}

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

    @contextmanager
    def noting_transaction(self, cell: GroupCell) -> Iterator[None]:
        """Within it, a producer commits offsets of the group in a transaction. :meth:`in_transactions` has the
        group from its beginning until the group has no such offsets.
        """
        with self._lock:
            if self._cells.get(cell.group.group_id) is cell:
                cells = self._in_transactions.setdefault(cell.partition, {})
                cells[cell] = cells.get(cell, 0) + 1
        try:
            yield
        finally:
            with self._lock:
                cells = self._in_transactions.get(cell.partition, {})
                if cell in cells:
                    cells[cell] -= 1

    def in_transactions(self, partition: int) -> list[GroupCell] | None:
        """The cells of a partition that may have offsets in open transactions, without those that have none any
        more. None if the partition is not served here now.
        """
        with self._lock:
            if self._led.refusal(partition) is not None:
                return None
            cells = self._in_transactions.get(partition, {})
            for cell in [
                cell
                for cell, commits in cells.items()
                if commits == 0 and not cell.group.offsets.in_transactions
            ]:
                del cells[cell]
            return list(cells)

    def remove(self, cell: GroupCell) -> None:
        """Removes a dead group, unless a new group has taken its name."""
        with self._lock:
            if self._cells.get(cell.group.group_id) is cell:
                del self._cells[cell.group.group_id]
                self._in_transactions.get(cell.partition, {}).pop(cell, None)

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
            return self._take(partition) if self._led.begin_loading(partition, leader_epoch) else None

    def is_current(self, partition: int, leader_epoch: int) -> bool:
        """Whether the load that started with this epoch is still needed."""
        return self._led.is_current(partition, leader_epoch)

    def publish(self, partition: int, leader_epoch: int, cells: Iterable[GroupCell]) -> bool:
        """Ends the loading; from now on requests are served. Returns False if it came too late."""
        with self._lock:
            if not self._led.publish(partition, leader_epoch):
                return False
            for cell in cells:
                self._cells[cell.group.group_id] = cell
                if cell.group.offsets.in_transactions:
                    self._in_transactions.setdefault(partition, {})[cell] = 0
            return True

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
        self._in_transactions.pop(partition, None)
        return taken
