"""All directories of ``log.dirs``: which ones are usable, and whose data they hold.

A failed directory, at start or later, is skipped as long as another one works (KIP-112).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import structlog

from broker.log.dirs.dir_lock import LOCK_FILE
from broker.log.dirs.log_dir import LogDir
from broker.log.dirs.meta_properties import agreed, write_meta_properties
from broker.log.errors import LogDirError, LogDirUnusableError
from broker.log.sealed_file import can_seal

_log = structlog.get_logger(__name__)


class LogDirs:
    """The directories of ``log.dirs``, with their locks. ``broker_id`` and ``cluster_id`` come from the
    directories; None if no directory has them.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.all = tuple(LogDir(path) for path in dict.fromkeys(paths))
        self.locked = False
        self.unclean: frozenset[LogDir] = frozenset()
        self.broker_id: int | None = None
        self.cluster_id: str | None = None

    def __iter__(self) -> Iterator[LogDir]:
        """The directories that work."""
        return (log_dir for log_dir in self.all if log_dir.health.failure is None)

    @property
    def failed(self) -> tuple[LogDir, ...]:
        return tuple(log_dir for log_dir in self.all if log_dir.health.failure is not None)

    def at(self, path: Path) -> LogDir:
        """The directory at ``path``. Raises KeyError if it is not in ``log.dirs``."""
        return {log_dir.path: log_dir for log_dir in self.all}[path]

    def lock_and_check(self) -> None:
        """Locks the directories and reads the broker id, the cluster id, and which were not closed cleanly.

        A directory with a disk error is skipped. Raises LogDirError if all are skipped, if another broker
        uses one, or if one belongs to another broker or cluster than the rest. Then none stays locked.
        """
        unclean = set()
        try:
            for log_dir in self.all:
                self._lock(log_dir)
            self.locked = True
            self._check_identity()
            for log_dir in self:
                try:
                    if not log_dir.has_clean_marker and (log_dir.partitions() or log_dir.future_partitions()):
                        unclean.add(log_dir)
                except OSError as error:
                    self.fail_at_start(log_dir, "list the partitions", error)
        except (LogDirError, OSError):
            self.unlock()
            raise
        self.unclean = frozenset(unclean)

    def _lock(self, log_dir: LogDir) -> None:
        try:
            log_dir.lock()
            if not can_seal(log_dir.path / LOCK_FILE):
                _log.warning(
                    "checksums_off",
                    log_dir=str(log_dir.path),
                    reason="its file system keeps no extended attributes",
                    action="a flipped bit in a checkpoint or snapshot there will not be noticed; use ext4 or XFS",
                )
        except LogDirUnusableError as error:
            self._pass_over(log_dir, str(error))

    def _check_identity(self) -> None:
        found = {}
        for log_dir in self:
            try:
                meta = log_dir.meta_properties()
            except OSError as error:
                self.fail_at_start(log_dir, "read meta.properties", error)
            else:
                if meta is not None:
                    found[log_dir.path] = meta
        self.broker_id = agreed("broker.id", {path: meta.broker_id for path, meta in found.items()})
        self.cluster_id = agreed("cluster.id", {path: meta.cluster_id for path, meta in found.items()})

    def write_meta_properties(self, broker_id: int, cluster_id: str) -> None:
        """Marks all directories as this broker's. Raises LogDirError if none can be written."""
        for log_dir in self:
            try:
                meta = log_dir.meta_properties()
                if meta is None or meta.broker_id != broker_id or meta.cluster_id != cluster_id:
                    write_meta_properties(log_dir.path, broker_id, cluster_id)
            except OSError as error:
                self.fail_at_start(log_dir, "write meta.properties", error)
        self.broker_id, self.cluster_id = broker_id, cluster_id

    def fail_at_start(self, log_dir: LogDir, doing: str, error: OSError) -> None:
        """Skips a directory that could not be prepared. Raises LogDirError if it was the last."""
        self._pass_over(log_dir, f"cannot {doing}: {error.strerror or error}")

    def _pass_over(self, log_dir: LogDir, reason: str) -> None:
        log_dir.health.fail(reason, quiet=True)
        self.require_one()
        _log.error(
            "log_dir_passed_over",
            dir=str(log_dir.path),
            reason=reason,
            action="its partitions are offline here; their other replicas lead",
            do="mend or replace the disk, or change log.dirs, then restart the broker",
        )

    def require_one(self) -> None:
        """Raises LogDirError if every directory has failed."""
        if not any(True for _ in self):
            reasons = "; ".join(f"{log_dir.path}: {log_dir.health.failure}" for log_dir in self.all)
            raise LogDirError(
                f"no log directory can be used: {reasons}. Mend the disk or change log.dirs; the start is tried "
                "again when it is run as a service"
            )

    def unlock(self) -> None:
        self.locked = False
        for log_dir in self.all:
            log_dir.unlock()
