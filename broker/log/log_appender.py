"""Appends to a log: as the leader, which assigns offsets, or as a follower, which keeps the leader's offsets.

:mod:`broker.record.validator` checks the batches themselves, :mod:`.producers.producer_state` checks
their producers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Final, final

from broker.config.log_config import LogConfig
from broker.log.durability import Durability
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_context import LogContext
from broker.log.log_offsets import LogOffsets
from broker.log.log_producers import LogProducers
from broker.log.log_segments import Segments
from broker.log.producers.markers import up_to_cut_marker
from broker.log.producers.producer_state import BatchMetadata
from broker.log.producers.verification import VerificationGuard
from broker.log.results import AppendInfo
from broker.log.segments.batch_file import INT32_MAX
from broker.log.segments.segment import AppendedBatch, Segment
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.offsets import UNKNOWN_OFFSET
from broker.record import validator
from broker.record.conversion import upgraded_fetch
from broker.record.header import (
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    iter_batches,
    set_offset_and_epoch,
)
from broker.record.message_set import begins_old
from broker.record.validator import AppendOrigin, BatchRules

_INSPECT_INLINE_BYTES: Final = 64 * 1024
_CLIENT: Final = AppendOrigin.CLIENT


@final
class CheckedBatches:
    """Batches that passed :meth:`LogAppender.check` at ``now_ms`` (wall clock); ``records`` is writable."""

    __slots__ = ("headers", "log_append_time", "now_ms", "origin", "records")

    def __init__(
        self,
        records: memoryview,
        headers: list[BatchHeader],
        origin: AppendOrigin,
        log_append_time: bool,
        now_ms: int,
    ) -> None:
        self.records = records
        self.headers = headers
        self.origin = origin
        self.log_append_time = log_append_time
        self.now_ms = now_ms


@final
class FetchedBatches:
    """What a leader sent, with its batches up to the first one that is incomplete, fails its checksum, or is a
    marker that is cut short.
    """

    __slots__ = ("headers", "records")

    def __init__(self, records: memoryview, headers: Sequence[BatchHeader]) -> None:
        self.records = records
        self.headers = headers


class LogAppender:
    """Appends to a log; the appends of Kafka's UnifiedLog.

    Invariant: segments, leader epochs and producers describe the same batches. The log's end moves after the
    write, so nobody sees half an append. A failed append changes nothing.

    Owned by one :class:`~broker.log.log.Log`. Each append takes the log's lock; the checks of the batches
    themselves need no lock.
    """

    __slots__ = (
        "_context",
        "_durability",
        "_epochs",
        "_offsets",
        "_producers",
        "_segments",
        "config",
        "rules",
    )

    def __init__(
        self,
        *,
        context: LogContext,
        offsets: LogOffsets,
        segments: Segments,
        durability: Durability,
        epochs: LeaderEpochCache,
        producers: LogProducers,
        config: LogConfig,
    ) -> None:
        self._context = context
        self._offsets = offsets
        self._segments = segments
        self._durability = durability
        self._epochs = epochs
        self._producers = producers
        self.update_config(config)

    def __repr__(self) -> str:
        return f"<LogAppender {self._context.topic_partition} {self._offsets}>"

    def update_config(self, config: LogConfig) -> None:
        """Applies a changed topic config."""
        #: The topic's config.
        self.config = config
        #: What the config requires of appended batches.
        self.rules = rules_of(config)

    # -- as leader

    def needs_recompression(self, records: memoryview) -> bool:
        """Whether appending ``records`` may require work on the records themselves. Such an append belongs on
        a handler thread, not inline.
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
        """Appends whole v2 batches and sets their offsets and ``leader_epoch`` in place.

        All or nothing. A retried batch is not written again: ``duplicate`` is set. The caller makes the sync
        that ``flush.messages`` may require (``Durability.flush_due``). Raises KafkaError: CORRUPT_MESSAGE,
        INVALID_RECORD, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE,
        INVALID_TIMESTAMP, INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_TXN_STATE,
        TRANSACTION_COORDINATOR_FENCED, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR.
        """
        return self.append_checked(self.check(records, origin), leader_epoch)

    def check(self, records: memoryview, origin: AppendOrigin = AppendOrigin.CLIENT) -> CheckedBatches:
        """The part of :meth:`append_as_leader` that needs no lock and may take long: it validates the batches
        and recompresses them if needed.

        Raises KafkaError as there, except for errors that depend on the log and its producers.
        """
        context, rules = self._context, self.rules
        if origin is _CLIENT and context.health.refusal is not None:
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, context.health.refusal)
        now_ms = context.clock.wall_ms()
        headers = validator.check_batches(records, rules, origin, now_ms, context.topic_partition)
        if rules.target_codec is not None and validator.needs_recompression(headers, rules):
            records, headers = validator.recompress(records, headers, rules, self._context.topic_partition)
        elif records.readonly:
            records = memoryview(bytearray(records))
        if len(records) > self.config.segment_bytes:
            raise KafkaError(
                Errors.RECORD_LIST_TOO_LARGE,
                f"{context.topic_partition}: {len(records)} bytes exceed "
                f"segment.bytes={self.config.segment_bytes}",
            )
        return CheckedBatches(records, headers, origin, rules.log_append_time, now_ms)

    def append_checked(
        self, checked: CheckedBatches, leader_epoch: int, guard: VerificationGuard | None = None
    ) -> AppendInfo:
        """Appends a result of :meth:`check`, at most once. ``guard`` as for :meth:`ProducerStateManager.check`.
        Raises as :meth:`append_as_leader`.
        """
        records, headers, origin = checked.records, checked.headers, checked.origin
        log_append_time, now_ms = checked.log_append_time, checked.now_ms
        with self._context.lock:
            if log_append_time:  # under the lock, so that append times rise with the offsets
                now_ms = self._context.clock.wall_ms()
                headers = validator.stamp_append_time(records, headers, now_ms)
            has_producer = headers[0].producer_id >= 0 if len(headers) == 1 else any_has_producer(headers)
            if has_producer:
                known = self._producers.state.check(headers, origin, guard)
                if known is not None:
                    return self._duplicate_info(headers, known)
                if origin is AppendOrigin.COORDINATOR:
                    self._producers.check_markers(records, headers)
            first_offset = offset = self._offsets.end
            batches: list[AppendedBatch] = []
            position = 0
            for header in headers:
                set_offset_and_epoch(records, position, offset, header.length, leader_epoch)
                size = header.length + LOG_OVERHEAD_BYTES
                last_offset = offset + header.last_offset_delta
                batches.append((offset, last_offset, size, header.max_timestamp))
                position += size
                offset = last_offset + 1
            if leader_epoch != self._epochs.settled_epoch:
                self._epochs.settle(leader_epoch, first_offset)
            self._write(records, batches, now_ms)
            if has_producer:
                self._producers.note(records, headers, batches)
            self._durability.note_appended(offset, self.config.flush_messages)
        append_time = now_ms if log_append_time else NO_TIMESTAMP
        return info_of(
            headers,
            batches,
            leader_epoch,
            append_time=append_time,
            log_start_offset=self._offsets.start,
            size=len(records),
        )

    def _duplicate_info(self, headers: Sequence[BatchHeader], known: BatchMetadata) -> AppendInfo:
        return AppendInfo(
            first_offset=known.first_offset,
            last_offset=known.last_offset,
            max_timestamp=known.timestamp,
            log_append_time=known.timestamp if self.rules.log_append_time else NO_TIMESTAMP,
            log_start_offset=self._offsets.start,
            duplicate=True,
            size_bytes=0,
            record_count=sum(header.record_count for header in headers),
            last_leader_epoch=self._epochs.epoch_for_offset(known.last_offset),
        )

    # -- as follower

    def append_as_follower(self, records: memoryview, leader_epoch: int = INT32_MAX) -> AppendInfo:
        """Appends what a leader of ``leader_epoch`` sent, unchanged, up to the first incomplete or invalid
        batch. As with :meth:`append_as_leader`, the caller makes the sync that may be due, with no lock held.

        Raises KafkaError: CORRUPT_MESSAGE if the first batch is invalid, OFFSET_OUT_OF_RANGE if the batches
        begin below the log's end, KAFKA_STORAGE_ERROR.
        """
        return self.append_fetched(self.check_fetched(records), leader_epoch)

    def check_fetched(self, records: memoryview) -> FetchedBatches:
        """The part of :meth:`append_as_follower` that needs no lock and reads every byte: the checksums. Messages of
        magic 0 and 1, which a leader that is Kafka sends as it has them, become batches.

        Raises KafkaError(CORRUPT_MESSAGE).
        """
        where = self._context.topic_partition
        try:
            headers: Sequence[BatchHeader] = validator.check_fetched(records, where)
        except KafkaError:
            if not begins_old(records):
                raise
            records = upgraded_fetch(records, where)
            headers = validator.check_fetched(records, where)
        if any_has_producer(headers):
            headers = up_to_cut_marker(records, headers)
        return FetchedBatches(records, headers)

    def append_fetched(self, checked: FetchedBatches, leader_epoch: int) -> AppendInfo:
        """Appends a result of :meth:`check_fetched`. Raises as :meth:`append_as_follower`."""
        records, headers = checked.records, checked.headers
        if not headers:
            return AppendInfo(
                first_offset=UNKNOWN_OFFSET,
                last_offset=UNKNOWN_OFFSET,
                max_timestamp=NO_TIMESTAMP,
                log_append_time=NO_TIMESTAMP,
                log_start_offset=self._offsets.start,
                duplicate=False,
                size_bytes=0,
                record_count=0,
                last_leader_epoch=NO_EPOCH,
            )
        with self._context.lock:
            end_offset = self._offsets.end
            epochs = range(self._epochs.epoch_for_offset(end_offset - 1), leader_epoch + 1)
            count = validator.check_follows(headers, end_offset, epochs, self._context.topic_partition)
            headers = headers[:count]
            batches = [
                (header.base_offset, header.last_offset, header.size_bytes, header.max_timestamp)
                for header in headers
            ]
            total = sum(batch[2] for batch in batches)
            now_ms = self._context.clock.wall_ms()
            position = first = 0
            try:
                for group in runs_that_fit(batches, self.config.segment_bytes):
                    size = sum(batch[2] for batch in group)
                    view, own = records[position : position + size], headers[first : first + len(group)]
                    self._write_fetched(view, own, group, now_ms)
                    position += size
                    first += len(group)
            finally:  # the next fetch acknowledges what was written, also before an error
                self._durability.note_appended(self._offsets.end, self.config.flush_messages)
        return info_of(
            headers,
            batches,
            headers[-1].leader_epoch,
            append_time=NO_TIMESTAMP,
            log_start_offset=self._offsets.start,
            size=total,
        )

    def _write_fetched(
        self,
        data: memoryview,
        headers: Sequence[BatchHeader],
        batches: Sequence[AppendedBatch],
        now_ms: int,
    ) -> None:
        """Writes one segment's share of a fetch. Epochs and producers record only what was written."""
        for header in headers:
            if header.leader_epoch != self._epochs.settled_epoch:
                self._epochs.settle(header.leader_epoch, header.base_offset)
        try:
            self._write(data, batches, now_ms)
        except KafkaError:
            self._epochs.truncate_from_end(self._offsets.end)
            raise
        if any_has_producer(headers):
            self._producers.note(data, headers, batches)

    # -- shared by both

    def _write(self, data: memoryview, batches: Sequence[AppendedBatch], now_ms: int) -> None:
        context, segments = self._context, self._segments
        if context.is_closed or context.health.failure is not None:
            context.require_open()
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, context.health.failure or "")
        if segments.must_roll(len(data), batches, now_ms):
            self.roll()
        offsets = self._offsets
        offsets.end = segments.append(data, batches, offsets.end, now_ms)

    def roll(self) -> Segment:
        """Begins a new segment at the log's end, unless the active one is empty. Returns the active segment.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        segments, producers = self._segments, self._producers
        with self._context.lock:
            self._context.require_open()
            if segments.active.size == 0:
                return segments.active
            base_offset = self._offsets.end
            old = segments.roll(base_offset)
            segment = segments.active
            scheduler = self._context.running_scheduler
            snapshot_later = scheduler is not None and not producers.are_few
            if not snapshot_later:
                producers.take_snapshot()
            if self._durability.recovery_point >= base_offset:
                old.let_go_of_file()
        if scheduler is not None:
            self._durability.flush_later(scheduler, base_offset)
            if snapshot_later:
                producers.take_snapshot_later(scheduler)
        return segment


@lru_cache(maxsize=256)  # one for all logs of a topic
def rules_of(config: LogConfig) -> BatchRules:
    """What a topic's config requires of an appended batch."""
    levels = {
        "gzip": config.compression_gzip_level,
        "lz4": config.compression_lz4_level,
        "zstd": config.compression_zstd_level,
    }
    return BatchRules(
        max_message_bytes=config.max_message_bytes,
        log_append_time=config.message_timestamp_type == "LogAppendTime",
        before_max_ms=config.message_timestamp_before_max_ms,
        after_max_ms=config.message_timestamp_after_max_ms,
        keys_required=config.compact,
        target_codec=validator.codec_for(config.compression_type),
        level=levels.get(config.compression_type),
    )


