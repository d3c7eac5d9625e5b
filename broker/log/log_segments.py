"""The list of a log's segments: appending, rolling, truncating, replacing and deleting them.

Knows nothing about epochs or producers, and stores no high watermark. :mod:`.durability` tracks which of the
data is durable; :mod:`.look_ups` searches a list of segments.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from broker.config.log_config import LogConfig
from broker.log.log_context import LogContext
from broker.log.log_dir_health import Fault, fault_of
from broker.log.retention import Reason, RetentionRules, SegmentFacts, segments_to_delete
from broker.log.roll_pace import RollPace
from broker.log.segments.batch_file import INT32_MAX, LOG_SUFFIX
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.segment import DELETED_SUFFIX, AppendedBatch, Segment, set_limits
from broker.protocol.errors import KafkaError

_log = structlog.get_logger(__name__)

_RECENT_BATCHES: Final = 256
# The kernel keeps written pages cached for longer than this.
FRESH_MS: Final = 1_000
_LONG_AGO_MS: Final = -(1 << 62)
# Delay before an unlink is retried because another thread was renaming files.
_BUSY_MS: Final = 1_000


class Segments:
    """A log's segments; Kafka's LogSegments, with the changes that LocalLog makes to them.

    Invariant: there is at least one segment. Base offsets rise, and each segment's ``limit`` is the next
    one's base. The last is the active segment, the only one that is appended to. ``generation`` is odd while
    segments or the ends of segments are being removed. A look-up without the lock that saw it odd, or saw it
    change, must be repeated.

    Owned by one :class:`~broker.log.log.Log`. Changed with the log's lock held. Code that renames or unlinks
    files also holds ``renaming``, or only ``renaming`` if no list changes. Reads need no lock: a list is
    replaced, never changed.
    """

    __slots__ = (
        "_context",
        "_retired",
        "_roll_pace",
        "_rolled_for_age_ms",
        "_segment_ms",
        "active",
        "all",
        "config",
        "cuts",
        "fresh",
        "generation",
        "renaming",
        "tail",
    )

    def __init__(
        self,
        context: LogContext,
        segments: Sequence[Segment],
        end_offset: int,
        config: LogConfig,
        roll_pace: RollPace | None = None,
    ) -> None:
        #: Rises by two with every change that removes segments or their ends; odd during the change.
        self.generation = 0
        #: Rises with every such change but the removal of the oldest segments.
        self.cuts = 0
        #: Guards the names of files. It is the only lock needed to rename or unlink files that the log no
        #: longer uses. Code that restarts the log, where files of the same name may still exist, or moves the
        #: directory also takes it.
        self.renaming = threading.RLock()  # lock order 47
        #: The position from which the active segment was written recently, and since when (wall clock, ms).
        self.fresh = (0, _LONG_AGO_MS)
        self._context = context
        self._roll_pace = roll_pace or RollPace()
        self._rolled_for_age_ms = _LONG_AGO_MS
        # Segments removed from the log whose files are not unlinked yet; when the directory moves, they move
        # with it.
        self._retired: set[Segment] | None = None
        self.put(segments, end_offset)
        self.update_config(config)

    def __repr__(self) -> str:
        return f"<Segments {[segment.base_offset for segment in self.all]} generation={self.generation}>"

    # -- the list

    @property
    def size_bytes(self) -> int:
        """The total size of all their ``.log`` files."""
        return sum(segment.size for segment in self.all)

    def update_config(self, config: LogConfig) -> None:
        """Applies a changed topic config; data already on disk stays as it is."""
        #: The topic's config.
        self.config = config
        jitter_limit = min(config.segment_jitter_ms, config.segment_ms)
        jitter_ms = int.from_bytes(os.urandom(8), "big") % jitter_limit if jitter_limit > 0 else 0
        self._segment_ms = config.segment_ms - jitter_ms

    def put(self, segments: Sequence[Segment], end_offset: int) -> None:
        """Makes ``segments`` the log's segments; the log ends at ``end_offset``."""
        #: All segments, in offset order.
        self.all = tuple(segments)
        active = self.all[-1]
        active.keep_file()
        set_limits(self.all)
        #: The last segment.
        self.active = active
        #: The active segment with the positions of its latest batch boundaries, including its end.
        self.tail: tuple[Segment, dict[int, int]] = (active, {end_offset: active.size})

    def between(self, first_offset: int, end_offset: int, log_end_offset: int) -> list[Segment]:
        """The segments with batches from ``first_offset`` to ``end_offset``. It includes the segment that
        ends at ``first_offset``, which may have been synced before rolling trimmed its indexes.
        """
        segments = self.all
        ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset + 1]
        return [
            segment
            for segment, end in zip(segments, ends, strict=True)
            if segment.base_offset < end_offset and end >= first_offset
        ]

    def tell_damage(self, damage: DamagedError) -> None:
        """Reports the damage on the segment whose file has it."""
        for segment in self.all:
            if segment.path(LOG_SUFFIX) == damage.path:
                segment.tell_damage(damage)

    # -- appending

    def must_roll(self, size: int, batches: Sequence[AppendedBatch], now_ms: int) -> bool:
        """Whether a new segment must begin before ``batches`` of ``size`` bytes are appended.

        That is so if the active segment is full. It is also so if the segment is older than ``segment.ms``,
        by the batches' timestamps or else by the clock, and the roll pace allows another roll for age.
        """
        segment = self.active
        if not segment.size:
            return False
        if (
            segment.size + size > self.config.segment_bytes
            or batches[-1][1] - segment.base_offset > INT32_MAX
            or segment.indexes_full
        ):
            return True
        first = segment.first_timestamp
        if first is None:
            first = segment.first_batch_timestamp()
        latest = batches[0][3] if len(batches) == 1 else max(batch[3] for batch in batches)
        age_ms = latest - first if first is not None and first >= 0 else now_ms - segment.created_ms
        if age_ms <= self._segment_ms or not self._roll_pace.allows(now_ms, self._rolled_for_age_ms):
            return False
        self._rolled_for_age_ms = now_ms
        return True

    def append(self, data: memoryview, batches: Sequence[AppendedBatch], end_offset: int, now_ms: int) -> int:
        """Writes ``data``, which holds exactly ``batches``, to the active segment of a log that ends
        at ``end_offset``.

        Returns the new end offset. Raises KafkaError(KAFKA_STORAGE_ERROR); then nothing was appended.
        """
        if batches[-1][1] - self.active.base_offset > INT32_MAX:
            self._replace_active(batches[0][0], end_offset)
        segment, recent = self.tail
        position = segment.size
        try:
            segment.append(data, batches, self.config.index_interval_bytes)
        except OSError as error:
            raise self._write_failure(segment, len(data), error) from error
        if batches[0][0] != end_offset:  # a fetched batch after a gap
            recent.pop(end_offset, None)
            recent[batches[0][0]] = position
        for _, last_offset, size, _ in batches:
            position += size
            recent[last_offset + 1] = position
        if len(recent) > _RECENT_BATCHES:
            drop_older_half(recent)
        if segment.size == len(data) or not 0 <= now_ms - self.fresh[1] < FRESH_MS:
            self.fresh = (segment.size - len(data), now_ms)
        return batches[-1][1] + 1

    def _replace_active(self, base_offset: int, end_offset: int) -> None:
        """Replaces an empty active segment with an empty one at ``base_offset``."""
        segment = self.begin(base_offset)
        empty = self.active
        self.put((*self.all[:-1], segment), end_offset)
        if empty.base_offset != base_offset:
            empty.delete_files()

    def _write_failure(self, segment: Segment, size: int, error: OSError) -> KafkaError:
        """Removes what was written of a failed append. If that fails too, the directory fails: after a
        shorter write to the same place, recovery could take the remaining batches of the torn end for
        valid ones.
        """
        context = self._context
        torn = False
        try:
            segment.cut_back()
        except OSError as cut_error:
            torn = True
            _log.error("log_cut_back_failed", partition=str(context.topic_partition), error=str(cut_error))
        refused_before = context.health.is_full and not torn
        failure = context.storage_error("append to", error, torn=torn)
        if not refused_before:  # a follower on a full disk retries again and again
            _log.error(
                "log_write_failed",
                partition=str(context.topic_partition),
                file=str(segment.path(LOG_SUFFIX)),
                bytes=size,
                error=error.strerror or str(error),
                do="free space on the disk or replace it; nothing was appended",
            )
        return failure

    # -- new segments

    def roll(self, end_offset: int) -> Segment:
        """Adds a new active segment after the current one, which is not empty. Returns the previous
        active segment.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        old = self.active
        segment = self.begin(end_offset)
        try:
            old.become_inactive()
        except OSError as error:
            _log.warning("index_trim_failed", file=str(old.path(".index")), error=str(error))
        self.put((*self.all, segment), end_offset)
        return old

    def begin(self, base_offset: int) -> Segment:
        """Creates a new segment; the caller adds it to the list. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        context = self._context
        try:
            return Segment.create(
                context.directory, base_offset, self.config.segment_index_bytes, self._context.clock.wall_ms()
            )
        except OSError as error:
            _log.error(
                "log_roll_failed",
                partition=str(context.topic_partition),
                dir=str(context.directory),
                error=str(error),
            )
            torn = not self._take_back(base_offset)
            raise context.storage_error("begin a segment of", error, torn=torn) from error

    def _take_back(self, base_offset: int) -> bool:
        """Removes the files of a segment that could not be created; False if that fails. If they stayed and
        the log grew past their offset, the next recovery would take them for the data at that offset.
        """
        try:
            Segment(self._context.directory, base_offset, self.config.segment_index_bytes, 0).delete_files()
        except OSError:
            return False
        return True

    # -- removing segments

    @contextmanager
    def changing(self, *, only_oldest: bool = False) -> Iterator[None]:
        """Keeps ``generation`` odd while segments or their ends are removed. ``only_oldest``: the others and
        their ends stay as they are.
        """
        self.generation += 1
        self.cuts += not only_oldest
        try:
            yield
        finally:
            self.generation += 1

    def truncate_to(self, offset: int) -> int:
        """Removes every batch that reaches ``offset`` or goes beyond it, and returns the new end offset.

        ``offset`` is not before the first segment. Call it within :meth:`changing`. Raises OSError.
        """
        segments = self.all
        kept = [segment for segment in segments if segment.base_offset <= offset]
        self.discard(reversed(segments[len(kept) :]))  # in reverse, so that a crash in between leaves no gap
        end_offset = kept[-1].truncate_to(offset)
        self.put(kept, end_offset)
        return end_offset

    def deletable(
        self, log_start_offset: int, high_watermark: int, log_end_offset: int
    ) -> tuple[int, Reason] | None:
        """How many of the oldest segments retention deletes, and why; None if none."""
        segments, config = self.all, self.config
        ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset]
        facts = [
            SegmentFacts(end, segment.size, segment.largest_timestamp, segment is self.active)
            for segment, end in zip(segments, ends, strict=True)
        ]
        return segments_to_delete(
            facts,
            RetentionRules(config.retention_ms, config.retention_bytes, by_policy=config.delete),
            now_ms=self._context.clock.wall_ms(),
            log_start_offset=log_start_offset,
            high_watermark=high_watermark,
        )

    def drop_oldest(self, count: int) -> Sequence[Segment]:
        """Removes the oldest ``count`` segments from the list, but never all of them. The caller must still
        discard them. Call it within :meth:`changing`.
        """
        oldest, self.all = self.all[:count], self.all[count:]
        return oldest

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Replaces ``old`` with a compacted segment, which has the suffix ``.swap`` and lies in the log's own
        directory. Call it within :meth:`changing`. Raises OSError.
        """
        kept = [segment for segment in self.all if segment not in old]
        self.discard(old)
        new.change_suffix("")
        new.follow(self._context.directory)
        new.let_go_of_file()
        self.all = tuple(sorted([*kept, new], key=lambda segment: segment.base_offset))
        set_limits(self.all)

    def discard(self, segments: Iterable[Segment]) -> None:
        """Renames the segments' files and schedules their unlinking. Readers may still use the files.
        Unlinking a large file also takes longer than a thread that waits for the log's lock should wait. Call
        it with ``renaming`` held. Raises OSError.
        """
        delay_ms = self.config.file_delete_delay_ms
        later = delay_ms > 0 and self._context.running_scheduler is not None
        for segment in segments:
            try:
                segment.change_suffix(DELETED_SUFFIX)
            except OSError as error:
                if fault_of(error) is not Fault.FULL:
                    raise
                # The longer name may need a block that a full disk does not have, and deleting frees space.
                segment.delete_files()
                continue
            if later:
                if self._retired is None:
                    self._retired = set()
                self._retired.add(segment)
                self._unlink_later(segment, delay_ms)
            else:
                segment.delete_files()

    def _unlink_later(self, segment: Segment, delay_ms: int) -> None:
        if (scheduler := self._context.running_scheduler) is not None:
            scheduler.schedule("delete-file", partial(self._unlink, segment), delay_ms, bulk=True)

    def _unlink(self, segment: Segment) -> None:
        """Never waits for the lock: waiting unlinks could occupy all scheduler threads during one rename."""
        if not self.renaming.acquire(blocking=False):
            self._unlink_later(segment, _BUSY_MS)
            return
        try:
            if self._retired is not None:
                self._retired.discard(segment)
            segment.delete_files()
        finally:
            self.renaming.release()

    # -- closing

    def finish(self) -> None:
        """Leaves the files ready for a clean start: no torn end, indexes written and trimmed.
        Raises OSError.
        """
        self.active.cut_back()
        for segment in self.all:
            if segment is self.active or segment.has_waiting_entries:
                segment.become_inactive()

    def follow(self, directory: Path) -> None:
        """Follows a rename of the log's directory to ``directory``, also for files not unlinked yet."""
        for segment in (*self.all, *(self._retired or ())):
            segment.follow(directory)


def drop_older_half(recent: dict[int, int]) -> None:
    """Keeps the later half. Entries are dropped in bulk; a look-up that misses them costs little."""
    for offset in list(recent)[: len(recent) // 2]:
        del recent[offset]
