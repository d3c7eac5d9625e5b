"""What the log knows of each producer: its epoch, last five batches and open transaction.

The leader uses it to recognize retried batches and to refuse batches that are out of order (KIP-98). This
module works in memory only; :mod:`.producer_snapshot` stores the state on disk when the log requests it.
Sequences wrap from 2^31 - 1 to 0.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from broker.log.producers.markers import TransactionMarker
from broker.log.producers.open_transactions import OpenTransactions
from broker.log.producers.verification import VerificationGuard, Verifications
from broker.log.results import AbortedTransaction
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.offsets import UNKNOWN_OFFSET
from broker.record.header import (
    CONTROL_FLAG,
    NO_PRODUCER_EPOCH,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    increment_sequence,
)
from broker.record.validator import AppendOrigin

BATCHES_KEPT: Final = 5
MAX_PRODUCERS: Final = 10_000
# How much later than transaction.max.timeout.ms a transaction must be to count as late: Kafka's constant.
_LATE_MS: Final = 5 * 60_000
# No Produce waits so long for its coordinator. Kafka keeps what it verifies for producer.id.expiration.ms, a day.
_VERIFICATION_MS: Final = 10 * 60_000


class BatchMetadata(NamedTuple):
    """An appended batch: its last sequence and offset, its offset delta and its highest timestamp (ms)."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return increment_sequence(self.last_sequence, -self.offset_delta)


