"""What of a log outlives a power loss, and how the rest comes to.

Who truncates takes the recovery point back *before* a file changes; who appends says which sync a topic's
``flush.messages`` asks for. Checkpoints are :mod:`.log_registry`'s.
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
# A sync that another was under way for is tried again after.
_FLUSH_AGAIN_MS = 100
_LOOK_AGAIN_S = 0.05


class Durability:
    """How far a log is durable: the recovery point and the flush of Kafka's LocalLog.

    Invariant: ``recovery_point`` is not past the log's end, and all below it is durable with its index entries, its
    epochs and the names of its files. ``sync_wanted`` is not past the log's end either, and whoever raises it has a
    sync made.

    Owned by one :class:`~broker.log.log.Log`: its fields change under the log's lock. ``flushing`` is held by the one
    who syncs, while the disk works, and is taken before the log's lock, never with it held.
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
        """``dir_is_new``: its directory was just made."""
        #: Below it all is durable.
        self.recovery_point = recovery_point
        #: Up to where appends have asked for a sync.
        self.sync_wanted = 0
        #: When the last sync ended (wall clock, ms).
        self.last_flush_ms = context.clock.wall_ms()
        #: Held by who syncs.
        self.flushing = threading.Lock()  # lock order 46
        self._context = context
        self._segments = segments
        self._epochs = epochs
        self._offsets = offsets
        # What a flush must sync besides the files it writes: names, without which the files would not be found.
        self._names_changed = False
        self._dir_is_new = dir_is_new
        # Up to where rolls have asked the scheduler for a sync, and whether its task is still to begin.
        self._rolled_to = 0
        self._rolled_flush_due = False

    def __repr__(self) -> str:
        return f"<Durability recovery_point={self.recovery_point} sync_wanted={self.sync_wanted}>"

    # -- what is known

    @property
    def flush_due(self) -> bool:
        """Whether an append has asked for a sync (``flush.messages``) that is still to come."""
        return self.sync_wanted > self.recovery_point

    @property
    def committable_end(self) -> int:
        """How far this replica's records may count as committed: not past a sync that an append waits for."""
        recovery_point = self.recovery_point
        return recovery_point if self.sync_wanted > recovery_point else self._offsets.end

    def note_appended(self, end_offset: int, flush_messages: int) -> None:
        """Notes the sync that ``flush.messages`` asks for by an append that ended at ``end_offset``. Under the log's
        lock.
        """
        if end_offset - self.recovery_point >= flush_messages:
            self.sync_wanted = end_offset

    def note_synced(self) -> None:
        """Everything was made durable by other means while nothing was appended."""
        with self._context.lock:
            self.recovery_point = self._offsets.end

    def note_truncated(self) -> None:
        """The log was cut, and files went; what is wanted ends where it ends. Under the log's lock."""
        self._names_changed = True
        self.sync_wanted = min(self.sync_wanted, self._offsets.end)

    # -- flushing

    def flush(self, up_to: int | None = None) -> None:
        """Makes all below ``up_to`` (the log's end when None) durable and moves the recovery point there.

        Does not hold the log's lock while the disk works, so it must not be called with that lock held either. Begins
        anew when segments were taken away meanwhile. Raises KafkaError(KAFKA_STORAGE_ERROR), also once the log is
        closed; the recovery point then stays, for after a failed sync nothing is known of the pages.
        """
        up_to = self._offsets.end if up_to is None else up_to
        # Who syncs each batch has the lock again before anybody who waits for it, but syncs what these wait for.
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
        """Syncs a segment; False while there is more to do. Where segments are taken away all the while, this one is
        begun anew, and what was durable before it stays known. ``settled`` are those that nothing was written to any
        more when they were synced, each with its limit: one that is cut later, and rolled anew, has another.
        """
        all_segments = self._segments
        with self._context.lock:
            self._context.require_open()
            generation = all_segments.generation
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
                    if generation != all_segments.generation:
                        return False  # the segment may be gone, and its index would be made anew
                    segment.write_indexes()
                syncing = True
                segment.sync()
            self._epochs.flush()
        except OSError as error:
            # Only a file that is not there any more can be the other thread's doing.
            if fault_of(error) is Fault.ABSENT and generation != all_segments.generation:
                return False
            _log.error("log_flush_failed", partition=str(self._context.topic_partition), error=str(error))
            # The kernel may have dropped the pages it could not write: a second sync would succeed and lie.
            torn = syncing and fault_of(error) is Fault.FULL
            raise self._context.storage_error("sync", error, torn=torn) from error
        with self._context.lock:
            if generation != all_segments.generation:
                return False
            self.last_flush_ms = self._context.clock.wall_ms()
            self.recovery_point = max(self.recovery_point, target)
            for segment in segments:
                if segment.limit <= target:  # and so is another one active
                    segment.let_go_of_file()
            settled.update(inactive)
            return target >= min(up_to, self._offsets.end)

    def _sync_names(self) -> None:
        directory = self._context.directory
        if self._names_changed:
            # Were a truncation's deletions undone by a power loss, old segments and snapshots would stand beside what
            # was written since. Taken back before the sync: what changes during it is for the next one.
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
        """Has the scheduler sync what a roll has finished: one task for a log however many rolls ask, or those of one
        log that rolls fast on a slow disk would stand before whatever else the scheduler does.
        """
        with self._context.lock:
            self._rolled_to = up_to
            if not self._rolled_flush_due:
                scheduler.schedule("flush-log", partial(self._flush_rolled, scheduler), bulk=True)
                self._rolled_flush_due = True

    def _flush_rolled(self, scheduler: KafkaScheduler) -> None:
        """Waits for no other who syncs this log, who may sync as much: a follower that syncs each batch on a slow disk
        has the lock again before anybody, and those that waited for it would be all of the scheduler's threads.
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
                self._rolled_flush_due = False  # whoever rolls from here on has a sync of its own made
            self._flush_to(up_to)
        except KafkaError:
            return  # it has been logged, and the next flush tries again
        finally:
            self.flushing.release()
