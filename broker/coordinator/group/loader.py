"""Reads a partition of __consumer_offsets: later records win, tombstones remove. It reads Kafka 3.9's
records, including those of transactions that a Kafka broker left behind.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Final, Protocol

import structlog

from broker.coordinator.group.offsets import CommittedOffset
from broker.coordinator.group.records import (
    GroupKey,
    GroupRecord,
    MalformedRecord,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from broker.protocol.errors import KafkaError
from broker.record.batch import BatchHeader, Record, crc_is_valid, iter_batches, iter_records
from broker.utils.topic_partition import TopicPartition

LOAD_BYTES: Final = 5 * 1024 * 1024
_COMMIT_MARKER: Final = 1
_MARKER_KEY: Final = struct.Struct(">hh")
_log = structlog.get_logger(__name__)

Offsets = dict[TopicPartition, CommittedOffset]


class ReadableLog(Protocol):
    """The part of :class:`broker.log.log.Log` that is used here."""

    @property
    def log_start_offset(self) -> int: ...
    @property
    def log_end_offset(self) -> int: ...
    def read_bytes(self, offset: int, max_bytes: int) -> memoryview: ...


class LoadError(Exception):
    """The log cannot be read to its end."""


class Replay:
    """The state that a partition's records add up to. One thread feeds it."""

    def __init__(self, partition: int) -> None:
        self.partition = partition
        self.groups: dict[str, GroupRecord] = {}
        self.offsets: dict[str, Offsets] = {}
        self.transactions: dict[int, dict[str, Offsets]] = {}
        self.skipped = 0
        self.first_skipped: tuple[int, str] | None = None

    def feed(self, view: memoryview) -> int | None:
        """Takes whole batches. Returns the offset after the last batch, or None if there was none."""
        next_offset = None
        position = 0
        for header in iter_batches(view):
            self._feed_batch(view, header, position)
            next_offset = header.next_offset
            position += header.size_bytes
        return next_offset

    def _feed_batch(self, view: memoryview, header: BatchHeader, position: int) -> None:
        if not crc_is_valid(view, header, position):
            self._skip(header.base_offset, "the batch fails its checksum")
            return
        try:
            records = iter_records(view, header, position)
        except KafkaError as error:
            self._skip(header.base_offset, str(error))
            return
        if header.is_control:
            self._end_transaction(header, records)
            return
        for record in records:
            try:
                self._feed_record(record, header)
            except MalformedRecord as error:
                self._skip(record.offset, str(error))

    def _feed_record(self, record: Record, header: BatchHeader) -> None:
        if record.key is None:
            raise MalformedRecord("a record without a key")
        key = decode_key(record.key)
        if isinstance(key, GroupKey):
            self._feed_group(key, record)
        elif header.is_transactional:
            self._feed_offset(self.transactions.setdefault(header.producer_id, {}), key, record)
        else:
            self._feed_offset(self.offsets, key, record)

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

    def _end_transaction(self, header: BatchHeader, records: list[Record]) -> None:
        """Handles a transaction marker: the producer's offsets become valid, or are dropped."""
        ended = self.transactions.pop(header.producer_id, {})
        if not records or records[0].key is None or len(records[0].key) < _MARKER_KEY.size:
            self._skip(header.base_offset, "a transaction marker without a type")
            return
        if _MARKER_KEY.unpack_from(records[0].key)[1] != _COMMIT_MARKER:
            return
        for group_id, offsets in ended.items():
            known = self.offsets.setdefault(group_id, {})
            for partition, committed in offsets.items():
                if partition not in known or known[partition].appended_at < committed.appended_at:
                    known[partition] = committed

    def _skip(self, offset: int, reason: str) -> None:
        self.skipped += 1
        self.first_skipped = self.first_skipped or (offset, reason)


def replay(log: ReadableLog, partition: int, is_wanted: Callable[[], bool]) -> Replay | None:
    """Reads the log to its current end. Returns None if the load is no longer wanted.
    Raises :class:`LoadError`.
    """
    result = Replay(partition)
    offset, end = log.log_start_offset, log.log_end_offset
    while offset < end:
        if not is_wanted():
            return None
        next_offset = result.feed(log.read_bytes(offset, LOAD_BYTES))
        if next_offset is None:
            raise LoadError(f"nothing to read at offset {offset} of {end}")
        offset = next_offset
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
