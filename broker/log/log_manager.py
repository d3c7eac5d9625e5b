"""All logs of a broker: loading, making, deleting, and the tasks that run over them.

Kafka's LogManager. Locks and checks its directories, loads and recovers their partitions in parallel and can
be stopped while at it, checkpoints recovery points and log starts, applies retention, and writes a
directory's clean marker at the end only if every log in it was closed cleanly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

import structlog

from broker.config.log_config import LONG_MAX, LogConfig
from broker.log.checkpoints import OffsetCheckpoint
from broker.log.cleaner_manager import LogCleaner
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.filesystem_sync import sync_filesystem
from broker.log.loader import LoadParameters, load_log
from broker.log.local_log import LocalLog
from broker.log.log import Log
from broker.log.log_dir import LogDir
from broker.log.meta_properties import agreed, write_meta_properties
from broker.log.parallel import run_parallel
from broker.protocol.errors import Errors, KafkaError
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_PRODUCER_EXPIRATION_CHECK_MS = 600_000


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """The broker configs of the log layer, with Kafka 3.9's names (dots to underscores) and defaults."""

    producer_id_expiration_ms: int = 86_400_000
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    log_initial_task_delay_ms: int = 30_000
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728


class LogManager:
    """Owner of all logs. Thread-safe; ``get`` takes no lock."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        default_config: LogConfig,
        topic_configs: Callable[[str], LogConfig] | None = None,
        scheduler: KafkaScheduler | None = None,
        clock: Clock = SYSTEM_CLOCK,
        recovery_threads: int = 1,
        settings: LogManagerSettings | None = None,
    ) -> None:
        self._dirs = [LogDir(path) for path in dict.fromkeys(log_dirs)]
        self.default_config = default_config
        self._topic_configs = topic_configs or (lambda _topic: self.default_config)
        self._scheduler = scheduler
        self._clock = clock
        self._recovery_threads = max(recovery_threads, 1)
        self._settings = settings or LogManagerSettings()
        self._logs: dict[TopicPartition, Log] = {}
        self._dir_of: dict[TopicPartition, LogDir] = {}
        self._lock = threading.Lock()
        self._loaded_dirs: set[LogDir] = set()
        self._clean_dirs: set[LogDir] = set()
        self._started_loading: set[LogDir] = set()
        self.cleaner = LogCleaner(
            lambda: [(log_dir, self._logs_in(log_dir)) for log_dir in self._dirs],
            clock,
            self._settings.log_cleaner_dedupe_buffer_size,
            stopped=lambda: not self._locked or (scheduler is not None and not scheduler.is_started),
        )
        self._locked = False
        self.clean = True
        self.broker_id: int | None = None
        self.cluster_id: str | None = None

    # -- directories -------------------------------------------------------------------------------

    def lock_and_check(self) -> None:
        """Locks all directories and learns ``broker_id``, ``cluster_id`` and ``clean`` from them.

        Raises LogDirError when one is unusable, in use by another broker, or of another broker or cluster
        than the rest; none is then locked.
        """
        try:
            for log_dir in self._dirs:
                log_dir.lock()
            self._locked = True
            self._check_identity()
            for log_dir in self._dirs:
                if log_dir.has_clean_marker or not log_dir.partitions():
                    self._clean_dirs.add(log_dir)
        except (LogDirError, OSError):
            self._unlock()
            raise
        self.clean = len(self._clean_dirs) == len(self._dirs)

    def _check_identity(self) -> None:
        found = {log_dir.path: meta for log_dir in self._dirs if (meta := log_dir.meta_properties())}
        self.broker_id = agreed("broker.id", {path: meta.broker_id for path, meta in found.items()})
        self.cluster_id = agreed("cluster.id", {path: meta.cluster_id for path, meta in found.items()})

    def write_meta_properties(self, broker_id: int, cluster_id: str) -> None:
        """Marks all directories as this broker's. Raises OSError."""
        for log_dir in self._dirs:
            meta = log_dir.meta_properties()
            if meta is None or meta.broker_id != broker_id or meta.cluster_id != cluster_id:
                write_meta_properties(log_dir.path, broker_id, cluster_id)
        self.broker_id, self.cluster_id = broker_id, cluster_id

    # -- loading -----------------------------------------------------------------------------------

    def startup(
        self, cancel: threading.Event | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Loads every partition, recovering those of unclean directories, and begins the periodic tasks.

        ``progress`` is told logs done and logs in all. Raises LoadCancelled once ``cancel`` is set
        (``shutdown`` then keeps what was done), LogDirError, OSError.
        """
        if not self._locked:
            self.lock_and_check()
        started_ms = self._clock.monotonic_ms()
        jobs = []
        for log_dir in self._dirs:
            partitions = log_dir.partitions()
            self._started_loading.add(log_dir)
            log_dir.remove_clean_marker()
            jobs.append((log_dir, partitions, self._parameters(log_dir, cancel)))
        total = sum(len(partitions) for _, partitions, _ in jobs)
        self._load_all(jobs, total, cancel, progress or (lambda _done, _total: None))
        self._schedule_tasks()
        if total:
            took_ms = self._clock.monotonic_ms() - started_ms
            _log.info("logs_loaded", logs=total, clean=self.clean, took_ms=took_ms)

    def _parameters(self, log_dir: LogDir, cancel: threading.Event | None) -> _DirParameters:
        return _DirParameters(
            clean=log_dir in self._clean_dirs,
            recovery_points=log_dir.read_checkpoint(log_dir.recovery_points),
            log_starts=log_dir.read_checkpoint(log_dir.log_starts),
            cancel=cancel,
        )

    def _load_all(
        self,
        jobs: list[tuple[LogDir, list[tuple[TopicPartition, Path]], _DirParameters]],
        total: int,
        cancel: threading.Event | None,
        progress: Callable[[int, int], None],
    ) -> None:
        done = 0

        def load(log_dir: LogDir, tp: TopicPartition, path: Path, parameters: _DirParameters) -> None:
            nonlocal done
            if cancel is not None and cancel.is_set():
                raise LoadCancelled("loading was told to stop")
            log = self._load_one(tp, path, parameters)
            with self._lock:
                if tp in self._logs:
                    raise LogDirError(f"{tp} lies in two log directories: {path} and {self._logs[tp].dir}")
                self._adopt(log, log_dir)
                done += 1
                progress(done, total)

        work = [
            [lambda d=log_dir, t=tp, p=path, q=parameters: load(d, t, p, q) for tp, path in partitions]
            for log_dir, partitions, parameters in jobs
        ]
        run_parallel(work, self._recovery_threads, "log-recovery")
        self._loaded_dirs = set(self._dirs)
        for log_dir in self._dirs:
            if log_dir not in self._clean_dirs:
                self._sync_dir(log_dir)

    def _load_one(self, tp: TopicPartition, path: Path, parameters: _DirParameters) -> Log:
        return load_log(
            path,
            tp,
            self._topic_configs(tp.topic),
            LoadParameters(
                clean=parameters.clean,
                recovery_point=parameters.recovery_points.get(tp, 0),
                log_start_offset=parameters.log_starts.get(tp, 0),
                producer_expiration_ms=self._settings.producer_id_expiration_ms,
                clock=self._clock,
                scheduler=self._scheduler,
                cancel=parameters.cancel,
            ),
        )

    def _adopt(self, log: Log, log_dir: LogDir) -> None:
        log.on_recovery_point_lowered = self._recovery_point_lowered
        self._dir_of[log.topic_partition] = log_dir
        self._logs[log.topic_partition] = log

    # -- logs --------------------------------------------------------------------------------------

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The partition's log, None when it has none here."""
        return self._logs.get(topic_partition)

    def all_logs(self) -> list[Log]:
        return list(self._logs.values())

    def get_or_create(self, topic_partition: TopicPartition, topic_id: UUID | None = None) -> Log:
        """The partition's log, made in the directory with the fewest when there is none.

        Raises KafkaError: INCONSISTENT_TOPIC_ID when it is another topic's, KAFKA_STORAGE_ERROR.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            config = self._topic_configs(topic_partition.topic)
            with self._lock:
                log = self._logs.get(topic_partition) or self._create(topic_partition, config)
        if topic_id is not None and log.topic_id != topic_id:
            try:
                log.assign_topic_id(topic_id)
            except OSError as error:
                raise self._storage_error(topic_partition, log.dir, error) from error
        return log

    def _create(self, topic_partition: TopicPartition, config: LogConfig) -> Log:
        counts = dict.fromkeys(self._dirs, 0)
        for log_dir in self._dir_of.values():
            counts[log_dir] += 1
        log_dir = min(counts, key=lambda d: counts[d])
        path = log_dir.partition_path(topic_partition)
        parameters = LoadParameters(
            clean=True,
            recovery_point=0,
            log_start_offset=0,
            producer_expiration_ms=self._settings.producer_id_expiration_ms,
            clock=self._clock,
            scheduler=self._scheduler,
        )
        try:
            log = load_log(path, topic_partition, config, parameters)
        except OSError as error:
            raise self._storage_error(topic_partition, path, error) from error
        self._adopt(log, log_dir)
        return log

    @staticmethod
    def _storage_error(topic_partition: TopicPartition, path: Path, error: OSError) -> KafkaError:
        _log.error("log_create_failed", partition=str(topic_partition), dir=str(path), error=str(error))
        return KafkaError(
            Errors.KAFKA_STORAGE_ERROR,
            f"cannot make the log of {topic_partition} in {path}: {error.strerror}",
        )

    def delete_async(self, topic_partition: TopicPartition) -> bool:
        """Takes the log away at once and its files after ``file.delete.delay.ms``; False when there is none.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        with self._lock:
            log = self._logs.get(topic_partition)
            if log is None:
                return False
            path = log.mark_deleted()
            del self._logs[topic_partition]
            log_dir = self._dir_of.pop(topic_partition)
        self._checkpoint_dir(log_dir)
        _log.info("log_deleted", partition=str(topic_partition), dir=str(path))
        self._delete_later(path, log.config.file_delete_delay_ms)
        return True

    def _delete_later(self, path: Path, delay_ms: int) -> None:
        if self._scheduler is None or not self._scheduler.is_started:
            _remove_tree(path)
        else:
            self._scheduler.schedule("kafka-delete-logs", partial(_remove_tree, path), delay_ms=delay_ms)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Gives the topic's logs their changed config."""
        for log in self.all_logs():
            if log.topic_partition.topic == topic:
                log.update_config(config)

    # -- checkpoints -------------------------------------------------------------------------------

    def checkpoint_recovery_points(self) -> None:
        """Writes how far each log is durable."""
        for log_dir in self._dirs:
            self._write_offsets(log_dir, log_dir.recovery_points, lambda log: log.recovery_point)

    def checkpoint_log_starts(self) -> None:
        """Writes where logs begin that begin later than their first segment."""
        for log_dir in self._dirs:
            self._write_log_starts(log_dir)

    def _write_log_starts(self, log_dir: LogDir) -> None:
        starts = {
            log.topic_partition: log.log_start_offset
            for log in self._logs_in(log_dir)
            if log.log_start_offset > log.segments[0].base_offset
        }
        log_dir.write_checkpoint(log_dir.log_starts, self._with_unloaded(log_dir, log_dir.log_starts, starts))

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int]) -> None:
        """Writes the partitions' high watermarks, those not told as they last were."""
        for log_dir in self._dirs:
            known = log_dir.read_checkpoint(log_dir.high_watermarks)
            offsets = {tp: offset for tp, offset in known.items() if self._dir_of.get(tp) is log_dir}
            offsets |= {tp: hw for tp, hw in high_watermarks.items() if self._dir_of.get(tp) is log_dir}
            log_dir.write_checkpoint(log_dir.high_watermarks, offsets)

    def read_high_watermarks(self) -> dict[TopicPartition, int]:
        """The high watermarks as last written."""
        offsets: dict[TopicPartition, int] = {}
        for log_dir in self._dirs:
            offsets |= log_dir.read_checkpoint(log_dir.high_watermarks)
        return offsets

    def _logs_in(self, log_dir: LogDir) -> list[Log]:
        return [log for log in self.all_logs() if self._dir_of.get(log.topic_partition) is log_dir]

    def _write_offsets(
        self, log_dir: LogDir, checkpoint: OffsetCheckpoint, offset_of: Callable[[Log], int]
    ) -> None:
        offsets = {log.topic_partition: offset_of(log) for log in self._logs_in(log_dir)}
        log_dir.write_checkpoint(checkpoint, self._with_unloaded(log_dir, checkpoint, offsets))

    def _with_unloaded(
        self, log_dir: LogDir, checkpoint: OffsetCheckpoint, offsets: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """``offsets``, and what the file says of logs that a stopped start-up did not reach."""
        if log_dir in self._loaded_dirs:
            return offsets
        loaded = {log.topic_partition for log in self._logs_in(log_dir)}
        before = log_dir.read_checkpoint(checkpoint)
        return {tp: offset for tp, offset in before.items() if tp not in loaded} | offsets

    def _checkpoint_dir(self, log_dir: LogDir) -> None:
        self._write_offsets(log_dir, log_dir.recovery_points, lambda log: log.recovery_point)
        self._write_log_starts(log_dir)

    def _recovery_point_lowered(self, log: LocalLog) -> None:
        log_dir = self._dir_of.get(log.topic_partition)
        if log_dir is not None:
            self._write_offsets(log_dir, log_dir.recovery_points, lambda one: one.recovery_point)

    # -- tasks -------------------------------------------------------------------------------------

    def _schedule_tasks(self) -> None:
        scheduler, settings = self._scheduler, self._settings
        if scheduler is None or not scheduler.is_started:
            return
        for log_dir in self._dirs:
            for path in log_dir.deleted_partitions():
                self._delete_later(path, 0)
        delay_ms = settings.log_initial_task_delay_ms
        tasks: Sequence[tuple[str, Callable[[], object], int]] = (
            ("kafka-log-retention", self.apply_retention, settings.log_retention_check_interval_ms),
            ("kafka-log-flusher", self.flush_due_logs, settings.log_flush_scheduler_interval_ms),
            (
                "kafka-recovery-point-checkpoint",
                self.checkpoint_recovery_points,
                settings.log_flush_offset_checkpoint_interval_ms,
            ),
            (
                "kafka-log-start-offset-checkpoint",
                self.checkpoint_log_starts,
                settings.log_flush_start_offset_checkpoint_interval_ms,
            ),
            ("producer-expiration", self.expire_producers, _PRODUCER_EXPIRATION_CHECK_MS),
            (
                "kafka-log-cleaner",
                self.cleaner.run,
                settings.log_cleaner_backoff_ms if settings.log_cleaner_enable else LONG_MAX,
            ),
        )
        for name, action, period_ms in tasks:
            if period_ms < LONG_MAX:
                scheduler.schedule(name, partial(_run, action), delay_ms=delay_ms, period_ms=period_ms)

    def apply_retention(self) -> int:
        """Deletes what retention lets go, in all logs; how many segments."""
        return sum(self._quietly(log.delete_old_segments) for log in self.all_logs())

    def flush_due_logs(self) -> int:
        """Syncs the logs whose ``flush.ms`` has passed; how many."""
        now_ms = self._clock.wall_ms()
        due = [log for log in self.all_logs() if now_ms - log.last_flush_ms >= log.config.flush_ms]
        for log in due:
            self._quietly(partial(_flush, log))
        return len(due)

    def expire_producers(self) -> int:
        """Forgets producers that were silent too long, in all logs; how many."""
        return sum(log.expire_producers() for log in self.all_logs())

    @staticmethod
    def _quietly(action: Callable[[], int]) -> int:
        try:
            return action()
        except KafkaError as error:
            _log.warning("log_task_failed", error=str(error))
            return 0

    # -- the end -----------------------------------------------------------------------------------

    def shutdown(self, broker_epoch: int = -1) -> None:
        """Syncs and closes all logs, writes the checkpoints and the clean markers, unlocks.

        A directory gets its marker when all its logs are closed and either all were loaded or it was clean
        before.
        """
        if not self._locked:
            return
        failed: set[LogDir] = set()

        def end(log: Log, log_dir: LogDir) -> None:
            try:
                log.close()
            except KafkaError:
                failed.add(log_dir)

        work = [
            [lambda one=log, d=log_dir: end(one, d) for log in self._logs_in(log_dir)]
            for log_dir in self._dirs
        ]
        run_parallel(work, self._recovery_threads, "log-closing")
        for log_dir in self._started_loading:
            if not self._sync_dir(log_dir):
                failed.add(log_dir)
            self._checkpoint_dir(log_dir)
            if log_dir not in failed and (log_dir in self._loaded_dirs or log_dir in self._clean_dirs):
                self._write_marker(log_dir, broker_epoch)
        self._unlock()
        self._logs.clear()
        self._dir_of.clear()

    def _sync_dir(self, log_dir: LogDir) -> bool:
        """Makes the directory's logs durable, to which nothing is appended meanwhile; False when it fails."""
        logs = [log for log in self._logs_in(log_dir) if log.recovery_point < log.log_end_offset]
        try:
            if logs:
                sync_filesystem(log_dir.path)
        except OSError as error:
            _log.error("log_dir_sync_failed", dir=str(log_dir.path), error=str(error))
            return False
        for log in logs:
            log.note_synced()
        return True

    @staticmethod
    def _write_marker(log_dir: LogDir, broker_epoch: int) -> None:
        try:
            log_dir.write_clean_marker(broker_epoch)
        except OSError as error:
            _log.error("clean_marker_write_failed", dir=str(log_dir.path), error=str(error))

    def _unlock(self) -> None:
        self._locked = False
        for log_dir in self._dirs:
            log_dir.unlock()


def _run(action: Callable[[], object]) -> None:
    action()


def _remove_tree(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)


def _flush(log: Log) -> int:
    log.flush()
    return 0


@dataclass(frozen=True, slots=True)
class _DirParameters:
    clean: bool
    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    cancel: threading.Event | None
