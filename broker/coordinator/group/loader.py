"""Reads a partition of __consumer_offsets: later records win, tombstones remove. It reads Kafka 3.9's
records, including those of transactions that a Kafka broker left behind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final

import structlog

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.common.replay import BatchReplay, ReadableLog, read_all
from broker.coordinator.group.consumer.records import decode_key as decode_consumer_group_key
from broker.coordinator.group.consumer.records import is_of_consumer_group
from broker.coordinator.group.consumer.stored import StoredConsumerGroup
from broker.coordinator.group.offsets import CommittedOffset
from broker.coordinator.group.records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from broker.record.batch import BatchHeader, Record
from broker.utils.topic_partition import TopicPartition

_COMMIT_MARKER: Final = 1
_MARKER_KEY: Final = struct.Struct(">hh")
_log = structlog.get_logger(__name__)

Offsets = dict[TopicPartition, CommittedOffset]


class Replay(BatchReplay):
    """The state that a partition's records add up to. One thread feeds it."""

    def __init__(self, partition: int) -> None:
        super().__init__()
        self.partition = partition
        self.groups: dict[str, GroupRecord] = {}
        self.consumer_groups: dict[str, StoredConsumerGroup] = {}
        self.offsets: dict[str, Offsets] = {}
        self.transactions: dict[int, dict[str, Offsets]] = {}

    def feed_record(self, record: Record, header: BatchHeader) -> None:
        if record.key is None:
            raise MalformedRecord("a record without a key")
        if is_of_consumer_group(record.key):
            self._feed_consumer_group(record.key, record.value)
            return
        key = decode_key(record.key)
        if isinstance(key, GroupKey):
            self._feed_group(key, record)
        elif header.is_transactional:
            self._feed_offset(self.transactions.setdefault(header.producer_id, {}), key, record)
        else:
            self._feed_offset(self.offsets, key, record)

    def _feed_consumer_group(self, encoded: bytes, value: bytes | None) -> None:
        key = decode_consumer_group_key(encoded)
        self.consumer_groups.setdefault(key.group_id, StoredConsumerGroup()).feed(key, value)

    def _feed_group(self, key: GroupKey, record: Record) -> None:
        if record.value is None:
            self.groups.pop(key.group_id, None)
        else:
            self.groups[key.group_id] = decode_group_value(record.value)

    def _feed_offset(self, into: dict[str, Offsets], key: OffsetKey, record: Record) -> None:
        if record.value is None:
            into.get(key.group_id, {}).pop(key.partition, None)
        else:
            committed = CommittedOffset(record.offset, decode_offset_value(record.value))
            into.setdefault(key.group_id, {})[key.partition] = committed

    def feed_marker(self, header: BatchHeader, records: list[Record]) -> None:
        """Handles a transaction marker: the producer's offsets become valid, or are dropped."""
        if not records:
            return  # compaction removed the marker, after all records of its transaction
        ended = self.transactions.pop(header.producer_id, {})
        if not records or records[0].key is None or len(records[0].key) < _MARKER_KEY.size:
            self.skip(header.base_offset, "a transaction marker without a type")
            return
        if _MARKER_KEY.unpack_from(records[0].key)[1] != _COMMIT_MARKER:
            return
        for group_id, offsets in ended.items():
            known = self.offsets.setdefault(group_id, {})
            for partition, committed in offsets.items():
                if partition not in known or known[partition].appended_at < committed.appended_at:
                    known[partition] = committed


def replay(log: ReadableLog, partition: int, is_wanted: Callable[[], bool]) -> Replay | None:
    """Reads the log to its current end. Returns None if the load is no longer wanted.
    Raises :class:`LoadError`.
    """
    result = Replay(partition)
    if not read_all(log, result, is_wanted):
        return None
    if result.first_skipped is not None:
        _log.warning(
            "offsets_records_skipped",
            partition=partition,
            skipped=result.skipped,
            first_offset=result.first_skipped[0],
            reason=result.first_skipped[1],
            action="these groups and offsets are unknown here; kafka-dump-log shows the records",
        )
    return result
