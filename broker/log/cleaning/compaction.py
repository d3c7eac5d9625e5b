"""What compaction keeps of a batch. Pure, but for what it remembers of transactions from batch to batch.

A record stays if no later record has its key. A tombstone that is the latest record of its key stays for
``delete.retention.ms`` after its first compaction; the batch stores that deadline (KIP-534). The last batch
of each producer stays for its sequence, even if it becomes empty. Records of aborted transactions go. A
transaction's marker stays as long as the log has a batch of the transaction, and then, like a tombstone, for
``delete.retention.ms`` after the first compaction that found none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.log.cleaning.aborts import AbortedRanges
from broker.log.cleaning.offset_map import OffsetMap
from broker.record.batch import Record, assemble, each_record
from broker.record.header import (
    CODEC_MASK,
    DELETE_HORIZON_FLAG,
    NO_TIMESTAMP,
    BatchHeader,
)
from broker.record.records import LONG_MAX, encode_records


class SeenTransactions:
    """Which transactions still have batches in the log; the part of Kafka's CleanedTransactionMetadata that
    decides about markers. One cleaning pass owns it.
    """

    def __init__(self) -> None:
        self._with_batches: set[int] = set()
        #: The offsets of the markers so far whose transactions have batches. The cleaner empties it.
        self.markers: set[int] = set()

    def see_batch(self, header: BatchHeader) -> None:
        """Takes a batch of records."""
        if header.is_transactional:
            self._with_batches.add(header.producer_id)

    def see_marker(self, header: BatchHeader) -> bool:
        """Takes a control batch, and returns whether its transaction has a batch."""
        if header.producer_id not in self._with_batches:
            return False
        self._with_batches.discard(header.producer_id)
        self.markers.add(header.base_offset)
        return True


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The parameters of one cleaning pass, the same for all its segments. ``now_ms`` and
    ``delete_retention_ms`` decide when tombstones and markers go. ``last_batches`` maps a producer id to its last
    batch's last offset, ``epochs`` those without a batch to their epoch, which their marker keeps.
    ``transactions`` sees every batch, in the order of the log.
    """

    offsets: OffsetMap
    aborted: AbortedRanges
    last_batches: Mapping[int, int]
    now_ms: int
    delete_retention_ms: int
    epochs: Mapping[int, int] = field(default_factory=dict)
    transactions: SeenTransactions = field(default_factory=SeenTransactions)

    @property
    def horizon_ms(self) -> int:
        """When the tombstones and markers of a batch go that is compacted now. A retention may be for ever."""
        return min(self.now_ms + self.delete_retention_ms, LONG_MAX)


def compact_batch(view: memoryview, header: BatchHeader, rules: CompactionRules) -> memoryview | None:
    """What replaces the batch at the start of ``view``: the batch itself, a smaller one, or None for nothing.

    Raises KafkaError(CORRUPT_MESSAGE).
    """
    if header.is_control:
        return _compact_marker(view, header, rules)
    rules.transactions.see_batch(header)
    records = () if header in rules.aborted else each_record(view, header)
    kept = [record for record in records if _stays(record, header, rules)]
    if not kept:
        return _empty(header) if _is_last_of_producer(header, rules) else None
    starts_horizon = header.delete_horizon_ms is None and any(record.value is None for record in kept)
    if len(kept) == header.record_count and not starts_horizon:
        return view
    return _rebuilt(header, kept, rules.horizon_ms if starts_horizon else None)


def _compact_marker(view: memoryview, header: BatchHeader, rules: CompactionRules) -> memoryview | None:
    if rules.transactions.see_marker(header):
        return view
    horizon_ms = header.delete_horizon_ms
    if header.record_count and horizon_ms is None:
        return _rebuilt(header, list(each_record(view, header)), rules.horizon_ms)
    if header.record_count and horizon_ms is not None and rules.now_ms < horizon_ms:
        return view
    return _empty(header) if _is_last_of_producer(header, rules) else None


def _stays(record: Record, header: BatchHeader, rules: CompactionRules) -> bool:
    if record.key is None or record.offset < rules.offsets.latest(record.key):
        return False
    horizon_ms = header.delete_horizon_ms
    return record.value is not None or horizon_ms is None or rules.now_ms < horizon_ms


def _is_last_of_producer(header: BatchHeader, rules: CompactionRules) -> bool:
    if header.is_control:
        return rules.epochs.get(header.producer_id) == header.producer_epoch
    return header.producer_id >= 0 and rules.last_batches.get(header.producer_id) == header.last_offset


def _rebuilt(header: BatchHeader, kept: list[Record], horizon_ms: int | None) -> memoryview:
    attributes, base_timestamp = header.attributes, header.base_timestamp
    if horizon_ms is not None:
        attributes, base_timestamp = attributes | DELETE_HORIZON_FLAG, horizon_ms
    max_timestamp = header.max_timestamp
    if not header.is_log_append_time:
        max_timestamp = max(record.timestamp for record in kept)
    header = header._replace(
        attributes=attributes,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        record_count=len(kept),
    )
    return memoryview(assemble(header, encode_records(kept, header.base_offset, base_timestamp)))


def _empty(header: BatchHeader) -> memoryview:
    header = header._replace(
        attributes=header.attributes & ~(CODEC_MASK | DELETE_HORIZON_FLAG),
        base_timestamp=NO_TIMESTAMP,
        record_count=0,
    )
    return memoryview(assemble(header, b""))
