"""What a request does to a transactional id: an error, or a prepared change to be written to the log. Pure.

The order of the checks is Kafka 3.9's, because clients see which error comes first. ``now_ms`` is wall-clock time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from broker.coordinator.transaction.metadata import TransactionMetadata, Transit, is_epoch_exhausted
from broker.coordinator.transaction.partitions import NO_PARTITIONS, Partitions, includes, joined
from broker.coordinator.transaction.states import (
    COMPLETED,
    EXPIRABLE,
    PREPARED,
    IllegalTransition,
    TransactionState,
)
from broker.protocol.errors import Errors
from broker.record.header import NO_PRODUCER_EPOCH, NO_TIMESTAMP

_S = TransactionState


class ProducerIdAndEpoch(NamedTuple):
    """A producer id with its epoch; Kafka's ProducerIdAndEpoch."""

    producer_id: int
    epoch: int


class NeedsProducerId(NamedTuple):
    """The request goes on with a new producer id only: it is to be decided again with one."""


NEEDS_PRODUCER_ID: Final = NeedsProducerId()


def init_producer_id(
    txn: TransactionMetadata,
    timeout_ms: int,
    expected: ProducerIdAndEpoch | None,
    new_producer_id: int | None,
    now_ms: int,
) -> Errors | Transit | NeedsProducerId:
    """InitProducerId: a higher epoch, or a new producer id when the epochs are used up. An ongoing transaction is
    aborted first: the prepared change is then PrepareAbort, and the client is to retry.

    ``expected`` is what the client has (KIP-360). A retry of a request that was carried out gets the same epoch.
    """
    if txn.is_pending:
        return Errors.CONCURRENT_TRANSACTIONS
    if expected is not None and not _is_known(txn, expected):
        return Errors.PRODUCER_FENCED
    if txn.state in COMPLETED:
        return Errors.CONCURRENT_TRANSACTIONS
    if txn.state is _S.Ongoing:
        return fence(txn, now_ms)
    if txn.is_epoch_exhausted and (expected is None or expected.epoch == txn.producer_epoch):
        if new_producer_id is None:
            return NEEDS_PRODUCER_ID
        last_epoch = NO_PRODUCER_EPOCH if expected is None else txn.producer_epoch
        return _emptied(txn, new_producer_id, 0, last_epoch, timeout_ms, now_ms)
    bumped = _bumped(txn, expected)
    if isinstance(bumped, Errors):
        return bumped
    return _emptied(txn, txn.producer_id, *bumped, timeout_ms, now_ms)


def _emptied(  # noqa: PLR0917 - the fields of one change
    txn: TransactionMetadata, producer_id: int, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int
) -> Transit:
    return txn.prepare(
        _S.Empty,
        producer_id=producer_id,
        producer_epoch=epoch,
        last_producer_epoch=last_epoch,
        timeout_ms=timeout_ms,
        partitions=NO_PARTITIONS,
        start_ms=NO_TIMESTAMP,
        now_ms=now_ms,
    )


def _is_known(txn: TransactionMetadata, expected: ProducerIdAndEpoch) -> bool:
    """Whether the client's producer id may be this one's. A new transactional id takes any: its former one expired.
    The last id with an exhausted epoch is a retry: the client missed the answer with the new id.
    """
    return (
        txn.producer_epoch == NO_PRODUCER_EPOCH
        or expected.producer_id == txn.producer_id
        or (expected.producer_id == txn.last_producer_id and is_epoch_exhausted(expected.epoch))
    )


def _bumped(txn: TransactionMetadata, expected: ProducerIdAndEpoch | None) -> tuple[int, int] | Errors:
    """The next epoch and the last one."""
    if expected is None:
        return txn.producer_epoch + 1, NO_PRODUCER_EPOCH
    if txn.producer_epoch in {NO_PRODUCER_EPOCH, expected.epoch}:
        return txn.producer_epoch + 1, txn.producer_epoch
    if expected.epoch == txn.last_producer_epoch:  # a retry of a request that was carried out
        return txn.producer_epoch, txn.last_producer_epoch
    return Errors.PRODUCER_FENCED


