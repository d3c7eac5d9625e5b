"""Deletes logs, and moves them between log directories (KIP-113).

While a log moves, its copy grows in the other directory as a *future* log, in Kafka's ``….<uuid>-future``. Then
the copy takes the log's name and place, and the old log is deleted. The partition decides when
(:mod:`broker.cluster.partition_log`), and :mod:`broker.replication.log_dir_mover` copies.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Final
from uuid import uuid4

import structlog

from broker.config.topic_name import topic_name_problem
from broker.log.cleaning.cleaner_manager import forget_clean
from broker.log.dirs.log_dir import FUTURE_SUFFIX, LogDir
from broker.log.log import Log
from broker.log.log_context import deleted_name
from broker.log.log_maker import LogMaker
from broker.log.segments.segment import sync_dir
from broker.protocol.errors import Errors, KafkaError
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_MAX_NAME_BYTES: Final = 255
_MOST_PREFERRED: Final = 10_000
MOVED_FILE: Final = "landline-moved"
"""Marks a log that takes the place of another one, until that one is deleted. After a crash in between, two
directories have a log of the partition, and this one counts.
"""


def future_name(topic_partition: TopicPartition) -> str:
    """A new name for a directory of the partition's future log."""
    return f"{topic_partition}.{uuid4().hex}{FUTURE_SUFFIX}"


