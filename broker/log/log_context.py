"""What the parts of a log share: its directory, its lock, and the handling of disk errors."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final
from uuid import uuid4

from broker.log.log_dir_health import LogDirHealth
from broker.protocol.errors import Errors, KafkaError
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

DELETE_DIR_SUFFIX: Final = "-delete"
_MAX_NAME_BYTES: Final = 255


class LogContext:
    """The shared state of one log's parts: its lock, its directory, and how disk errors are reported.

    Invariant: once ``is_closed`` is set it stays set, because another log may have the name by then.

    Owned by one :class:`~broker.log.log.Log`. Its fields change under ``lock`` and are read without it.
    """

    __slots__ = (
        "clock",
        "directory",
        "errors",
        "health",
        "is_closed",
        "lock",
        "scheduler",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        directory: Path,
        clock: Clock,
        scheduler: KafkaScheduler | None = None,
        health: LogDirHealth | None = None,
    ) -> None:
        #: The partition of the log.
        self.topic_partition = topic_partition
        #: The partition's directory; renamed when the log is deleted.
        self.directory = directory
        #: Gives the segments' creation times and the time for waits.
        self.clock = clock
        #: Runs work that can wait; None in tests.
        self.scheduler = scheduler
        #: The health of the log directory; shared by all logs in it.
        self.health = health or LogDirHealth(directory.parent)
        #: Guards every change to the log.
        self.lock = threading.RLock()  # lock order 48
        #: Whether the log was closed or deleted.
        self.is_closed = False
        #: The number of disk errors so far.
        self.errors = 0

    def __repr__(self) -> str:
        return f"<LogContext {self.directory}{' closed' if self.is_closed else ''}>"

    @property
    def running_scheduler(self) -> KafkaScheduler | None:
        """The scheduler if it takes tasks, else None."""
        scheduler = self.scheduler
        return scheduler if scheduler is not None and scheduler.is_started else None

    def require_open(self) -> None:
        """Raises KafkaError(KAFKA_STORAGE_ERROR) once the log is closed."""
        if self.is_closed:
            raise KafkaError(
                Errors.KAFKA_STORAGE_ERROR,
                f"the log of {self.topic_partition} in {self.directory} is closed",
            )

    def storage_error(self, what: str, error: OSError, *, torn: bool = False) -> KafkaError:
        """Reports a disk error to the directory's health and returns the error to raise. ``torn``: files or
        memory were left in an unknown state.
        """
        self.errors += 1
        self.health.report(f"{what} {self.topic_partition}", error, torn=torn)
        return KafkaError(
            Errors.KAFKA_STORAGE_ERROR,
            f"cannot {what} {self.topic_partition} in {self.directory}: {error.strerror or error}",
        )

    @contextmanager
    def failing(self, what: str, *, torn: bool = False) -> Iterator[None]:
        """Turns an OSError of the block into the error of :meth:`storage_error`."""
        try:
            yield
        except OSError as error:
            raise self.storage_error(what, error, torn=torn) from error

    @contextmanager
    def own_directory(self) -> Iterator[Path]:
        """A path to the directory that stays this log's, even if another directory gets its name.

        Raises KafkaError(KAFKA_STORAGE_ERROR) once the log is closed, OSError.
        """
        with self.lock:
            self.require_open()
            fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)


def deleted_name(directory: Path) -> Path:
    """A unique new name for ``directory`` once its log is deleted."""
    tail = f".{uuid4().hex}{DELETE_DIR_SUFFIX}"
    return directory.with_name(directory.name[: _MAX_NAME_BYTES - len(tail)] + tail)
