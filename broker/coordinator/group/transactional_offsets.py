"""The offsets of one group that producers committed in transactions, until a marker decides about them. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.coordinator.group.records import OffsetAndMetadata
from broker.coordinator.group.weights import offset_weight
from broker.utils.topic_partition import TopicPartition

Values = Mapping[TopicPartition, OffsetAndMetadata]


class CommittedOffset(NamedTuple):
    """A committed offset with the position of its record in __consumer_offsets: of two commits, the later
    record wins.
    """

    appended_at: int
    value: OffsetAndMetadata


class TransactionalOffsets:
    """The offsets of a group's open transactions; Kafka's pendingTransactionalOffsetCommits.

    Invariant: an offset is decided by the first marker of its producer after its record in the log, in whatever
    order the append and the marker are reported. ``weight`` counts every offset here once. The group's lock
    owns it.
    """

    __slots__ = ("_appended", "_ended", "_unstable", "_writing", "weight")

    def __init__(self) -> None:
        self._appended: dict[int, dict[TopicPartition, CommittedOffset]] = {}
        # What is left of each write, by the id of what :meth:`begin` was given, which its caller keeps.
        self._writing: dict[int, dict[int, dict[TopicPartition, OffsetAndMetadata]]] = {}
        # Markers that were reported while writes were under way, as (offset, committed).
        self._ended: dict[int, list[tuple[int, bool]]] = {}
        self._unstable: Counter[TopicPartition] = Counter()
        self.weight = 0

    def __bool__(self) -> bool:
        return bool(self._appended or self._writing)

    def has(self, producer_id: int) -> bool:
        """Whether the producer has an offset here, or one that is being written."""
        return producer_id in self._appended or producer_id in self._writing

    def producers(self) -> list[int]:
        """The producers that have an offset here, or one that is being written."""
        return [*self._appended, *(self._writing.keys() - self._appended.keys())]

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether an open transaction has an offset for the partition (KIP-447)."""
        return partition in self._unstable

    def growth(self, producer_id: int, partition: TopicPartition, value: OffsetAndMetadata) -> int:
        """How much the weight grows if the producer commits ``value``: 0 if it replaces one like it."""
        known = self._appended.get(producer_id, {}).get(partition)
        if known is not None and known.value.metadata == value.metadata:
            return 0
        return offset_weight(partition, value)

    def load(self, producer_id: int, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        """Loads the offsets of a transaction that was open when the log was read."""
        for partition, committed in offsets.items():
            self._count(partition, committed.value)
            self._keep(producer_id, partition, committed)

    def begin(self, producer_id: int, offsets: Values) -> None:
        """Adds offsets that are being written to the log."""
        self._writing.setdefault(producer_id, {})[id(offsets)] = dict(offsets)
        for partition, value in offsets.items():
            self._count(partition, value)

    def finish(
        self, producer_id: int, offsets: Values, appended_at: int | None
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Ends a write: it was acknowledged at offset ``appended_at``, or failed (None). Returns the offsets that
        are committed now, because their marker was reported before. What was removed meanwhile stays removed, because
        its tombstone comes later in the log.
        """
        ended = self._ended.get(producer_id, ())
        left = self._take_write(producer_id, offsets)
        if appended_at is None:
            self._drop_all(left.items())
            return {}
        kept = {partition: CommittedOffset(appended_at, value) for partition, value in left.items()}
        for marker_offset, committed in ended:
            if marker_offset > appended_at:
                self._drop_all(left.items())
                return kept if committed else {}
        for partition, one in kept.items():
            self._keep(producer_id, partition, one)
        return {}

    def end(
        self, producer_id: int, marker_offset: int, *, committed: bool
    ) -> Mapping[TopicPartition, CommittedOffset]:
        """Ends the producer's transaction by the marker at ``marker_offset``. Returns the offsets that are
        committed now.
        """
        if producer_id in self._writing:
            self._ended.setdefault(producer_id, []).append((marker_offset, committed))
        appended = self._appended.get(producer_id, {})
        decided = {partition: one for partition, one in appended.items() if one.appended_at < marker_offset}
        for partition, one in decided.items():
            del appended[partition]
            self._drop(partition, one.value)
        if not appended:
            self._appended.pop(producer_id, None)
        return decided if committed else {}

    def remove(self, partitions: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        """Drops the offsets of partitions that are gone, also those that are being written. Returns those of the
        partitions that had one.
        """
        removed = frozenset(partition for partition in partitions if partition in self._unstable)
        for partition in removed:
            for producer_id, appended in list(self._appended.items()):
                gone = appended.pop(partition, None)
                if gone is not None:
                    self._drop(partition, gone.value)
                if not appended:
                    del self._appended[producer_id]
            for writes in self._writing.values():
                for left in writes.values():
                    value = left.pop(partition, None)
                    if value is not None:
                        self._drop(partition, value)
        return removed

    def partitions(self) -> list[TopicPartition]:
        """The partitions for which there is an offset."""
        return list(self._unstable)

    def _keep(self, producer_id: int, partition: TopicPartition, one: CommittedOffset) -> None:
        """Keeps a counted offset, unless a later one of the same transaction is known."""
        appended = self._appended.setdefault(producer_id, {})
        known = appended.get(partition)
        if known is not None and known.appended_at > one.appended_at:
            self._drop(partition, one.value)
            return
        appended[partition] = one
        if known is not None:
            self._drop(partition, known.value)

    def _take_write(self, producer_id: int, offsets: Values) -> Values:
        """Forgets a write; returns what is left of it."""
        writes = self._writing.get(producer_id, {})
        left = writes.pop(id(offsets), {})
        if not writes:
            self._writing.pop(producer_id, None)
            self._ended.pop(producer_id, None)
        return left

    def _count(self, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        self._unstable[partition] += 1
        self.weight += offset_weight(partition, value)

    def _drop_all(self, offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]) -> None:
        for partition, value in offsets:
            self._drop(partition, value)

    def _drop(self, partition: TopicPartition, value: OffsetAndMetadata) -> None:
        self._unstable[partition] -= 1
        if self._unstable[partition] <= 0:
            del self._unstable[partition]
        self.weight -= offset_weight(partition, value)