def any_has_producer(headers: Sequence[BatchHeader]) -> bool:
    """Whether any of them is from an idempotent producer."""
    return any(header.producer_id >= 0 for header in headers)


def runs_that_fit(batches: Sequence[AppendedBatch], max_bytes: int) -> Iterator[Sequence[AppendedBatch]]:
    """``batches`` in runs that each fit a segment of ``max_bytes``."""
    start = size = 0
    for number, batch in enumerate(batches):
        if size and size + batch[2] > max_bytes:
            yield batches[start:number]
            start, size = number, 0
        size += batch[2]
    yield batches[start:]


def info_of(
    headers: Sequence[BatchHeader],
    batches: Sequence[AppendedBatch],
    leader_epoch: int,
    *,
    append_time: int,
    log_start_offset: int,
    size: int,
) -> AppendInfo:
    """The result of an append of ``batches``, which have ``size`` bytes together."""
    if len(headers) == 1:
        count, max_timestamp = headers[0].record_count, headers[0].max_timestamp
    else:
        count = sum(header.record_count for header in headers)
        max_timestamp = max(header.max_timestamp for header in headers)
    return AppendInfo(
        first_offset=batches[0][0],
        last_offset=batches[-1][1],
        max_timestamp=max_timestamp,
        log_append_time=append_time,
        log_start_offset=log_start_offset,
        duplicate=False,
        size_bytes=size,
        record_count=count,
        last_leader_epoch=leader_epoch,
    )