def add_partitions(
    txn: TransactionMetadata | None, producer: ProducerIdAndEpoch, added: Partitions, now_ms: int
) -> Errors | Transit:
    """AddPartitionsToTxn and AddOffsetsToTxn. NONE if nothing is to be written."""
    error = _producer_error(txn, producer)
    if txn is None or error is not Errors.NONE:
        return error
    if txn.is_pending or txn.state in COMPLETED:
        return Errors.CONCURRENT_TRANSACTIONS
    is_ongoing = txn.state is _S.Ongoing
    if is_ongoing and includes(txn.partitions, added):
        return Errors.NONE
    return txn.prepare(
        _S.Ongoing,
        partitions=joined(txn.partitions, added),
        start_ms=txn.start_ms if is_ongoing else now_ms,
        now_ms=now_ms,
    )


def verify_partitions(txn: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> Errors | Partitions:
    """The partitions that are in the transaction, for a leader that got records of it (KIP-890). A pending change
    does not matter: the log checks again when it appends.
    """
    error = _producer_error(txn, producer)
    if txn is None or error is not Errors.NONE:
        return error
    if txn.state in COMPLETED:
        return Errors.CONCURRENT_TRANSACTIONS
    return txn.partitions


def _producer_error(txn: TransactionMetadata | None, producer: ProducerIdAndEpoch) -> Errors:
    if txn is None or txn.producer_id != producer.producer_id:
        return Errors.INVALID_PRODUCER_ID_MAPPING
    return Errors.NONE if txn.producer_epoch == producer.epoch else Errors.PRODUCER_FENCED


_E = Errors
_ENDED: Final[Mapping[TransactionState, tuple[Errors, Errors]]] = {
    # state: the answer to a commit, and to an abort
    _S.Empty: (_E.INVALID_TXN_STATE, _E.INVALID_TXN_STATE),
    _S.PrepareCommit: (_E.CONCURRENT_TRANSACTIONS, _E.INVALID_TXN_STATE),
    _S.PrepareAbort: (_E.INVALID_TXN_STATE, _E.CONCURRENT_TRANSACTIONS),
    _S.CompleteCommit: (_E.NONE, _E.INVALID_TXN_STATE),
    _S.CompleteAbort: (_E.INVALID_TXN_STATE, _E.NONE),
}


def end(
    txn: TransactionMetadata | None, producer: ProducerIdAndEpoch, committed: bool, now_ms: int
) -> Errors | Transit:
    """EndTxn. NONE if the transaction ended this way before."""
    error = _producer_error(txn, producer)
    if txn is None or error is not Errors.NONE:
        return error
    if txn.is_pending:
        return Errors.CONCURRENT_TRANSACTIONS
    if txn.state is _S.Ongoing:
        return txn.prepare(PREPARED[committed], now_ms=now_ms)
    if txn.state not in _ENDED:
        raise IllegalTransition(f"{txn!r} cannot be ended")
    on_commit, on_abort = _ENDED[txn.state]
    return on_commit if committed else on_abort


def fence(txn: TransactionMetadata, now_ms: int) -> Transit:
    """Aborts an ongoing transaction whose producer must not go on."""
    txn.fence()
    return txn.prepare(_S.PrepareAbort, now_ms=now_ms)


def has_timed_out(txn: TransactionMetadata, now_ms: int) -> bool:
    return txn.state is _S.Ongoing and not txn.is_pending and txn.start_ms + txn.timeout_ms < now_ms


def has_expired(txn: TransactionMetadata, expiration_ms: int, now_ms: int) -> bool:
    return txn.state in EXPIRABLE and not txn.is_pending and txn.last_update_ms <= now_ms - expiration_ms
