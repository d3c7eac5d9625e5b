"""The segments of a log as one thing: which they are, which is written to, how they come, change places and go.

Knows nothing of epochs, producers or the high watermark. What of them is durable is :mod:`.durability`'s; look-ups in
a list of segments are :mod:`.look_ups`'s.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path

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

_RECENT_BATCHES = 256
# The kernel keeps what was written for longer than this.
FRESH_MS = 1_000
_LONG_AGO_MS = -(1 << 62)
# What is to be unlinked while another renames is tried again after.
_BUSY_MS = 1_000


class Segments:
    """Kafka's LogSegments, with what its LocalLog does to them.

    Invariant: there is always one; base offsets rise, and each segment's ``limit`` is the next one's base; the last
    is the active one, to which alone is appended. ``generation`` is odd while segments or their ends are being taken
    away: a look without the lock that saw it odd, or changed, has to be done again.

    Owned by one :class:`~broker.log.log.Log`: changed with its lock held, and what renames or unlinks files holds
    ``renaming`` too, or that alone where no list changes. Looked at without any: lists are replaced, never changed.
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
        #: Rises by two with every change that takes segments or their ends away; odd meanwhile.
        self.generation = 0
        #: Who renames or unlinks what is the log's no more needs no other lock for it; who begins the log anew, where
        #: files of that name may still be, or moves the directory, comes before or after.
        self.renaming = threading.RLock()  # lock order 47
        #: From which position on the active segment was written lately, and since when (wall clock, ms).
        self.fresh = (0, _LONG_AGO_MS)
        self._context = context
        self._roll_pace = roll_pace or RollPace()
        self._rolled_for_age_ms = _LONG_AGO_MS
        # What was taken out of the log and is still to be unlinked: it goes with the directory.
        self._retired: set[Segment] | None = None
        self.put(segments, end_offset)
        self.update_config(config)

    def __repr__(self) -> str:
        return f"<Segments {[segment.base_offset for segment in self.all]} generation={self.generation}>"

    # -- what they are

    @property
    def size_bytes(self) -> int:
        """Of all their ``.log`` files."""
        return sum(segment.size for segment in self.all)

    def update_config(self, config: LogConfig) -> None:
        """Takes a changed topic config; what is on disk already stays as it is."""
        #: The topic's.
        self.config = config
        jitter_limit = min(config.segment_jitter_ms, config.segment_ms)
        jitter_ms = int.from_bytes(os.urandom(8), "big") % jitter_limit if jitter_limit > 0 else 0
        self._segment_ms = config.segment_ms - jitter_ms

    def put(self, segments: Sequence[Segment], end_offset: int) -> None:
        """These are the segments from now on, and the log ends at ``end_offset``."""
        #: By offset.
        self.all = tuple(segments)
        active = self.all[-1]
        active.keeps_file = True
        set_limits(self.all)
        #: The last.
        self.active = active
        #: The active one with the positions of its latest batch boundaries, the end included.
        self.tail: tuple[Segment, dict[int, int]] = (active, {end_offset: active.size})

    def between(self, first_offset: int, end_offset: int, log_end_offset: int) -> list[Segment]:
        """Those with batches of ``first_offset`` to ``end_offset``. Also the one that ends at ``first_offset``: it may
        have been synced before rolling trimmed its indexes.
        """
        segments = self.all
        ends = [segment.base_offset for segment in segments[1:]] + [log_end_offset + 1]
        return [
            segment
            for segment, end in zip(segments, ends, strict=True)
            if segment.base_offset < end_offset and end >= first_offset
        ]

    def tell_damage(self, damage: DamagedError) -> None:
        """Has the segment tell of it in which it was met."""
        for segment in self.all:
            if segment.path(LOG_SUFFIX) == damage.path:
                segment.tell_damage(damage)

    # -- appending

    def must_roll(self, size: int, batches: Sequence[AppendedBatch], now_ms: int) -> bool:
        """Whether a new segment has to begin before ``batches`` of ``size`` bytes are appended: the active one is full,
        or older than ``segment.ms``, by the batches' timestamps or else by the clock, and a roll for that may be.
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
        """Writes ``data``, which holds exactly ``batches``, to the active segment of a log that ends at ``end_offset``;
        where it ends then. Raises KafkaError(KAFKA_STORAGE_ERROR), with nothing appended.
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
        """Puts an empty segment at ``base_offset`` in the place of an empty active one."""
        segment = self.begin(base_offset)
        empty = self.active
        self.put((*self.all[:-1], segment), end_offset)
        if empty.base_offset != base_offset:
            empty.delete_files()

    def _write_failure(self, segment: Segment, size: int, error: OSError) -> KafkaError:
        """Takes back what was written. Where that fails the directory does: batches of the torn end could be taken
        for sound ones behind a shorter write to the same place.
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
        if not refused_before:  # a follower on a full disk tries again and again
            _log.error(
                "log_write_failed",
                partition=str(context.topic_partition),
                file=str(segment.path(LOG_SUFFIX)),
                bytes=size,
                error=error.strerror or str(error),
                do="free space on the disk or replace it; nothing was appended",
            )
        return failure

    # -- coming

    def roll(self, end_offset: int) -> Segment:
        """Has the active segment, which is not empty, followed by a new one; what was the active one.

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
        """A new segment, which is to be put in. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
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
        """Removes the files of a segment that could not be begun; False when that fails. Were they left, and the log
        grew on past their offset, the next recovery would take them for what follows there.
        """
        try:
            Segment(self._context.directory, base_offset, self.config.segment_index_bytes, 0).delete_files()
        except OSError:
            return False
        return True

    # -- going

    @contextmanager
    def changing(self) -> Iterator[None]:
        """While segments or their ends are taken away: ``generation`` is odd."""
        self.generation += 1
        try:
            yield
        finally:
            self.generation += 1

    def truncate_to(self, offset: int) -> int:
        """Removes every batch that reaches ``offset``, which is not before the first segment, or further; where the
        log ends then. Within :meth:`changing`. Raises OSError.
        """
        segments = self.all
        kept = [segment for segment in segments if segment.base_offset <= offset]
        self.discard(reversed(segments[len(kept) :]))  # a crash among them then leaves no gap
        end_offset = kept[-1].truncate_to(offset)
        self.put(kept, end_offset)
        return end_offset

    def deletable(
        self, log_start_offset: int, high_watermark: int, log_end_offset: int
    ) -> tuple[int, Reason] | None:
        """How many of the oldest retention lets go, and why; None: none."""
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
        """Takes the oldest out of the list, not all; they are still to be discarded. Within :meth:`changing`."""
        oldest, self.all = self.all[:count], self.all[count:]
        return oldest

    def replace(self, old: Sequence[Segment], new: Segment) -> None:
        """Puts a compacted segment, which bears the suffix ``.swap`` and lies in the log's own directory, in the place
        of ``old``. Within :meth:`changing`. Raises OSError.
        """
        kept = [segment for segment in self.all if segment not in old]
        self.discard(old)
        new.change_suffix("")
        new.follow(self._context.directory)
        new.let_go_of_file()
        self.all = tuple(sorted([*kept, new], key=lambda segment: segment.base_offset))
        set_limits(self.all)

    def discard(self, segments: Iterable[Segment]) -> None:
        """Renames their files away and has them unlinked later: somebody may still read them, and to unlink what is
        large takes the disk longer than whoever waits for the log's lock should wait. Under ``renaming``. Raises
        OSError.
        """
        delay_ms = self.config.file_delete_delay_ms
        later = delay_ms > 0 and self._context.running_scheduler is not None
        for segment in segments:
            try:
                segment.change_suffix(DELETED_SUFFIX)
            except OSError as error:
                if fault_of(error) is not Fault.FULL:
                    raise
                # A longer name may need a block that a full disk does not have; deleting is what makes room on it.
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
        """Waits for nobody: many that waited for one who renames would be all of the scheduler's threads."""
        if not self.renaming.acquire(blocking=False):
            self._unlink_later(segment, _BUSY_MS)
            return
        try:
            if self._retired is not None:
                self._retired.discard(segment)
            segment.delete_files()
        finally:
            self.renaming.release()

    # -- the end

    def finish(self) -> None:
        """Leaves the files as a start wants them: no torn end, indexes complete and trimmed. Raises OSError."""
        self.active.cut_back()
        for segment in self.all:
            if segment is self.active or segment.has_waiting_entries:
                segment.become_inactive()

    def follow(self, directory: Path) -> None:
        """The log's directory was renamed to ``directory``: so are the files, also of what is still to be unlinked."""
        for segment in (*self.all, *(self._retired or ())):
            segment.follow(directory)


def drop_older_half(recent: dict[int, int]) -> None:
    """Leaves the later half: in one go, for a look-up that finds nothing there costs little."""
    for offset in list(recent)[: len(recent) // 2]:
        del recent[offset]
