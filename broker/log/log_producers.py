"""The producers of a log and what its directory keeps of them.

What a producer's state is, and which batches it lets in, is :mod:`.producers.producer_state`'s.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from functools import partial

from broker.config.log_config import LONG_MAX
from broker.log.log_context import LogContext
from broker.log.log_offsets import LogOffsets
from broker.log.log_segments import Segments
from broker.log.producers import producer_replay
from broker.log.producers.producer_snapshot import encode_snapshot, snapshot_offsets
from broker.log.producers.producer_state import ProducerStateManager
from broker.log.segments.segment import AppendedBatch
from broker.record.header import BatchHeader
from broker.utils.scheduler import KafkaScheduler

# So many producers are written down by who rolls, in half a millisecond; more by the scheduler, once a second.
_FEW_PRODUCERS = 100
_SNAPSHOT_DELAY_MS = 1_000
_SHORT_LOG_BYTES = 65536


class LogProducers:
    """The state of a log's producers with its snapshots on the disk; Kafka's ProducerStateManager has both.

    Invariant: there is no snapshot of an offset past the log's end, unless a truncation is under way.

    Owned by one :class:`~broker.log.log.Log`; everything happens under its lock, but for the encoding of many.
    """

    __slots__ = ("_context", "_offsets", "_segments", "_snapshot_due", "state")

    def __init__(
        self,
        state: ProducerStateManager,
        context: LogContext,
        offsets: LogOffsets,
        segments: Segments,
    ) -> None:
        #: What is known of each.
        self.state = state
        self._context = context
        self._segments = segments
        self._offsets = offsets
        self._snapshot_due = False  # a roll left it to the scheduler

    def __repr__(self) -> str:
        return f"<LogProducers {len(self.state.producers)} in {self._context.directory}>"

    # -- snapshots

    @property
    def are_few(self) -> bool:
        """Whether to write them down takes no time."""
        return len(self.state.producers) <= _FEW_PRODUCERS

    def take_snapshot(self) -> None:
        """Writes down the producers as of the log's end. Under the log's lock."""
        producer_replay.take_snapshot(self.state, self._context.directory, self._offsets.end)

    def take_last_snapshot(self, snapshots: Collection[int]) -> bool:
        """The producers as of the log's end; ``snapshots`` are those that are there. Whether one was wanted.

        Not of a short log that knows no producer: to make a file takes longer than to read such a log again, and where
        there is no snapshot at all a clean log has no producers.
        """
        wanted = bool(snapshots or self.state.producers or self._segments.size_bytes > _SHORT_LOG_BYTES)
        if wanted:
            self.take_snapshot()
        return wanted

    def take_snapshot_later(self, scheduler: KafkaScheduler) -> None:
        """Has the scheduler write them down, once for however many ask meanwhile."""
        with self._context.lock:
            if self._snapshot_due:
                return
            take = partial(self._take_later, scheduler)
            scheduler.schedule("producer-snapshot", take, _SNAPSHOT_DELAY_MS, bulk=True)
            self._snapshot_due = True

    def _take_later(self, scheduler: KafkaScheduler) -> None:
        """Writes down the producers as of the log's end; appends wait for a copy of them and for the write.

        The snapshot is one of a later offset than the roll's. Until it is there, a start after a crash reads more of
        the log instead.
        """
        with self._context.lock:
            self._snapshot_due = False
            generation, offset = self._segments.generation, self._offsets.end
            entries = [entry.copy() for entry in self.state.producers.values()]
        data = encode_snapshot(entries)
        with self._context.lock:
            if self._context.is_closed:
                return
            if generation == self._segments.generation:
                producer_replay.keep_snapshot(data, self._context.directory, offset)
                return
        # Of a log that was truncated meanwhile it would tell what is there no more.
        if scheduler.is_started:
            self.take_snapshot_later(scheduler)

    def remove_snapshots(self, *, after: int | None = None, before: int | None = None) -> None:
        """Unlinks those of offsets past ``after`` or older than ``before``. Raises OSError."""
        directory = self._context.directory
        producer_replay.remove_snapshots(directory, snapshot_offsets(directory), after=after, before=before)

    # -- the state

    def rebuild(
        self,
        reindex_from: int = LONG_MAX,
        cancel: threading.Event | None = None,
        without_producers: Collection[int] = (),
        snapshots: Sequence[int] | None = None,
    ) -> None:
        """Reads the producers' state again: the latest snapshot, then the batches after it, but for those of the
        segments at ``without_producers`` (base offsets). ``snapshots`` are the offsets of those that are there, where
        that is known.

        Aborts whose markers stand at ``reindex_from`` or later are noted in the transaction index. Raises
        LoadCancelled, OSError.
        """
        state, directory, end = self.state, self._context.directory, self._offsets.end
        latest = min(end, reindex_from)
        there = snapshot_offsets(directory) if snapshots is None else snapshots
        snapshot = producer_replay.load_latest_snapshot(
            state, directory, there, latest, self._context.clock.wall_ms()
        )
        start = self._segments.all[0].base_offset if snapshot is None else snapshot
        segments = self._segments.between(start, end, end)
        producer_replay.replay(
            state, segments, start, reindex_from, cancel=cancel, without_producers=without_producers
        )

    def note(
        self, records: memoryview, headers: Sequence[BatchHeader], batches: Sequence[AppendedBatch]
    ) -> None:
        """Notes what was just appended, ``batches`` with these ``headers``. Raises KafkaError."""
        position = 0
        for header, batch in zip(headers, batches, strict=True):
            if header.producer_id >= 0:
                placed = header._replace(base_offset=batch[0])
                try:
                    producer_replay.note_batch(self.state, records, position, placed, self._segments.active)
                except OSError as error:
                    what = "note an aborted transaction of"
                    raise self._context.storage_error(what, error, torn=True) from error
            position += batch[2]

    def expire(self) -> int:
        """Forgets producers silent for ``producer.id.expiration.ms``; how many."""
        with self._context.lock:
            return self.state.remove_expired(self._context.clock.wall_ms())

    def keep(self, most: int) -> int:
        """Forgets producers until there are ``most``; how many."""
        with self._context.lock:
            return self.state.forget(max(len(self.state.producers) - most, 0))
