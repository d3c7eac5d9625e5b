"""One transactional id: its producer, its epochs and its transaction. Pure.

A change is prepared, written to the log, and completed when the log has acknowledged it. Meanwhile the transaction
has a pending state, and other changes are refused.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from broker.coordinator.transaction.partitions import NO_PARTITIONS, Partitions, includes
from broker.coordinator.transaction.records import TransactionRecord
from broker.coordinator.transaction.states import (
    COMPLETED,
    IllegalTransition,
    TransactionState,
    check_transition,
)
from broker.coordinator.transaction.weights import transaction_weight
from broker.record.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP

_MAX_EPOCH: Final = 0x7FFF


def is_epoch_exhausted(epoch: int) -> bool:
    """Whether a producer may not get a higher epoch. The highest one is kept for fencing this one."""
    return epoch >= _MAX_EPOCH - 1


class Transit(NamedTuple):
    """The target of a prepared change; Kafka's TxnTransitMetadata. ``last_producer_id`` and
    ``last_producer_epoch`` are not stored: a coordinator that loads the log does not know them.
    """

    producer_id: int
    last_producer_id: int
    producer_epoch: int
    last_producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    start_ms: int
    last_update_ms: int

    def record(self) -> TransactionRecord:
        return TransactionRecord(
            self.producer_id,
            self.producer_epoch,
            self.timeout_ms,
            self.state,
            self.partitions,
            self.last_update_ms,
            self.start_ms,
        )


class TransactionMetadata:
    """The state of a transactional id; Kafka's TransactionMetadata.

    Invariants: the state changes only along :data:`~.states.VALID_PREVIOUS`. What is not pending has been
    acknowledged by the log. At most one change is pending. The lock of its :class:`~.partition.TransactionPartition`
    guards it.

    ``has_unstored_fence``: a fencing epoch was chosen that the log has not acknowledged. It was given to nobody, so
    the next fencing takes the same one (Kafka's hasFailedEpochFence). ``completing``: the pending end of a
    transaction whose decision is stored. It tells this transaction from the id's earlier and later ones.
    """

    __slots__ = (
        "completing",
        "has_unstored_fence",
        "last_producer_epoch",
        "last_producer_id",
        "last_update_ms",
        "partitions",
        "pending_state",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
        "weight",
    )

    def __init__(self, transactional_id: str, producer_id: int, timeout_ms: int, now_ms: int) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.last_producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        self.timeout_ms = timeout_ms
        self.state = TransactionState.Empty
        self.pending_state: TransactionState | None = None
        self.partitions: Partitions = NO_PARTITIONS
        self.start_ms = NO_TIMESTAMP
        self.last_update_ms = now_ms
        self.has_unstored_fence = False
        self.completing: Transit | None = None
        self.weight = transaction_weight(transactional_id, NO_PARTITIONS)

    def __repr__(self) -> str:
        state = self.pending_state
        pending = "" if state is None else f" -> {state.name}"
        return (
            f"<TransactionMetadata {self.transactional_id[:64]} {self.state.name}{pending}"
            f" producer {self.producer_id}/{self.producer_epoch}>"
        )

    @classmethod
    def of(cls, transactional_id: str, record: TransactionRecord) -> TransactionMetadata:
        """As a coordinator reads it from the log."""
        loaded = cls(transactional_id, record.producer_id, record.timeout_ms, record.last_update_ms)
        loaded.producer_epoch = record.producer_epoch
        loaded.state = record.state
        loaded.partitions = record.partitions
        loaded.start_ms = record.start_ms
        loaded.weight = transaction_weight(transactional_id, record.partitions)
        return loaded

    @property
    def is_epoch_exhausted(self) -> bool:
        return is_epoch_exhausted(self.producer_epoch)

    @property
    def is_pending(self) -> bool:
        return self.pending_state is not None

    @property
    def was_never_stored(self) -> bool:
        """Whether the log has no record of it: it is created when its first record is being written."""
        return self.producer_epoch == NO_PRODUCER_EPOCH

    # -- prepared changes

    def prepare(
        self,
        state: TransactionState,
        *,
        producer_id: int | None = None,
        producer_epoch: int | None = None,
        last_producer_epoch: int | None = None,
        timeout_ms: int | None = None,
        partitions: Partitions | None = None,
        start_ms: int | None = None,
        now_ms: int | None = None,
    ) -> Transit:
        """Makes ``state`` the pending one. What is not given stays. Raises :class:`~.states.IllegalTransition`."""
        if self.pending_state is not None:
            raise IllegalTransition(f"{self!r} cannot go on to {state.name} yet")
        check_transition(self.state, state)
        target = Transit(
            self.producer_id if producer_id is None else producer_id,
            self.producer_id,
            self.producer_epoch if producer_epoch is None else producer_epoch,
            self.last_producer_epoch if last_producer_epoch is None else last_producer_epoch,
            self.timeout_ms if timeout_ms is None else timeout_ms,
            state,
            self.partitions if partitions is None else partitions,
            self.start_ms if start_ms is None else start_ms,
            self.last_update_ms if now_ms is None else now_ms,
        )
        if (
            target.producer_epoch < 0 and state is not TransactionState.Dead
        ) or target.producer_epoch > _MAX_EPOCH:
            raise IllegalTransition(f"{self!r} cannot have the epoch {target.producer_epoch}")
        self.pending_state = state
        return target

    def prepare_complete(self, now_ms: int) -> Transit:
        """The end of a transaction whose decision is stored. A fencing epoch is then stored, too."""
        self.has_unstored_fence = False
        self.completing = self.prepare(COMPLETED[self.state], partitions=NO_PARTITIONS, now_ms=now_ms)
        return self.completing

    def fence(self) -> None:
        """Raises the epoch of an ongoing transaction, so that its producer is refused. The change is not prepared:
        the abort that must follow stores it.
        """
        epoch = self.producer_epoch if self.has_unstored_fence else self.producer_epoch + 1
        target = self.prepare(TransactionState.PrepareEpochFence, producer_epoch=epoch)
        self.pending_state = None
        self.has_unstored_fence = True
        self.producer_epoch = target.producer_epoch
        self.last_producer_epoch = NO_PRODUCER_EPOCH

    # -- their end

    def complete(self, target: Transit) -> None:
        """Takes up a change that the log has acknowledged. Raises :class:`~.states.IllegalTransition`."""
        if self.pending_state is not target.state or not self._may_become(target):
            raise IllegalTransition(f"{self!r} cannot become {target}")
        if target.state is TransactionState.Empty:
            self.timeout_ms = target.timeout_ms
            self.producer_id, self.last_producer_id = target.producer_id, target.last_producer_id
            self.producer_epoch, self.last_producer_epoch = target.producer_epoch, target.last_producer_epoch
        # Of a prepared end, the partitions that have their marker were removed meanwhile.
        self.partitions = target.partitions
        self.start_ms = target.start_ms
        self.last_update_ms = target.last_update_ms
        self.state = target.state
        self.pending_state = self.completing = None

    def cancel(self) -> None:
        """Forgets a change that the log refused."""
        self.pending_state = self.completing = None

    def reweigh(self) -> int:
        """Brings ``weight`` up to date; returns the difference."""
        before, self.weight = self.weight, transaction_weight(self.transactional_id, self.partitions)
        return self.weight - before

    def _may_become(self, target: Transit) -> bool:
        same_producer = (target.producer_id, target.producer_epoch) == (self.producer_id, self.producer_epoch)
        if target.state is TransactionState.Empty:
            bumped = target.producer_epoch == self.producer_epoch + 1
            rotated = target.producer_epoch == 0 and target.producer_id != self.producer_id
            fresh = not target.partitions and target.start_ms == NO_TIMESTAMP
            return fresh and (same_producer or bumped or rotated)
        if not same_producer or target.timeout_ms != self.timeout_ms:
            return False
        if target.state is TransactionState.Ongoing:
            return includes(target.partitions, self.partitions)
        if target.state in COMPLETED:
            return target.partitions == self.partitions and target.start_ms == self.start_ms
        return target.state in COMPLETED.values() and target.start_ms != NO_TIMESTAMP
