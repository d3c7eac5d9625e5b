"""The transactional ids of one partition of __transaction_state, in parts.

A broker may have hundreds of thousands of them. What is done with all of them is done part by part, because one call
that copies or frees them all would hold the interpreter for a tenth of a second.
"""

from __future__ import annotations

from typing import Final

from broker.coordinator.transaction.metadata import TransactionMetadata

PARTS: Final = 64
"""So a part has 8,000 ids of 500,000. An empty table takes 5 KB."""


class TransactionTable:
    """The transactions by their id. The lock of its :class:`~.partition.TransactionPartition` guards it."""

    __slots__ = ("_parts",)

    def __init__(self) -> None:
        self._parts: list[dict[str, TransactionMetadata]] = [{} for _ in range(PARTS)]

    def __len__(self) -> int:
        return sum([len(part) for part in self._parts])

    def get(self, transactional_id: str) -> TransactionMetadata | None:
        return self._parts[hash(transactional_id) % PARTS].get(transactional_id)

    def put(self, txn: TransactionMetadata) -> None:
        self._parts[hash(txn.transactional_id) % PARTS][txn.transactional_id] = txn

    def remove(self, transactional_id: str) -> None:
        """Raises KeyError if it is not there."""
        del self._parts[hash(transactional_id) % PARTS][transactional_id]

    def part(self, number: int) -> list[TransactionMetadata]:
        """A copy of one of the ``PARTS`` parts."""
        return list(self._parts[number].values())

    def clear(self) -> int:
        """Removes all. Returns what they weighed."""
        weight = 0
        for part in self._parts:
            for txn in part.values():
                weight += txn.weight
            part.clear()
        return weight