class ProducerEntry:
    """The state of one producer id; Kafka's ProducerStateEntry."""

    __slots__ = (
        "batches",
        "coordinator_epoch",
        "current_txn_first_offset",
        "epoch",
        "last_timestamp",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        # The last few, oldest first. With many producers, a deque would take more memory than
        # everything else.
        self.batches: tuple[BatchMetadata, ...] = ()
        self.last_timestamp = NO_TIMESTAMP
        self.coordinator_epoch = NO_EPOCH
        self.current_txn_first_offset: int | None = None

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def copy(self) -> ProducerEntry:
        """A copy that does not change while it is written."""
        other = ProducerEntry(self.producer_id, self.epoch)
        other.batches = self.batches
        other.last_timestamp = self.last_timestamp
        other.coordinator_epoch = self.coordinator_epoch
        other.current_txn_first_offset = self.current_txn_first_offset
        return other

    def set_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.batches = ()
            self.epoch = epoch

    def add(self, batch: BatchMetadata) -> None:
        self.batches = (*self.batches[1 - BATCHES_KEPT :], batch)

    def find_duplicate(self, header: BatchHeader) -> BatchMetadata | None:
        """The remembered batch that ``header`` repeats, or None."""
        if header.producer_epoch != self.epoch:
            return None
        last_sequence = header.last_sequence
        for batch in self.batches:
            if batch.last_sequence == last_sequence and batch.first_sequence == header.base_sequence:
                return batch
        return None


class ProducerStateManager:
    """The producers of a log; Kafka's ProducerStateManager. Owned by the log and guarded by its lock.

    Ids need no InitProducerId: any client that may produce can invent them, at half a kilobyte of memory
    each. Above ``max_producers``, producers that wrote once, long ago, are removed first, then those that
    wrote the longest ago. Their next batch is accepted like a new producer's (KIP-360).

    Invariant: an open transaction is in it until its marker is, or is known to be gone. It is never emptied, because
    its transactions are also looked at without the lock: a log that loses batches gets another one.
    """

    def __init__(self, expiration_ms: int, max_producers: int = MAX_PRODUCERS) -> None:
        self.expiration_ms = expiration_ms
        self.max_producers = max_producers
        self._look_from = max_producers  # the number of producers at which the next search begins
        self.producers: dict[int, ProducerEntry] = {}
        self.transactions = OpenTransactions()
        self.verifications = Verifications(max_producers)

    def without_producers(self) -> ProducerStateManager:
        """A new one with the same limits."""
        return ProducerStateManager(self.expiration_ms, self.max_producers)

    # -- a leader's checks

    def check(
        self, headers: Sequence[BatchHeader], origin: AppendOrigin, guard: VerificationGuard | None = None
    ) -> BatchMetadata | None:
        """Checks the epochs, sequences and transactions of batches that are about to be appended
        in this order. ``guard`` is that of their verification; None if transactions are not verified.

        Returns the earlier batch if all of them repeat remembered ones (from the first's start to the last's
        end), None if all are new. Raises KafkaError: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER,
        INVALID_TXN_STATE, NOT_ENOUGH_REPLICAS if too many transactions are open, and
        DUPLICATE_SEQUENCE_NUMBER if only some repeat.
        """
        duplicates = [found for header in headers if (found := self._duplicate(header, origin)) is not None]
        if len(duplicates) == len(headers):
            first, last = duplicates[0], duplicates[-1]
            return last._replace(offset_delta=last.last_offset - first.first_offset)
        if duplicates:
            raise KafkaError(
                Errors.DUPLICATE_SEQUENCE_NUMBER,
                f"{len(duplicates)} of {len(headers)} batches were appended before",
            )
        after: dict[int, tuple[int, int]] = {}
        for header in headers:
            if header.producer_id >= 0:
                entry = self.producers.get(header.producer_id)
                is_open = entry is not None and entry.current_txn_first_offset is not None
                if header.attributes & TRANSACTIONAL_FLAG and not is_open:
                    self._check_beginning(header, guard)
                self._check_one(header, entry, origin, after)
                if is_open and not header.attributes & TRANSACTIONAL_FLAG:
                    raise KafkaError(
                        Errors.INVALID_TXN_STATE,
                        f"producer {header.producer_id} has an open transaction: "
                        "its records must be transactional until that ends",
                    )
        return None

    def check_marker(self, header: BatchHeader, marker: TransactionMarker) -> None:
        """Checks a marker of a coordinator, whose epoch :meth:`check` accepted.

        Raises KafkaError(TRANSACTION_COORDINATOR_FENCED) if a later coordinator has written one.
        """
        entry = self.producers.get(header.producer_id)
        if entry is not None and entry.coordinator_epoch > marker.coordinator_epoch:
            raise KafkaError(
                Errors.TRANSACTION_COORDINATOR_FENCED,
                f"invalid coordinator epoch for producer {header.producer_id}: {marker.coordinator_epoch} "
                f"(zombie), {entry.coordinator_epoch} (current)",
            )

    def _check_beginning(self, header: BatchHeader, guard: VerificationGuard | None) -> None:
        """Checks the first batch of a transaction; a marker without records begins none."""
        if header.attributes & CONTROL_FLAG:
            return
        if guard is not None and not self.verifications.holds(header.producer_id, guard):
            raise KafkaError(Errors.INVALID_TXN_STATE, "record was not part of an ongoing transaction")
        if len(self.transactions) >= self.max_producers:
            # Producers retry it. They must not be forgotten, so nothing else limits their number.
            raise KafkaError(
                Errors.NOT_ENOUGH_REPLICAS,
                f"{len(self.transactions)} transactions are open in this partition, the most that "
                f"landline.producer.id.max.count={self.max_producers} allows",
            )

    def _duplicate(self, header: BatchHeader, origin: AppendOrigin) -> BatchMetadata | None:
        if header.producer_id < 0 or origin is not AppendOrigin.CLIENT:
            return None
        entry = self.producers.get(header.producer_id)
        return entry.find_duplicate(header) if entry is not None else None

    def _check_one(
        self,
        header: BatchHeader,
        entry: ProducerEntry | None,
        origin: AppendOrigin,
        after: dict[int, tuple[int, int]],
    ) -> None:
        producer_id, epoch = header.producer_id, header.producer_epoch
        known_epoch, last_sequence = (
            (entry.epoch, entry.last_sequence) if entry is not None else (NO_PRODUCER_EPOCH, NO_SEQUENCE)
        )
        known_epoch, last_sequence = after.get(producer_id, (known_epoch, last_sequence))
        if epoch < known_epoch:
            raise KafkaError(
                Errors.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer_id} is smaller than the last seen epoch {known_epoch}",
            )
        if origin is AppendOrigin.CLIENT and not header.is_control:
            is_transactional = header.attributes & TRANSACTIONAL_FLAG
            lowest = self.verifications.lowest_sequence(producer_id) if is_transactional else None
            if lowest is not None and header.base_sequence > lowest:
                raise KafkaError(
                    Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"out of order sequence number for producer {producer_id}: {header.base_sequence} "
                    f"(incoming seq. number), {lowest} (earliest seen sequence), epoch {epoch}",
                )
            expected = self._expected_sequence(epoch, known_epoch, last_sequence)
            if expected is not None and header.base_sequence != expected:
                raise KafkaError(
                    Errors.OUT_OF_ORDER_SEQUENCE_NUMBER,
                    f"out of order sequence number for producer {producer_id}: {header.base_sequence} "
                    f"(incoming seq. number), {last_sequence} (current end sequence number), epoch {epoch}",
                )
        after[producer_id] = (epoch, header.last_sequence)

    @staticmethod
    def _expected_sequence(epoch: int, known_epoch: int, last_sequence: int) -> int | None:
        """The sequence that must come next. None if the producer is unknown, so any is accepted."""
        if known_epoch == NO_PRODUCER_EPOCH:
            return None
        if epoch != known_epoch:
            return 0
        return increment_sequence(last_sequence, 1)

    # -- recording appended batches

    def update(self, header: BatchHeader, base_offset: int) -> None:
        """Records a producer's data batch that is now at ``base_offset``."""
        entry = self._entry(header)
        last_offset = base_offset + header.last_offset_delta
        entry.add(
            BatchMetadata(header.last_sequence, last_offset, header.last_offset_delta, header.max_timestamp)
        )
        entry.last_timestamp = header.max_timestamp
        if header.attributes & TRANSACTIONAL_FLAG:
            self.verifications.end(header.producer_id)
            if entry.current_txn_first_offset is None:
                entry.current_txn_first_offset = base_offset
                self.transactions.begin(base_offset, header.producer_id)

    def update_marker(self, header: BatchHeader, marker: TransactionMarker) -> AbortedTransaction | None:
        """Records a control batch; returns the transaction if it was aborted, for the transaction index."""
        entry = self._entry(header)
        if marker.coordinator_epoch != NO_EPOCH:
            entry.coordinator_epoch = marker.coordinator_epoch
        entry.last_timestamp = header.max_timestamp
        self.verifications.end(header.producer_id)
        first_offset, entry.current_txn_first_offset = entry.current_txn_first_offset, None
        if first_offset is None:
            return None
        ended = self.transactions.end(header.producer_id, first_offset, header.last_offset)
        return None if marker.committed else ended

    def update_emptied(self, header: BatchHeader) -> None:
        """Records a control batch whose marker compaction has taken, when nothing else of the transaction was left. It
        is kept for its epoch, which fences (Kafka passes over it).
        """
        entry = self._entry(header)
        entry.last_timestamp = header.max_timestamp
        first_offset = entry.current_txn_first_offset
        if first_offset is not None:
            self.drop_transaction(first_offset)

    def _entry(self, header: BatchHeader) -> ProducerEntry:
        entry = self.producers.get(header.producer_id)
        if entry is None:
            if len(self.producers) >= self._look_from:
                self._forget_oldest()
            entry = self.producers[header.producer_id] = ProducerEntry(
                header.producer_id, header.producer_epoch
            )
        else:
            entry.set_epoch(header.producer_epoch)
        return entry

    # -- transactions

    def has_open_transaction(self, producer_id: int) -> bool:
        """Whether the producer has a transaction in this log that no marker has ended."""
        entry = self.producers.get(producer_id)
        return entry is not None and entry.current_txn_first_offset is not None

    def drop_transaction(self, first_offset: int) -> None:
        """Forgets the open transaction that began there, which left no trace in the log."""
        entry = self.producers.get(self.transactions.open_ones[first_offset])
        if entry is not None:
            entry.current_txn_first_offset = None
        self.transactions.drop(first_offset)

    def has_late_transaction(self, now_ms: int, max_timeout_ms: int) -> bool:
        """Whether the oldest open transaction should have timed out long ago: its producer wrote nothing for
        ``transaction.max.timeout.ms`` and five minutes (KIP-664).
        """
        producer_id = self.transactions.oldest_producer
        entry = None if producer_id is None else self.producers.get(producer_id)
        return (
            entry is not None
            and entry.last_timestamp > 0
            and now_ms - entry.last_timestamp > max_timeout_ms + _LATE_MS
        )

    # -- removing producers

    def remove_expired(self, now_ms: int) -> int:
        """Removes producers silent for ``expiration_ms`` that have no open transaction; returns how many."""
        self.verifications.expire(now_ms - min(self.expiration_ms, _VERIFICATION_MS))
        expired = [
            entry.producer_id
            for entry in self.producers.values()
            if entry.current_txn_first_offset is None and now_ms - entry.last_timestamp >= self.expiration_ms
        ]
        for producer_id in expired:
            del self.producers[producer_id]
        return len(expired)

    def _forget_oldest(self) -> None:
        """Removes a tenth of the producers at once, so that invented ids do not cost a search per request.

        It goes by offsets, because producers choose their timestamps. A producer with an open transaction
        stays: the end of the transaction needs it.
        """
        share = max(self.max_producers // 10, 1)
        self._forget_producers(share)
        self._look_from = max(self.max_producers, len(self.producers) + share)

    @property
    def known(self) -> int:
        """The number of producers, and of those that wrote nothing yet because they are being verified."""
        return len(self.producers) + len(self.verifications)

    def forget(self, count: int) -> int:
        """Removes ``count`` ids, or as many as have no open transaction; returns how many. Those that are being
        verified go first, the oldest before the others.
        """
        verified = self.verifications.forget(count)
        return verified + self._forget_producers(count - verified)

    def _forget_producers(self, count: int) -> int:
        """In the half that wrote the longest ago, ids with only one batch go first, because invented ids look
        like that. Recent producers are not in that half, so many old ids do not push out a new producer.
        """
        idle = [entry for entry in self.producers.values() if entry.current_txn_first_offset is None]
        idle.sort(key=_last_offset)
        half = len(idle) // 2
        idle[:half] = sorted(idle[:half], key=_has_history)  # a stable sort keeps equals in order of age
        for entry in idle[:count]:
            del self.producers[entry.producer_id]
        return min(count, len(idle))

    def load(self, entries: Iterator[ProducerEntry], now_ms: int) -> None:
        """Takes a snapshot's entries, without the expired ones; there are no producers yet."""
        for entry in entries:
            if len(self.producers) >= self._look_from:
                self._forget_oldest()
            self.producers[entry.producer_id] = entry
        self.transactions.load(
            (entry.current_txn_first_offset, entry.producer_id)
            for entry in self.producers.values()
            if entry.current_txn_first_offset is not None
        )
        self.remove_expired(now_ms)


def _has_history(entry: ProducerEntry) -> bool:
    return len(entry.batches) > 1


def _last_offset(entry: ProducerEntry) -> int:
    return entry.batches[-1].last_offset if entry.batches else UNKNOWN_OFFSET


def level_for(counts: Sequence[int], most: int) -> int:
    """How many ids each partition may keep so that all have ``most`` together; those with fewer keep all."""
    rising = sorted(counts)
    for place, count in enumerate(rising):
        sharers = len(rising) - place
        if count * sharers > most:
            return most // sharers
        most -= count
    return most
