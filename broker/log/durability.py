"""How much of a log survives a power loss: the recovery point and the syncs that move it.

A truncation lowers the recovery point *before* it changes a file. An append notes the sync that the topic's
``flush.messages`` requires. :mod:`.log_registry` writes the checkpoints.
"""

from __future__ import annotations

import threading
from functools import partial

import structlog

from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_context import LogContext
from broker.log.log_dir_health import Fault, fault_of
from broker.log.log_offsets import LogOffsets
from broker.log.log_segments import Segments
from broker.log.segments.segment import Segment, sync_dir
from broker.protocol.errors import KafkaError
from broker.utils.scheduler import KafkaScheduler

_log = structlog.get_logger(__name__)
# Delay before a sync is retried because another one was running.
_FLUSH_AGAIN_MS = 100
_LOOK_AGAIN_S = 0.05


class Durability:
    """How far a log is durable; the recovery point and the flush of Kafka's LocalLog.

    Invariant: ``recovery_point`` is not past the log's end. Everything below it is durable, with its index
    entries, its epochs and its file names. ``sync_wanted`` is not past the log's end either; each rise is
    followed by a sync.

    Owned by one :class:`~broker.log.log.Log`. Its fields change under the log's lock. The thread that syncs
    holds ``flushing`` while the disk works. ``flushing`` is taken before the log's lock, never while
    holding it.
    """

    __slots__ = (
        "_context",
        "_dir_is_new",
        "_epochs",
        "_names_changed",
        "_offsets",
        "_rolled_flush_due",
        "_rolled_to",
        "_segments",
        "flushing",
        "last_flush_ms",
        "recovery_point",
        "sync_wanted",
    )

    def __init__(
        self,
        context: LogContext,
        offsets: LogOffsets,
        segments: Segments,
        epochs: LeaderEpochCache,
        recovery_point: int,
        *,
        dir_is_new: bool = False,
    ) -> None:
        """``dir_is_new``: the log's directory was just created."""
        #: Everything below this offset is durable.
        self.recovery_point = recovery_point
        #: Appends have requested a sync up to this offset.
        self.sync_wanted = 0
        #: When the last sync ended (wall clock, ms).
        self.last_flush_ms = context.clock.wall_ms()
        #: Held by the thread that syncs.
        self.flushing = threading.Lock()  # lock order 46
        self._context = context
        self._segments = segments
        self._epochs = epochs
        self._offsets = offsets
        # Whether a flush must also sync the directory, because file names in it changed. Without their names,
        # files cannot be found.
        self._names_changed = False
        self._dir_is_new = dir_is_new
        # Up to which offset rolls have requested a sync, and whether its scheduled task has yet to begin.
        self._rolled_to = 0
        self._rolled_flush_due = False

    def __repr__(self) -> str:
        return f"<Durability recovery_point={self.recovery_point} sync_wanted={self.sync_wanted}>"

    # -- recording

    @property
    def flush_due(self) -> bool:
        """Whether an append requested a sync (``flush.messages``) that has not been made yet."""
        return self.sync_wanted > self.recovery_point

    @property
    def committable_end(self) -> int:
        """How far this replica's records may count as committed: not past a sync that an append waits for."""
        recovery_point = self.recovery_point
        return recovery_point if self.sync_wanted > recovery_point else self._offsets.end

    def note_appended(self, end_offset: int, flush_messages: int) -> None:
        """Notes the sync that ``flush.messages`` requires after an append. Call it with the log's lock held.

        ``end_offset`` is the log's end after that append.
        """
        if end_offset - self.recovery_point >= flush_messages:
            self.sync_wanted = end_offset

    def note_synced(self) -> None:
        """Notes that other code made everything durable while nothing was appended."""
        with self._context.lock:
            self.recovery_point = self._offsets.end

    def note_truncated(self) -> None:
        """Notes that the log was truncated and files were removed. No sync past the new end is wanted any
        more. Call it with the log's lock held.
        """
        self._names_changed = True
        self.sync_wanted = min(self.sync_wanted, self._offsets.end)

    # -- flushing

    def flush(self, up_to: int | None = None) -> None:
        """Makes everything below ``up_to`` (the log's end if None) durable and moves the recovery
        point there.

        It does not hold the log's lock while the disk works, so do not call it with that lock held. A step is
        repeated if the log is truncated or compacted meanwhile. Raises KafkaError(KAFKA_STORAGE_ERROR), also
        once the log is closed. The recovery point then stays where it was, because after a failed sync the
        state of the pages is unknown.
        """
        up_to = self._offsets.end if up_to is None else up_to
        # A thread that syncs each batch may retake the lock before any waiter gets it, but then it also syncs
        # the waiters' data.
        while not self.flushing.acquire(timeout=_LOOK_AGAIN_S):
            if self.recovery_point >= min(up_to, self._offsets.end):
                return
        try:
            self._flush_to(up_to)
        finally:
            self.flushing.release()

    def _flush_to(self, up_to: int) -> None:
        settled: set[tuple[Segment, int]] = set()
        while not self._flush_some(up_to, settled):
            pass

    def _flush_some(self, up_to: int, settled: set[tuple[Segment, int]]) -> bool:
        """Syncs some segments; False while there is more to do. If the log is truncated or compacted meanwhile,
        only this step is repeated; earlier progress stays recorded. Retention repeats nothing: on a slow disk
        it may remove segments during every step.

        ``settled`` holds segments that were already inactive when they were synced, each with its limit. A
        segment that is truncated and rolled again later has another limit.
        """
        all_segments = self._segments
        with self._context.lock:
            self._context.require_open()
            generation, cuts = all_segments.generation, all_segments.cuts
            end_offset = self._offsets.end
            target = min(up_to, end_offset)
            if target <= self.recovery_point:
                return True
            segments = all_segments.between(self.recovery_point, target, end_offset)
            if (
                segments
                and segments[0].limit <= self.recovery_point
                and (segments[0], segments[0].limit) in settled
            ):
                del segments[0]
            while len(segments) > 1 and segments[-1].base_offset > self.recovery_point:
                target = segments.pop().base_offset
            inactive = [
                (segment, segment.limit) for segment in segments if segment is not all_segments.active
            ]
        syncing = True
        try:
            self._sync_names()
            for segment in segments:
                syncing = False
                with self._context.lock:
                    if cuts != all_segments.cuts:
                        return False  # the segment may be gone, and writing would recreate its index
                    if segment.base_offset < all_segments.all[0].base_offset:
                        continue  # retention took it
                    segment.write_indexes()
                syncing = True
                segment.sync()
            self._epochs.flush()
        except OSError as error:
            # Another thread can only have caused the error if a file is missing.
            if fault_of(error) is Fault.ABSENT and generation != all_segments.generation:
                return False
            _log.error("log_flush_failed", partition=str(self._context.topic_partition), error=str(error))
            # The kernel may have dropped the pages it could not write. A second sync would then
            # wrongly succeed.
            torn = syncing and fault_of(error) is Fault.FULL
            raise self._context.storage_error("sync", error, torn=torn) from error
        with self._context.lock:
            if cuts != all_segments.cuts:
                return False
            self.last_flush_ms = self._context.clock.wall_ms()
            self.recovery_point = max(self.recovery_point, target)
            for segment in segments:
                if segment.limit <= target:  # the segment is inactive then
                    segment.let_go_of_file()
            settled.update(inactive)
            return target >= min(up_to, self._offsets.end)

    def _sync_names(self) -> None:
        directory = self._context.directory
        if self._names_changed:
            # If a power loss undid a truncation's deletions, old segments and snapshots would reappear
            # beside newer data. The flag is cleared before the sync, so a change during the sync is left to
            # the next one.
            self._names_changed = False
            try:
                sync_dir(directory)
            except OSError:
                self._names_changed = True
                raise
        if self._dir_is_new:
            sync_dir(directory.parent)
            self._dir_is_new = False

    # -- after a roll

    def flush_later(self, scheduler: KafkaScheduler, up_to: int) -> None:
        """Schedules a sync of the segments that rolls have finished. A log has at most one such task, however
        often it rolls. Otherwise one log that rolls fast on a slow disk would delay all other scheduled work.
        """
        with self._context.lock:
            self._rolled_to = up_to
            if not self._rolled_flush_due:
                scheduler.schedule("flush-log", partial(self._flush_rolled, scheduler), bulk=True)
                self._rolled_flush_due = True

    def _flush_rolled(self, scheduler: KafkaScheduler) -> None:
        """Does not wait while another thread syncs this log. On a slow disk, a follower that syncs each batch
        retakes the lock first every time, and waiting tasks would occupy all scheduler threads.
        """
        if not self.flushing.acquire(blocking=False):
            with self._context.lock:
                self._rolled_flush_due = (
                    self.recovery_point < self._rolled_to
                    and not self._context.is_closed
                    and scheduler.is_started
                )
                if self._rolled_flush_due:
                    again = partial(self._flush_rolled, scheduler)
                    scheduler.schedule("flush-log", again, _FLUSH_AGAIN_MS, bulk=True)
            return
        try:
            with self._context.lock:
                up_to = self._rolled_to
                self._rolled_flush_due = False  # a later roll schedules its own sync
            self._flush_to(up_to)
        except KafkaError:
            return  # already logged; the next flush retries
        finally:
            self.flushing.release()
