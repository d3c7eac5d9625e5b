"""The committed offsets of one group, and which of them have expired (KIP-211). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.coordinator.group.records import OffsetAndMetadata
from broker.coordinator.group.weights import offset_weight
from broker.utils.topic_partition import TopicPartition


class CommittedOffset(NamedTuple):
    """A committed offset with the position of its record in __consumer_offsets: of two commits, the later
    record wins.
    """

    appended_at: int
    value: OffsetAndMetadata


class GroupOffsets:
    """The offsets of one group: the stored ones, the pending ones, and those of open transactions.

    Invariant: what :meth:`get` returns has been acknowledged by the log. Of two acknowledged commits of a
    partition, it is the one later in the log. ``weight`` counts all three kinds. The group's lock owns it.
    """

    __slots__ = ("_committed", "_in_transactions", "_pending", "weight")

    def __init__(self) -> None:
        self._committed: dict[TopicPartition, CommittedOffset] = {}
        self._pending: dict[TopicPartition, list[OffsetAndMetadata]] = {}
        self._in_transactions: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        self.weight = 0

    def __len__(self) -> int:
        return len(self._committed)

    @property
    def is_empty(self) -> bool:
        """Whether there is no offset: stored, pending or in a transaction."""
        return not (self._committed or self._pending or self._in_transactions)

    def get(self, partition: TopicPartition) -> OffsetAndMetadata | None:
        committed = self._committed.get(partition)
        return None if committed is None else committed.value

    def all(self) -> dict[TopicPartition, OffsetAndMetadata]:
        return {partition: committed.value for partition, committed in self._committed.items()}

    def load(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        self._put(self._committed, offsets)

    def load_transaction(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Loads the offsets of a transaction that was open when the log was read."""
        self._put(self._in_transactions.setdefault(producer_id, {}), offsets)

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for the partition (KIP-447)."""
        return any(partition in offsets for offsets in self._in_transactions.values())

    def begin(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Adds commits that are being written to the log."""
        for partition, value in offsets.items():
            self._pending.setdefault(partition, []).append(value)
            self.weight += offset_weight(partition, value)

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
                    self.weight -= offset_weight(partition, known.value)
            if count:
                self.weight -= count * offset_weight(partition, value)
        if not self._pending:
            self._pending = {}  # a dict keeps its memory after its entries are gone

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Removes the offsets, also pending ones. Returns the partitions that had one."""
        removed = []
        for partition in partitions:
            pending, committed = self._pending.pop(partition, None), self._committed.pop(partition, None)
            if pending is None and committed is None:
                continue
            removed.append(partition)
            gone = pending or []
            self.weight -= sum(offset_weight(partition, value) for value in gone)
            if committed is not None:
                self.weight -= offset_weight(partition, committed.value)
        return removed

    def partitions(self, topic: str | None = None) -> list[TopicPartition]:
        """The partitions with a stored or pending offset, of one topic or of all topics."""
        known = {**dict.fromkeys(self._committed), **dict.fromkeys(self._pending)}
        return [partition for partition in known if topic in {None, partition.topic}]

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
        unused since then. Topics in ``subscribed`` and pending commits are kept.
        """
        return [
            partition
            for partition, (_, value) in self._committed.items()
            if partition.topic not in subscribed
            and partition not in self._pending
            and _is_expired(value, now_ms, retention_ms, unused_since_ms)
        ]

    def _put(
        self, into: dict[TopicPartition, CommittedOffset], offsets: Mapping[TopicPartition, CommittedOffset]
    ) -> None:
        for partition, committed in offsets.items():
            known = into.get(partition)
            if known is not None:
                self.weight -= offset_weight(partition, known.value)
            self.weight += offset_weight(partition, committed.value)
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
