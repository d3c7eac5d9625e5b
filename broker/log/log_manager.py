"""All logs of a broker: loading, creation, deletion, and the periodic tasks; Kafka's LogManager.

It locks and checks the log directories, and loads and recovers their partitions in parallel; loading can be
cancelled. It checkpoints recovery points and log start offsets and applies retention. On shutdown a directory
gets its clean marker only if every log in it was closed cleanly.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from broker.config.log_config import LONG_MAX, LogConfig
from broker.log.cleaning.cleaner_manager import LogCleaner
from broker.log.dirs.log_dir import FUTURE_SUFFIX, LogDir
from broker.log.dirs.log_dirs import LogDirs
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.filesystem_sync import sync_filesystem
from broker.log.free_space import DEFAULT_FLOOR, FreeSpaceFloor, check_free_space
from broker.log.loading.load_progress import LoadMeter, LoadProgress, segments_to_verify
from broker.log.loading.loader import LoadParameters, load_log
from broker.log.loading.parallel import run_parallel
from broker.log.log import Log
from broker.log.log_dir_health import LogDirHealth
from broker.log.log_mover import LogMover, without_old_places
from broker.log.producers.producer_state import MAX_PRODUCERS, level_for
from broker.log.segments.segment_file import close_deleted_apart
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import KafkaError
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.utils.scheduler import KafkaScheduler, ScheduledTask
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_PRODUCER_EXPIRATION_CHECK_MS = 600_000
_FREE_SPACE_CHECK_MS = 1_000
_PRODUCER_COUNT_CHECK_MS = 2_000


@dataclass(frozen=True, slots=True)
class LogManagerSettings:
    """The configs of the log layer, with Kafka 3.9's names (dots become underscores) and defaults."""

    num_recovery_threads_per_data_dir: int = 1
    producer_id_expiration_ms: int = 86_400_000
    landline_producer_id_max_count: int = MAX_PRODUCERS
    landline_producer_id_broker_max_count: int = 200_000
    log_flush_scheduler_interval_ms: int = LONG_MAX
    log_flush_offset_checkpoint_interval_ms: int = 60_000
    log_flush_start_offset_checkpoint_interval_ms: int = 60_000
    log_retention_check_interval_ms: int = 300_000
    log_initial_task_delay_ms: int = 30_000
    log_cleaner_enable: bool = True
    log_cleaner_backoff_ms: int = 15_000
    log_cleaner_dedupe_buffer_size: int = 134_217_728
    log_cleaner_io_max_bytes_per_second: float = math.inf
    free_space_floor: FreeSpaceFloor = DEFAULT_FLOOR


