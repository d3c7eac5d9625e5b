"""Which logs exist and in which directory, and their checkpoints.

:class:`broker.log.log_manager.LogManager` adds loading, periodic tasks and shutdown.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType

from broker.config.log_config import LONG_MAX
from broker.log.checkpoints import OffsetCheckpoint
from broker.log.dirs.log_dir import LogDir
from broker.log.dirs.log_dirs import LogDirs
from broker.log.log import Log
from broker.protocol.errors import KafkaError
from broker.utils.topic_partition import TopicPartition


class LogRegistry:
    """The map of logs, which it owns. Changed under its lock; reads take no lock."""

    def __init__(self, dirs: LogDirs) -> None:
        self.dirs = dirs
        self._logs: dict[TopicPartition, Log] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        # Logs that are being copied to another directory: the copy, and that directory.
        self._futures: dict[TopicPartition, tuple[Log, LogDir]] = {}
        self._lock = threading.Lock()  # lock order 44
        self._loaded_dirs: set[LogDir] = set()
        self._on_lowered = self._recovery_points_lowered  # one for all logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The partition's log, or None if this broker has none."""
        return self._logs.get(topic_partition)

    def dir_of(self, topic_partition: TopicPartition) -> LogDir | None:
        """The directory of the partition's log."""
        return self._dir_of.get(topic_partition)

    def future(self, topic_partition: TopicPartition) -> tuple[Log, LogDir] | None:
        """The copy of the partition's log in another directory, and that directory, while it moves."""
        return self._futures.get(topic_partition)

    def futures_in(self, log_dir: LogDir) -> list[Log]:
        return [log for log, its_dir in list(self._futures.values()) if its_dir is log_dir]

    def all_logs(self) -> list[Log]:
        return list(self._logs.values())

    def partitions_in(self, log_dir: LogDir) -> list[TopicPartition]:
        return [log.topic_partition for log in self._logs_in(log_dir)]

    def damages_in(self, log_dir: LogDir) -> int:
        """How many damaged places were found in the directory's logs."""
        return sum(len(segment.damages) for log in self._logs_in(log_dir) for segment in log.segments)

    def _logs_in(self, log_dir: LogDir) -> list[Log]:
        return [log for log in self.all_logs() if self._dir_of.get(log.topic_partition) is log_dir]

    def _files_in(self, log_dir: LogDir) -> list[Log]:
        """The logs in the directory, and the copies of those that move there."""
        return self._logs_in(log_dir) + self.futures_in(log_dir)

    def _adopt(self, log: Log, log_dir: LogDir) -> None:
        log.on_recovery_points_lowered = self._on_lowered
        self._dir_of[log.topic_partition] = log_dir
        self._logs[log.topic_partition] = log

    def _adopt_future(self, log: Log, log_dir: LogDir) -> None:
        log.on_recovery_points_lowered = self._on_lowered
        self._futures[log.topic_partition] = log, log_dir

    def take_offline(self, log_dir: LogDir) -> list[TopicPartition]:
        """Removes the logs of a failed directory, without touching its files; returns their partitions."""
        with self._lock:
            for log in self.futures_in(log_dir):
                del self._futures[log.topic_partition]
            gone = self.partitions_in(log_dir)
            for topic_partition in gone:
                del self._logs[topic_partition]
                del self._dir_of[topic_partition]
        log_dir.unlock()
        return gone

    # -- checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Writes each log's recovery point, which first comes up to what appends have synced. So a crash leaves
        no more to read again than was written since the last checkpoint.
        """
        for log_dir in self.dirs:
            for log in self._files_in(log_dir):
                with suppress(KafkaError):  # logged; or the log is closed
                    log.durability.catch_up()
            self._write_recovery_points(log_dir)

    def checkpoint_log_starts(self) -> None:
        """Writes the start offsets of logs that begin later than their first segment."""
        for log_dir in self.dirs:
            self._write_log_starts(log_dir)

    def _write_log_starts(self, log_dir: LogDir) -> None:
        with log_dir.checkpointing:
            starts = {
                log.topic_partition: log.log_start_offset
                for log in self._files_in(log_dir)
                if log.log_start_offset > log.segments[0].base_offset
            }
            offsets = self._with_unloaded(log_dir, log_dir.log_starts, starts)
            log_dir.write_checkpoint(log_dir.log_starts, offsets)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the partitions' high watermarks; those not given keep their last written value."""
        for log_dir in self.dirs:
            with log_dir.checkpointing:
                known = log_dir.read_checkpoint(log_dir.high_watermarks)
                offsets = {tp: offset for tp, offset in known.items() if self._dir_of.get(tp) is log_dir}
                offsets |= {tp: hw for tp, hw in high_watermarks.items() if self._dir_of.get(tp) is log_dir}
                log_dir.write_checkpoint(log_dir.high_watermarks, offsets)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks that were last written."""
        offsets: dict[TopicPartition, int] = {}
        for log_dir in self.dirs:
            offsets |= log_dir.read_checkpoint(log_dir.high_watermarks)
        return offsets

    def _write_recovery_points(
        self, log_dir: LogDir, lowered: Mapping[Log, int] = MappingProxyType({})
    ) -> None:
        write = log_dir.lower_checkpoint if lowered else log_dir.write_checkpoint
        with log_dir.checkpointing:
            points = {}
            changed = []
            for log in self._files_in(log_dir):
                point = points[log.topic_partition] = min(log.recovery_point, lowered.get(log, LONG_MAX))
                if log in lowered:
                    changed.append((log, point))
            write(log_dir.recovery_points, self._with_unloaded(log_dir, log_dir.recovery_points, points))
            # Set after the write: a concurrent truncation must still see the old point, so that it writes
            # too. A flush may raise a point again; then the truncation notices and writes.
            for log, point in changed:
                log.recovery_point = min(log.recovery_point, point)

    def _with_unloaded(
        self, log_dir: LogDir, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """``offsets``, plus the file's entries for logs that a cancelled start-up did not load."""
        if log_dir in self._loaded_dirs:
            return offsets
        loaded = {log.topic_partition for log in self._files_in(log_dir)}
        before = log_dir.read_checkpoint(checkpoint)
        return {tp: offset for tp, offset in before.items() if tp not in loaded} | offsets

    def _checkpoint_dir(self, log_dir: LogDir) -> None:
        self._write_recovery_points(log_dir)
        self._write_log_starts(log_dir)

    def _forget_gone(self, log_dir: LogDir) -> None:
        """Takes logs that are gone out of the checkpoints of a directory that was just loaded. A stop in the middle of
        a deletion left them there, or somebody removed the directory of a log. The next log of that name would be taken
        for one that begins, is durable and is compacted as far as that one.
        """
        here = {log.topic_partition: log for log in self._files_in(log_dir)}
        checkpoints = log_dir.recovery_points, log_dir.log_starts
        if any(log_dir.read_checkpoint(checkpoint).keys() - here.keys() for checkpoint in checkpoints):
            self._checkpoint_dir(log_dir)
        ends = {log.topic_partition: log.log_end_offset for log in self._logs_in(log_dir)}
        with log_dir.checkpointing:
            positions = log_dir.read_checkpoint(log_dir.cleaned)
            kept = {tp: offset for tp, offset in positions.items() if tp in ends and offset <= ends[tp]}
            if kept != positions:
                log_dir.lower_checkpoint(log_dir.cleaned, kept)

    def _recovery_points_lowered(self, offsets: Mapping[Log, int]) -> None:
        """What is compacted is durable, so a truncation that reaches it lowers the recovery point, too."""
        for log_dir in {self._dir_of_log(log) for log in offsets}:
            if log_dir is not None:
                self._write_recovery_points(log_dir, offsets)
                cut = {
                    log.topic_partition: offset
                    for log, offset in offsets.items()
                    if self._logs.get(log.topic_partition) is log
                    and self.dir_of(log.topic_partition) is log_dir
                }
                self._lower_clean(log_dir, cut)

    @staticmethod
    def _lower_clean(log_dir: LogDir, offsets: Mapping[TopicPartition, int]) -> None:
        """Lowers the progress of compaction to these offsets: what comes there next is not clean."""
        with log_dir.checkpointing:
            positions = log_dir.read_checkpoint(log_dir.cleaned)
            lower = {tp: offset for tp, offset in offsets.items() if positions.get(tp, offset) > offset}
            if lower:
                log_dir.lower_checkpoint(log_dir.cleaned, positions | lower)

    def _dir_of_log(self, log: Log) -> LogDir | None:
        future, log_dir = self._futures.get(log.topic_partition, (None, None))
        return log_dir if future is log else self._dir_of.get(log.topic_partition)
