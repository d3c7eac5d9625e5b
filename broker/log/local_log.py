"""How a partition's log loses what it has: truncation, retention, compaction's swap, the end.

:class:`broker.log.log.Log` adds what clients and replicas do. Loading is :mod:`.loader`'s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from uuid import uuid4

import structlog

from broker.config.log_config import LONG_MAX
from broker.log.log_dir_health import Fault, fault_of
from broker.log.log_files import LogFiles
from broker.log.producers import producer_replay
from broker.log.producers.producer_snapshot import snapshot_offsets
from broker.log.retention import Reason, RetentionRules, SegmentFacts, segments_to_delete
from broker.log.segments.segment import DELETED_SUFFIX, Segment, set_limits
from broker.protocol.errors import Errors, KafkaError

_log = structlog.get_logger(__name__)

DELETE_DIR_SUFFIX = "-delete"
_MAX_NAME_BYTES = 255
_SHORT_LOG_BYTES = 65536
_BUSY_MS = 1000


class LocalLog(LogFiles):
    """Kafka's class of that name. Keeps the invariants of :class:`LogFiles` through all that takes data away: each
    such change holds ``generation`` odd while it lasts. Files get other names, or go, with ``_renaming`` held.
    """

    # -- truncating --------------------------------------------------------------------------------

    def truncate_to(self, offset: int) -> bool:
        """Removes every batch that reaches ``offset`` or further; False when there is none.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self._renaming, self.lock:
            self._require_open()
            if offset >= self.log_end_offset:
                self.leader_epochs.truncate_from_end(offset)
                return False
            if offset < self._segments[0].base_offset:
                self.truncate_fully_and_start_at(offset)
                return True
            before = self.log_end_offset
            # Before the files change: no part of a truncation may survive a power loss that the old point vouches for.
            self._lower_recovery_point(offset)
            self._generation += 1
            try:
                self._truncate_segments(offset)
            except OSError as error:
                raise self._storage_error("truncate", error, torn=True) from error
            finally:
                self._generation += 1
            if self.log_end_offset < self.log_start_offset:
                # Only deleted records are left. Going on behind them would leave a gap, which recovery takes for a
                # loss.
                self.truncate_fully_and_start_at(self.log_start_offset)
                return True
            self._after_truncation()
            _log.info(
                "log_truncated", partition=str(self.topic_partition), before=before, after=self.log_end_offset
            )
            return True

    def _truncate_segments(self, offset: int) -> None:
        segments = self._segments
        kept = [segment for segment in segments if segment.base_offset <= offset]
        for segment in reversed(segments[len(kept) :]):  # a crash among them then leaves no gap
            self._discard(segment)
        active = kept[-1]
        self.log_start_offset = min(self.log_start_offset, offset)
        self.log_end_offset = active.truncate_to(offset)
        self._set_segments(kept)
        producer_replay.remove_snapshots(self.dir, snapshot_offsets(self.dir), after=self.log_end_offset)
        self.leader_epochs.truncate_from_end(self.log_end_offset)
        self.rebuild_producer_state()

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Removes everything; the log begins and ends at ``offset``. Raises
        KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self._renaming, self.lock:
            self._require_open()
            before = self.log_end_offset
            self._generation += 1
            try:
                for segment in reversed(self._segments):
                    self._discard(segment)
                producer_replay.remove_snapshots(self.dir, snapshot_offsets(self.dir), after=-1)
                segment = self._new_segment(offset)
                self.log_start_offset = self.log_end_offset = self._high_watermark = offset
                self._set_segments([segment])
                self.leader_epochs.clear()
                self.producer_state.clear()
            except OSError as error:
                raise self._storage_error("truncate", error, torn=True) from error
            finally:
                self._generation += 1
            self._after_truncation()
            _log.info("log_truncated_fully", partition=str(self.topic_partition), before=before, after=offset)

    def _after_truncation(self) -> None:
        self._names_changed = True
        self._high_watermark = max(min(self._high_watermark, self.log_end_offset), self.log_start_offset)
        self._sync_wanted = min(self._sync_wanted, self.log_end_offset)
        self._lower_recovery_point(self.log_end_offset)

    def rebuild_producer_state(
        self,
        reindex_from: int = LONG_MAX,
        cancel: threading.Event | None = None,
        without_producers: Collection[int] = (),
        snapshots: Sequence[int] | None = None,
    ) -> None:
        """Reads the producers' state again: the latest snapshot, then the batches after it, but for those of the
        segments at ``without_producers`` (base offsets). ``snapshots`` are the offsets of those that are there, where
        that is known.

        Aborts whose markers stand at ``reindex_from`` or later are noted in the transaction index. Raises
        LoadCancelled, OSError.
        """
        state, end = self.producer_state, self.log_end_offset
        latest = min(end, reindex_from)
        there = snapshot_offsets(self.dir) if snapshots is None else snapshots
        snapshot = producer_replay.load_latest_snapshot(state, self.dir, there, latest, self._clock.wall_ms())
        start = self._segments[0].base_offset if snapshot is None else snapshot
        segments = self._segments_between(start, end)
        producer_replay.replay(state, segments, start, reindex_from, cancel, without_producers)

    # -- retention ---------------------------------------------------------------------------------

    def increment_log_start_offset(self, offset: int) -> bool:
        """Lets the log begin at ``offset``; what lies before is deleted by retention. False when it is no
        advance.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) past the high watermark.
        """
        with self.lock:
            self._require_open()
            if offset > self._high_watermark:
                raise KafkaError(
                    Errors.OFFSET_OUT_OF_RANGE,
                    f"{self.topic_partition}: cannot begin at {offset}, "
                    f"the high watermark is {self._high_watermark}",
                )
            if offset <= self.log_start_offset:
                return False
            self.log_start_offset = offset
            self.leader_epochs.truncate_from_start(offset)
            return True

    def delete_old_segments(self, high_watermark: int | None = None) -> int:
        """Deletes segments that the log start offset, time or size lets go, up to the high watermark; how
        many. Their files are renamed without the log's lock, for appends and reads would wait for the disk.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        gone: list[Segment] = []
        with self._renaming:
            try:
                self._take_oldest(gone, high_watermark)
            finally:
                if gone:
                    self._let_go(gone)
        return len(gone)

    def _take_oldest(self, gone: list[Segment], high_watermark: int | None) -> None:
        """Puts into ``gone`` what the log has no more from now on, oldest first; the files are still there."""
        with self.lock:
            if self._closed:
                return
            if high_watermark is not None:
                self.high_watermark = max(high_watermark, self._high_watermark)
            while (choice := self._choose_deletable()) is not None:
                count, reason = choice
                if count == len(self._segments):
                    self.roll()
                oldest, kept = self._segments[:count], self._segments[count:]
                self._generation += 1
                self.log_start_offset = max(self.log_start_offset, kept[0].base_offset)
                self._high_watermark = max(self._high_watermark, self.log_start_offset)
                self._segments = kept
                self._generation += 1
                gone += oldest
                _log.info(
                    "log_segments_deleted",
                    partition=str(self.topic_partition),
                    segments=[segment.base_offset for segment in oldest],
                    bytes=sum(segment.size for segment in oldest),
                    reason=reason.value,
                    log_start_offset=self.log_start_offset,
                )

    def _let_go(self, gone: Sequence[Segment]) -> None:
        """Oldest first: what a crash leaves has no gap."""
        try:
            for segment in gone:
                self._discard(segment)
            start = self._segments[0].base_offset
            producer_replay.remove_snapshots(self.dir, snapshot_offsets(self.dir), before=start)
            self.leader_epochs.truncate_from_start(self.log_start_offset)
        except OSError as error:
            raise self._storage_error("delete segments of", error) from error

    def _choose_deletable(self) -> tuple[int, Reason] | None:
        segments, config = self._segments, self.config
        ends = [segment.base_offset for segment in segments[1:]] + [self.log_end_offset]
        facts = [
            SegmentFacts(end, segment.size, segment.largest_timestamp, segment is self._active)
            for segment, end in zip(segments, ends, strict=True)
        ]
        return segments_to_delete(
            facts,
            RetentionRules(config.retention_ms, config.retention_bytes, by_policy=config.delete),
            now_ms=self._clock.wall_ms(),
            log_start_offset=self.log_start_offset,
            high_watermark=self._high_watermark,
        )

    @contextmanager
    def own_directory(self) -> Iterator[Path]:
        """A path to the log's directory that stays this log's, whatever bears its name meanwhile. Raises
        KafkaError(KAFKA_STORAGE_ERROR) once the log is closed, OSError.
        """
        with self.lock:
            self._require_open()
            fd = os.open(self.dir, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)

    def replace_segments(self, old: Sequence[Segment], new: Segment, generation: int) -> bool:
        """Puts a compacted segment, which bears the suffix ``.swap`` and lies in :meth:`own_directory`, in the place of
        ``old``.

        False, with nothing done, when segments went or shrank since ``generation``. Raises
        KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self._renaming, self.lock:
            if self._closed or generation != self._generation:
                return False
            self._generation += 1
            try:
                kept = [segment for segment in self._segments if segment not in old]
                for segment in old:
                    self._discard(segment)
                new.change_suffix("")
                new.follow(self.dir)
                new.let_go_of_file()
                self._segments = tuple(sorted([*kept, new], key=lambda segment: segment.base_offset))
                set_limits(self._segments)
            except OSError as error:
                raise self._storage_error("replace segments of", error, torn=True) from error
            finally:
                self._generation += 1
            return True

    def _discard(self, segment: Segment) -> None:
        """Renames the files away and has them unlinked later: somebody may still read them, and to unlink what is large
        takes the disk longer than whoever waits for the log's lock should wait. Under ``_renaming``.
        """
        try:
            segment.change_suffix(DELETED_SUFFIX)
        except OSError as error:
            if fault_of(error) is not Fault.FULL:
                raise
            # A longer name may need a block that a full disk does not have; deleting is what makes room on it.
            segment.delete_files()
            return
        delay_ms = self.config.file_delete_delay_ms
        if delay_ms <= 0 or self._scheduler is None or not self._scheduler.is_started:
            segment.delete_files()
        else:
            self._retired.add(segment)
            self._unlink_later(segment, delay_ms)

    def _unlink_later(self, segment: Segment, delay_ms: int) -> None:
        if self._scheduler is not None and self._scheduler.is_started:
            self._scheduler.schedule("delete-file", partial(self._unlink, segment), delay_ms, bulk=True)

    def _unlink(self, segment: Segment) -> None:
        """Waits for nobody: many that waited for one who renames would be all of the scheduler's threads."""
        if not self._renaming.acquire(blocking=False):
            self._unlink_later(segment, _BUSY_MS)
            return
        try:
            self._retired.discard(segment)
            segment.delete_files()
        finally:
            self._renaming.release()

    def expire_producers(self) -> int:
        """Forgets producers silent for ``producer.id.expiration.ms``; how many."""
        with self.lock:
            return self.producer_state.remove_expired(self._clock.wall_ms())

    def keep_producers(self, most: int) -> int:
        """Forgets producers until there are ``most``; how many."""
        with self.lock:
            return self.producer_state.forget(max(len(self.producer_state.producers) - most, 0))

    # -- the end -----------------------------------------------------------------------------------

    def close(self) -> None:
        """Snapshots the producers, finishes and trims the indexes, unless nothing changed since a clean close. No more
        appends.

        Syncs nothing: whoever closes many logs does that better for all of them (see :meth:`note_synced`).
        Raises KafkaError(KAFKA_STORAGE_ERROR) when the files cannot be left clean.
        """
        with self._renaming, self.lock:
            if self._closed:
                return
            self._closed = True
            if self._is_as_closed:
                return
            self.take_last_snapshot(snapshot_offsets(self.dir))
            try:
                self._active.cut_back()
                for segment in self._segments:
                    if segment is self._active or segment.has_waiting_entries:
                        segment.become_inactive()
                self.leader_epochs.finish(self.log_end_offset)
            except OSError as error:
                _log.error("log_close_failed", partition=str(self.topic_partition), error=str(error))
                raise self._storage_error("close", error) from error

    def take_last_snapshot(self, snapshots: Collection[int]) -> bool:
        """The producers as of the log's end; ``snapshots`` are those that are there. Whether one was wanted.

        Not of a short log that knows no producer: to make a file takes longer than to read such a log again, and where
        there is no snapshot at all a clean log has no producers.
        """
        wanted = bool(snapshots or self.producer_state.producers or self.size_bytes > _SHORT_LOG_BYTES)
        if wanted:
            producer_replay.take_snapshot(self.producer_state, self.dir, self.log_end_offset)
        return wanted

    def mark_deleted(self) -> Path:
        """Renames the directory to ``….<uuid>-delete`` and ends the log. Raises
        KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self._renaming, self.lock:
            tail = f".{uuid4().hex}{DELETE_DIR_SUFFIX}"
            new = self.dir.with_name(self.dir.name[: _MAX_NAME_BYTES - len(tail)] + tail)
            self._generation += 1
            try:
                self.leader_epochs.move(partial(self.dir.rename, new), new)
            except OSError as error:
                raise self._storage_error("delete", error) from error
            finally:
                self._generation += 1
            self._closed = True
            self.dir = new
            for segment in (*self._segments, *self._retired):
                segment.follow(new)
            return new