class LogMover(LogMaker):
    """A registry that can delete logs and move them. Thread-safe."""

    # -- deleting

    def delete_async(self, topic_partition: TopicPartition) -> bool:
        """Removes the log and its future log at once, and their files after ``file.delete.delay.ms``; False if
        there is no log.

        Raises KafkaError(KAFKA_STORAGE_ERROR).
        """
        self.drop_future(topic_partition)
        with self._lock:
            log = self._logs.get(topic_partition)
            if log is None:
                return False
            path = log.mark_deleted()
            del self._logs[topic_partition]
            log_dir = self._dir_of.pop(topic_partition)
            forget_clean(log_dir, topic_partition)
        self._checkpoint_dir(log_dir)
        _log.info("log_deleted", partition=str(topic_partition), dir=str(path))
        self._delete_later(path, log.config.file_delete_delay_ms)
        return True

    def _delete_later(self, path: Path, delay_ms: int) -> None:
        if self._scheduler is None or not self._scheduler.is_started:
            _remove_tree(path)
        else:
            self._scheduler.schedule("kafka-delete-logs", partial(_remove_tree, path), delay_ms, bulk=True)

    # -- moving

    def dir_at(self, path: str) -> LogDir:
        """The working log directory at ``path``. Raises LOG_DIR_NOT_FOUND, KAFKA_STORAGE_ERROR."""
        for log_dir in self.dirs.all:
            if str(log_dir.path.absolute()) == path:
                if log_dir.health.failure is not None:
                    raise KafkaError(Errors.KAFKA_STORAGE_ERROR, f"log directory {path} failed")
                return log_dir
        raise KafkaError(Errors.LOG_DIR_NOT_FOUND, f"log directory {path} is not in log.dirs")

    def prefer(self, topic_partition: TopicPartition, log_dir: LogDir) -> None:
        """Makes the partition's log in this directory if it is created here later. What cannot be a topic is not kept:
        a client may name anything.
        """
        if topic_name_problem(topic_partition.topic) is not None:
            return
        with self._lock:
            if topic_partition in self._preferred or len(self._preferred) < _MOST_PREFERRED:
                self._preferred[topic_partition] = log_dir

    def create_future(self, topic_partition: TopicPartition, log_dir: LogDir) -> Log:
        """A new future log in ``log_dir``, with the topic id of the partition's log.

        Raises KafkaError: INVALID_TOPIC_EXCEPTION for a name that is too long, KAFKA_STORAGE_ERROR.
        """
        config = self._topic_configs(topic_partition.topic)
        with self._lock:
            self._refuse_beside_failed(topic_partition)
            current = self._logs[topic_partition]
            path = log_dir.path / future_name(topic_partition)
            if len(path.name.encode()) > _MAX_NAME_BYTES:
                raise KafkaError(Errors.INVALID_TOPIC_EXCEPTION, "the topic's name is too long to be moved")
            try:
                (current.dir / MOVED_FILE).unlink(missing_ok=True)
            except OSError as error:
                raise self._storage_error(topic_partition, current.dir, current.health, error) from error
            log = self._load_new(topic_partition, config, log_dir, path)
            if current.topic_id is not None:
                log.assign_topic_id(current.topic_id)
            self._adopt_future(log, log_dir)
            return log

    def drop_future(self, topic_partition: TopicPartition) -> None:
        """Gives up a move: deletes the future log, if there is one and its directory works."""
        with self._lock:
            log, log_dir = self._futures.pop(topic_partition, (None, None))
            if log is None or log_dir is None:
                return
            if log_dir.health.failure is not None:
                return
            try:
                path = log.mark_deleted()
            except KafkaError as error:
                _log.warning("future_log_not_deleted", partition=str(topic_partition), error=str(error))
                return
        self._checkpoint_dir(log_dir)
        self._delete_later(path, log.config.file_delete_delay_ms)

    def put_future_in_place(self, topic_partition: TopicPartition) -> Log:
        """Replaces the partition's log by its future log, which must be complete and synced. Returns the new
        log. Call it with the partition's lock held. Raises KafkaError(KAFKA_STORAGE_ERROR); then nothing changed.
        """
        with self._lock:
            future, to_dir = self._futures.get(topic_partition, (None, None))
            current, from_dir = self._logs.get(topic_partition), self._dir_of.get(topic_partition)
            if future is None or to_dir is None or current is None or from_dir is None:
                raise KafkaError(
                    Errors.KAFKA_STORAGE_ERROR,
                    f"{topic_partition} went while it was moved: a directory failed",
                )
            with future.failing("move"):
                (future.dir / MOVED_FILE).touch()
                sync_dir(future.dir)
            future.move_to(to_dir.partition_path(topic_partition))
            del self._futures[topic_partition]
            self._logs[topic_partition], self._dir_of[topic_partition] = future, to_dir
            forget_clean(from_dir, topic_partition)
            try:
                # First: the other file system may commit its rename earlier, and then a power loss left neither.
                with future.failing("move"):
                    sync_dir(to_dir.path)
                path = current.mark_deleted()
            except KafkaError as error:
                # The mark stays: it says at the next start which of the two logs counts.
                _log.warning("moved_log_not_deleted", partition=str(topic_partition), error=str(error))
                return future
        try:
            with future.failing("move"):
                sync_dir(from_dir.path)
                (future.dir / MOVED_FILE).unlink(missing_ok=True)
        except KafkaError as error:  # the directory's health knows; the log has moved nonetheless
            _log.warning("move_not_synced", partition=str(topic_partition), error=str(error))
        self._checkpoint_dir(from_dir)
        self._checkpoint_dir(to_dir)
        self._delete_later(path, current.config.file_delete_delay_ms)
        return future


def without_old_places(
    found: Iterable[tuple[LogDir, list[tuple[TopicPartition, Path]]]],
) -> list[tuple[LogDir, list[tuple[TopicPartition, Path]]]]:
    """The partitions found in each directory, without logs whose moved copy was put in place before a crash.
    They are renamed to be deleted. Raises OSError.
    """
    found = list(found)
    by_partition: dict[TopicPartition, list[Path]] = {}
    for _, partitions in found:
        for topic_partition, path in partitions:
            if path.name.endswith(FUTURE_SUFFIX):
                continue  # the mark is written just before the rename
            by_partition.setdefault(topic_partition, []).append(path)
    old: set[Path] = set()
    for topic_partition, paths in by_partition.items():
        moved = [path for path in paths if (path / MOVED_FILE).exists()] if len(paths) > 1 else []
        if len(moved) == 1:
            old.update(path for path in paths if path not in moved)
            _log.info("move_finished_at_start", partition=str(topic_partition), dir=str(moved[0]))
    for path in old:
        path.rename(deleted_name(path))
    return [
        (log_dir, [(tp, path) for tp, path in partitions if path not in old]) for log_dir, partitions in found
    ]


def _remove_tree(path: Path) -> None:
    import shutil

    shutil.rmtree(path, ignore_errors=True)
