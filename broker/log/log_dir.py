"""One log directory: its lock, identity, clean-shutdown marker, checkpoints and the partitions in it."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import structlog

from broker.log.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    CheckpointError,
    OffsetCheckpoint,
    replace_file,
)
from broker.log.errors import LogDirError
from broker.log.local_log import DELETE_DIR_SUFFIX
from broker.log.meta_properties import MetaProperties, read_meta_properties
from broker.log.segment import sync_dir
from broker.utils.topic_partition import TopicPartition

LOCK_FILE = ".lock"
CLEAN_SHUTDOWN_FILE = ".kafka_cleanshutdown"
_PASSED_OVER_SUFFIXES = ("-future", "-stray")
_NOT_OURS = frozenset({"lost+found"})
_log = structlog.get_logger(__name__)


class LogDir:
    """A directory of ``log.dirs``. Usable between :meth:`lock` and :meth:`unlock`, by one broker only."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._lock_fd = -1
        self.recovery_points = OffsetCheckpoint(self.path, RECOVERY_POINT_CHECKPOINT)
        self.high_watermarks = OffsetCheckpoint(self.path, HIGH_WATERMARK_CHECKPOINT)
        self.log_starts = OffsetCheckpoint(self.path, LOG_START_CHECKPOINT)

    def __repr__(self) -> str:
        return f"<LogDir {self.path}{' locked' if self._lock_fd >= 0 else ''}>"

    def lock(self) -> None:
        """Makes the directory if need be and locks it. Raises LogDirError.

        With both of Linux's kinds of lock: flock, and the record lock by which Apache Kafka excludes others.
        """
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            fd = os.open(self.path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise LogDirError(
                f"cannot use log directory {self.path}: {error.strerror}; "
                "make it writable for the broker's user or change log.dirs"
            ) from error
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            raise LogDirError(
                f"log directory {self.path} is locked by another broker: stop that one (its process holds "
                f"{self.path / LOCK_FILE} open) or give this one a log.dirs of its own"
            ) from error
        self._lock_fd = fd

    def unlock(self) -> None:
        """Lets others use it."""
        fd, self._lock_fd = self._lock_fd, -1
        if fd >= 0:
            os.close(fd)

    def meta_properties(self) -> MetaProperties | None:
        """Whose data it holds. Raises LogDirError."""
        return read_meta_properties(self.path)

    # -- the clean-shutdown marker -------------------------------------------------------------------

    @property
    def has_clean_marker(self) -> bool:
        return (self.path / CLEAN_SHUTDOWN_FILE).exists()

    def remove_clean_marker(self) -> None:
        """Before loading: should that crash, the next start must not trust the directory. Raises OSError."""
        (self.path / CLEAN_SHUTDOWN_FILE).unlink(missing_ok=True)
        sync_dir(self.path)

    def write_clean_marker(self, broker_epoch: int) -> None:
        """After every log was closed. Raises OSError."""
        content = json.dumps({"version": 0, "brokerEpoch": broker_epoch}, separators=(",", ":"))
        replace_file(self.path / CLEAN_SHUTDOWN_FILE, content.encode())

    # -- partitions --------------------------------------------------------------------------------

    def partition_path(self, topic_partition: TopicPartition) -> Path:
        return self.path / str(topic_partition)

    def partitions(self) -> list[tuple[TopicPartition, Path]]:
        """The partitions that lie here, by name. Raises LogDirError on a directory that is none."""
        found = []
        for path in self._directories():
            if path.name.endswith(_PASSED_OVER_SUFFIXES):
                _log.warning("log_directory_passed_over", dir=str(path))
            elif not path.name.endswith(DELETE_DIR_SUFFIX):
                found.append((_parse_name(path), path))
        return sorted(found)

    def deleted_partitions(self) -> list[Path]:
        """Directories of deleted partitions whose files are still here."""
        return [path for path in self._directories() if path.name.endswith(DELETE_DIR_SUFFIX)]

    def _directories(self) -> Iterator[Path]:
        with os.scandir(self.path) as entries:
            for entry in entries:
                if entry.is_dir() and not entry.name.startswith(".") and entry.name not in _NOT_OURS:
                    yield Path(entry.path)

    # -- checkpoints -------------------------------------------------------------------------------

    def read_checkpoint(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, int]:
        """What the checkpoint says; {} with one warning when it is unreadable, which only costs time."""
        try:
            return checkpoint.read()
        except CheckpointError as error:
            _log.warning("checkpoint_unreadable", file=str(checkpoint.path), error=str(error))
            return {}

    def write_checkpoint(self, checkpoint: OffsetCheckpoint, offsets: Mapping[TopicPartition, int]) -> None:
        """Replaces the checkpoint; a failing disk costs a warning, for the old file still stands."""
        with contextlib.suppress(FileNotFoundError):
            try:
                checkpoint.write(offsets)
            except FileNotFoundError:
                raise
            except OSError as error:
                _log.error("checkpoint_write_failed", file=str(checkpoint.path), error=str(error))


def _parse_name(path: Path) -> TopicPartition:
    topic, dash, number = path.name.rpartition("-")
    if not topic or not dash or not number.isdigit():
        raise LogDirError(
            f"{path} is not the directory of a partition (topic-number): move it out of log.dirs, "
            "which must hold nothing else"
        )
    return TopicPartition(topic, int(number))
