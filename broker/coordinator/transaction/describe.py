"""Transactions as DescribeTransactions, ListTransactions and the verification of partitions show them. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.coordinator.transaction.metadata import TransactionMetadata
from broker.coordinator.transaction.partitions import NO_PARTITIONS, Partitions
from broker.coordinator.transaction.states import NAMES
from broker.protocol.errors import Errors


class TransactionDescription(NamedTuple):
    """A transaction as DescribeTransactions shows it. Of one that is being ended, ``partitions`` are those without
    a marker.
    """

    error: Errors
    state: str = ""
    timeout_ms: int = 0
    start_ms: int = 0
    producer_id: int = 0
    producer_epoch: int = 0
    partitions: Partitions = NO_PARTITIONS


class TransactionOverview(NamedTuple):
    """A transaction as ListTransactions shows it."""

    transactional_id: str
    producer_id: int
    state: str


class ListedTransactions(NamedTuple):
    """The answer to a ListTransactions. ``transactions`` are to be iterated over once: a few bytes of a request may ask
    for all that there are.
    """

    error: Errors
    unknown_states: tuple[str, ...] = ()
    transactions: Iterable[TransactionOverview] = ()


class TransactionFilter(NamedTuple):
    """The filters of a ListTransactions; empty ones and a negative duration match everything."""

    producer_ids: frozenset[int]
    states: frozenset[str]
    duration_ms: int

    def matches(self, txn: TransactionMetadata, now_ms: int) -> bool:
        if self.producer_ids and txn.producer_id not in self.producer_ids:
            return False
        if self.states and txn.state.name not in self.states:
            return False
        return self.duration_ms < 0 or now_ms - txn.start_ms > self.duration_ms


def describe(txn: TransactionMetadata | None) -> TransactionDescription:
    if txn is None:
        return TransactionDescription(Errors.TRANSACTIONAL_ID_NOT_FOUND)
    return TransactionDescription(
        Errors.NONE,
        txn.state.name,
        txn.timeout_ms,
        txn.start_ms,
        txn.producer_id,
        txn.producer_epoch,
        txn.partitions,
    )


def listed(
    every: Iterable[TransactionMetadata], wanted: TransactionFilter, now_ms: int
) -> ListedTransactions:
    return ListedTransactions(
        Errors.NONE,
        tuple(sorted(name for name in wanted.states if name not in NAMES)),
        (
            TransactionOverview(txn.transactional_id, txn.producer_id, txn.state.name)
            for txn in every
            if wanted.matches(txn, now_ms)
        ),
    )


def verified(known: Errors | Partitions, asked: Partitions) -> Mapping[str, Mapping[int, Errors]]:
    """The error of each partition that a leader asks for. ``known`` are those of the transaction."""
    if isinstance(known, Errors):
        return {topic: dict.fromkeys(numbers, known) for topic, numbers in asked.items()}
    nothing: frozenset[int] = frozenset()
    return {
        topic: {
            number: Errors.NONE if number in known.get(topic, nothing) else Errors.TRANSACTION_ABORTABLE
            for number in numbers
        }
        for topic, numbers in asked.items()
    }
