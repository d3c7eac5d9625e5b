"""One partition's log: its parts, what they tell of it together, and its end.

Appends take one lock; reads take none. The end moves after the write, and a read goes by offsets that were there
before it began, so no one sees half an append. Loading and recovery are :mod:`broker.log.loading.loader`'s, compaction
:mod:`broker.log.cleaning.cleaner`'s. Knows nothing of replicas: the high watermark is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
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


class Log:
    """Kafka's UnifiedLog, and to the rest of the broker all that there is of a log. Has its offsets, :class:`Segments`
    with their :class:`Durability`, :class:`LeaderEpochCache` and :class:`LogProducers`; and who appends to these, takes
    from them and looks at them. Made by :func:`broker.log.loading.loader.load_log`.

    Invariant: segments, epochs and producers tell of the same batches, those below the end in ``offsets``.

    Owned by the :class:`~broker.log.log_registry.LogRegistry`. Changed with ``lock`` held, and with
    ``Segments.renaming`` taken before it where files go; a sync takes ``Durability.flushing`` before both.
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
        #: What its parts share.
        self._context = context = LogContext(topic_partition, directory, clock, scheduler, health)
        #: Whose log it is.
        self.topic_partition = topic_partition
        #: Of the log directory; shared by all logs there.
        self.health = context.health
        #: Over all of the log that changes.
        self.lock = context.lock
        #: None until somebody knows it.
        self.topic_id = topic_id
        #: Where it begins, is committed to, and ends.
        self.offsets = offsets = LogOffsets(log_start_offset, log_end_offset)
        #: Which leader epoch began where.
        self.leader_epochs = leader_epochs
        #: Called where truncation takes recovery points back to these, which must reach the checkpoint first; it sets
        #: them too (see LogRegistry).
        self.on_recovery_points_lowered: Callable[[Mapping[Log, int]], None] | None = None
        # End, generation and errors when its files were as a close leaves them.
        self._closed_at: tuple[int, int, int] | None = None
        self._segments = parts = Segments(context, segments, log_end_offset, config, roll_pace)
        self._durability = Durability(
            context, offsets, parts, leader_epochs, recovery_point, dir_is_new=is_new
        )
        #: The producers with what the directory keeps of them.
        self.producers = LogProducers(producer_state, context, offsets, parts)
        #: What appends to it.
        self.appender = appender = LogAppender(
            context=context,
            offsets=offsets,
            segments=parts,
            durability=self._durability,
            epochs=leader_epochs,
            producers=self.producers,
            config=config,
        )
        self._trimmer = LogTrimmer(
            context=context,
            offsets=offsets,
            segments=parts,
            durability=self._durability,
            epochs=leader_epochs,
            producers=self.producers,
            appender=appender,
            lower_recovery_point=self._lower_recovery_point,
        )
        #: What looks into it.
        self.reader = LogReader(context, offsets, parts)
        #: The topic's.
        self.config = config
        #: What it asks of appended batches.
        self.rules = appender.rules

    def __repr__(self) -> str:
        offsets = self.offsets
        return (
            f"<{type(self).__name__} {self.topic_partition} start={offsets.start} hw={offsets.high_watermark} "
            f"end={offsets.end} segments={self.num_segments}>"
        )

    # -- what it is

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
        """Below it everything is replicated; told by the partition, kept between the log's start and end."""
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
        """The segments of this moment, by offset; the last is the active one."""
        return self._segments.all

    @property
    def generation(self) -> int:
        """That of the segments: odd while any are being taken away, and another one afterwards."""
        return self._segments.generation

    @property
    def size_bytes(self) -> int:
        return self._segments.size_bytes

    @property
    def num_segments(self) -> int:
        return len(self._segments.all)

    @property
    def is_closed(self) -> bool:
        """Whether the log has ended: closed, or deleted, when its name may be another log's."""
        return self._context.is_closed

    @property
    def producer_state(self) -> ProducerStateManager:
        """What is known of each producer."""
        return self.producers.state

    def update_config(self, config: LogConfig) -> None:
        """Takes a changed topic config; what is on disk already stays as it is."""
        self._segments.update_config(config)
        self.appender.update_config(config)
        self.config, self.rules = config, self.appender.rules

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Gives the directory its topic id. Raises KafkaError(INCONSISTENT_TOPIC_ID) when it has another."""
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

    # -- what is durable

    @property
    def recovery_point(self) -> int:
        """Below it all is durable. Taken back by who has written that down (see LogRegistry)."""
        return self._durability.recovery_point

    @recovery_point.setter
    def recovery_point(self, offset: int) -> None:
        self._durability.recovery_point = offset

    @property
    def last_flush_ms(self) -> int:
        """When the last sync ended (wall clock)."""
        return self._durability.last_flush_ms

    @property
    def flush_due(self) -> bool:
        """Whether an append has asked for a sync (``flush.messages``) that is still to come."""
        durability = self._durability
        return durability.sync_wanted > durability.recovery_point

    @property
    def committable_end(self) -> int:
        """How far this replica's records may count as committed: not past a sync that an append waits for."""
        durability = self._durability
        if durability.sync_wanted > durability.recovery_point:
            return durability.recovery_point
        return self.offsets.end

    def flush(self, up_to: int | None = None) -> None:
        """As :meth:`Durability.flush`; not to be called with the log's lock held."""
        self._durability.flush(up_to)

    def note_synced(self) -> None:
        """Everything was made durable by other means while nothing was appended."""
        self._durability.note_synced()

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
        """As :meth:`LogReader.read_bytes`, up to the log's end where no ``end_offset`` is given."""
        end_offset = self.offsets.end if end_offset is None else end_offset
        return self.reader.read_bytes(offset, max_bytes, end_offset)

    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record as late as ``timestamp`` (ms), or what Kafka's special timestamps ask for.

        -2 earliest, -4 earliest local, -1 the log's end, -3 the record with the highest timestamp. None: no
        such. Raises KafkaError: CORRUPT_MESSAGE, KAFKA_STORAGE_ERROR.
        """
        if timestamp in (EARLIEST_TIMESTAMP, EARLIEST_LOCAL_TIMESTAMP):
            start = self.offsets.start
            return TimestampOffset(NO_TIMESTAMP, start, self.leader_epochs.epoch_for_offset(start))
        if timestamp == LATEST_TIMESTAMP:
            with self.lock:
                return TimestampOffset(NO_TIMESTAMP, self.offsets.end, self.leader_epochs.latest_epoch)
        return self.reader.offset_for_timestamp(timestamp)

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        """Where leader epoch ``epoch`` ends in this log; both -1 when unknown."""
        return self.leader_epochs.end_offset_for(epoch, self.offsets.end)

    def last_stable_offset(self) -> int:
        """Below it no transaction is undecided: what read_committed may read up to."""
        state, offsets = self.producers.state, self.offsets
        if not state.has_transactions:
            return offsets.high_watermark
        with self.lock:
            unstable = state.first_unstable_offset(offsets.high_watermark)
            return offsets.high_watermark if unstable is None else min(unstable, offsets.high_watermark)

    # -- losing

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

    # -- the end

    def note_as_closed(self) -> None:
        """The files were closed cleanly and have just been opened: closing them again has nothing to do."""
        self._closed_at = self._moment

    @property
    def _moment(self) -> tuple[int, int, int]:
        return self.offsets.end, self._segments.generation, self._context.errors

    def close(self) -> None:
        """Snapshots the producers, finishes and trims the indexes, unless nothing changed since a clean close. No more
        appends.

        Syncs nothing: whoever closes many logs does that better for all of them (see :meth:`note_synced`).
        Raises KafkaError(KAFKA_STORAGE_ERROR) when the files cannot be left clean.
        """
        with self._segments.renaming, self.lock:
            if self.is_closed:
                return
            self._context.is_closed = True
            if self._closed_at == self._moment:
                return
            self.producers.take_last_snapshot(snapshot_offsets(self.dir))
            try:
                self._segments.finish()
                self.leader_epochs.finish(self.offsets.end)
            except OSError as error:
                _log.error("log_close_failed", partition=str(self.topic_partition), error=str(error))
                raise self._context.storage_error("close", error) from error

    def mark_deleted(self) -> Path:
        """Renames the directory to ``….<uuid>-delete`` and ends the log. Raises
        KafkaError(KAFKA_STORAGE_ERROR).
        """
        segments, context = self._segments, self._context
        with segments.renaming, self.lock:
            new = deleted_name(context.directory)
            with segments.changing(), context.failing("delete"):
                self.leader_epochs.move(partial(context.directory.rename, new), new)
            context.is_closed = True
            context.directory = new
            segments.follow(new)
            return new


def lower_recovery_points(offsets: Mapping[Log, int]) -> None:
    """For who is about to truncate many logs, each to its offset: the checkpoints are written once for all of them,
    where else each truncation writes a directory's anew. A log that is not truncated after all only has more to verify
    after a crash.
    """
    lowered: dict[Callable[[Mapping[Log, int]], None], dict[Log, int]] = {}
    for log, offset in offsets.items():
        if log.recovery_point > offset and log.on_recovery_points_lowered is not None:
            lowered.setdefault(log.on_recovery_points_lowered, {})[log] = offset
    for tell, points in lowered.items():
        tell(points)
