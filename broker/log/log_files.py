"""The segment files of one partition's log: which they are, how a new one begins, and how all become durable.

Taking any of them away is :mod:`.local_log`'s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from uuid import UUID

import structlog

from broker.config.log_config import LogConfig
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_dir_health import Fault, LogDirHealth, fault_of
from broker.log.partition_metadata import write_topic_id
from broker.log.producers import producer_replay
from broker.log.producers.producer_snapshot import encode_snapshot
from broker.log.producers.producer_state import ProducerStateManager
from broker.log.roll_pace import RollPace
from broker.log.segments.segment import Segment, set_limits, sync_dir
from broker.protocol.errors import Errors, KafkaError
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
# So many producers are written down by who rolls, in half a millisecond; more by the scheduler, once a second.
_FEW_PRODUCERS = 100
_SNAPSHOT_DELAY_MS = 1_000
# A sync that another was under way for is tried again after.
_FLUSH_AGAIN_MS = 100
_LOOK_AGAIN_S = 0.05


class LogFiles:
    """Segments, leader epochs and producers' state of one partition, and the lock over them.

    Invariants: ``log_start_offset <= high_watermark <= log_end_offset``; ``recovery_point <=
    log_end_offset``, and all below it is durable with its index entries. ``generation`` is odd while segments
    are being taken away; a read that saw it change has to be done again.
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
        self.health = health or LogDirHealth(directory.parent)
        self.topic_partition = topic_partition
        self.dir = directory
        self.topic_id = topic_id
        self.leader_epochs = leader_epochs
        self.producer_state = producer_state
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset
        self.recovery_point = recovery_point
        # Called where truncation takes recovery points back to these, which must reach the checkpoint first; it sets
        # them too (see LogRegistry).
        self.on_recovery_points_lowered: Callable[[Mapping[LogFiles, int]], None] | None = None
        # Up to where appends have asked for a sync; never past the log's end. Whoever raises it has a sync made.
        self._sync_wanted = 0
        self.last_flush_ms = clock.wall_ms()
        # What a flush must sync besides the files it writes: names, without which the files would not be found.
        self._names_changed = False
        self._dir_is_new = is_new
        self.lock = threading.RLock()  # lock order 48
        # Who renames or unlinks what is the log's no more needs no other lock for it; who begins the log anew, where
        # files of that name may still be, or moves the directory, comes before or after.
        self._renaming = threading.RLock()  # lock order 47
        # What was taken out of the log and is still to be unlinked: it goes with the directory.
        self._retired: set[Segment] = set()
        self._flush_lock = threading.Lock()  # lock order 46
        self._clock = clock
        self._scheduler = scheduler
        self._high_watermark = log_start_offset
        self._generation = 0
        self._closed = False
        self._roll_pace = roll_pace or RollPace()
        self._rolled_for_age_ms = -(1 << 62)
        self._snapshot_due = False  # a roll left it to the scheduler
        # Up to where rolls have asked the scheduler for a sync, and whether its task is still to begin.
        self._rolled_to = 0
        self._rolled_flush_due = False
        # End and generation when its files were as a close leaves them, None after an error of the disk.
        self._closed_at: tuple[int, int] | None = None
        self._set_segments(segments)
        self.update_config(config)

    def __repr__(self) -> str:
        return (
            f"<{type(self).__name__} {self.topic_partition} start={self.log_start_offset} "
            f"hw={self._high_watermark} "
            f"end={self.log_end_offset} segments={len(self._segments)}>"
        )

    # -- what it is --------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Below it everything is replicated; told by the partition, kept between the log's start and end."""
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = max(min(offset, self.log_end_offset), self.log_start_offset)

    @property
    def segments(self) -> Sequence[Segment]:
        """The segments of this moment, by offset; the last is the active one."""
        return self._segments

    @property
    def generation(self) -> int:
        """Rises by two with every change that takes segments or their ends away; odd meanwhile."""
        return self._generation

    @property
    def size_bytes(self) -> int:
        return sum(segment.size for segment in self._segments)

    @property
    def num_segments(self) -> int:
        return len(self._segments)

    @property
    def flush_due(self) -> bool:
        """Whether an append has asked for a sync (``flush.messages``) that is still to come."""
        return self._sync_wanted > self.recovery_point

    @property
    def committable_end(self) -> int:
        """How far this replica's records may count as committed: not past a sync that an append waits for."""
        return self.recovery_point if self.flush_due else self.log_end_offset

    @property
    def is_closed(self) -> bool:
        """Whether the log has ended: closed, or deleted, when its name may be another log's."""
        return self._closed

    def note_as_closed(self) -> None:
        """The files were closed cleanly and have just been opened: closing them again has nothing to do."""
        self._closed_at = (self.log_end_offset, self._generation)

    @property
    def _is_as_closed(self) -> bool:
        return self._closed_at == (self.log_end_offset, self._generation)

    def update_config(self, config: LogConfig) -> None:
        """Takes a changed topic config; what is on disk already stays as it is."""
        self.config = config
        jitter_limit = min(config.segment_jitter_ms, config.segment_ms)
        jitter_ms = int.from_bytes(os.urandom(8), "big") % jitter_limit if jitter_limit > 0 else 0
        self._segment_ms = config.segment_ms - jitter_ms

    def assign_topic_id(self, topic_id: UUID) -> None:
        """Gives the directory its topic id. Raises KafkaError(INCONSISTENT_TOPIC_ID) when it has another."""
        with self.lock:
            self._require_open()
            if self.topic_id is None:
                write_topic_id(self.dir, topic_id)
                self.topic_id = topic_id
            elif self.topic_id != topic_id:
                raise KafkaError(
                    Errors.INCONSISTENT_TOPIC_ID,
                    f"{self.topic_partition} has topic id {self.topic_id} in {self.dir}, not {topic_id}",
                )

    def _require_open(self) -> None:
        """Raises KafkaError(KAFKA_STORAGE_ERROR) once the log is closed: by now its name may be another log's."""
        if self._closed:
            raise KafkaError(
                Errors.KAFKA_STORAGE_ERROR, f"the log of {self.topic_partition} in {self.dir} is closed"
            )

    def _want_sync(self, end_offset: int) -> None:
        """Notes the sync that ``flush.messages`` asks for by an append that ended at ``end_offset``."""
        if end_offset - self.recovery_point >= self.config.flush_messages:
            self._sync_wanted = end_offset

    def _set_segments(self, segments: Sequence[Segment]) -> None:
        """``_tail`` is the active segment with the positions of its latest batch boundaries, the end
        included.
        """
        self._segments = tuple(segments)
        active = self._segments[-1]
        active.keeps_file = True
        set_limits(self._segments)
        self._active = active
        self._tail: tuple[Segment, dict[int, int]] = (active, {self.log_end_offset: active.size})

    # -- rolling -----------------------------------------------------------------------------------

    def roll(self) -> Segment:
        """Begins a new segment at the log's end, unless the active one is empty; the active segment.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self.lock:
            self._require_open()
            old = self._active
            if old.size == 0:
                return old
            base_offset = self.log_end_offset
            segment = self._new_segment(base_offset)
            try:
                old.become_inactive()
            except OSError as error:
                _log.warning("index_trim_failed", file=str(old.path(".index")), error=str(error))
            scheduler = self._scheduler if self._scheduler and self._scheduler.is_started else None
            snapshot_later = scheduler is not None and len(self.producer_state.producers) > _FEW_PRODUCERS
            if not snapshot_later:
                producer_replay.take_snapshot(self.producer_state, self.dir, base_offset)
            self._set_segments((*self._segments, segment))
            if self.recovery_point >= base_offset:
                old.let_go_of_file()
        if scheduler is not None:
            self._flush_later(scheduler, base_offset)
            if snapshot_later:
                self._write_snapshot_later(scheduler)
        return segment

    def _write_snapshot_later(self, scheduler: KafkaScheduler) -> None:
        with self.lock:
            if self._snapshot_due:
                return
            scheduler.schedule("producer-snapshot", self._snapshot_producers, _SNAPSHOT_DELAY_MS, bulk=True)
            self._snapshot_due = True

    def _snapshot_producers(self) -> None:
        """Writes down the producers as of the log's end; appends wait for a copy of them and for the write.

        The snapshot is one of a later offset than the roll's. Until it is there, a start after a crash reads more of
        the log instead.
        """
        with self.lock:
            self._snapshot_due = False
            generation, offset = self._generation, self.log_end_offset
            entries = [entry.copy() for entry in self.producer_state.producers.values()]
        data = encode_snapshot(entries)
        with self.lock:
            if self._closed:
                return
            if generation == self._generation:
                producer_replay.keep_snapshot(data, self.dir, offset)
                return
        # Of a log that was truncated meanwhile it would tell what is there no more.
        if self._scheduler is not None and self._scheduler.is_started:
            self._write_snapshot_later(self._scheduler)

    def _new_segment(self, base_offset: int) -> Segment:
        try:
            segment = Segment.create(
                self.dir, base_offset, self.config.segment_index_bytes, self._clock.wall_ms()
            )
        except OSError as error:
            _log.error(
                "log_roll_failed", partition=str(self.topic_partition), dir=str(self.dir), error=str(error)
            )
            torn = not self._take_back_segment(base_offset)
            raise self._storage_error("begin a segment of", error, torn=torn) from error
        return segment

    def _take_back_segment(self, base_offset: int) -> bool:
        """Removes the files of a segment that could not be begun; False when that fails. Were they left, and the log
        grew on past their offset, the next recovery would take them for what follows there.
        """
        try:
            Segment(self.dir, base_offset, self.config.segment_index_bytes, 0).delete_files()
        except OSError:
            return False
        return True

    def _replace_active(self, base_offset: int) -> None:
        """Puts an empty segment at ``base_offset`` in the place of an empty active one."""
        segment = self._new_segment(base_offset)
        empty = self._active
        self._set_segments((*self._segments[:-1], segment))
        if empty.base_offset != base_offset:
            empty.delete_files()

    # -- flushing ----------------------------------------------------------------------------------

    def flush(self, up_to: int | None = None) -> None:
        """Makes all below ``up_to`` (the log's end when None) durable and moves the recovery point there.

        Does not hold the log's lock while the disk works, so it must not be called with that lock held either. Begins
        anew when segments were taken away meanwhile. Raises KafkaError(KAFKA_STORAGE_ERROR), also once the log is
        closed; the recovery point then stays, for after a failed sync nothing is known of the pages.
        """
        up_to = self.log_end_offset if up_to is None else up_to
        # Who syncs each batch has the lock again before anybody who waits for it, but syncs what these wait for.
        while not self._flush_lock.acquire(timeout=_LOOK_AGAIN_S):
            if self.recovery_point >= min(up_to, self.log_end_offset):
                return
        try:
            self._flush_to(up_to)
        finally:
            self._flush_lock.release()

    def _flush_to(self, up_to: int) -> None:
        settled: set[tuple[Segment, int]] = set()
        while not self._flush(up_to, settled):
            pass

    def _flush(self, up_to: int, settled: set[tuple[Segment, int]]) -> bool:
        """Syncs a segment; False while there is more to do. Where segments are taken away all the while, this one is
        begun anew, and what was durable before it stays known. ``settled`` are those that nothing was written to any
        more when they were synced, each with its limit: one that is cut later, and rolled anew, has another.
        """
        with self.lock:
            self._require_open()
            generation = self._generation
            target = min(up_to, self.log_end_offset)
            if target <= self.recovery_point:
                return True
            segments = self._segments_between(self.recovery_point, target)
            if (
                segments
                and segments[0].limit <= self.recovery_point
                and (segments[0], segments[0].limit) in settled
            ):
                del segments[0]
            while len(segments) > 1 and segments[-1].base_offset > self.recovery_point:
                target = segments.pop().base_offset
            inactive = [(segment, segment.limit) for segment in segments if segment is not self._active]
        syncing = True
        try:
            self._sync_names()
            for segment in segments:
                syncing = False
                with self.lock:
                    if generation != self._generation:
                        return False  # the segment may be gone, and its index would be made anew
                    segment.write_indexes()
                syncing = True
                segment.sync()
            self.leader_epochs.flush()
        except OSError as error:
            # Only a file that is not there any more can be the other thread's doing.
            if fault_of(error) is Fault.ABSENT and generation != self._generation:
                return False
            _log.error("log_flush_failed", partition=str(self.topic_partition), error=str(error))
            # The kernel may have dropped the pages it could not write: a second sync would succeed and lie.
            torn = syncing and fault_of(error) is Fault.FULL
            raise self._storage_error("sync", error, torn=torn) from error
        with self.lock:
            if generation != self._generation:
                return False
            self.last_flush_ms = self._clock.wall_ms()
            self.recovery_point = max(self.recovery_point, target)
            for segment in segments:
                if segment.limit <= target:  # and so is another one active
                    segment.let_go_of_file()
            settled.update(inactive)
            return target >= min(up_to, self.log_end_offset)

    def _sync_names(self) -> None:
        if self._names_changed:
            # Were a truncation's deletions undone by a power loss, old segments and snapshots would stand beside what
            # was written since. Taken back before the sync: what changes during it is for the next one.
            self._names_changed = False
            try:
                sync_dir(self.dir)
            except OSError:
                self._names_changed = True
                raise
        if self._dir_is_new:
            sync_dir(self.dir.parent)
            self._dir_is_new = False

    def note_synced(self) -> None:
        """Everything was made durable by other means while nothing was appended."""
        with self.lock:
            self.recovery_point = self.log_end_offset

    def _lower_recovery_point(self, offset: int) -> None:
        if self.recovery_point > offset:
            self.recovery_point = offset
            if self.on_recovery_points_lowered is not None:
                self.on_recovery_points_lowered({self: offset})

    def _segments_between(self, first_offset: int, end_offset: int) -> list[Segment]:
        """Also the one that ends at ``first_offset``: it may have been synced before rolling trimmed its indexes."""
        segments = self._segments
        ends = [segment.base_offset for segment in segments[1:]] + [self.log_end_offset + 1]
        return [
            segment
            for segment, end in zip(segments, ends, strict=True)
            if segment.base_offset < end_offset and end >= first_offset
        ]

    def _flush_later(self, scheduler: KafkaScheduler, up_to: int) -> None:
        """Has the scheduler sync what a roll has finished: one task for a log however many rolls ask, or those of one
        log that rolls fast on a slow disk would stand before whatever else the scheduler does.
        """
        with self.lock:
            self._rolled_to = up_to
            if not self._rolled_flush_due:
                scheduler.schedule("flush-log", partial(self._flush_rolled, scheduler), bulk=True)
                self._rolled_flush_due = True

    def _flush_rolled(self, scheduler: KafkaScheduler) -> None:
        """Waits for no other who syncs this log, who may sync as much: a follower that syncs each batch on a slow disk
        has the lock again before anybody, and those that waited for it would be all of the scheduler's threads.
        """
        if not self._flush_lock.acquire(blocking=False):
            with self.lock:
                self._rolled_flush_due = (
                    self.recovery_point < self._rolled_to and not self._closed and scheduler.is_started
                )
                if self._rolled_flush_due:
                    again = partial(self._flush_rolled, scheduler)
                    scheduler.schedule("flush-log", again, _FLUSH_AGAIN_MS, bulk=True)
            return
        try:
            with self.lock:
                up_to = self._rolled_to
                self._rolled_flush_due = False  # whoever rolls from here on has a sync of its own made
            self._flush_to(up_to)
        except KafkaError:
            return  # it has been logged, and the next flush tries again
        finally:
            self._flush_lock.release()

    # -- errors ------------------------------------------------------------------------------------

    def _storage_error(self, what: str, error: OSError, *, torn: bool = False) -> KafkaError:
        """What to raise for an error of the disk, once the directory's health has been told of it."""
        self._closed_at = None
        self.health.report(f"{what} {self.topic_partition}", error, torn=torn)
        return KafkaError(
            Errors.KAFKA_STORAGE_ERROR,
            f"cannot {what} {self.topic_partition} in {self.dir}: {error.strerror or error}",
        )


def lower_recovery_points(offsets: Mapping[LogFiles, int]) -> None:
    """For who is about to truncate many logs, each to its offset: the checkpoints are written once for all of them,
    where else each truncation writes a directory's anew. A log that is not truncated after all only has more to verify
    after a crash.
    """
    lowered: dict[Callable[[Mapping[LogFiles, int]], None], dict[LogFiles, int]] = {}
    for log, offset in offsets.items():
        if log.recovery_point > offset and log.on_recovery_points_lowered is not None:
            lowered.setdefault(log.on_recovery_points_lowered, {})[log] = offset
    for tell, points in lowered.items():
        tell(points)