class LogManager(LogMover):
    """The owner of all logs; Kafka's LogManager. Thread-safe; ``get`` takes no lock."""

    def __init__(
        self,
        log_dirs: Sequence[str],
        default_config: LogConfig,
        topic_configs: Callable[[str], LogConfig] | None = None,
        scheduler: KafkaScheduler | None = None,
        clock: Clock = SYSTEM_CLOCK,
        *,
        settings: LogManagerSettings | None = None,
    ) -> None:
        self.default_config = default_config
        self._settings = settings or LogManagerSettings()
        super().__init__(
            LogDirs(log_dirs),
            topic_configs or (lambda _topic: self.default_config),
            scheduler,
            clock,
            producer_expiration_ms=self._settings.producer_id_expiration_ms,
            max_producers=self._settings.landline_producer_id_max_count,
        )
        self._started_loading: set[LogDir] = set()
        self._cleaning: ScheduledTask | None = None
        self.cleaner = LogCleaner(
            lambda: [(log_dir, self._logs_in(log_dir)) for log_dir in self.dirs],
            clock,
            self._settings.log_cleaner_dedupe_buffer_size,
            self._settings.log_cleaner_io_max_bytes_per_second,
            stopped=lambda: not self.dirs.locked or (scheduler is not None and not scheduler.is_started),
        )

    # -- directories

    def lock_and_check(self) -> None:
        """Locks and checks the directories. Raises as :meth:`LogDirs.lock_and_check`."""
        self.dirs.lock_and_check()

    @property
    def clean(self) -> bool:
        """Whether every directory was closed cleanly; known once they are locked."""
        return not self.dirs.unclean

    def listen(self, on_dir_failed: Callable[[LogDir], None]) -> None:
        """Registers a callback for directories that fail after loading. It runs on the thread that met the
        error, with that thread's locks held.
        """
        for log_dir in self._loaded_dirs:
            log_dir.health.listen(partial(on_dir_failed, log_dir))

    def check_free_space(self) -> None:
        """Checks the free space of the disks; a periodic task."""
        check_free_space(self._settings.free_space_floor, [log_dir.health for log_dir in self.dirs])

    # -- loading

    def startup(
        self, cancel: threading.Event | None = None, progress: Callable[[LoadProgress], None] | None = None
    ) -> None:
        """Loads every partition, recovers those of unclean directories, and starts the periodic tasks.

        ``progress`` is called from time to time and at the end. Raises LoadCancelled once ``cancel`` is set
        (``shutdown`` then keeps the work done so far), LogDirError, OSError.
        """
        if not self.dirs.locked:
            self.lock_and_check()
        started_ms = self._clock.monotonic_ms()
        found = []
        for log_dir in self.dirs:
            try:
                partitions = log_dir.partitions()
                futures = log_dir.future_partitions()
                log_dir.remove_clean_marker()
            except OSError as error:
                self.dirs.fail_at_start(log_dir, "begin to load", error)
            else:
                found.append((log_dir, partitions + futures))
                self._started_loading.add(log_dir)
        jobs = [
            (log_dir, partitions, self._parameters(log_dir, cancel))
            for log_dir, partitions in without_old_places(found)
        ]
        total = sum(len(partitions) for _, partitions, _ in jobs)
        meter = LoadMeter(total, self._to_verify(jobs), progress or (lambda _: None), self._clock)
        self._load_all(jobs, cancel, meter)
        self._schedule_tasks()
        if total:
            took_ms = self._clock.monotonic_ms() - started_ms
            _log.info("logs_loaded", logs=len(self._logs), of=total, clean=self.clean, took_ms=took_ms)

    @staticmethod
    def _to_verify(jobs: Sequence[_DirJob]) -> int:
        return sum(
            segments_to_verify(path, parameters.recovery_points.get(tp, 0))
            for _, partitions, parameters in jobs
            if not parameters.clean
            for tp, path in partitions
        )

    def _parameters(self, log_dir: LogDir, cancel: threading.Event | None) -> _DirParameters:
        return _DirParameters(
            clean=log_dir not in self.dirs.unclean,
            recovery_points=log_dir.read_checkpoint(log_dir.recovery_points),
            log_starts=log_dir.read_checkpoint(log_dir.log_starts),
            cancel=cancel,
            health=log_dir.health,
        )

    def _load_all(
        self,
        jobs: Sequence[_DirJob],
        cancel: threading.Event | None,
        meter: LoadMeter,
    ) -> None:
        topics = {tp.topic for _, partitions, _ in jobs for tp, _ in partitions}
        configs = {topic: self._topic_configs(topic) for topic in topics}

        def load(log_dir: LogDir, tp: TopicPartition, path: Path, parameters: _DirParameters) -> None:
            if cancel is not None and cancel.is_set():
                raise LoadCancelled("loading was told to stop")
            if log_dir.health.failure is not None:
                return
            try:
                log = self._load_one(tp, path, configs[tp.topic], parameters, meter)
            except OSError as error:
                self.dirs.fail_at_start(log_dir, f"load {path}", error)
                return
            with self._lock:
                if path.name.endswith(FUTURE_SUFFIX):
                    self._adopt_future(log, log_dir)  # if there are several, the last one goes on
                elif tp in self._logs:
                    raise LogDirError(f"{tp} lies in two log directories: {path} and {self._logs[tp].dir}")
                else:
                    self._adopt(log, log_dir)
            meter.log_loaded()

        work = [
            [lambda d=log_dir, t=tp, p=path, q=parameters: load(d, t, p, q) for tp, path in partitions]
            for log_dir, partitions, parameters in jobs
        ]
        run_parallel(work, self._settings.num_recovery_threads_per_data_dir, "log-recovery")
        self.dirs.require_one()
        for log_dir in self.dirs.failed:
            self.take_offline(log_dir)
        self._loaded_dirs = set(self.dirs)
        if not self.dirs.failed:
            for tp in self._futures.keys() - self._logs.keys():
                self.drop_future(tp)
        for log_dir in self.dirs.unclean & self._loaded_dirs:
            self._sync_recovered(log_dir)
        for log_dir in self._loaded_dirs & set(self.dirs):
            self._forget_gone(log_dir)

    def _load_one(
        self,
        tp: TopicPartition,
        path: Path,
        config: LogConfig,
        parameters: _DirParameters,
        meter: LoadMeter,
    ) -> Log:
        return load_log(
            path,
            tp,
            config,
            LoadParameters(
                clean=parameters.clean,
                recovery_point=parameters.recovery_points.get(tp, 0),
                log_start_offset=parameters.log_starts.get(tp, 0),
                producer_expiration_ms=self._producer_expiration_ms,
                clock=self._clock,
                scheduler=self._scheduler,
                cancel=parameters.cancel,
                health=parameters.health,
                on_verified=meter.segments_verified,
                max_producers=self._max_producers,
                roll_pace=self._roll_pace,
            ),
        )

    # -- logs

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        """Applies a changed config to the topic's logs."""
        for log in (*self.all_logs(), *(log for log, _ in list(self._futures.values()))):
            if log.topic_partition.topic == topic:
                log.update_config(config)

    # -- tasks

    def _schedule_tasks(self) -> None:
        scheduler, settings = self._scheduler, self._settings
        if scheduler is None or not scheduler.is_started:
            return
        close_deleted_apart()
        for log_dir in self.dirs:
            for path in log_dir.deleted_partitions():
                self._delete_later(path, 0)
        scheduler.schedule("free-space", self.check_free_space, 0, _FREE_SPACE_CHECK_MS)
        scheduler.schedule(
            "producer-count",
            partial(_run, self.bound_producers),
            _PRODUCER_COUNT_CHECK_MS,
            _PRODUCER_COUNT_CHECK_MS,
        )
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
        )
        for name, action, period_ms in tasks:
            if period_ms < LONG_MAX:
                scheduler.schedule(name, partial(_run, action), delay_ms=delay_ms, period_ms=period_ms)
        self._schedule_cleaner(delay_ms)

    def _schedule_cleaner(self, delay_ms: int) -> None:
        scheduler, settings = self._scheduler, self._settings
        if self._cleaning is not None:
            self._cleaning.cancel()
        if scheduler is not None and scheduler.is_started and settings.log_cleaner_enable:
            self._cleaning = scheduler.schedule(
                "kafka-log-cleaner",
                partial(_run, self.cleaner.run),
                delay_ms,
                settings.log_cleaner_backoff_ms,
            )

    def update_settings(self, settings: LogManagerSettings) -> None:
        """Applies the settings that are dynamic configs: of the cleaner, of producers' expiry, and the number
        of threads that close logs.
        """
        before, self._settings = self._settings, settings
        self.cleaner.dedupe_buffer_bytes = settings.log_cleaner_dedupe_buffer_size
        self.cleaner.pace.limit(settings.log_cleaner_io_max_bytes_per_second)
        if settings.log_cleaner_backoff_ms != before.log_cleaner_backoff_ms:
            self._schedule_cleaner(settings.log_cleaner_backoff_ms)
        if settings.producer_id_expiration_ms != before.producer_id_expiration_ms:
            self._producer_expiration_ms = settings.producer_id_expiration_ms
            for log in self.all_logs():
                log.producers.expire_after(settings.producer_id_expiration_ms)

    def apply_retention(self) -> int:
        """Applies retention to all logs; returns how many segments were deleted."""
        return sum(self._quietly(log.delete_old_segments) for log in self.all_logs())

    def flush_due_logs(self) -> int:
        """Syncs the logs whose ``flush.ms`` has passed; returns how many."""
        now_ms = self._clock.wall_ms()
        due = [log for log in self.all_logs() if now_ms - log.last_flush_ms >= log.config.flush_ms]
        for log in due:
            self._quietly(partial(_flush, log))
        return len(due)

    def expire_producers(self) -> int:
        """Removes expired producers from all logs; returns how many."""
        return sum(log.producers.expire() for log in self.all_logs())

    def bound_producers(self) -> int:
        """Removes producers from the partitions with the most of them if all logs together know too many.
        Returns how many.

        It goes down to nine tenths of the limit, so that it need not run again at once. Partitions with few
        producers lose none.
        """
        most = self._settings.landline_producer_id_broker_max_count
        counts = {log: count for log in self.all_logs() if (count := log.producer_state.known)}
        known = sum(counts.values())
        if known <= most:
            return 0
        level = level_for(list(counts.values()), most * 9 // 10)
        forgotten = sum(log.producers.keep(level) for log, count in counts.items() if count > level)
        _log.warning(
            "producer_ids_forgotten",
            known=known,
            forgotten=forgotten,
            partitions=sum(count > level for count in counts.values()),
            setting="landline.producer.id.broker.max.count",
        )
        return forgotten

    @staticmethod
    def _quietly(action: Callable[[], int]) -> int:
        try:
            return action()
        except KafkaError as error:
            _log.warning("log_task_failed", error=str(error))
            return 0
        except Exception:  # the other logs have their turn
            _log.exception("log_task_failed")
            return 0

    # -- shutdown

    def shutdown(self, broker_epoch: int = NO_EPOCH) -> None:
        """Syncs and closes all logs, writes the checkpoints and the clean markers, and unlocks
        the directories.

        A directory gets its marker if all its logs were closed cleanly and either all were loaded or it was
        clean before.
        """
        if not self.dirs.locked:
            return
        failed: set[LogDir] = set()

        def end(log: Log, log_dir: LogDir) -> None:
            try:
                log.close()
            except KafkaError:
                failed.add(log_dir)

        work = [
            [lambda one=log, d=log_dir: end(one, d) for log in self._files_in(log_dir)]
            for log_dir in self.dirs
        ]
        run_parallel(work, self._settings.num_recovery_threads_per_data_dir, "log-closing")
        for log_dir in self._started_loading & set(self.dirs):
            try:
                if not self._sync_dir(log_dir):
                    failed.add(log_dir)
            except OSError as error:
                _log.error("log_dir_sync_failed", dir=str(log_dir.path), error=str(error))
                log_dir.health.report("sync", error)
                failed.add(log_dir)
            self._checkpoint_dir(log_dir)
            complete = log_dir in self._loaded_dirs or log_dir not in self.dirs.unclean
            if complete and log_dir not in failed and log_dir.health.failure is None:
                self._write_marker(log_dir, broker_epoch)
        self.dirs.unlock()
        self._logs.clear()
        self._futures.clear()
        self._dir_of.clear()

    def _sync_recovered(self, log_dir: LogDir) -> None:
        """Makes durable what was read after an unclean stop: it counts as if it were. Where that fails, the directory
        is passed over. Raises LogDirError if it was the last.
        """
        try:
            self._sync_dir(log_dir)
        except OSError as error:
            self._loaded_dirs.discard(log_dir)
            self.dirs.fail_at_start(log_dir, "sync", error)
            self.take_offline(log_dir)

    def _sync_dir(self, log_dir: LogDir) -> bool:
        """Makes the logs of a directory durable while nothing is appended to them. False if only their records are:
        recovery must read them again. Raises OSError if the sync fails.

        This includes logs that are already flushed to their end, because closing and recovery have written
        indexes and snapshots. Leader epochs that recovery read from the batches are written first, because
        those batches will not be read for them again.
        """
        logs = self._files_in(log_dir)
        finished = True
        try:
            for log in logs:
                log.leader_epochs.finish(log.log_end_offset)
        except OSError as error:
            finished = False
            _log.error("leader_epochs_not_written", dir=str(log_dir.path), error=str(error))
            log_dir.health.report("write leader epochs", error)
        if logs:
            sync_filesystem(log_dir.path)
        for log in logs:
            if finished:
                log.note_synced()
            else:
                log.durability.note_records_synced()
        return finished

    @staticmethod
    def _write_marker(log_dir: LogDir, broker_epoch: int) -> None:
        try:
            log_dir.write_clean_marker(broker_epoch)
        except OSError as error:
            _log.error("clean_marker_write_failed", dir=str(log_dir.path), error=str(error))


def _run(action: Callable[[], object]) -> None:
    action()


def _flush(log: Log) -> int:
    log.flush()
    return 0


@dataclass(frozen=True, slots=True)
class _DirParameters:
    clean: bool
    recovery_points: Mapping[TopicPartition, int]
    log_starts: Mapping[TopicPartition, int]
    cancel: threading.Event | None
    health: LogDirHealth


_DirJob = tuple[LogDir, list[tuple[TopicPartition, Path]], _DirParameters]
