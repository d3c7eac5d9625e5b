"""Removes data from a log: truncation, retention, and the swap of compacted segments."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from broker.log.durability import Durability
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_appender import LogAppender
from broker.log.log_context import LogContext
from broker.log.log_offsets import LogOffsets
from broker.log.log_producers import LogProducers
from broker.log.log_segments import Segments
from broker.log.segments.batch_file import SWAP_SUFFIX
from broker.log.segments.segment import Segment
from broker.protocol.errors import Errors, KafkaError

_log = structlog.get_logger(__name__)


class LogTrimmer:
    """Removes data from a log; the truncation and deletion of Kafka's UnifiedLog.

    Invariant: ``Segments.generation`` is odd during a change, and the recovery point is lowered before a
    truncation changes a file. A crash in between leaves no gap: truncation removes the newest segment first,
    retention the oldest.

    Owned by one :class:`~broker.log.log.Log`. Takes ``Segments.renaming``, then the log's lock.
    """

    __slots__ = (
        "_appender",
        "_context",
        "_durability",
        "_epochs",
        "_lower_recovery_point",
        "_offsets",
        "_producers",
        "_segments",
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
        appender: LogAppender,
        lower_recovery_point: Callable[[int], None],
    ) -> None:
        """``lower_recovery_point`` lowers the recovery point to an offset, in the checkpoint too."""
        self._context = context
        self._offsets = offsets
        self._segments = segments
        self._durability = durability
        self._epochs = epochs
        self._producers = producers
        self._appender = appender
        self._lower_recovery_point = lower_recovery_point

    def __repr__(self) -> str:
        return f"<LogTrimmer {self._context.topic_partition} {self._offsets}>"

    # -- truncating

    def truncate_to(self, offset: int) -> bool:
        """Removes every batch that reaches ``offset`` or goes beyond it; False if there is none.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        segments, offsets = self._segments, self._offsets
        with segments.renaming, self._context.lock:
            self._context.require_open()
            if offset >= offsets.end:
                self._epochs.truncate_from_end(offset)
                return False
            if offset < segments.all[0].base_offset:
                self.truncate_fully_and_start_at(offset)
                return True
            before = offsets.end
            # Before the files change: after a power loss, the old recovery point must not vouch for a
            # half-made truncation.
            self._lower_recovery_point(offset)
            with segments.changing(), self._context.failing("truncate", torn=True):
                offsets.end = segments.truncate_to(offset)
                offsets.start = min(offsets.start, offset)
                offsets.mark(offsets.high_watermark)  # before the new state, which tells what lies below it
                self._producers.remove_snapshots(after=offsets.end)
                self._epochs.truncate_from_end(offsets.end)
                self._producers.rebuild()
            if offsets.end < offsets.start:
                # Only deleted records are left. Appending after them would leave a gap, which recovery treats
                # as data loss.
                self.truncate_fully_and_start_at(offsets.start)
                return True
            self._after_truncation()
            _log.info(
                "log_truncated",
                partition=str(self._context.topic_partition),
                before=before,
                after=offsets.end,
            )
            return True

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Empties the log; it then begins and ends at ``offset``. Raises KafkaError(KAFKA_STORAGE_ERROR)."""
        segments = self._segments
        with segments.renaming, self._context.lock:
            self._context.require_open()
            before = self._offsets.end
            with segments.changing(), self._context.failing("truncate", torn=True):
                segments.discard(reversed(segments.all))
                self._producers.remove_snapshots(after=-1)
                segment = segments.begin(offset)
                self._offsets.restart_at(offset)
                segments.put([segment], offset)
                self._epochs.clear()
                self._producers.forget_all()
            self._after_truncation()
            _log.info(
                "log_truncated_fully",
                partition=str(self._context.topic_partition),
                before=before,
                after=offset,
            )

    def _after_truncation(self) -> None:
        self._durability.note_truncated()
        self._lower_recovery_point(self._offsets.end)

    # -- retention and compaction

    def increment_log_start_offset(self, offset: int) -> bool:
        """Moves the log start to ``offset``; retention deletes what lies before. False if the log does not
        start earlier.

        Raises KafkaError(OFFSET_OUT_OF_RANGE) past the high watermark.
        """
        offsets = self._offsets
        with self._context.lock:
            self._context.require_open()
            if offset > offsets.high_watermark:
                raise KafkaError(
                    Errors.OFFSET_OUT_OF_RANGE,
                    f"{self._context.topic_partition}: cannot begin at {offset}, "
                    f"the high watermark is {offsets.high_watermark}",
                )
            if offset <= offsets.start:
                return False
            offsets.start = offset
            self._epochs.truncate_from_start(offset)
            return True

    def delete_old_segments(self, high_watermark: int | None = None) -> int:
        """Deletes segments below the high watermark that the log start offset, time or size no longer keeps.

        Returns how many. The files are renamed without the log's lock, so appends and reads do not wait for
        the disk. Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        gone: list[Segment] = []
        with self._segments.renaming:
            try:
                self._take_oldest(gone, high_watermark)
            finally:
                if gone:
                    self._let_go(gone)
        return len(gone)

    def _take_oldest(self, gone: list[Segment], high_watermark: int | None) -> None:
        """Moves deletable segments from the log into ``gone``, oldest first; their files stay for now."""
        segments, offsets = self._segments, self._offsets
        with self._context.lock:
            if self._context.is_closed:
                return
            if high_watermark is not None:
                offsets.mark(max(high_watermark, offsets.high_watermark))
            while choice := segments.deletable(offsets.start, offsets.high_watermark, offsets.end):
                count, reason = choice
                if count == len(segments.all):
                    self._appender.roll()
                with segments.changing(only_oldest=True):
                    offsets.begin_at(segments.all[count].base_offset)
                    oldest = segments.drop_oldest(count)
                gone += oldest
                _log.info(
                    "log_segments_deleted",
                    partition=str(self._context.topic_partition),
                    segments=[segment.base_offset for segment in oldest],
                    bytes=sum(segment.size for segment in oldest),
                    reason=reason.value,
                    log_start_offset=offsets.start,
                )

    def _let_go(self, gone: Sequence[Segment]) -> None:
        """Discards the oldest segments first, so that a crash leaves no gap."""
        with self._context.failing("delete segments of"):
            self._segments.discard(gone)
            self._producers.remove_snapshots(before=self._segments.all[0].base_offset)
            self._epochs.truncate_from_start(self._offsets.start)

    def replace_segments(self, old: Sequence[Segment], new: Segment, generation: int) -> bool:
        """Replaces ``old`` with a compacted segment, which has the suffix ``.cleaned``, as :meth:`Segments.replace`.

        Returns False, with nothing done, if segments were removed or shortened since ``generation``. A load finishes
        what is called ``.swap``, so it is called so only from here on. Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        segments = self._segments
        with segments.renaming, self._context.lock:
            if self._context.is_closed or generation != segments.generation:
                return False
            with self._context.failing("replace segments of"):
                try:
                    new.change_suffix(SWAP_SUFFIX)
                except OSError:
                    new.delete_files()
                    raise
            with segments.changing(), self._context.failing("replace segments of", torn=True):
                segments.replace(old, new)
            with self._context.failing("replace segments of"):
                self._producers.remove_snapshots_of_joined(old)
            return True
