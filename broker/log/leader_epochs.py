"""Which leader epoch began at which offset (KIP-101): the truth by which followers truncate.

Kept in ``leader-epoch-checkpoint``, a checkpoint of ``epoch startOffset`` lines.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path

import structlog

from broker.log.checkpoints import CheckpointError, read_checkpoint, write_checkpoint
from broker.log.results import EpochEndOffset
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.offsets import UNKNOWN_OFFSET

FILE_NAME = "leader-epoch-checkpoint"
_UNSETTLED = -2  # no epoch of any batch
_log = structlog.get_logger(__name__)


class LeaderEpochCache:
    """Kafka's LeaderEpochFileCache.

    Invariant: epochs and start offsets both rise from entry to entry. Owner of its lock; the lists are
    replaced, never changed, so readers need none. Changes reach the disk with :meth:`flush`, which the log calls
    before its recovery point moves: what a power loss can take is read from the batches again.

    Changes reach the file at once, but for epochs that begin at the log's end: each load forgets those anyway, and a
    broker that starts would write one file for each partition that it leads. The file then has them with the first
    batch (:meth:`settle`). Until then it may name another epoch there, which nobody believes: it begins at the end.

    ``settled_epoch`` is the latest epoch while the file says what this cache does, else none that a batch has.
    """

    def __init__(self, directory: Path, *, has_file: bool = True) -> None:
        """``has_file``: False where the directory is known to hold none."""
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
        # Empty, as Kafka makes it for a new log: what the log has got meanwhile stands in its batches.
        self.must_be_rebuilt |= not entries and self._path.exists()
        return entries

    @property
    def entries(self) -> tuple[tuple[int, int], ...]:
        """``(epoch, start offset)``, rising."""
        return self._entries

    @property
    def latest_epoch(self) -> int:
        """The highest epoch known, -1 when none is."""
        entries = self._entries
        return entries[-1][0] if entries else NO_EPOCH

    def assign(self, epoch: int, start_offset: int, *, write: bool = True) -> None:
        """Notes that ``epoch`` begins at ``start_offset``, unless it is known. ``write`` unless that is the log's end.

        Entries that contradict it (a higher epoch, or one that starts later) are dropped, as in Kafka.
        """
        entries = self._entries
        if epoch < 0 or (entries and entries[-1][0] == epoch and entries[-1][1] <= start_offset):
            return
        with self._lock:
            kept = tuple(entry for entry in self._entries if entry[0] < epoch and entry[1] < start_offset)
            self._set((*kept, (epoch, start_offset)), write=write)

    def settle(self, epoch: int, start_offset: int) -> None:
        """Before a batch of ``epoch``, not ``settled_epoch``, is appended at ``start_offset``: the file gets to know
        all epochs. An older entry in it could belong to no batch from now on, and recovery would believe it.
        """
        if epoch > self.latest_epoch:
            self.assign(epoch, start_offset, write=False)
        if self._entries != self._in_file:
            with self._lock:
                self._set(self._entries)

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Where ``epoch`` ends: the largest known epoch that is not above it, and that one's end offset.

        Both -1 when the log knows no epoch above or at it; the asked epoch with the first known start when it
        is below all (KIP-101, KIP-279).
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
        """The epoch that ``offset`` belongs to, -1 when it is before all."""
        entries = self._entries
        above = bisect_right(entries, offset, key=lambda entry: entry[1])
        return entries[above - 1][0] if above else NO_EPOCH

    def truncate_from_end(self, end_offset: int, *, write: bool = True) -> None:
        """Forgets epochs that begin at ``end_offset`` or later; ``write`` unless that is where the log ends anyway."""
        entries = self._entries
        if entries and entries[-1][1] >= end_offset:
            with self._lock:
                self._set(_below(self._entries, end_offset), write=write)

    def truncate_from_start(self, start_offset: int) -> None:
        """Lets the log begin at ``start_offset``: what ended before is forgotten, what covers it begins
        there.
        """
        entries = self._entries
        if not entries or entries[0][1] >= start_offset:
            return
        with self._lock:
            above = bisect_right(self._entries, start_offset, key=lambda entry: entry[1])
            covering = self._entries[above - 1][0]
            self._set(((covering, start_offset), *self._entries[above:]))

    def forget_from(self, offset: int) -> None:
        """As :meth:`truncate_from_end`, for recovery, which reads from the batches what begins there: the file may be
        older than a truncation. Is not written.
        """
        with self._lock:
            self._set(_below(self._entries, offset), write=False)

    def replace(self, entries: Iterable[tuple[int, int]]) -> None:
        """Takes what the batches say where the file says nothing of use."""
        with self._lock:
            self._set(tuple(entries))

    def clear(self) -> None:
        """Forgets everything."""
        with self._lock:
            self._set(())

    def move(self, rename: Callable[[], object], directory: Path) -> None:
        """Has ``rename`` take the directory to ``directory`` and writes there from now on. Raises what ``rename`` does.

        Nothing is written meanwhile: a log of the same name may be made in the old place as soon as it is free.
        """
        with self._lock:
            rename()
            self._directory = directory

    def flush(self) -> None:
        """Makes the file durable if anything changed since. Raises OSError."""
        if self._dirty or self._entries != self._in_file:
            with self._lock:
                self._write(sync=True)
                self._dirty = False

    def finish(self, end_offset: int) -> None:
        """Writes the file, without a sync, unless it is right for a log that ends at ``end_offset``. Raises OSError."""
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
                # What is known stands in memory and in the batches; flush tries again and does fail.
                _log.warning("leader_epochs_write_failed", file=str(self._path), error=str(error))
                self.settled_epoch = self.latest_epoch  # not again with each batch

    def _write(self, *, sync: bool) -> None:
        entries = self._entries
        write_checkpoint(self._path, (f"{epoch} {start}" for epoch, start in entries), sync=sync)
        self._dirty, self._in_file, self.settled_epoch = True, entries, self.latest_epoch


def _below(entries: Iterable[tuple[int, int]], offset: int) -> tuple[tuple[int, int], ...]:
    return tuple(entry for entry in entries if entry[1] < offset)
