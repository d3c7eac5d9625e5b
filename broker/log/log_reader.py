"""Reads a log while other threads append to it and truncate it.

:mod:`.look_ups` finds positions in a list of segments.
"""

from __future__ import annotations

import struct
from typing import Final

import structlog

from broker.log import look_ups
from broker.log.log_context import LogContext
from broker.log.log_offsets import LogOffsets
from broker.log.log_producers import LogProducers
from broker.log.log_segments import FRESH_MS, Segments
from broker.log.results import AbortedTransaction, LogRead, TimestampOffset
from broker.log.segments.batch_walk import DamagedError
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.offsets import MAX_TIMESTAMP
from broker.record.header import iter_batches
from broker.utils.file_region import FileRegion

_log = structlog.get_logger(__name__)
# Between two entries of an index are headers in so many bytes, and the one of the second entry. Pages are read ahead.
_NEAR_BYTES: Final = 8_192


class LogReader:
    """Reads of a log; those of Kafka's LocalLog. A read takes the log's lock only if a truncation
    disturbs it.

    Invariant: returned data existed, whole, between two moments at which ``Segments.generation`` was the same
    and even. Otherwise the read is repeated under the log's lock.

    Owned by one :class:`~broker.log.log.Log`. It changes nothing, so any thread may read.
    """

    __slots__ = ("_context", "_offsets", "_producers", "_segments")

    def __init__(
        self, context: LogContext, offsets: LogOffsets, segments: Segments, producers: LogProducers
    ) -> None:
        self._context = context
        self._segments = segments
        self._offsets = offsets
        self._producers = producers

    # -- records

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one_batch: bool) -> LogRead:
        """A range of batches from ``offset`` on, all below ``end_offset``; the last one may be cut off.

        Raises KafkaError: OFFSET_OUT_OF_RANGE outside ``log_start_offset``..``log_end_offset``,
        INVALID_REQUEST if there is something to read and ``max_bytes`` is below zero, CORRUPT_MESSAGE if the
        offset lies in damaged data, KAFKA_STORAGE_ERROR if the disk fails.
        """
        segments = self._segments
        generation = segments.generation
        if not generation & 1:
            try:
                result = self._read(offset, max_bytes, end_offset, min_one_batch)
            except (OSError, struct.error, IndexError, DamagedError):
                if generation == segments.generation:
                    return self._read_locked(offset, max_bytes, end_offset, min_one_batch)
            else:
                if generation == segments.generation:
                    return result
        return self._read_locked(offset, max_bytes, end_offset, min_one_batch)

    def _read_locked(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> LogRead:
        with self._context.lock:
            try:
                return self._read(offset, max_bytes, end_offset, min_one_batch)
            except DamagedError as damage:
                self._segments.tell_damage(damage)
                raise
            except OSError as error:
                partition = str(self._context.topic_partition)
                _log.error("log_read_failed", partition=partition, offset=offset, error=str(error))
                raise self._context.storage_error("read", error) from error

    def read_committed(
        self, offset: int, max_bytes: int, *, min_one_batch: bool
    ) -> tuple[LogRead, list[AbortedTransaction], int]:
        """As :meth:`read` up to the last stable offset, with the aborted transactions that have records in what was
        read, by first offset, and with that offset. Some others nearby may be among them. All are of the same moment:
        after a compaction between them, the records would be those of a file that is gone; after a truncation, they
        might be those of a transaction whose marker is gone.
        """
        segments, producers = self._segments, self._producers
        generation = segments.generation
        if not generation & 1:
            try:
                stable = producers.last_stable_offset()
                read = self._read(offset, max_bytes, stable, min_one_batch)
                aborted = look_ups.aborted_in(segments.all, offset, read, stable)
            except (OSError, struct.error, IndexError, DamagedError):
                pass  # repeated under the lock, which reports the error if it persists
            else:
                if generation == segments.generation:
                    return read, aborted, stable
        with self._context.lock, self._context.failing("look for aborted transactions in"):
            stable = producers.last_stable_offset()
            read = self._read_locked(offset, max_bytes, stable, min_one_batch)
            return read, look_ups.aborted_in(segments.all, offset, read, stable), stable

    def _read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> LogRead:
        offsets = self._offsets
        log_end_offset = offsets.end
        if offset < offsets.start or offset > log_end_offset:
            raise KafkaError(
                Errors.OFFSET_OUT_OF_RANGE,
                f"{self._context.topic_partition}: offset {offset} is not in "
                f"{offsets.start}..{log_end_offset}",
            )
        end_offset = min(end_offset, log_end_offset)
        if offset >= end_offset:
            return LogRead(None, offset, 0)
        # A response that is full: where the batch begins is not needed.
        if not max_bytes and not min_one_batch:
            return LogRead(None, offset, 0, True)
        segments = self._segments
        segment, recent = segments.tail
        position, end = recent.get(offset), recent.get(end_offset)
        if position is not None and end is not None:
            return look_ups.slice_of(segment, offset, position, end, max_bytes, min_one_batch)
        known_end = None if end is None else (segment, end)
        return look_ups.read_scanning(
            segments.all, offset, end_offset, max_bytes, min_one_batch, known_end=known_end
        )

    def read_bytes(self, offset: int, max_bytes: int, end_offset: int) -> memoryview:
        """Whole batches from ``offset`` on, up to ``end_offset``; at least one if there is any.

        Empty at the end. Raises as :meth:`read`.
        """
        result = self.read(offset, max_bytes, end_offset=end_offset, min_one_batch=True)
        if result.region is None:
            return memoryview(b"")
        with self._context.failing("read"):
            view = memoryview(look_ups.read_region(result.region))
        whole = sum(header.size_bytes for header in iter_batches(view))
        if not whole:
            raise KafkaError(
                Errors.CORRUPT_MESSAGE,
                f"{self._context.topic_partition}: no whole batch stands at offset {offset}",
            )
        return view[:whole]

    def place_of(self, offset: int) -> tuple[int, int] | None:
        """Where the first batch begins that holds ``offset`` or a later one: its segment's base offset and
        the position in that segment's file. Recent batches are found in memory, others through the index.
        None if that fails.
        """
        segment, recent = self._segments.tail
        position = recent.get(offset)
        if position is not None:
            return segment.base_offset, position
        try:
            return look_ups.place_of(self._segments.all, offset)
        except (OSError, struct.error, IndexError, DamagedError):
            return None  # a read reports what is wrong

    def is_recent(self, offset: int) -> bool:
        """Whether one of the latest batches begins at ``offset``, or would as the next one."""
        return offset in self._segments.tail[1]

    def may_wait(self, offset: int, end_offset: int) -> bool:
        """Whether a read from ``offset`` to ``end_offset`` may wait for the disk before it has found where that begins
        and ends. Recent batches are found in memory, others by the index and the headers of one or two batches.
        """
        if self.is_recent(offset) or not self._offsets.start <= offset < min(end_offset, self._offsets.end):
            return False
        return not self._is_near(offset) or not (self.is_recent(end_offset) or self._is_near(end_offset))

    def _is_near(self, offset: int) -> bool:
        segments = self._segments
        if segments.config.index_interval_bytes > _NEAR_BYTES:
            return False  # there may be many headers between two entries
        try:
            places = look_ups.headers_near(segments.all, offset)
            return places is not None and all(self.is_cached(place) for place in places)
        except OSError:
            return False  # a read reports what is wrong

    def is_cached(self, region: FileRegion) -> bool:
        """Whether ``region`` can be sent without waiting for the disk. Data that was just written can; for
        other data its first and last page decide.
        """
        return self.is_fresh(region) or look_ups.is_cached(region)

    def is_fresh(self, region: FileRegion) -> bool:
        """Whether ``region`` was just written."""
        segments = self._segments
        position, since_ms = segments.fresh
        return (
            region.position >= position
            and segments.active.is_of(region.file)
            and 0 <= self._context.clock.wall_ms() - since_ms < 2 * FRESH_MS
        )

    def bring_in(self, region: FileRegion) -> None:
        """Waits until ``region`` is in the page cache. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        with self._context.failing("read"):
            look_ups.bring_in(region)

    # -- look-ups

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with a timestamp of at least ``timestamp`` (ms), or for -3 the one
        with the highest timestamp. None if there is no such record. Raises KafkaError:
        CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        segments = self._segments
        generation = segments.generation
        if not generation & 1:
            try:
                found = self._search(timestamp)
            except (OSError, struct.error, IndexError, DamagedError, KafkaError):
                pass  # repeated under the lock, which reports the error if it persists
            else:
                if generation == segments.generation:
                    return found
        with self._context.lock, self._context.failing("look for a timestamp in"):
            try:
                return self._search(timestamp)
            except DamagedError as damage:
                segments.tell_damage(damage)
                raise

    def _search(self, timestamp: int) -> TimestampOffset | None:
        """Takes the lock only to read the indexes; records are searched without it."""
        segments = self._segments.all
        if timestamp == MAX_TIMESTAMP:
            return look_ups.offset_of_max_timestamp(segments, self._context.lock)
        return look_ups.offset_for_timestamp(segments, timestamp, self._offsets.start, self._context.lock)

    def bytes_of_aborts(self, offset: int) -> int:
        """The size of the largest index of aborted transactions of the segments from ``offset`` on."""
        return look_ups.bytes_of_aborts(self._segments.all, offset)
