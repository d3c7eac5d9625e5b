"""The producers of a log and their snapshots on disk.

:mod:`.producers.producer_state` holds the state of each producer and decides which batches it accepts.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Sequence
from functools import partial
from typing import Final

from broker.config.log_config import LONG_MAX
from broker.log.log_context import LogContext
from broker.log.log_offsets import LogOffsets
from broker.log.log_segments import Segments
from broker.log.producers import producer_replay
from broker.log.producers.markers import read_marker
from broker.log.producers.producer_snapshot import encode_snapshot, snapshot_offsets
from broker.log.producers.producer_state import ProducerEntry, ProducerStateManager
from broker.log.producers.verification import NOT_VERIFIED, VerificationGuard
from broker.log.segments.segment import AppendedBatch, Segment
from broker.record.header import BatchHeader
from broker.utils.scheduler import KafkaScheduler

# Up to this many producers are written by the thread that rolls, in half a millisecond. The scheduler writes
# more than that, at most once a second.
_FEW_PRODUCERS: Final = 100
_SNAPSHOT_DELAY_MS: Final = 1_000
_SHORT_LOG_BYTES: Final = 65536


class LogProducers:
    """The state of a log's producers, with its snapshots on disk; both parts of Kafka's ProducerStateManager.

    Invariant: no snapshot has an offset past the log's end, unless a truncation is under way. ``state`` is that of a
    whole log at any moment: what a truncation leaves is read into a new one, which then takes the old one's place.

    Owned by one :class:`~broker.log.log.Log`. Everything happens under the log's lock, except the encoding of
    a large snapshot, and a look at ``state`` for the last stable offset and for metrics.
    """

    __slots__ = ("_context", "_offsets", "_segments", "_snapshot_due", "state")

    def __init__(
        self,
        state: ProducerStateManager,
        context: LogContext,
        offsets: LogOffsets,
        segments: Segments,
    ) -> None:
        #: The state of each producer. Whoever changes it reads it with the lock held: a truncation replaces it.
        self.state = state
        self._context = context
        self._segments = segments
        self._offsets = offsets
        self._snapshot_due = False  # a roll scheduled a snapshot

    def __repr__(self) -> str:
        return f"<LogProducers {len(self.state.producers)} in {self._context.directory}>"

    # -- snapshots

    @property
    def are_few(self) -> bool:
        """Whether writing a snapshot takes almost no time."""
        return len(self.state.producers) <= _FEW_PRODUCERS

    def take_snapshot(self) -> None:
        """Writes a snapshot of the producers at the log's end. Call it with the log's lock held."""
        producer_replay.take_snapshot(self.state, self._context.directory, self._offsets.end)

    def take_last_snapshot(self, snapshots: Collection[int], *, is_closing: bool = False) -> bool:
        """Writes the last snapshot at the log's end, if one is needed; returns whether it was. ``snapshots``
        holds the offsets of the existing ones.

        A short log without producers needs none: creating a file takes longer than reading such a log again,
        and a clean log without any snapshot has no producers. So the only snapshot of a log that ``is_closing`` must be
        written. Raises OSError if it cannot.
        """
        has_producers = bool(self.state.producers)
        wanted = bool(snapshots or has_producers or self._segments.size_bytes > _SHORT_LOG_BYTES)
        if wanted:
            is_needed = is_closing and has_producers and not snapshots
            directory, end = self._context.directory, self._offsets.end
            producer_replay.take_snapshot(self.state, directory, end, is_needed=is_needed)
        return wanted

    def take_snapshot_later(self, scheduler: KafkaScheduler) -> None:
        """Schedules a snapshot, unless one is already scheduled."""
        with self._context.lock:
            if self._snapshot_due:
                return
            take = partial(self._take_later, scheduler)
            scheduler.schedule("producer-snapshot", take, _SNAPSHOT_DELAY_MS, bulk=True)
            self._snapshot_due = True

    def _take_later(self, scheduler: KafkaScheduler) -> None:
        """Writes a snapshot of the producers at the log's end. Appends wait only while they are copied
        and written.

        The snapshot is at a later offset than the roll. Until it exists, a start after a crash reads more of
        the log.
        """
        with self._context.lock:
            self._snapshot_due = False
            generation, offset = self._segments.generation, self._offsets.end
            entries = self.copies()
        data = encode_snapshot(entries)
        with self._context.lock:
            if self._context.is_closed:
                return
            if generation == self._segments.generation:
                producer_replay.keep_snapshot(data, self._context.directory, offset)
                return
        # After a concurrent truncation, the snapshot would describe batches that no longer exist.
        if scheduler.is_started:
            self.take_snapshot_later(scheduler)

    def remove_snapshots(self, *, after: int | None = None, before: int | None = None) -> None:
        """Unlinks snapshots at offsets past ``after`` or below ``before``. Raises OSError."""
        directory = self._context.directory
        producer_replay.remove_snapshots(directory, snapshot_offsets(directory), after=after, before=before)

    def remove_snapshots_of_joined(self, segments: Sequence[Segment]) -> None:
        """Unlinks the snapshots within all but the first of ``segments``, which are one segment now, as Kafka does:
        a log that is compacted for years has no more of them than segments. The latest stays, for a start reads on
        from it. Raises OSError.
        """
        directory = self._context.directory
        if len(segments) > 1:
            first, end = segments[1].base_offset, segments[-1].limit
            producer_replay.remove_snapshots_between(directory, snapshot_offsets(directory), first, end)

    # -- the state

    def rebuild(
        self,
        reindex_from: int = LONG_MAX,
        cancel: threading.Event | None = None,
        without_producers: Collection[int] = (),
        snapshots: Sequence[int] | None = None,
    ) -> None:
        """Rebuilds the producers' state from the latest snapshot and the batches after it, except those of
        the segments with base offsets in ``without_producers``. Readers have the old state until then: without its
        open transactions they would get the records of these. Verifications that are under way are void.

        ``snapshots`` holds the offsets of the existing snapshots, if known. Aborts with markers at
        ``reindex_from`` or later are added to the transaction index. Raises LoadCancelled, OSError.
        """
        state, directory, end = self.state.without_producers(), self._context.directory, self._offsets.end
        latest = min(end, reindex_from)
        there = snapshot_offsets(directory) if snapshots is None else snapshots
        snapshot = producer_replay.load_latest_snapshot(
            state, directory, there, latest, self._context.clock.wall_ms()
        )
        if snapshot is None:
            start = self._segments.all[0].base_offset
        else:
            start = snapshot
            producer_replay.drop_compacted(state, self._segments.all, snapshot)
        segments = self._segments.between(start, end, end)
        producer_replay.replay(
            state, segments, start, reindex_from, cancel=cancel, without_producers=without_producers
        )
        self.state = state

    def forget_all(self) -> None:
        """Forgets the producers of a log that is empty now. Call it with the log's lock held."""
        self.state = self.state.without_producers()

    def check_markers(self, records: memoryview, headers: Sequence[BatchHeader]) -> None:
        """Checks the markers among batches that are about to be appended.

        Raises KafkaError: TRANSACTION_COORDINATOR_FENCED, CORRUPT_MESSAGE.
        """
        position = 0
        for header in headers:
            if header.is_control:
                marker = read_marker(records, position, header)
                if marker is not None:
                    self.state.check_marker(header, marker)
            position += header.size_bytes

    def note(
        self, records: memoryview, headers: Sequence[BatchHeader], batches: Sequence[AppendedBatch]
    ) -> None:
        """Records the producers of ``batches``, just appended with these ``headers``. Raises KafkaError."""
        position = 0
        for header, batch in zip(headers, batches, strict=True):
            if header.producer_id >= 0:
                placed = header._replace(base_offset=batch[0])
                try:
                    producer_replay.note_batch(self.state, records, position, placed, self._segments.active)
                except OSError as error:
                    what = "note an aborted transaction of"
                    raise self._context.storage_error(what, error, torn=True) from error
                if header.is_control:
                    self.state.transactions.forget_replicated(self._offsets.high_watermark)
            position += batch[2]

    def copies(self) -> list[ProducerEntry]:
        """Copies of all producers' states, which do not change any more."""
        with self._context.lock:
            return [entry.copy() for entry in self.state.producers.values()]

    def last_stable_offset(self) -> int:
        """The last stable offset: transactions below it are decided, so read_committed may read up to it. It takes the
        log's lock only if a transaction may be open.
        """
        offsets = self._offsets
        # The mark first: every transaction below it is in the state that is looked at next.
        mark = offsets.high_watermark
        if not self.state.transactions:
            return mark
        with self._context.lock:
            mark = offsets.high_watermark  # a truncation may have replaced both
            unstable = self.state.transactions.first_unstable_offset(mark)
            # Retention may have removed the begin of a transaction that nobody ended.
            return mark if unstable is None else max(min(unstable, mark), offsets.start)

    def has_late_transaction(self, max_timeout_ms: int) -> bool:
        """As :meth:`ProducerStateManager.has_late_transaction`, now."""
        if not self.state.transactions:
            return False
        with self._context.lock:
            return self.state.has_late_transaction(self._context.clock.wall_ms(), max_timeout_ms)

    def begin_verification(self, producer_id: int, epoch: int, sequence: int) -> VerificationGuard:
        """The guard for the producer's batch that begins at ``sequence``, whose transaction must be verified
        before the append. NOT_VERIFIED if the transaction is open here, so that this is not needed.
        """
        with self._context.lock:
            state = self.state
            if state.has_open_transaction(producer_id):
                return NOT_VERIFIED
            now_ms = self._context.clock.wall_ms()
            return state.verifications.begin(producer_id, epoch, sequence, now_ms)

    def expire_after(self, silent_ms: int) -> None:
        """Sets ``producer.id.expiration.ms``."""
        with self._context.lock:
            self.state.expiration_ms = silent_ms

    def expire(self) -> int:
        """Removes producers that were silent for ``producer.id.expiration.ms``; returns how many."""
        with self._context.lock:
            return self.state.remove_expired(self._context.clock.wall_ms())

    def keep(self, most: int) -> int:
        """Removes what is known of producers until at most ``most`` are left; returns how many."""
        with self._context.lock:
            return self.state.forget(max(self.state.known - most, 0))
