"""One partition's log: its segments and all that happens to them.

Appends take one lock; reads take none. ``log_end_offset`` moves after the write, and a read goes by offsets
that were there before it began, so no one sees half an append. A truncation bumps a generation number: a read
that it disturbed is done again under the lock. Loading and recovery are :mod:`.loader`'s, look-ups
:mod:`.reader`'s, compaction :mod:`.cleaner`'s. Knows nothing of replicas: the high watermark is told.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

import structlog

from broker.config.log_config import LogConfig
from broker.log import reader
from broker.log.appended import (
    CheckedBatches,
    FetchedBatches,
    any_has_producer,
    drop_older_half,
    rules_of,
    runs_that_fit,
)
from broker.log.local_log import LocalLog
from broker.log.producers.producer_replay import note_batch
from broker.log.results import AbortedTransaction, AppendInfo, EpochEndOffset, LogRead, TimestampOffset
from broker.log.segments.batch_file import INT32_MAX, LOG_SUFFIX
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.segment import AppendedBatch, Segment
from broker.protocol.errors import Errors, KafkaError
from broker.record import validator
from broker.record.header import LOG_OVERHEAD_BYTES, BatchHeader, iter_batches, set_offset_and_epoch
from broker.record.validator import AppendOrigin
from broker.utils.file_region import FileRegion

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "EpochEndOffset",
    "Log",
    "LogRead",
    "TimestampOffset",
]

_log = structlog.get_logger(__name__)

LATEST_TIMESTAMP, EARLIEST_TIMESTAMP, MAX_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP = -1, -2, -3, -4
_RECENT_BATCHES = 256
_INSPECT_INLINE_BYTES = 64 * 1024
# The kernel keeps what was written for longer than this.
_FRESH_MS = 1_000


class Log(LocalLog):
    """Kafka's UnifiedLog. Made by :func:`broker.log.loading.loader.load_log`; its invariants are
    :class:`broker.log.log_files.LogFiles`'.
    """

    # From which position on the active segment was written lately, and since when (wall clock, ms).
    _fresh = (0, -(1 << 62))

    def update_config(self, config: LogConfig) -> None:
        """Takes a changed topic config; what is on disk already stays as it is."""
        super().update_config(config)
        self.rules = rules_of(config)

    # -- appending ---------------------------------------------------------------------------------

    def needs_recompression(self, records: memoryview) -> bool:
        """Whether appending ``records`` means work on the records themselves: for a handler thread, not
        inline.
        """
        rules = self.rules
        if not rules.may_walk:
            return False
        headers = list(iter_batches(records))
        if validator.needs_recompression(headers, rules):
            return True
        return rules.looks_inside and (
            len(records) > _INSPECT_INLINE_BYTES or any(header.codec_id for header in headers)
        )

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """Appends whole v2 batches, which get their offsets and ``leader_epoch`` here, in place.

        All or nothing. Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD, MESSAGE_TOO_LARGE,
        RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP, INVALID_PRODUCER_EPOCH,
        OUT_OF_ORDER_SEQUENCE_NUMBER, KAFKA_STORAGE_ERROR. A retried batch is not written again: ``duplicate``
        is set. The sync that ``flush.messages`` may ask for is the caller's to see to (``flush_due``).
        """
        return self.append_checked(self.check(records, origin), leader_epoch)

    def check(self, records: memoryview, origin: AppendOrigin = AppendOrigin.CLIENT) -> CheckedBatches:
        """What of :meth:`append_as_leader` needs no lock and may take long: all that is asked of the batches
        themselves, and their recompression.

        Raises KafkaError as there, but for what depends on the log and its producers.
        """
        if origin is AppendOrigin.CLIENT and self.health.refusal is not None:
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, self.health.refusal)
        rules = self.rules
        now_ms = self._clock.wall_ms()
        headers = validator.check_batches(records, rules, origin, now_ms, self.topic_partition)
        if rules.target_codec is not None and validator.needs_recompression(headers, rules):
            records, headers = validator.recompress(records, headers, rules)
        elif records.readonly:
            records = memoryview(bytearray(records))
        if len(records) > self.config.segment_bytes:
            raise KafkaError(
                Errors.RECORD_LIST_TOO_LARGE,
                f"{self.topic_partition}: {len(records)} bytes exceed "
                f"segment.bytes={self.config.segment_bytes}",
            )
        return CheckedBatches(records, headers, origin, rules.log_append_time, now_ms)

    def append_checked(self, checked: CheckedBatches, leader_epoch: int) -> AppendInfo:
        """Appends what :meth:`check` gave, once. Raises as :meth:`append_as_leader`."""
        records, headers, origin, log_append_time, now_ms = checked
        with self.lock:
            if log_append_time:  # here, for append times rise with the offsets
                now_ms = self._clock.wall_ms()
                headers = validator.stamp_append_time(records, headers, now_ms)
            has_producer = headers[0].producer_id >= 0 if len(headers) == 1 else any_has_producer(headers)
            if has_producer:
                known = self.producer_state.check(headers, origin)
                if known is not None:
                    return self._duplicate_info(
                        headers, known.first_offset, known.last_offset, known.timestamp
                    )
            first_offset = offset = self.log_end_offset
            batches: list[AppendedBatch] = []
            position = 0
            for header in headers:
                set_offset_and_epoch(records, position, offset, header.length, leader_epoch)
                size = header.length + LOG_OVERHEAD_BYTES
                last_offset = offset + header.last_offset_delta
                batches.append((offset, last_offset, size, header.max_timestamp))
                position += size
                offset = last_offset + 1
            if leader_epoch != self.leader_epochs.settled_epoch:
                self.leader_epochs.settle(leader_epoch, first_offset)
            self._write(records, batches, now_ms)
            if has_producer:
                self._note_producers(records, headers, batches)
            self._want_sync(offset)
        return self._info(headers, batches, leader_epoch, now_ms if log_append_time else -1, len(records))

    def append_as_follower(self, records: memoryview, leader_epoch: int = INT32_MAX) -> AppendInfo:
        """Appends what a leader of ``leader_epoch`` sent, as it is, up to the first batch that is incomplete or wrong.
        As with :meth:`append_as_leader`, the sync that may be due is the caller's to see to, with no lock held.

        Raises KafkaError: CORRUPT_MESSAGE when that is the first, OFFSET_OUT_OF_RANGE when they begin below
        the log's end, KAFKA_STORAGE_ERROR.
        """
        return self.append_fetched(self.check_fetched(records), leader_epoch)

    def check_fetched(self, records: memoryview) -> FetchedBatches:
        """What of :meth:`append_as_follower` needs no lock and reads every byte: the checksums. Raises
        KafkaError(CORRUPT_MESSAGE).
        """
        return FetchedBatches(records, validator.check_fetched(records, self.topic_partition))

    def append_fetched(self, checked: FetchedBatches, leader_epoch: int) -> AppendInfo:
        """Appends what :meth:`check_fetched` gave. Raises as :meth:`append_as_follower`."""
        records, headers = checked
        if not headers:
            return AppendInfo(-1, -1, -1, -1, self.log_start_offset, False, 0, 0, -1)
        with self.lock:
            end_offset = self.log_end_offset
            epochs = range(self.leader_epochs.epoch_for_offset(end_offset - 1), leader_epoch + 1)
            headers = headers[: validator.check_follows(headers, end_offset, epochs, self.topic_partition)]
            batches = [
                (header.base_offset, header.last_offset, header.size_bytes, header.max_timestamp)
                for header in headers
            ]
            total = sum(batch[2] for batch in batches)
            now_ms = self._clock.wall_ms()
            position = first = 0
            for group in runs_that_fit(batches, self.config.segment_bytes):
                size = sum(batch[2] for batch in group)
                view, own = records[position : position + size], headers[first : first + len(group)]
                self._write_fetched(view, own, group, now_ms)
                position += size
                first += len(group)
            self._want_sync(self.log_end_offset)
        return self._info(headers, batches, headers[-1].leader_epoch, -1, total)

    def _write_fetched(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        batches: Sequence[AppendedBatch],
        now_ms: int,
    ) -> None:
        """One segment's share of a fetch: epochs and producers know of what was written, and of no more."""
        for header in headers:
            if header.leader_epoch != self.leader_epochs.settled_epoch:
                self.leader_epochs.settle(header.leader_epoch, header.base_offset)
        try:
            self._write(data, batches, now_ms)
        except KafkaError:
            self.leader_epochs.truncate_from_end(self.log_end_offset)
            raise
        if any_has_producer(headers):
            self._note_producers(data, headers, batches)

    def _write(self, data: memoryview, batches: Sequence[AppendedBatch], now_ms: int) -> None:
        if self._closed or self.health.failure is not None:
            self._require_open()
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, self.health.failure or "")
        segment = self._segment_for(len(data), batches, now_ms)
        position = segment.size
        try:
            segment.append(data, batches, self.config.index_interval_bytes)
        except OSError as error:
            raise self._write_failure(segment, len(data), error) from error
        recent = self._tail[1]
        if batches[0][0] != self.log_end_offset:  # a fetched batch after a gap
            recent.pop(self.log_end_offset, None)
            recent[batches[0][0]] = position
        for _, last_offset, size, _ in batches:
            position += size
            recent[last_offset + 1] = position
        if len(recent) > _RECENT_BATCHES:
            drop_older_half(recent)
        self.log_end_offset = batches[-1][1] + 1
        if segment.size == len(data) or not 0 <= now_ms - self._fresh[1] < _FRESH_MS:
            self._fresh = (segment.size - len(data), now_ms)

    def _segment_for(self, size: int, batches: Sequence[AppendedBatch], now_ms: int) -> Segment:
        segment = self._active
        too_far = batches[-1][1] - segment.base_offset > INT32_MAX
        if segment.size and (
            segment.size + size > self.config.segment_bytes
            or too_far
            or segment.indexes_full
            or self._is_old(segment, batches, now_ms)
        ):
            segment = self.roll()
        if batches[-1][1] - segment.base_offset > INT32_MAX:
            self._replace_active(batches[0][0])
        return self._active

    def _is_old(self, segment: Segment, batches: Sequence[AppendedBatch], now_ms: int) -> bool:
        """Whether ``segment.ms`` has passed, by the batches' timestamps or else by the clock, and a roll may be."""
        first = segment.first_timestamp
        if first is None:
            first = segment.first_batch_timestamp()
        latest = batches[0][3] if len(batches) == 1 else max(batch[3] for batch in batches)
        age_ms = latest - first if first is not None and first >= 0 else now_ms - segment.created_ms
        if age_ms <= self._segment_ms or not self._roll_pace.allows(now_ms, self._rolled_for_age_ms):
            return False
        self._rolled_for_age_ms = now_ms
        return True

    def _write_failure(self, segment: Segment, size: int, error: OSError) -> KafkaError:
        """Takes back what was written. Where that fails the directory does: batches of the torn end could be taken
        for sound ones behind a shorter write to the same place.
        """
        torn = False
        try:
            segment.cut_back()
        except OSError as cut_error:
            torn = True
            _log.error("log_cut_back_failed", partition=str(self.topic_partition), error=str(cut_error))
        refused_before = self.health.is_full and not torn
        failure = self._storage_error("append to", error, torn=torn)
        if not refused_before:  # a follower on a full disk tries again and again
            _log.error(
                "log_write_failed",
                partition=str(self.topic_partition),
                file=str(segment.path(".log")),
                bytes=size,
                error=error.strerror or str(error),
                do="free space on the disk or replace it; nothing was appended",
            )
        return failure

    def _note_producers(
        self, records: memoryview, headers: Sequence[BatchHeader], batches: Sequence[AppendedBatch]
    ) -> None:
        position = 0
        for header, batch in zip(headers, batches, strict=True):
            if header.producer_id >= 0:
                placed = header._replace(base_offset=batch[0])
                try:
                    note_batch(self.producer_state, records, position, placed, self._active)
                except OSError as error:
                    raise self._storage_error("note an aborted transaction of", error, torn=True) from error
            position += batch[2]

    def _info(
        self,
        headers: Sequence[BatchHeader],
        batches: Sequence[AppendedBatch],
        leader_epoch: int,
        append_time: int,
        size: int,
    ) -> AppendInfo:
        if len(headers) == 1:
            count, max_timestamp = headers[0].record_count, headers[0].max_timestamp
        else:
            count = sum(header.record_count for header in headers)
            max_timestamp = max(header.max_timestamp for header in headers)
        return AppendInfo(
            batches[0][0],
            batches[-1][1],
            max_timestamp,
            append_time,
            self.log_start_offset,
            False,
            size,
            count,
            leader_epoch,
        )

    def _duplicate_info(
        self, headers: Sequence[BatchHeader], first_offset: int, last_offset: int, timestamp: int
    ) -> AppendInfo:
        append_time = timestamp if self.rules.log_append_time else -1
        epoch = self.leader_epochs.epoch_for_offset(last_offset)
        count = sum(header.record_count for header in headers)
        return AppendInfo(
            first_offset, last_offset, timestamp, append_time, self.log_start_offset, True, 0, count, epoch
        )

    # -- reading -----------------------------------------------------------------------------------

    def read(self, offset: int, max_bytes: int, *, end_offset: int, min_one_batch: bool) -> LogRead:
        """A stretch of whole or cut batches from ``offset`` on, none of them at or above ``end_offset``.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) outside of ``log_start_offset``..``log_end_offset``,
        CORRUPT_MESSAGE where the offset lies in what is damaged, KAFKA_STORAGE_ERROR when the disk does.
        """
        generation = self._generation
        if not generation & 1:
            try:
                result = self._read(offset, max_bytes, end_offset, min_one_batch)
            except (OSError, struct.error, IndexError, DamagedError):
                if generation == self._generation:
                    return self._read_locked(offset, max_bytes, end_offset, min_one_batch)
            else:
                if generation == self._generation:
                    return result
        return self._read_locked(offset, max_bytes, end_offset, min_one_batch)

    def place_of(self, offset: int) -> tuple[int, int] | None:
        """Where the first batch begins that holds ``offset`` or what comes after: its segment's base offset, and the
        position in that segment's file. Memory knows it of what was written last, a look into the index of the rest.
        None where that cannot be told.
        """
        segment, recent = self._tail
        position = recent.get(offset)
        if position is not None:
            return segment.base_offset, position
        try:
            return reader.place_of(self._segments, offset)
        except (OSError, struct.error, IndexError, DamagedError):
            return None  # a read says what is wrong

    def _read_locked(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> LogRead:
        with self.lock:
            try:
                return self._read(offset, max_bytes, end_offset, min_one_batch)
            except DamagedError as damage:
                self._tell_damage(damage)
                raise
            except OSError as error:
                _log.error(
                    "log_read_failed", partition=str(self.topic_partition), offset=offset, error=str(error)
                )
                raise self._storage_error("read", error) from error

    def _tell_damage(self, damage: DamagedError) -> None:
        for segment in self._segments:
            if segment.path(LOG_SUFFIX) == damage.path:
                segment.tell_damage(damage)

    def _read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> LogRead:
        log_end_offset = self.log_end_offset
        if offset < self.log_start_offset or offset > log_end_offset:
            raise KafkaError(
                Errors.OFFSET_OUT_OF_RANGE,
                f"{self.topic_partition}: offset {offset} is not in "
                f"{self.log_start_offset}..{log_end_offset}",
            )
        end_offset = min(end_offset, log_end_offset)
        if offset >= end_offset:
            return LogRead(None, offset, 0)
        segment, recent = self._tail
        position, end = recent.get(offset), recent.get(end_offset)
        if position is not None and end is not None:
            return reader.slice_of(segment, offset, position, end, max_bytes, min_one_batch)
        return reader.read_scanning(self._segments, offset, end_offset, max_bytes, min_one_batch)

    def read_bytes(self, offset: int, max_bytes: int, *, end_offset: int | None = None) -> memoryview:
        """Whole batches from ``offset`` on (at least one when there is any), up to the log's end or
        ``end_offset``.

        Empty at the end. Raises as :meth:`read`.
        """
        end_offset = self.log_end_offset if end_offset is None else end_offset
        result = self.read(offset, max_bytes, end_offset=end_offset, min_one_batch=True)
        if result.region is None:
            return memoryview(b"")
        try:
            view = memoryview(reader.read_region(result.region))
        except OSError as error:
            raise self._storage_error("read", error) from error
        whole = sum(header.size_bytes for header in iter_batches(view))
        if not whole:
            raise KafkaError(
                Errors.CORRUPT_MESSAGE, f"{self.topic_partition}: no whole batch stands at offset {offset}"
            )
        return view[:whole]

    def is_cached(self, region: FileRegion) -> bool:
        """Whether ``region`` can be sent without waiting for the disk: what was just written can, else its first and
        last page decide.
        """
        position, since_ms = self._fresh
        return (
            region.position >= position
            and region.file is self._active.file
            and 0 <= self._clock.wall_ms() - since_ms < 2 * _FRESH_MS
        ) or reader.is_cached(region)

    def bring_in(self, region: FileRegion) -> None:
        """Waits until ``region`` is in the page cache. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        try:
            reader.bring_in(region)
        except OSError as error:
            raise self._storage_error("read", error) from error

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record as late as ``timestamp`` (ms), or what Kafka's special timestamps ask for.

        -2 earliest, -4 earliest local, -1 the log's end, -3 the record with the highest timestamp. None: no
        such. Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            return self._position_only(self.log_start_offset)
        if timestamp == LATEST_TIMESTAMP:
            with self.lock:
                return TimestampOffset(-1, self.log_end_offset, self.leader_epochs.latest_epoch)
        generation = self._generation
        if not generation & 1:
            try:
                found = self._search(timestamp)
            except (OSError, struct.error, IndexError, DamagedError, KafkaError):
                pass  # again, and told of, with nothing going on beside it
            else:
                if generation == self._generation:
                    return found
        with self.lock:
            try:
                return self._search(timestamp)
            except DamagedError as damage:
                self._tell_damage(damage)
                raise
            except OSError as error:
                raise self._storage_error("look for a timestamp in", error) from error

    def _search(self, timestamp: int) -> TimestampOffset | None:
        """Takes the lock for looks into the indexes alone: records are searched without it."""
        segments = list(self._segments)
        if timestamp == MAX_TIMESTAMP:
            return reader.offset_of_max_timestamp(segments, self.lock)
        return reader.offset_for_timestamp(segments, timestamp, self.log_start_offset, self.lock)

    def _position_only(self, offset: int) -> TimestampOffset:
        return TimestampOffset(-1, offset, self.leader_epochs.epoch_for_offset(offset))

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where leader epoch ``epoch`` ends in this log; both -1 when unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.log_end_offset)

    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided: what read_committed may read up to."""
        if not self.producer_state.has_transactions:
            return self._high_watermark
        with self.lock:
            unstable = self.producer_state.first_unstable_offset(self._high_watermark)
            return self._high_watermark if unstable is None else min(unstable, self._high_watermark)

    def aborted_transactions(self, first_offset: int, end_offset: int) -> list[AbortedTransaction]:
        """Aborted transactions with records in the range, by first offset."""
        return reader.aborted_transactions(self._segments, first_offset, end_offset)
