"""Reads a partition of __consumer_offsets: later records win, tombstones remove. It reads Kafka 3.9's
records, including those of transactions that a Kafka broker left behind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from typing import Final

import structlog

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.common.replay import BatchReplay, ReadableLog, read_all
from broker.coordinator.group.consumer.records import KeyKind, is_of_consumer_group
from broker.coordinator.group.consumer.records import decode_key as decode_consumer_group_key
from broker.coordinator.group.consumer.records import encode_key as encode_consumer_group_key
from broker.coordinator.group.consumer.stored import StoredConsumerGroup
from broker.coordinator.group.offsets import CommittedOffset
from broker.coordinator.group.records import (
    GroupKey,
    GroupRecord,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
    encode_group_key,
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
        #: The keys of a group's records of the kind that it no longer is, for which there are no tombstones: the later
        #: record decides. A Kafka that does not know consumer groups may have led the partition.
        self.stale_keys: dict[str, dict[bytes, None]] = {}
        self.offsets: dict[str, Offsets] = {}
        self.transactions: dict[int, dict[str, Offsets]] = {}
        self._producers_of: dict[str, set[int]] = {}  # of each group, those with offsets in ``transactions``

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
            self._producers_of.setdefault(key.group_id, set()).add(header.producer_id)
        else:
            self._feed_offset(self.offsets, key, record)
            if record.value is None:  # it was removed, also from the transactions that were open
                for producer_id in self._producers_of.get(key.group_id, ()):
                    self._feed_offset(self.transactions.get(producer_id, {}), key, record)

    def _feed_consumer_group(self, encoded: bytes, value: bytes | None) -> None:
        key = decode_consumer_group_key(encoded)
        group_id = key.group_id
        self.stale_keys.get(group_id, {}).pop(encoded, None)
        if key.kind is KeyKind.GROUP_METADATA and value is not None and group_id in self.groups:
            del self.groups[group_id]
            self._are_stale(group_id, [encode_group_key(group_id)])
        self.consumer_groups.setdefault(group_id, StoredConsumerGroup(group_id)).feed(key, value)

    def _feed_group(self, key: GroupKey, record: Record) -> None:
        self.stale_keys.get(key.group_id, {}).pop(encode_group_key(key.group_id), None)
        if record.value is None:
            self.groups.pop(key.group_id, None)
            return
        self.groups[key.group_id] = decode_group_value(record.value)
        consumer_group = self.consumer_groups.pop(key.group_id, None)
        if consumer_group is not None:
            self._are_stale(key.group_id, map(encode_consumer_group_key, consumer_group.keys()))

    def _are_stale(self, group_id: str, keys: Iterable[bytes]) -> None:
        self.stale_keys.setdefault(group_id, {}).update(dict.fromkeys(keys))

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
        for group_id in ended:
            self._producers_of[group_id].discard(header.producer_id)
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
