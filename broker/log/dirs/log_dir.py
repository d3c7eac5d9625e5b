"""A log directory: its lock, identity, clean-shutdown marker, checkpoints and partitions."""

from __future__ import annotations

import json
import os
import re
import sys
import threading
from collections.abc import Iterator, Mapping
from operator import itemgetter
from pathlib import Path

import structlog

from broker.log.checkpoints import (
    CLEANER_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    OffsetCheckpoint,
)
from broker.log.dirs.dir_lock import LOCK_FILE, take_lock
from broker.log.dirs.meta_properties import MetaProperties, read_meta_properties
from broker.log.errors import LogDirError, LogDirUnusableError
from broker.log.log_context import DELETE_DIR_SUFFIX
from broker.log.log_dir_health import LogDirHealth
from broker.log.sealed_file import replace_file
from broker.log.segments.segment import sync_dir
from broker.utils.topic_partition import TopicPartition

CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
FUTURE_SUFFIX = "-future"
_STRAY_SUFFIX = "-stray"
_FUTURE = re.compile(r"(.+-\d+)\.[0-9A-Za-z]+" + FUTURE_SUFFIX)
_NOT_OURS = frozenset({"lost+found"})
_log = structlog.get_logger(__name__)


class LogDir:
    """A directory of ``log.dirs``. Usable by one broker only, between :meth:`lock` and :meth:`unlock`."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.health = LogDirHealth(self.path)
        self._lock_fd = -1
        self.recovery_points = OffsetCheckpoint(self.path, RECOVERY_POINT_CHECKPOINT)
        self.high_watermarks = OffsetCheckpoint(self.path, HIGH_WATERMARK_CHECKPOINT)
        self.log_starts = OffsetCheckpoint(self.path, LOG_START_CHECKPOINT)
        self.cleaned = OffsetCheckpoint(self.path, CLEANER_CHECKPOINT)
        # Held from reading the logs to the end of the write. Values read before a truncation must not replace
        # what the truncation wrote, and each file has only one ``.tmp``.
        self.checkpointing = threading.Lock()  # lock order 50

    def __repr__(self) -> str:
        return f"<LogDir {self.path}{' locked' if self._lock_fd >= 0 else ''}>"

    def lock(self) -> None:
        """Creates the directory if needed and locks it. Raises LogDirError, or LogDirUnusableError on a
        disk error.

        See :mod:`broker.log.dirs.dir_lock` for the lock types.
        """
        try:
            if not self.path.is_dir():
                self.path.mkdir(parents=True)
                sync_dir(self.path.parent)
            fd = take_lock(self.path)
        except BlockingIOError as error:
            raise LogDirError(
                f"log directory {self.path} is locked by another broker: stop that one (its process holds "
                f"{self.path / LOCK_FILE} open) or give this one a log.dirs of its own"
            ) from error
        except OSError as error:
            raise LogDirUnusableError(
                f"cannot use log directory {self.path}: {error.strerror}; "
                "make it writable for the broker's user or change log.dirs"
            ) from error
        self._lock_fd = fd

    def unlock(self) -> None:
        """Releases the lock."""
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    def meta_properties(self) -> MetaProperties | None:
        """The broker and cluster of its data. Raises LogDirError."""
        return read_meta_properties(self.path)

    # -- the clean-shutdown marker

    @property
    def has_clean_marker(self) -> bool:
        return (self.path / CLEAN_SHUTDOWN_FILE).exists()

    def remove_clean_marker(self) -> None:
        """Called before loading: after a crash, the next start must not trust the directory.
        Raises OSError.
        """
        (self.path / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        sync_dir(self.path)

    def write_clean_marker(self, broker_epoch: int) -> None:
        """Called after every log was closed. Raises OSError."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        replace_file(self.path / CLEAN_SHUTDOWN_FILE, content.encode())

    # -- partitions

    def partition_path(self, topic_partition: TopicPartition) -> Path:
        return self.path / str(topic_partition)

    def partitions(self) -> list[tuple[TopicPartition, Path]]:
        """The partitions in this directory, sorted. Raises LogDirError if a directory is not one's."""
        found = []
        for name in self._directories():
            path = self.path / name
            if name.endswith(_STRAY_SUFFIX):
                _log.warning("log_directory_passed_over", dir=str(path))
            elif not name.endswith((DELETE_DIR_SUFFIX, FUTURE_SUFFIX)):
                found.append((_parse_name(path, name), path))
        return sorted(found, key=itemgetter(0))

    def future_partitions(self) -> list[tuple[TopicPartition, Path]]:
        """The partitions that were moving to this directory. Raises LogDirError if a name is not one's."""
        found = []
        for name in self._directories():
            if name.endswith(FUTURE_SUFFIX):
                match = _FUTURE.fullmatch(name)
                found.append((_parse_name(self.path / name, match[1] if match else name), self.path / name))
        return sorted(found, key=itemgetter(0))

    def deleted_partitions(self) -> list[Path]:
        """Directories of deleted partitions that still exist."""
        return [self.path / name for name in self._directories() if name.endswith(DELETE_DIR_SUFFIX)]

    def _directories(self) -> Iterator[str]:
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.is_dir() and not entry.name.startswith(".") and entry.name not in _NOT_OURS:
                    yield entry.name

    # -- checkpoints

    def read_checkpoint(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        """The checkpoint's offsets. Returns {} with one warning if it is unreadable, which only costs time.

        A disk error also gives {}, and is reported to the directory's health.
        """
        try:
            return checkpoint.read()
        except CheckpointError as error:
            _log.warning("checkpoint_unreadable", file=str(checkpoint.path), error=str(error))
        except OSError as error:
            self.health.report(f"read {checkpoint.path}", error)
        return {}

    def write_checkpoint(self, checkpoint: OffsetCheckpoint, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the checkpoint. If the disk is full, the old file stays, with a warning.

        Any other error fails the directory.
        """
        self._write(checkpoint, offsets)

    def lower_checkpoint(self, checkpoint: OffsetCheckpoint, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces a checkpoint whose old offsets are too high. If the write fails, the old file is removed;
        that only makes the next start slower.
        """
        if self._write(checkpoint, offsets):
            return
        try:
            checkpoint.path.unlink(missing_ok=True)
            sync_dir(self.path)
        except OSError as error:
            self.health.report(f"take back {checkpoint.path}", error, torn=True)

    def _write(self, checkpoint: OffsetCheckpoint, offsets: Mapping[TopicPartition, int]) -> bool:
        try:
            checkpoint.write(offsets)
        except OSError as error:
            if not self.health.report(f"write {checkpoint.path}", error):
                _log.warning("checkpoint_write_failed", file=str(checkpoint.path), error=str(error))
            return False
        return True


def _parse_name(path: Path, name: str) -> TopicPartition:
    topic, dash, number = name.rpartition("-")
    if not topic or not dash or not number.isdigit():
        raise LogDirError(
            f"{path} is not the directory of a partition (topic-number): move it out of log.dirs, "
            "which must hold nothing else"
        )
    return TopicPartition(sys.intern(topic), int(number))  # one string for thousands of partitions
