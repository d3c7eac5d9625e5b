"""Chooses the compacted log to clean next, and stores how far each log is clean.

Kafka's LogCleaner and LogCleanerManager, with one scheduler thread. Each directory's
``cleaner-offset-checkpoint`` stores the progress.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import structlog

from broker.config.log_config import LONG_MAX
from broker.log.cleaning.io_pace import CleaningAborted, IoPace
from broker.log.dirs.log_dir import LogDir
from broker.log.log import Log
from broker.protocol.errors import KafkaError
from broker.utils.clock import Clock
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class DirtyLog:
    """A compacted log and its dirty part, from ``first_dirty_offset`` to ``first_uncleanable_offset``."""

    log: Log
    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue: bool

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def wants_cleaning(self) -> bool:
        return self.dirty_bytes > 0 and (
            self.overdue or self.ratio >= self.log.config.min_cleanable_dirty_ratio
        )


class LogCleaner:
    """Cleans the dirtiest log first; Kafka's LogCleaner. ``run`` is a periodic task; one runs at a time."""

    def __init__(
        self,
        logs_by_dir: Callable[[], Iterable[tuple[LogDir, list[Log]]]],
        clock: Clock,
        dedupe_buffer_bytes: int,
        io_bytes_per_second: float,
        stopped: Callable[[], bool],
    ) -> None:
        self._logs_by_dir = logs_by_dir
        self._clock = clock
        #: The size of the next cleaning's offset map.
        self.dedupe_buffer_bytes = dedupe_buffer_bytes
        self.pace = IoPace(io_bytes_per_second, clock, stopped)
        self._stopped = stopped
        self._lock = threading.Lock()  # lock order 42

    def run(self) -> int:
        """Cleans until no log needs it; returns the number of cleanings."""
        cleaned = 0
        with self._lock:
            while not self._stopped():
                found = self._dirtiest()
                if found is None:
                    break
                log_dir, dirty = found
                if not self._clean(log_dir, dirty):
                    break
                cleaned += 1
        return cleaned

    def uncleanable_in(self, log_dir: LogDir) -> list[Log]:
        """The directory's logs that are no longer compacted because some of their data is damaged."""
        logs = next((logs for one, logs in self._logs_by_dir() if one is log_dir), [])
        return [log for log in logs if not log.is_cleanable]

    def _dirtiest(self) -> tuple[LogDir, DirtyLog] | None:
        now_ms = self._clock.wall_ms()
        candidates = []
        for log_dir, logs in self._logs_by_dir():
            compacted = [log for log in logs if log.config.compact]
            if compacted:
                positions = log_dir.read_checkpoint(log_dir.cleaned)
                for log in compacted:
                    dirty = measure(log, positions.get(log.topic_partition), now_ms)
                    if dirty.wants_cleaning and log.is_cleanable:
                        candidates.append((log_dir, dirty))
        return max(candidates, key=lambda candidate: candidate[1].ratio, default=None)

    def _clean(self, log_dir: LogDir, dirty: DirtyLog) -> bool:
        # Imported when the first log needs cleaning, not at every start.
        from broker.log.cleaning.cleaner import clean_log
        from broker.log.cleaning.offset_map import OffsetMap

        log = dirty.log
        started_ms = self._clock.monotonic_ms()
        try:
            stats = clean_log(
                log,
                dirty.first_dirty_offset,
                dirty.first_uncleanable_offset,
                OffsetMap(self.dedupe_buffer_bytes),
                now_ms=self._clock.wall_ms(),
                pace=self.pace,
            )
        except CleaningAborted:
            return False
        except Exception as error:  # whatever it is, the other logs are to be compacted
            if isinstance(error, OSError):
                log_dir.health.report(f"compact {log.topic_partition}", error)
            elif not isinstance(error, KafkaError):
                _log.exception("log_compaction_failed", partition=str(log.topic_partition))
            if log_dir.health.is_full or log_dir.health.failure is not None:
                return False  # retried once there is space; a failed directory's log is dropped anyway
            log.is_cleanable = False
            _log.error(
                "log_uncleanable",
                partition=str(log.topic_partition),
                dir=str(log.dir),
                error=str(error),
                do="nothing was taken away; the log is served but grows. Let a sound replica lead, then have this one "
                "copied anew: stop the broker, remove the directory, start it. It is tried again after any restart",
            )
            return True
        if log.generation == stats.generation:
            self._note_clean(log_dir, log, stats.end_offset)
        _log.info(
            "log_compacted",
            partition=str(log.topic_partition),
            clean_up_to=stats.end_offset,
            bytes_before=stats.bytes_before,
            bytes_after=stats.bytes_after,
            keys=stats.keys,
            took_ms=self._clock.monotonic_ms() - started_ms,
        )
        return True

    def _note_clean(self, log_dir: LogDir, log: Log, end_offset: int) -> None:
        """Stores the progress, unless the log was deleted meanwhile: another log may have its name."""
        checkpoint = log_dir.cleaned
        with log_dir.checkpointing:
            present = {
                one.topic_partition: one for d, logs in self._logs_by_dir() if d is log_dir for one in logs
            }
            if present.get(log.topic_partition) is log:
                positions = log_dir.read_checkpoint(checkpoint) | {log.topic_partition: end_offset}
                log_dir.write_checkpoint(checkpoint, {tp: o for tp, o in positions.items() if tp in present})


def forget_clean(log_dir: LogDir, topic_partition: TopicPartition) -> None:
    """Removes the progress of a deleted log, because it does not apply to the next log with its name."""
    checkpoint = log_dir.cleaned
    with log_dir.checkpointing:
        positions = log_dir.read_checkpoint(checkpoint)
        if positions.pop(topic_partition, None) is not None:
            log_dir.write_checkpoint(checkpoint, positions)


def measure(log: Log, checkpointed: int | None, now_ms: int) -> DirtyLog:
    """How dirty ``log`` is. ``checkpointed`` is the offset up to which it was cleaned, if known."""
    segments = log.segments
    first_base = segments[0].base_offset
    first_dirty = first_base if checkpointed is None else max(checkpointed, first_base)
    if first_dirty > log.log_end_offset:  # recovery has cut it
        first_dirty = first_base
    uncleanable = min(segments[-1].base_offset, log.last_stable_offset())
    config = log.config
    for segment in segments[:-1]:
        lag_ms = now_ms - segment.largest_timestamp
        if config.min_compaction_lag_ms > 0 and lag_ms < config.min_compaction_lag_ms:
            uncleanable = min(uncleanable, segment.base_offset)
    bases = [segment.base_offset for segment in segments if segment.base_offset <= uncleanable]
    uncleanable = bases[-1] if bases else first_base  # segments are compacted whole
    clean = sum(s.size for s in segments[:-1] if s.base_offset < first_dirty)
    dirty = [s for s in segments[:-1] if first_dirty <= s.base_offset < uncleanable]
    inside = next((s for s in reversed(segments[:-1]) if s.base_offset < first_dirty), None)
    if inside is not None and first_dirty < uncleanable and (not dirty or dirty[0].base_offset > first_dirty):
        clean -= inside.size
        dirty.insert(0, inside)
    oldest_ms = (dirty[0].first_batch_timestamp() if dirty else None) or now_ms
    return DirtyLog(
        log,
        first_dirty,
        uncleanable,
        clean,
        sum(segment.size for segment in dirty),
        overdue=config.max_compaction_lag_ms < LONG_MAX and now_ms - oldest_ms > config.max_compaction_lag_ms,
    )
