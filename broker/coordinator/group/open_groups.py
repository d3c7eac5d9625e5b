"""Which groups have offsets in which producers' open transactions: a marker ends the transaction in those alone."""

from __future__ import annotations

from collections import Counter

from broker.coordinator.group.cell import GroupCell


class OpenGroups:
    """The groups by partition of __consumer_offsets and producer; Kafka's openGroupsForProducer. The registry's lock
    owns it.

    Invariant: a group is found by a producer from the begin of the producer's commit until the transaction has
    ended in the group. If the offsets are deleted meanwhile, it is found until :meth:`forget_ended` is called
    for the producer.
    """

    def __init__(self) -> None:
        # Most producers commit offsets of one group.
        self._cells: dict[int, dict[int, GroupCell | set[GroupCell]]] = {}
        self._commits: Counter[tuple[int, GroupCell]] = Counter()  # those in progress

    def of(self, partition: int, producer_id: int) -> list[GroupCell]:
        """The groups that may have offsets of the producer."""
        found = self._cells.get(partition, {}).get(producer_id)
        if found is None:
            return []
        return [found] if isinstance(found, GroupCell) else list(found)

    def load(self, cell: GroupCell) -> None:
        """Adds a group that was read from the log."""
        for producer_id in cell.group.offsets.in_transactions.producers():
            self._add(cell, producer_id)

    def begin(self, cell: GroupCell, producer_id: int) -> None:
        """A producer's commit for the group begins."""
        self._commits[producer_id, cell] += 1
        self._add(cell, producer_id)

    def finish(self, cell: GroupCell, producer_id: int) -> None:
        """A commit that began was answered."""
        self._commits[producer_id, cell] -= 1
        if self._commits[producer_id, cell] <= 0:
            del self._commits[producer_id, cell]
        if not self._is_open(cell, producer_id):
            self._remove([cell], cell.partition, producer_id)

    def forget_ended(self, partition: int, producer_id: int) -> None:
        """Forgets the groups that have no offsets of the producer any more."""
        ended = [cell for cell in self.of(partition, producer_id) if not self._is_open(cell, producer_id)]
        self._remove(ended, partition, producer_id)

    def producers(self) -> list[tuple[int, int]]:
        """All producers that it knows, as (partition, producer id)."""
        return [
            (partition, producer_id)
            for partition, producers in self._cells.items()
            for producer_id in producers
        ]

    def drop(self, partition: int) -> None:
        """The partition was given up."""
        self._cells.pop(partition, None)

    def _add(self, cell: GroupCell, producer_id: int) -> None:
        producers = self._cells.setdefault(cell.partition, {})
        found = producers.setdefault(producer_id, cell)
        if isinstance(found, set):
            found.add(cell)
        elif found is not cell:
            producers[producer_id] = {found, cell}

    def _remove(self, cells: list[GroupCell], partition: int, producer_id: int) -> None:
        producers = self._cells.get(partition, {})
        found = producers.get(producer_id)
        if isinstance(found, set):
            found.difference_update(cells)
        if not found or found in cells:
            producers.pop(producer_id, None)

    def _is_open(self, cell: GroupCell, producer_id: int) -> bool:
        return (producer_id, cell) in self._commits or cell.group.offsets.in_transactions.has(producer_id)
