"""The log of one partition.

Appends take the log's lock; reads take no lock. The end offset moves only after the write, and a read uses
offsets that existed before it began, so nobody sees half an append. :mod:`broker.log.loading.loader` does
loading and recovery, :mod:`broker.log.cleaning.cleaner` does compaction. This module knows nothing about
replicas: the partition sets the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final
from uuid import UUID

import structlog

from broker.config.log_config import LogConfig
from broker.log.durability import Durability
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_appender import LogAppender
from broker.log.log_context import LogContext, deleted_name
from broker.log.log_dir_health import LogDirHealth
from broker.log.log_offsets import LogOffsets
from broker.log.log_producers import LogProducers
from broker.log.log_reader import LogReader
from broker.log.log_segments import Segments
from broker.log.log_trimmer import LogTrimmer
from broker.log.partition_metadata import write_topic_id
from broker.log.producers.producer_snapshot import snapshot_offsets
from broker.log.producers.producer_state import ProducerStateManager
from broker.log.results import AppendInfo, EpochEndOffset, LogRead, TimestampOffset
from broker.log.roll_pace import RollPace
from broker.log.segments.batch_file import INT32_MAX
from broker.log.segments.segment import Segment
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.offsets import EARLIEST_LOCAL_TIMESTAMP, EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from broker.record.header import NO_TIMESTAMP
from broker.record.validator import AppendOrigin
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

__all__ = [
    "AppendInfo",
    "AppendOrigin",
    "EpochEndOffset",
    "Log",
    "LogRead",
    "TimestampOffset",
    "lower_recovery_points",
]

_log = structlog.get_logger(__name__)
_serials: Final = count()


class Log:
    """The log of a partition; Kafka's UnifiedLog. The rest of the broker uses a log only through this class.
    It holds the offsets, the :class:`Segments` with their :class:`Durability`, the :class:`LeaderEpochCache`
    and the :class:`LogProducers`, and the appender, trimmer and reader that work on them.
    :func:`broker.log.loading.loader.load_log` creates it.

    Invariant: segments, epochs and producers describe the same batches, those below the end in ``offsets``.

    Owned by the :class:`~broker.log.log_registry.LogRegistry`. Changed with ``lock`` held. A change that
    removes files takes ``Segments.renaming`` first; a sync takes ``Durability.flushing`` before both.
    """

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        config: LogConfig,
        segments: Sequence[Segment],
        *,
        log_start_offset: int,
        log_end_offset: int,
        recovery_point: int,
        topic_id: UUID | None,
        leader_epochs: LeaderEpochCache,
        producer_state: ProducerStateManager,
        clock: Clock,
        scheduler: KafkaScheduler | None = None,
        health: LogDirHealth | None = None,
        roll_pace: RollPace | None = None,
        is_new: bool = False,
    ) -> None:
        #: Shared by the parts of this log.
        self._context = context = LogContext(topic_partition, directory, clock, scheduler, health)
        #: The partition whose log this is.
        self.topic_partition = topic_partition
        #: The health of the log directory; shared by all logs in it.
        self.health = context.health
        #: Guards every change to the log.
        self.lock = context.lock
        #: None until the topic id is known.
        self.topic_id = topic_id
        #: False once compaction has found damaged data; the cleaner manager's.
        self.is_cleanable = True
        #: No other log of this process has it, not even one that takes this log's place.
        self.serial: Final = next(_serials)
        #: The log start offset, the high watermark and the log end offset.
        self.offsets = offsets = LogOffsets(log_start_offset, log_end_offset)
        #: The start offset of each leader epoch.
        self.leader_epochs = leader_epochs
        #: Called when truncation lowers recovery points to these offsets. The callback also sets them. They
        #: must reach the checkpoint before any file changes (see LogRegistry).
        self.on_recovery_points_lowered: Callable[[Mapping[Log, int]], None] | None = None
        # The end offset, generation and error count at the moment when the files matched a clean close.
        self._closed_at: tuple[int, int, int] | None = None
        self._segments = parts = Segments(context, segments, log_end_offset, config, roll_pace)
        #: The recovery point, and the syncs that move it.
        self.durability = durability = Durability(
            context, offsets, parts, leader_epochs, recovery_point, dir_is_new=is_new
        )
        #: The producers' state and its snapshots.
        self.producers = LogProducers(producer_state, context, offsets, parts)
        #: Appends as leader and as follower.
        self.appender = appender = LogAppender(
            context=context,
            offsets=offsets,
            segments=parts,
            durability=durability,
            epochs=leader_epochs,
            producers=self.producers,
            config=config,
        )
        self._trimmer = LogTrimmer(
            context=context,
            offsets=offsets,
            segments=parts,
            durability=durability,
            epochs=leader_epochs,
            producers=self.producers,
            appender=appender,
            lower_recovery_point=self._lower_recovery_point,
        )
        #: Reads by offset and by timestamp.
        self.reader = LogReader(context, offsets, parts, self.producers)
        #: The topic's config.
        self.config = config
        #: What the config requires of appended batches.
        self.rules = appender.rules

    def __repr__(self) -> str:
        offsets = self.offsets
        return (
            f"<{type(self).__name__} {self.topic_partition} start={offsets.start} hw={offsets.high_watermark} "
            f"end={offsets.end} segments={self.num_segments}>"
        )

    # -- properties

    @property
    def log_start_offset(self) -> int:
        """The first offset that may be read."""
        return self.offsets.start

    @property
    def log_end_offset(self) -> int:
        """The offset of the next record."""
        return self.offsets.end

    @property
    def high_watermark(self) -> int:
        """All records below it are replicated. The partition sets it, between the log's start and end."""
        return self.offsets.high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self.offsets.mark(offset)

    @property
    def dir(self) -> Path:
        """The partition's directory."""
        return self._context.directory

    @property
    def segments(self) -> Sequence[Segment]:
        """The current segments, in offset order; the last one is active."""
        return self._segments.all

    @property
    def generation(self) -> int:
        """The generation of the segments: odd while segments are being removed, a new value afterwards."""
        return self._segments.generation

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def num_segments(self) -> int:
        return len(self._segments.all)

    @property
    def is_closed(self) -> bool:
        """Whether the log was closed or deleted. After a deletion, another log may have its name."""
        return self._context.is_closed

    @property
    def producer_state(self) -> ProducerStateManager:
        return self.producers.state

    def update_config(self, config: LogConfig) -> None:
        """Applies a changed topic config; data already on disk stays as it is."""
        self._segments.update_config(config)
        self.appender.update_config(config)
        self.config, self.rules = config, self.appender.rules

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Sets the directory's topic id. Raises KafkaError(INCONSISTENT_TOPIC_ID) if it has another one."""
        with self.lock:
            self._context.require_open()
            if self.topic_id is None:
                write_topic_id(self.dir, topic_id)
                self.topic_id = topic_id
            elif self.topic_id != topic_id:
                raise KafkaError(
                    Errors.INCONSISTENT_TOPIC_ID,
                    f"{self.topic_partition} has topic id {self.topic_id} in {self.dir}, not {topic_id}",
                )

    # -- durability

    @property
    def recovery_point(self) -> int:
        """Everything below it is durable. A truncation lowers it, in the checkpoint too, before files change."""
        return self.durability.recovery_point

    @recovery_point.setter
    def recovery_point(self, offset: int) -> None:
        self.durability.recovery_point = offset

    @property
    def last_flush_ms(self) -> int:
        """When the last sync ended (wall clock)."""
        return self.durability.last_flush_ms

    def flush(self, up_to: int | None = None) -> None:
        """As :meth:`Durability.flush`. Do not call it with the log's lock held."""
        self.durability.flush(up_to)

    def sync_records(self) -> None:
        """As :meth:`Durability.sync_records`. Do not call it with the log's lock held."""
        self.durability.sync_records()

    def note_synced(self) -> None:
        """As :meth:`Durability.note_synced`."""
        self.durability.note_synced()

    def _lower_recovery_point(self, offset: int) -> None:
        if self.recovery_point > offset:
            self.recovery_point = offset
            if self.on_recovery_points_lowered is not None:
                self.on_recovery_points_lowered({self: offset})

    # -- appending

    def append_as_leader(
        self, records: memoryview, leader_epoch: int, *, origin: AppendOrigin = AppendOrigin.CLIENT
    ) -> AppendInfo:
        """As :meth:`LogAppender.append_as_leader`."""
        return self.appender.append_as_leader(records, leader_epoch, origin=origin)

    def append_as_follower(self, records: memoryview, leader_epoch: int = INT32_MAX) -> AppendInfo:
        """As :meth:`LogAppender.append_as_follower`."""
        return self.appender.append_as_follower(records, leader_epoch)

    def roll(self) -> Segment:
        """As :meth:`LogAppender.roll`."""
        return self.appender.roll()

    # -- reading

    def read_bytes(self, offset: int, max_bytes: int, *, end_offset: int | None = None) -> memoryview:
        """As :meth:`LogReader.read_bytes`. Without ``end_offset`` it reads up to the log's end."""
        end_offset = self.offsets.end if end_offset is None else end_offset
        return self.reader.read_bytes(offset, max_bytes, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record with a timestamp of at least ``timestamp`` (ms), or the answer to one of Kafka's
        special timestamps.

        These are -2 for the earliest offset, -4 for the earliest local offset, -1 for the log's end, and -3
        for the record with the highest timestamp. None if there is no such record. Raises KafkaError:
        CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = self.offsets.start
            return TimestampOffset(NO_TIMESTAMP, start, self.leader_epochs.epoch_for_offset(start))
        if timestamp == LATEST_TIMESTAMP:
            with self.lock:
                return TimestampOffset(NO_TIMESTAMP, self.offsets.end, self.leader_epochs.latest_epoch)
        return self.reader.offset_for_timestamp(timestamp)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where leader epoch ``epoch`` ends in this log; both fields are -1 if unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.offsets.end)

    def last_stable_offset(self) -> int:
        """As :meth:`LogProducers.last_stable_offset`."""
        return self.producers.last_stable_offset()

    def fetchable_end(self, *, committed_only: bool) -> int:
        """The end of what a consumer may read, in the isolation level READ_COMMITTED or the other."""
        return self.last_stable_offset() if committed_only else self.offsets.high_watermark

    # -- removing data

    def truncate_to(self, offset: int) -> bool:
        """As :meth:`LogTrimmer.truncate_to`."""
        return self._trimmer.truncate_to(offset)

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """As :meth:`LogTrimmer.truncate_fully_and_start_at`."""
        self._trimmer.truncate_fully_and_start_at(offset)

    def increment_log_start_offset(self, offset: int) -> bool:
        """As :meth:`LogTrimmer.increment_log_start_offset`."""
        return self._trimmer.increment_log_start_offset(offset)

    def delete_old_segments(self, high_watermark: int | None = None) -> int:
        """As :meth:`LogTrimmer.delete_old_segments`."""
        return self._trimmer.delete_old_segments(high_watermark)

    def replace_segments(self, old: Sequence[Segment], new: Segment, generation: int) -> bool:
        """As :meth:`LogTrimmer.replace_segments`."""
        return self._trimmer.replace_segments(old, new, generation)

    def own_directory(self) -> AbstractContextManager[Path]:
        """As :meth:`LogContext.own_directory`."""
        return self._context.own_directory()

    # -- closing

    def note_as_closed(self) -> None:
        """Notes that the files were just opened after a clean close, so a close has nothing to do."""
        self._closed_at = self._moment

    @property
    def _moment(self) -> tuple[int, int, int]:
        return self.offsets.end, self._segments.generation, self._context.errors

    def close(self) -> None:
        """Takes a producer snapshot, and completes and trims the indexes, unless nothing changed since a
        clean close. The log takes no appends afterwards.

        It syncs nothing: a caller that closes many logs can sync them all at once (see :meth:`note_synced`).
        Raises KafkaError(KAFKA_STORAGE_ERROR) if the files cannot be left clean.
        """
        with self._segments.renaming, self.lock:
            if self.is_closed:
                return
            self._context.is_closed = True
            if self._closed_at == self._moment:
                return
            try:
                self.producers.take_last_snapshot(snapshot_offsets(self.dir), is_closing=True)
                self._segments.finish()
                self.leader_epochs.finish(self.offsets.end)
            except OSError as error:
                _log.error("log_close_failed", partition=str(self.topic_partition), error=str(error))
                raise self._context.storage_error("close", error) from error

    def mark_deleted(self) -> Path:
        """Renames the directory to ``….<uuid>-delete`` and ends the log. Its files are closed, except for what a
        response still has of them: others may refer to the log for long, and the files' blocks would not be free.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self._segments.renaming, self.lock:
            new = deleted_name(self._context.directory)
            self._rename(new, "delete")
            self._context.is_closed = True
            for segment in self._segments.all:
                segment.let_go_of_files()
            return new

    def move_to(self, new: Path) -> None:
        """Renames the directory to ``new``, where the log goes on. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        with self._segments.renaming, self.lock:
            self._context.require_open()
            self._rename(new, "move")

    def _rename(self, new: Path, what: str) -> None:
        segments, context = self._segments, self._context
        with segments.changing(), context.failing(what):
            self.leader_epochs.move(partial(context.directory.rename, new), new)
        context.directory = new
        segments.follow(new)

    def failing(self, what: str) -> AbstractContextManager[None]:
        """As :meth:`LogContext.failing`."""
        return self._context.failing(what)


def lower_recovery_points(offsets: Mapping[Log, int]) -> None:
    """Lowers the recovery points of many logs before they are truncated, each to its offset.

    This writes each directory's checkpoint once for all its logs, where each truncation alone would rewrite
    it. If a log is not truncated after all, it only has more to verify after a crash.
    """
    lowered: dict[Callable[[Mapping[Log, int]], None], dict[Log, int]] = {}
    for log, offset in offsets.items():
        if log.recovery_point > offset and log.on_recovery_points_lowered is not None:
            lowered.setdefault(log.on_recovery_points_lowered, {})[log] = offset
    for tell, points in lowered.items():
        tell(points)
