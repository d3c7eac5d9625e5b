"""Creates logs: a single one, or the thousands of a topic at once.

:class:`broker.log.log_manager.LogManager` adds loading, periodic tasks and shutdown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

import structlog

from broker.config.log_config import LogConfig
from broker.log.dirs.log_dir import LogDir
from broker.log.dirs.log_dirs import LogDirs
from broker.log.filesystem_sync import sync_filesystem
from broker.log.loading.loader import LoadParameters, load_log
from broker.log.log import Log
from broker.log.log_dir_health import LogDirHealth
from broker.log.log_registry import LogRegistry
from broker.log.partition_metadata import prepare_topic_id, take_up_topic_id
from broker.log.producers.producer_state import MAX_PRODUCERS
from broker.log.roll_pace import RollPace
from broker.protocol.errors import Errors, KafkaError
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
# Up to this many topic ids are synced file by file. The sync of a whole file system also writes out
# other data.
_FEW_IDS = 16


class WantedLog(NamedTuple):
    """A partition's log as the controller requests it. ``is_new`` as in :meth:`LogMaker.get_or_create`."""

    topic_partition: TopicPartition
    topic_id: UUID | None
    is_new: bool


class LogMaker(LogRegistry):
    """A registry that can create logs. Thread-safe. A new log has its topic id durably on disk before
    anything can be appended to it. Otherwise its records could be taken for those of the next topic with
    that name.
    """

    def __init__(
        self,
        dirs: LogDirs,
        topic_configs: Callable[[str], LogConfig],
        scheduler: KafkaScheduler | None,
        clock: Clock,
        *,
        producer_expiration_ms: int,
        max_producers: int = MAX_PRODUCERS,
    ) -> None:
        super().__init__(dirs)
        self._topic_configs = topic_configs
        self._scheduler = scheduler
        self._clock = clock
        self._producer_expiration_ms = producer_expiration_ms
        self._max_producers = max_producers
        self._roll_pace = RollPace()
        # Where logs are to be made that do not exist yet.
        self._preferred: dict[TopicPartition, LogDir] = {}

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: UUID | None = None, *, is_new: bool = True
    ) -> Log:
        """The partition's log. If there is none, it is created in the directory with the fewest logs.

        A log that is not new may lie in a failed directory and is then not recreated elsewhere. Raises
        KafkaError: INCONSISTENT_TOPIC_ID if the log belongs to another topic, KAFKA_STORAGE_ERROR.
        """
        log = self._logs.get(topic_partition)
        if log is None:
            config = self._topic_configs(topic_partition.topic)
            with self._lock:
                log = self._get_or_create(topic_partition, config, self._counts(), is_new=is_new)
        if topic_id is not None and log.topic_id != topic_id:
            try:
                log.assign_topic_id(topic_id)
            except OSError as error:
                raise self._storage_error(topic_partition, log.dir, log.health, error) from error
        return log

    def make(self, wanted: Sequence[WantedLog]) -> dict[TopicPartition, KafkaError]:
        """Creates the missing logs like :meth:`get_or_create`, but with two syncs for all of them instead of
        two for each. Returns the logs that could not be created, with the reason.
        """
        failed: dict[TopicPartition, KafkaError] = {}
        unnamed: dict[Log, UUID] = {}
        missing = [one for one in wanted if one.topic_partition not in self._logs]
        configs = {topic: self._topic_configs(topic) for topic in {w.topic_partition.topic for w in missing}}
        with self._lock:
            counts = self._counts()
            for topic_partition, topic_id, is_new in missing:
                try:
                    config = configs[topic_partition.topic]
                    log = self._get_or_create(topic_partition, config, counts, is_new=is_new)
                except KafkaError as error:
                    failed[topic_partition] = error
                else:
                    if topic_id is not None and log.topic_id is None:
                        unnamed[log] = topic_id
        return failed | self._assign_topic_ids(unnamed)

    def _assign_topic_ids(self, ids: Mapping[Log, UUID]) -> dict[TopicPartition, KafkaError]:
        """Writes all files under temporary names, syncs, renames them and syncs again, so that no power loss
        leaves an empty file.
        """
        failed: dict[TopicPartition, KafkaError] = {}
        if len(ids) <= _FEW_IDS:
            for log, topic_id in ids.items():
                self._try(log, failed, partial(log.assign_topic_id, topic_id))
            return failed
        for log, topic_id in ids.items():
            self._try(log, failed, partial(prepare_topic_id, log.dir, topic_id))
        self._sync_dirs_of([log for log in ids if log.topic_partition not in failed], failed)
        written = [log for log in ids if log.topic_partition not in failed]
        for log in written:
            self._try(log, failed, partial(take_up_topic_id, log.dir))
        self._sync_dirs_of([log for log in written if log.topic_partition not in failed], failed)
        for log, topic_id in ids.items():
            if log.topic_partition not in failed:
                log.topic_id = topic_id
        return failed

    def _sync_dirs_of(self, logs: Sequence[Log], failed: dict[TopicPartition, KafkaError]) -> None:
        by_dir: dict[Path, list[Log]] = {}
        for log in logs:
            by_dir.setdefault(log.dir.parent, []).append(log)
        for path, its_logs in by_dir.items():
            try:
                sync_filesystem(path)
            except OSError as error:
                for log in its_logs:
                    failed[log.topic_partition] = self._storage_error(
                        log.topic_partition, log.dir, log.health, error
                    )

    def _try(self, log: Log, failed: dict[TopicPartition, KafkaError], action: Callable[[], object]) -> None:
        try:
            action()
        except KafkaError as error:
            failed[log.topic_partition] = error
        except OSError as error:
            failed[log.topic_partition] = self._storage_error(log.topic_partition, log.dir, log.health, error)

    def _get_or_create(
        self, topic_partition: TopicPartition, config: LogConfig, counts: Counter[LogDir], *, is_new: bool
    ) -> Log:
        """Call it with the lock held. ``counts`` holds each directory's number of logs, and is updated."""
        log = self._logs.get(topic_partition)
        if log is None:
            if not is_new:
                self._refuse_beside_failed(topic_partition)
            log = self._create(topic_partition, config, counts)
        return log

    def _refuse_beside_failed(self, topic_partition: TopicPartition) -> None:
        if failed := ", ".join(str(log_dir.path) for log_dir in self.dirs.failed):
            raise KafkaError(
                Errors.KAFKA_STORAGE_ERROR, f"{topic_partition} may lie in {failed}, which failed"
            )

    def _counts(self) -> Counter[LogDir]:
        return Counter(self._dir_of.values())

    def _create(self, topic_partition: TopicPartition, config: LogConfig, counts: Counter[LogDir]) -> Log:
        usable = list(self.dirs)
        if not usable:
            raise KafkaError(Errors.KAFKA_STORAGE_ERROR, "every log directory failed")
        preferred = self._preferred.pop(topic_partition, None)
        log_dir = preferred if preferred in usable else min(usable, key=lambda d: counts[d])
        log = self._load_new(topic_partition, config, log_dir, log_dir.partition_path(topic_partition))
        self._adopt(log, log_dir)
        counts[log_dir] += 1
        return log

    def _load_new(
        self, topic_partition: TopicPartition, config: LogConfig, log_dir: LogDir, path: Path
    ) -> Log:
        parameters = LoadParameters(
            clean=True,
            recovery_point=0,
            log_start_offset=0,
            producer_expiration_ms=self._producer_expiration_ms,
            clock=self._clock,
            scheduler=self._scheduler,
            health=log_dir.health,
            max_producers=self._max_producers,
            roll_pace=self._roll_pace,
            for_new=True,
        )
        try:
            return load_log(path, topic_partition, config, parameters)
        except OSError as error:
            raise self._storage_error(topic_partition, path, log_dir.health, error) from error

    @staticmethod
    def _storage_error(
        topic_partition: TopicPartition, path: Path, health: LogDirHealth, error: OSError
    ) -> KafkaError:
        health.report(f"make the log of {topic_partition}", error)
        _log.error("log_create_failed", partition=str(topic_partition), dir=str(path), error=str(error))
        return KafkaError(
            Errors.KAFKA_STORAGE_ERROR,
            f"cannot make the log of {topic_partition} in {path}: {error.strerror}",
        )
