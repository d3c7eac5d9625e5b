"""What the parts of a log have in common: where it lies, its lock, and what an error of the disk there means."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from broker.log.log_dir_health import LogDirHealth
from broker.protocol.errors import Errors, KafkaError
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

DELETE_DIR_SUFFIX = "-delete"
_MAX_NAME_BYTES = 255


class LogContext:
    """What all parts of one log share: its lock, its directory, and how it tells of an error of the disk.

    Invariant: once ``is_closed`` the log stays so, for by then its name may be another log's.

    Owned by one :class:`~broker.log.log.Log`. What changes here does so under ``lock``, and is read without.
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
        #: Whose log it is.
        self.topic_partition = topic_partition
        #: The partition's directory; renamed when the log is deleted.
        self.directory = directory
        #: The time of its segments, and of who waits.
        self.clock = clock
        #: Who does what can wait; None in tests, where nobody does.
        self.scheduler = scheduler
        #: What is known of the disk; one for all logs of a log directory.
        self.health = health or LogDirHealth(directory.parent)
        #: Held by who changes anything of the log.
        self.lock = threading.RLock()  # lock order 48
        #: Whether the log has ended: closed, or deleted.
        self.is_closed = False
        #: How many errors of the disk were met.
        self.errors = 0

    def __repr__(self) -> str:
        return f"<LogContext {self.directory}{' closed' if self.is_closed else ''}>"

    @property
    def running_scheduler(self) -> KafkaScheduler | None:
        """The scheduler while it takes tasks."""
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
        """What to raise for an error of the disk, once the directory's health has been told of it. ``torn``: files or
        memory were left as nobody knows.
        """
        self.errors += 1
        self.health.report(f"{what} {self.topic_partition}", error, torn=torn)
        return KafkaError(
            Errors.KAFKA_STORAGE_ERROR,
            f"cannot {what} {self.topic_partition} in {self.directory}: {error.strerror or error}",
        )

    @contextmanager
    def failing(self, what: str, *, torn: bool = False) -> Iterator[None]:
        """Makes an OSError of the block what :meth:`storage_error` says of it."""
        try:
            yield
        except OSError as error:
            raise self.storage_error(what, error, torn=torn) from error

    @contextmanager
    def own_directory(self) -> Iterator[Path]:
        """A path to the directory that stays this log's, whatever bears its name meanwhile. Raises
        KafkaError(KAFKA_STORAGE_ERROR) once the log is closed, OSError.
        """
        with self.lock:
            self.require_open()
            fd = os.open(self.directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield Path(f"/proc/self/fd/{fd}")
        finally:
            os.close(fd)


def deleted_name(directory: Path) -> Path:
    """What ``directory`` is to be called once its log is deleted; no two names are alike."""
    tail = f".{uuid4().hex}{DELETE_DIR_SUFFIX}"
    return directory.with_name(directory.name[: _MAX_NAME_BYTES - len(tail)] + tail)
