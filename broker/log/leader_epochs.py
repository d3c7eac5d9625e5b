"""The start offset of each leader epoch (KIP-101), by which followers truncate.

The entries are kept in ``leader-epoch-checkpoint``, a checkpoint of ``epoch startOffset`` lines.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Final

import structlog

from broker.log.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from broker.log.results import EpochEndOffset
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.offsets import UNKNOWN_OFFSET

FILE_NAME: Final = "leader-epoch-checkpoint"
_UNSETTLED: Final = -2  # below every batch's epoch
_log = structlog.get_logger(__name__)


class LeaderEpochCache:
    """The leader epochs of a log; Kafka's LeaderEpochFileCache.

    Invariant: epochs and start offsets both rise from entry to entry. The cache owns its lock. Lists are
    replaced, never changed, so readers need no lock. The log calls :meth:`flush`, which makes changes
    durable, before its recovery point moves. After a power loss, recovery reads the lost entries from the
    batches again.

    Changes are written to the file at once, except epochs that begin at the log's end. Each load drops those
    anyway, and a starting broker would write one file for each partition that it leads. Such an epoch is
    written with its first batch (:meth:`settle`). Until then the file may name another epoch at the log's
    end; a load ignores that entry too.

    ``settled_epoch`` is the latest epoch while the file matches this cache; otherwise it is no batch's epoch.
    """

    def __init__(self, directory: Path, *, has_file: bool = True) -> None:
        """``has_file``: False if the directory is known to have no such file."""
        self._directory = directory
        self._lock = threading.Lock()  # lock order 52
        self._dirty = False
        self.must_be_rebuilt = False
        self._in_file: tuple[tuple[int, int], ...] | None = None
        self._entries: tuple[tuple[int, int], ...] = self._load() if has_file else ()
        if not self.must_be_rebuilt:
            self._in_file = self._entries
        self.settled_epoch = self.latest_epoch if self._in_file is not None else _UNSETTLED

    @property
    def _path(self) -> Path:
        return self._directory / FILE_NAME

    def _load(self) -> tuple[tuple[int, int], ...]:
        try:
            entries = tuple((int(epoch), int(start)) for epoch, start in read_checkpoint(self._path))
        except (CheckpointError, ValueError) as error:
            _log.warning("leader_epoch_checkpoint_unreadable", file=str(self._path), error=str(error))
            entries = ()
            self.must_be_rebuilt = True
        if any(a[0] >= b[0] or a[1] > b[1] for a, b in pairwise(entries)):
            _log.warning("leader_epoch_checkpoint_unordered", file=str(self._path))
            self.must_be_rebuilt = True
            return ()
        # Kafka creates an empty file for a new log; the epochs are then read from the batches.
        self.must_be_rebuilt |= not entries and self._path.exists()
        return entries

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """``(epoch, start offset)`` pairs, rising."""
        return self._entries

    @property
    def latest_epoch(self) -> int:
        """The highest known epoch, -1 if there is none."""
        entries = self._entries
        return entries[-1][0] if entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int, *, write: bool = True) -> None:
        """Notes that ``epoch`` begins at ``start_offset``, unless that is known.

        ``write`` may be False at the log's end, and during a recovery, which writes the file later. Entries
        that contradict it (a higher epoch, or one that starts later) are dropped, as in Kafka.
        """
        entries = self._entries
        if epoch < 0 or (entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset):
            return
        with self._lock:
            kept = tuple(entry for entry in self._entries if entry[0] < epoch and entry[1] < start_offset)
            self._set((*kept, (epoch, start_offset)), write=write)

    def settle(self, epoch: int, start_offset: int) -> None:
        """Writes all epochs to the file before a batch of ``epoch``, which is not ``settled_epoch``, is
        appended at ``start_offset``. An outdated entry in the file could otherwise match the new batch, and
        recovery would believe it.
        """
        if epoch > self.latest_epoch:
            self.assign(epoch, start_offset, write=False)
        if self._entries != self._in_file:
            with self._lock:
                self._set(self._entries)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """The largest known epoch that is not above ``epoch``, and its end offset.

        Both are -1 if the log knows no epoch at or above ``epoch``. If ``epoch`` is below all known epochs,
        the result is ``epoch`` itself with the first known start offset (KIP-101, KIP-279).
        """
        entries = self._entries
        if not entries or epoch == NO_EPOCH or epoch > entries[-1][0]:
            return EpochEndOffset(NO_EPOCH, UNKNOWN_OFFSET)
        if epoch == entries[-1][0]:
            return EpochEndOffset(epoch, log_end_offset)
        above = bisect_right(entries, epoch, key=lambda entry: entry[0])
        floor = entries[above - 1][0] if above else epoch
        return EpochEndOffset(floor, entries[above][1])

    def epoch_for_offset(self, offset: int) -> int:
        """The epoch of ``offset``, -1 if it is before all known epochs."""
        entries = self._entries
        above = bisect_right(entries, offset, key=lambda entry: entry[1])
        return entries[above - 1][0] if above else NO_EPOCH

    def truncate_from_end(self, end_offset: int, *, write: bool = True) -> None:
        """Removes epochs from ``end_offset`` on. ``write`` may be False if the log ends there already."""
        entries = self._entries
        if entries and entries[-1][1] >= end_offset:
            with self._lock:
                self._set(_below(self._entries, end_offset), write=write)

    def truncate_from_start(self, start_offset: int) -> None:
        """Makes the epochs begin at ``start_offset``: the covering epoch now begins there, earlier
        ones go.
        """
        entries = self._entries
        if not entries or entries[0][1] >= start_offset:
            return
        with self._lock:
            above = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
            covering = self._entries[above - 1][0]
            self._set(((covering, start_offset), *self._entries[above:]))

    def forget_from(self, offset: int) -> None:
        """As :meth:`truncate_from_end`, for recovery, without writing the file. Recovery reads the later
        epochs from the batches, because the file may be older than a truncation.
        """
        with self._lock:
            self._set(_below(self._entries, offset), write=False)

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Replaces all entries with those read from the batches, if the file has none of use."""
        with self._lock:
            self._set(tuple(entries))

    def clear(self) -> None:
        """Removes all entries."""
        with self._lock:
            self._set(())

    def move(self, rename: Callable[[], object], directory: Path) -> None:
        """Calls ``rename`` to move the directory, and uses ``directory`` from now on. Raises what
        ``rename`` raises.

        Nothing is written meanwhile: a log of the same name may be created at the old path as soon as it
        is free.
        """
        with self._lock:
            rename()
            self._directory = directory

    def flush(self) -> None:
        """Makes the file durable if there were changes since the last flush. Raises OSError."""
        if self._dirty or self._entries != self._in_file:
            with self._lock:
                self._write(sync=True)
                self._dirty = False

    def finish(self, end_offset: int) -> None:
        """Writes the file without a sync, unless it is right for a log that ends at ``end_offset``.

        Raises OSError.
        """
        with self._lock:
            if self._in_file is None or _below(self._in_file, end_offset) != _below(
                self._entries, end_offset
            ):
                self._write(sync=False)

    def _set(self, entries: tuple[tuple[int, int], ...], *, write: bool = True) -> None:
        self._entries = entries
        self.settled_epoch = self.latest_epoch if entries == self._in_file else _UNSETTLED
        if write:
            try:
                self._write(sync=False)
            except OSError as error:
                # The entries are still in memory and can be read from the batches. The next flush retries,
                # and raises.
                _log.warning("leader_epochs_write_failed", file=str(self._path), error=str(error))
                self.settled_epoch = self.latest_epoch  # do not retry at each batch

    def _write(self, *, sync: bool) -> None:
        entries = self._entries
        write_checkpoint(self._path, (f"{epoch} {start}" for epoch, start in entries), sync=sync)
        self._dirty, self._in_file, self.settled_epoch = True, entries, self.latest_epoch


def _below(entries: Iterable[tuple[int, int]], offset: int) -> tuple[tuple[int, int], ...]:
    return tuple(entry for entry in entries if entry[1] < offset)
