"""The committed offsets of one group, and which of them have expired (KIP-211). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from typing import Final

from broker.coordinator.group.records import OffsetAndMetadata
from broker.coordinator.group.transactional_offsets import CommittedOffset, TransactionalOffsets
from broker.coordinator.group.weights import offset_weight
from broker.utils.topic_partition import TopicPartition

__all__ = ["CommittedOffset", "GroupOffsets"]
_NONE: Final = TransactionalOffsets()


class GroupOffsets:
    """The offsets of one group: the stored ones, the pending ones, and those of open transactions.

    Invariant: what :meth:`get` returns has been acknowledged by the log. Of two acknowledged commits of a
    partition, it is the one later in the log. ``weight`` counts all three kinds. The group's lock owns it.
    """

    __slots__ = ("_committed", "_pending", "_transactions", "_weight")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, list[OffsetAndMetadata]] = {}
        self._weight = 0
        self._transactions: TransactionalOffsets | None = None  # most groups have none

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def in_transactions(self) -> TransactionalOffsets:
        """The offsets that producers committed in transactions, kept apart until a marker decides. To be read."""
        return self._transactions or _NONE

    @property
    def weight(self) -> int:
        return self._weight + self.in_transactions.weight

    @property
    def is_empty(self) -> bool:
        """Whether there is no offset: stored, pending or in a transaction."""
        return not (self._committed or self._pending or self.in_transactions)

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        committed = self._committed.get(partition)
        return None if committed is None else committed.value

    def all(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: committed.value for partition, committed in self._committed.items()}

    def load(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._put(self._committed, offsets)

    def load_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Loads the offsets of a transaction that was open when the log was read."""
        self._in_transactions().load(producer_id, offsets)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether the partition's offset may change soon: a commit is being written, or is part of an open
        transaction (KIP-447).
        """
        return partition in self._pending or self.in_transactions.is_unstable(partition)

    def unstable(self) -> frozenset[TopicPartition]:
        """The partitions whose offset may change soon."""
        return frozenset([*self._pending, *self.in_transactions.partitions()])

    def begin_in_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> None:
        """Adds a producer's offsets that are being written to the log."""
        self._in_transactions().begin(producer_id, offsets)

    def finish_in_transaction(
        self, producer_id: int, offsets: Mapping[TopicPartition, OffsetAndMetadata], appended_at: int | None
    ) -> None:
        """Ends a write of a producer's offsets, as :meth:`TransactionalOffsets.finish`."""
        self._commit(self._in_transactions().finish(producer_id, offsets, appended_at))

    def end_transaction(self, producer_id: int, marker_offset: int, *, committed: bool) -> None:
        """Commits or drops what the producer committed before its marker."""
        self._commit(self._in_transactions().end(producer_id, marker_offset, committed=committed))

    def _in_transactions(self) -> TransactionalOffsets:
        """As :attr:`in_transactions`, to be changed."""
        if self._transactions is None:
            self._transactions = TransactionalOffsets()
        return self._transactions

    def _commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Stores offsets unless later ones are known."""
        newer = {
            partition: one
            for partition, one in offsets.items()
            if (known := self._committed.get(partition)) is None or known.appended_at <= one.appended_at
        }
        self._put(self._committed, newer)
        if not self._transactions:
            self._transactions = None

    def begin(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Adds commits that are being written to the log."""
        for partition, value in offsets.items():
            self._pending.setdefault(partition, []).append(value)
            self._weight += offset_weight(partition, value)

    def growth(self, partition: TopicPartition, value: OffsetAndMetadata) -> int:
        """How much the weight grows if ``value`` replaces the partition's offset. May be 0 or negative."""
        committed = self._committed.get(partition)
        if committed is not None:
            known: OffsetAndMetadata | None = committed.value
        else:
            known = self._pending[partition][-1] if partition in self._pending else None
        if known is not None and known.metadata == value.metadata:
            return 0
        return offset_weight(partition, value) - (0 if known is None else offset_weight(partition, known))

    def finish(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], appended_at: int | None) -> None:
        """Ends pending commits: they were acknowledged at offset ``appended_at``, or failed (None). Offsets
        removed meanwhile stay removed, because their tombstone comes later in the log.
        """
        for partition, value in offsets.items():
            count = self._forget_pending(partition, value)
            known = self._committed.get(partition)
            if count and appended_at is not None and (known is None or known.appended_at <= appended_at):
                self._committed[partition] = CommittedOffset(appended_at, value)
                count -= 1  # this one is kept
                if known is not None:
                    self._weight -= offset_weight(partition, known.value)
            if count:
                self._weight -= count * offset_weight(partition, value)
        if not self._pending:
            self._pending = {}  # a dict keeps its memory after its entries are gone

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Removes the offsets, also pending ones and those in transactions. Returns the partitions that had one:
        their tombstones keep the marker of an open transaction from committing it when the log is loaded.
        """
        removed = []
        partitions, transactions = list(partitions), self._transactions
        unstable = frozenset[TopicPartition]() if transactions is None else transactions.remove(partitions)
        for partition in partitions:
            pending, committed = self._pending.pop(partition, None), self._committed.pop(partition, None)
            if pending is None and committed is None and partition not in unstable:
                continue
            removed.append(partition)
            gone = pending or []
            self._weight -= sum(offset_weight(partition, value) for value in gone)
            if committed is not None:
                self._weight -= offset_weight(partition, committed.value)
        return removed

    def partitions(self) -> list[TopicPartition]:
        """The partitions with an offset."""
        return list(dict.fromkeys([*self._committed, *self._pending, *self.in_transactions.partitions()]))

    def among(self, asked: AbstractSet[TopicPartition]) -> list[TopicPartition]:
        """Those of the partitions that have an offset. The time is that of the smaller number, of these or of all."""
        if len(asked) <= len(self._committed):
            return [one for one in asked if one in self._committed or self.is_unstable(one)]
        return [one for one in self.partitions() if one in asked]

    def expired(
        self,
        now_ms: int,
        retention_ms: int,
        *,
        unused_since_ms: int | None = None,
        subscribed: frozenset[str] = frozenset(),
    ) -> list[TopicPartition]:
        """The partitions whose offset has expired. Times are wall-clock ms.

        The retention time runs from the commit, or from ``unused_since_ms`` if the whole group has been
        unused since then. Topics in ``subscribed`` are kept, and so are unstable partitions: a tombstone after the
        record of a newer commit would lose that commit when the log is compacted.
        """
        return [
            partition
            for partition, (_, value) in self._committed.items()
            if partition.topic not in subscribed
            and not self.is_unstable(partition)
            and _is_expired(value, now_ms, retention_ms, unused_since_ms)
        ]

    def _put(
        self, into: dict[TopicPartition, CommittedOffset], offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        for partition, committed in offsets.items():
            known = into.get(partition)
            if known is not None:
                self._weight -= offset_weight(partition, known.value)
            self._weight += offset_weight(partition, committed.value)
            into[partition] = committed

    def _forget_pending(self, partition: TopicPartition, value: OffsetAndMetadata) -> int:
        """How many of the partition's pending commits were this one: 1, or 0 if it was removed. The caller
        adjusts the weight.
        """
        pending = self._pending.get(partition, [])
        if len(pending) == 1 and pending[0] is value:  # as nearly always
            del self._pending[partition]
            return 1
        left = [other for other in pending if other is not value]
        if left:
            self._pending[partition] = left
        else:
            self._pending.pop(partition, None)
        return len(pending) - len(left)


def _is_expired(
    value: OffsetAndMetadata, now_ms: int, retention_ms: int, unused_since_ms: int | None
) -> bool:
    if value.expire_timestamp_ms is not None:
        return now_ms >= value.expire_timestamp_ms
    since_ms = value.commit_timestamp_ms if unused_since_ms is None else unused_since_ms
    return now_ms - since_ms >= retention_ms
