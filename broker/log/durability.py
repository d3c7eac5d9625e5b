"""How much of a log survives a power loss: the recovery point, the synced end, and the syncs that move them.

A truncation lowers the recovery point *before* it changes a file. An append notes the sync that the topic's
``flush.messages`` requires. That sync is of the ``.log`` file alone: recovery makes the indexes past the recovery
point again from the batches. They are synced with a roll, with the checkpoint, and with a clean stop.
:mod:`.log_registry` writes the checkpoints.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

import structlog

from broker.log.filesystem_sync import NotSyncedError, sync_data
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_context import LogContext
from broker.log.log_dir_health import Fault, fault_of
from broker.log.log_offsets import LogOffsets
from broker.log.log_segments import Segments
from broker.log.segments.segment import Segment, sync_dir
from broker.log.segments.segment_file import SegmentFile
from broker.protocol.errors import Errors, KafkaError
from broker.utils.scheduler import KafkaScheduler

_log = structlog.get_logger(__name__)
# Delay before a sync is retried because another one was running.
_FLUSH_AGAIN_MS: Final = 100
_LOOK_AGAIN_S: Final = 0.05


class Tail(NamedTuple):
    """A sync of the active segment's ``.log``: the file, held open; the log's end before the sync; and the
    count of cuts, by which a truncation during the sync is noticed.
    """

    file: SegmentFile
    end: int
    cuts: int


class Durability:
    """How far a log is durable; the recovery point and the flush of Kafka's LocalLog.

    Invariant: ``recovery_point`` <= ``synced_end`` <= the log's end. Everything below the recovery point is
    durable, with its index entries, its epochs and its file names. Below ``synced_end`` the batches are, and the
    names of their files: recovery makes the rest again. ``sync_wanted`` is not past the log's end either; each
    rise is followed by a sync.

    Owned by one :class:`~broker.log.log.Log`. Its fields change under the log's lock. The thread that syncs
    holds ``flushing`` while the disk works, and waits first for a sync that no thread makes
    (:meth:`begin_sync`). ``flushing`` is taken before the log's lock, never while holding it.
    """

    __slots__ = (
        "_context",
        "_dir_is_new",
        "_epochs",
        "_flushers",
        "_names_changes",
        "_names_synced",
        "_offsets",
        "_reap",
        "_rolled_flush_due",
        "_rolled_to",
        "_segments",
        "_sync_ended",
        "flushing",
        "last_flush_ms",
        "recovery_point",
        "sync_wanted",
        "synced_end",
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
        #: The batches below this offset are durable.
        self.synced_end = recovery_point
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
        # How often file names in the directory changed, and how many of these changes were synced. Without their
        # names, files cannot be found.
        self._names_changes = self._names_synced = 0
        self._dir_is_new = dir_is_new
        # How many threads wait to flush. A sync of the records alone, made again and again, would keep them out.
        self._flushers = 0
        # While a sync is under way that no thread makes: what ends it if it is done. And what tells its end to the
        # thread that waits for it.
        self._reap: Callable[[], None] | None = None
        self._sync_ended: threading.Event | None = None
        # Up to which offset rolls have requested a sync, and whether its scheduled task has yet to begin.
        self._rolled_to = 0
        self._rolled_flush_due = False

    def __repr__(self) -> str:
        return (
            f"<Durability recovery_point={self.recovery_point} synced_end={self.synced_end} "
            f"sync_wanted={self.sync_wanted}>"
        )

    # -- recording

    @property
    def flush_due(self) -> bool:
        """Whether an append requested a sync (``flush.messages``) that has not been made yet."""
        return self.sync_wanted > self.synced_end

    @property
    def committable_end(self) -> int:
        """How far this replica's records may count as committed: not past a sync that an append waits for."""
        synced_end = self.synced_end
        return synced_end if self.sync_wanted > synced_end else self._offsets.end

    def note_appended(self, end_offset: int, flush_messages: int) -> None:
        """Notes the sync that ``flush.messages`` requires after an append. Call it with the log's lock held.

        ``end_offset`` is the log's end after that append.
        """
        if end_offset - self.synced_end >= flush_messages:
            self.sync_wanted = end_offset

    def note_synced(self) -> None:
        """Notes that other code made everything durable while nothing was appended."""
        with self._context.lock:
            self.recovery_point = self.synced_end = self._offsets.end

    def note_truncated(self) -> None:
        """Notes that the log was truncated and files were removed. No sync past the new end is wanted any
        more. Call it with the log's lock held.
        """
        self._names_changes += 1
        self.sync_wanted = min(self.sync_wanted, self._offsets.end)
        self.synced_end = min(self.synced_end, self._offsets.end)

    def note_records_synced(self) -> None:
        """Notes that other code made the batches and the names of their files durable while nothing was appended."""
        with self._context.lock:
            self.synced_end = self._offsets.end

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
        if not self._take_turn_to_flush(up_to):
            return
        try:
            self._await_sync()
            self._flush_to(up_to)
        finally:
            self.flushing.release()

    def _take_turn_to_flush(self, up_to: int) -> bool:
        """Takes ``flushing``; False if another thread has flushed enough meanwhile."""
        if self.flushing.acquire(blocking=False):
            return True
        with self._context.lock:
            self._flushers += 1
        try:
            # A thread that syncs each batch may retake the lock before any waiter gets it, but then it also
            # flushes the waiters' data (sync_records).
            while not self.flushing.acquire(timeout=_LOOK_AGAIN_S):
                if self.recovery_point >= min(up_to, self._offsets.end):
                    return False
            return True
        finally:
            with self._context.lock:
                self._flushers -= 1

    def catch_up(self) -> None:
        """Moves the recovery point up to what :meth:`sync_records` has synced. Raises as :meth:`flush`."""
        if self.recovery_point < self.synced_end:
            self.flush(self.synced_end)

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
            self._require_usable()
            generation, cuts = all_segments.generation, all_segments.cuts
            end_offset = self._offsets.end
            target = min(up_to, end_offset)
            if target <= self.recovery_point:
                self.synced_end = max(self.synced_end, target)
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
        try:
            self._sync_names()
            for segment in segments:
                with self._context.lock:
                    if cuts != all_segments.cuts:
                        return False  # the segment may be gone, and writing would recreate its index
                    is_there = segment.base_offset >= all_segments.all[0].base_offset
                    if is_there:  # retention has not taken it
                        segment.write_indexes()
                if is_there:
                    segment.sync()
            self._epochs.flush()
        except OSError as error:
            # Another thread can only have caused the error if a file is missing.
            if (
                fault_of(error) is Fault.ABSENT
                and not isinstance(error, NotSyncedError)
                and generation != all_segments.generation
            ):
                return False
            raise self._failure(error) from error
        with self._context.lock:
            if cuts != all_segments.cuts:
                return False
            self.last_flush_ms = self._context.clock.wall_ms()
            self.recovery_point = max(self.recovery_point, target)
            self.synced_end = max(self.synced_end, self.recovery_point)
            for segment in segments:
                if segment.limit <= target:  # the segment is inactive then
                    segment.let_go_of_file()
            settled.update(inactive)
            return target >= min(up_to, self._offsets.end)

    def _require_usable(self) -> None:
        """Raises KafkaError(KAFKA_STORAGE_ERROR) once the log is closed or its directory has failed: after a failed
        sync the kernel says of the next one that all is well, though pages are gone.
        """
        self._context.require_open()
        failure = self._context.health.failure
        if failure is not None:
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, failure)

    def _failure(self, error: OSError) -> KafkaError:
        """Reports an error of a sync, or of a write of indexes before it."""
        _log.error("log_flush_failed", partition=str(self._context.topic_partition), error=str(error))
        return self._context.storage_error("sync", error)

    def _sync_names(self) -> None:
        directory = self._context.directory
        if not self._names_settled:
            # If a power loss undid a truncation's deletions, old segments and snapshots would reappear
            # beside newer data. A change during the sync is left to the next one.
            changes = self._names_changes
            sync_dir(directory)
            self._names_synced = changes
        if self._dir_is_new:
            sync_dir(directory.parent)
            self._dir_is_new = False

    @property
    def _names_settled(self) -> bool:
        return self._names_synced == self._names_changes

    # -- the records alone

    def sync_records(self) -> None:
        """Makes the records that the log holds now durable and moves ``synced_end``, so that they may
        be acknowledged.

        It syncs the active ``.log`` alone if nothing else is needed to find them again: else it flushes. Raises as
        :meth:`flush`, and like there the log's lock must not be held.
        """
        up_to = self._offsets.end
        while not self.flushing.acquire(timeout=_LOOK_AGAIN_S):
            if self.synced_end >= min(up_to, self._offsets.end):
                return
        try:
            self._await_sync()
            self._flush_for_others()
            while self.synced_end < min(up_to, self._offsets.end):
                self._sync_some(up_to)
        finally:
            self.flushing.release()

    def _flush_for_others(self) -> None:
        """Flushes on behalf of threads that wait for ``flushing``."""
        if self._flushers:
            self._flush_to(self._offsets.end)

    def _sync_some(self, up_to: int) -> None:
        try:
            tail = self._tail()
        except OSError as error:
            raise self._failure(error) from error
        if tail is None:
            self._flush_to(up_to)
            return
        try:
            sync_data(tail.file)
        except NotSyncedError as error:
            raise self._failure(error) from error
        self._note_synced(tail)

    def _tail(self) -> Tail | None:
        """What a sync of the active ``.log`` alone would make durable. None if that is not enough: names are not
        durable yet, or an older segment has records that are not. Raises KafkaError once the log is closed, OSError.
        """
        segments = self._segments
        with self._context.lock:
            self._require_usable()
            active = segments.active
            if (
                self._dir_is_new
                or not self._names_settled
                or not active.dir_synced
                or self.synced_end < active.base_offset
            ):
                return None
            return Tail(active.file, self._offsets.end, segments.cuts)

    def _note_synced(self, tail: Tail) -> bool:
        with self._context.lock:
            if tail.cuts != self._segments.cuts:
                return False
            self.last_flush_ms = self._context.clock.wall_ms()
            self.synced_end = max(self.synced_end, tail.end)
            return True

    # -- the records alone, by somebody who does not wait

    def begin_sync(self, reap: Callable[[], None]) -> Tail | None:
        """Begins a sync of the records that the log holds now. The caller syncs ``Tail.file`` and then calls
        :meth:`end_sync` or :meth:`abandon_sync` once, on any thread; until then nobody else syncs this log.

        ``reap`` ends such syncs that are done, without waiting. Threads that want to sync meanwhile call it, because
        one of them may be the thread that would end the sync otherwise. None if only :meth:`sync_records` can do it,
        which waits. Raises KafkaError once the log is closed.
        """
        if not self.flushing.acquire(blocking=False):
            return None
        try:
            if self._reap is not None:
                return None
            tail = None
            with suppress(OSError):  # who waits meets and reports it
                tail = self._tail()
            if tail is not None:
                self._reap = reap
            return tail
        finally:
            self.flushing.release()

    def end_sync(self, tail: Tail, error: OSError | None = None) -> bool:
        """Ends what :meth:`begin_sync` began. False if the log was truncated or compacted meanwhile: the records
        must be synced again. ``error`` is why the sync failed; raises as :meth:`flush` then.
        """
        try:
            if error is not None:
                raise self._failure(NotSyncedError(error.errno, error.strerror)) from error
            return self._note_synced(tail)
        finally:
            self.abandon_sync()

    def abandon_sync(self) -> None:
        """Ends what :meth:`begin_sync` began and nobody synced."""
        self._reap = None
        ended = self._sync_ended
        if ended is not None:
            ended.set()

    def _await_sync(self) -> None:
        """With ``flushing`` held, so that no further one begins: waits for a sync that no thread makes."""
        reap = self._reap
        if reap is None:
            return
        self._sync_ended = ended = threading.Event()
        while self._reap is not None:
            reap()
            ended.wait(_LOOK_AGAIN_S)
        self._sync_ended = None

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
        if self._reap is not None or not self.flushing.acquire(blocking=False):
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
            self._await_sync()  # begun just now
            with self._context.lock:
                up_to = self._rolled_to
                self._rolled_flush_due = False  # a later roll schedules its own sync
            self._flush_to(up_to)
        except KafkaError:
            return  # already logged; the next flush retries
        finally:
            self.flushing.release()
