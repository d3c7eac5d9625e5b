"""The transactional ids of one partition of __transaction_state that this broker leads, with their lock.

It carries out what :mod:`.decisions` decides: writes the change to the log and completes it when the log has
acknowledged it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

import structlog

from broker.coordinator.group.offsets_log import OffsetsLog
from broker.coordinator.transaction.append_errors import store_error
from broker.coordinator.transaction.decisions import NeedsProducerId, has_expired
from broker.coordinator.transaction.memory import MAX_NAME, TransactionMemory
from broker.coordinator.transaction.metadata import TransactionMetadata, Transit
from broker.coordinator.transaction.partitions import NO_PARTITIONS, Partitions, common, without
from broker.coordinator.transaction.records import encode_key, encode_value
from broker.coordinator.transaction.states import COMPLETED, TransactionState
from broker.coordinator.transaction.table import PARTS, TransactionTable
from broker.protocol.errors import Errors
from broker.protocol.produce_messages import ACKS_ALL
from broker.utils.clock import Clock

_log = structlog.get_logger(__name__)
T = TypeVar("T")
# A batch of tombstones: some 400, which are made under the lock in a millisecond or two.
_TOMBSTONE_BYTES: Final = 16 << 10
_TOMBSTONE_OVERHEAD: Final = 32
_END_TIMEOUT_MS: Final = 30_000

Decision = Errors | Transit | NeedsProducerId
Decide = Callable[[TransactionMetadata | None, int], Decision]
Then = Callable[[Errors | NeedsProducerId, Transit | None], None]


@dataclass(frozen=True, slots=True)
class PartitionParts:
    """What all partitions share. ``putting_off`` is the replica manager's: within it, requests that an append could
    complete wait until the lock is released. ``send_markers`` takes each transaction whose end is decided.
    """

    log: OffsetsLog
    clock: Clock
    memory: TransactionMemory
    putting_off: Callable[[], AbstractContextManager[None]]
    send_markers: Callable[[PendingCompletion], None]


class _Handover:
    """The answer of an append that is made under a lock: it is delivered when the lock is released."""

    __slots__ = ("_answers", "_deliver", "_held")

    def __init__(self, deliver: Callable[[Errors], None]) -> None:
        self._deliver = deliver
        self._answers: deque[Errors] = deque()
        self._held = True

    def __call__(self, error: Errors, _offset: int) -> None:
        self._answers.append(error)
        if not self._held:
            self._pass_on()

    def release(self) -> None:
        self._held = False
        self._pass_on()

    def _pass_on(self) -> None:
        try:
            error = self._answers.popleft()
        except IndexError:  # not answered yet, or another thread passes it on
            return
        self._deliver(error)


class TransactionPartition:
    """The transactions of one led partition of __transaction_state; Kafka's TxnMetadataCacheEntry.

    Invariants: its transactions are touched only under its lock. A change is appended under the lock, too, and only
    while this broker has led the partition without a break since ``coordinator_epoch``. So no decision made in one
    leadership is written in a later one. Callbacks run without the lock.
    """

    def __init__(
        self,
        partition: int,
        coordinator_epoch: int,
        parts: PartitionParts,
        transactions: Iterable[TransactionMetadata] = (),
    ) -> None:
        self.partition = partition
        self.coordinator_epoch = coordinator_epoch
        self._parts = parts
        self._transactions = TransactionTable()
        self._lock = threading.Lock()  # lock order 31
        self.is_led = True
        weight = 0
        for txn in transactions:
            self._transactions.put(txn)
            weight += txn.weight
        parts.memory.change(weight)

    @property
    def size(self) -> int:
        """How many transactional ids it has."""
        return len(self._transactions)

    def transactions(self) -> Iterator[TransactionMetadata]:
        """All of them, each as it is when its part is reached, to be read without the lock: whoever acts on what it
        saw checks again under the lock.
        """
        for number in range(PARTS):
            with self._lock:
                part = self._transactions.part(number)
            yield from part

    def resign(self) -> None:
        """Another broker leads the partition, or nobody: from now on nothing is decided or written here."""
        with self._lock:
            self.is_led = False
            gone, self._transactions = self._transactions, TransactionTable()
        self._parts.memory.change(-gone.clear())

    def add(self, txn: TransactionMetadata) -> TransactionMetadata:
        """Adds a new transactional id. Only for a decision, which is made under the lock."""
        self._transactions.put(txn)
        self._parts.memory.change(txn.weight)
        return txn

    # -- changes

    def change(self, transactional_id: str, decide: Decide, then: Then) -> None:
        """Decides, and writes what was decided. ``then`` is called once, on any thread, with the error, or with
        NONE and the change.
        """
        with self._parts.putting_off():
            with self._lock:
                decision: Decision = Errors.NOT_COORDINATOR
                if self.is_led:
                    decision = decide(self._transactions.get(transactional_id), self._parts.clock.wall_ms())
                if isinstance(decision, Transit):
                    handover = self._append(transactional_id, decision, then)
            if isinstance(decision, Transit):
                handover.release()
                return
        then(decision, None)

    def ask(self, transactional_id: str, question: Callable[[TransactionMetadata | None], T]) -> T | Errors:
        """Answers a question that changes nothing."""
        with self._lock:
            if not self.is_led:
                return Errors.NOT_COORDINATOR
            return question(self._transactions.get(transactional_id))

    def _append(self, transactional_id: str, target: Transit, then: Then) -> _Handover:
        """Appends the change, under the lock."""

        def appended(error: Errors) -> None:
            self._appended(transactional_id, target, store_error(error), then)

        handover = _Handover(appended)
        record = (encode_key(transactional_id), encode_value(target.record()))
        # Nobody waits for an end, and each try that times out has written a record.
        least_ms = _END_TIMEOUT_MS if target.state in COMPLETED.values() else 0
        self._write([record], handover, max(target.timeout_ms, least_ms))
        return handover

    def _write(
        self, records: list[tuple[bytes, bytes | None]], handover: _Handover, timeout_ms: int | None = None
    ) -> None:
        try:
            self._parts.log.append(self.partition, records, ACKS_ALL, handover, timeout_ms=timeout_ms)
        except Exception:
            _log.exception("transaction_append_failed", partition=self.partition)
            handover(Errors.UNKNOWN_SERVER_ERROR, -1)

    def _appended(self, transactional_id: str, target: Transit, error: Errors, then: Then) -> None:
        completion = None
        with self._lock:
            txn = self._transactions.get(transactional_id)
            if txn is None:  # the partition was given up meanwhile
                error = Errors.NOT_COORDINATOR if error is Errors.NONE else error
            elif error is not Errors.NONE:
                self._refused(txn, target)
            elif target.state not in COMPLETED.values() or txn.completing is target:  # not over already
                txn.complete(target)
                difference = txn.reweigh()
                if difference:
                    self._parts.memory.change(difference)
                if txn.state in COMPLETED:
                    completion = self._completion(txn)
        try:
            then(error, target if error is Errors.NONE else None)
        finally:  # the transaction ends whether or not its producer can be answered
            if completion is not None:
                self._parts.send_markers(completion)

    def _refused(self, txn: TransactionMetadata, target: Transit) -> None:
        """The log refused the change, under the lock. The end of a transaction is tried again, so it stays pending."""
        if target.state in COMPLETED.values():
            return
        txn.cancel()
        if txn.was_never_stored:
            self._transactions.remove(txn.transactional_id)
            self._parts.memory.change(-txn.weight)

    # -- the end of a transaction

    def pending_completions(self) -> list[PendingCompletion]:
        """The transactions whose end was decided by an earlier coordinator: right after the load."""
        ended = [txn for txn in self.transactions() if txn.state in COMPLETED]
        with self._lock:
            return [self._completion(txn) for txn in ended]

    def _completion(self, txn: TransactionMetadata) -> PendingCompletion:
        committed = txn.state is TransactionState.PrepareCommit
        partitions = txn.partitions
        target = txn.prepare_complete(self._parts.clock.wall_ms())
        return PendingCompletion(self, txn.transactional_id, target, committed, partitions)

    def unmarked(self, completion: PendingCompletion, partitions: Partitions) -> Partitions:
        """Those of the partitions that still need the marker of this transaction: none if it is over, or if this
        broker no longer leads its partition. A late marker would end the producer's next transaction.
        """
        with self._lock:
            txn = self._transactions.get(completion.transactional_id)
            if txn is None or txn.completing is not completion.target:
                return NO_PARTITIONS
            return common(txn.partitions, partitions)

    def marked(self, completion: PendingCompletion, partitions: Partitions) -> bool:
        """These partitions have their marker, or need none. Whether all of the transaction's have it now."""
        with self._lock:
            txn = self._transactions.get(completion.transactional_id)
            if txn is None or txn.completing is not completion.target:
                return False
            txn.partitions = without(txn.partitions, partitions)
            return not txn.partitions

    def complete(self, completion: PendingCompletion, then: Callable[[Errors], None]) -> None:
        """Writes the end of a transaction whose partitions all have their marker. Does nothing if it is over."""

        def ended(error: Errors | NeedsProducerId, _target: Transit | None) -> None:
            then(error if isinstance(error, Errors) else Errors.UNKNOWN_SERVER_ERROR)

        def decide(txn: TransactionMetadata | None, _now_ms: int) -> Decision:
            is_pending = txn is not None and txn.completing is completion.target
            return completion.target if is_pending else Errors.NONE

        self.change(completion.transactional_id, decide, ended)

    # -- expiry

    def expire(self, expiration_ms: int) -> None:
        """Removes the transactional ids that were not used for so long."""
        now_ms = self._parts.clock.wall_ms()
        for chunk in _chunks(txn for txn in self.transactions() if has_expired(txn, expiration_ms, now_ms)):
            self._bury(chunk, lambda txn: has_expired(txn, expiration_ms, now_ms))

    def _bury(self, chunk: list[TransactionMetadata], is_due: Callable[[TransactionMetadata], bool]) -> None:
        """Writes their tombstones."""
        dying: list[TransactionMetadata] = []
        handover = _Handover(lambda error: self._buried(dying, error))
        with self._parts.putting_off():
            with self._lock:
                if self.is_led:
                    dying += [txn for txn in chunk if is_due(txn)]
                for txn in dying:
                    txn.prepare(TransactionState.Dead)
                if dying:
                    self._write([(encode_key(txn.transactional_id), None) for txn in dying], handover)
            handover.release()

    def _buried(self, dying: list[TransactionMetadata], error: Errors) -> None:
        freed = 0
        with self._lock:
            if not self.is_led:
                return
            for txn in dying:
                if error is Errors.NONE:
                    self._transactions.remove(txn.transactional_id)
                    freed += txn.weight
                else:
                    txn.cancel()
        self._parts.memory.change(-freed)
        if error is Errors.NONE:
            _log.info("transactional_ids_expired", partition=self.partition, count=len(dying))
        else:
            _log.warning(
                "transactional_ids_not_expired",
                partition=self.partition,
                count=len(dying),
                first=dying[0].transactional_id[:MAX_NAME],
                error=error.name,
                action="tried again after transaction.remove.expired.transaction.cleanup.interval.ms",
            )


def _chunks(transactions: Iterable[TransactionMetadata]) -> Iterator[list[TransactionMetadata]]:
    """Parts whose tombstones fit a batch."""
    chunk: list[TransactionMetadata] = []
    size = 0
    for txn in transactions:
        more = len(txn.transactional_id.encode()) + _TOMBSTONE_OVERHEAD
        if chunk and size + more > _TOMBSTONE_BYTES:
            yield chunk
            chunk, size = [], 0
        chunk.append(txn)
        size += more
    if chunk:
        yield chunk


class PendingCompletion(NamedTuple):
    """A transaction whose end is decided and stored, and whose markers are to be written; Kafka's
    PendingCompleteTxn. ``target`` is the change that follows when all of ``partitions`` have their marker.
    """

    led: TransactionPartition
    transactional_id: str
    target: Transit
    committed: bool
    partitions: Partitions

    @property
    def coordinator_epoch(self) -> int:
        return self.led.coordinator_epoch
