"""The states of a transaction: every transition that there is, and none that there is not."""

from __future__ import annotations

import itertools

import pytest

from broker.coordinator.transaction.metadata import TransactionMetadata
from broker.coordinator.transaction.states import (
    COMPLETED,
    EXPIRABLE,
    STORED,
    VALID_PREVIOUS,
    IllegalTransition,
    TransactionState,
    check_transition,
)

S = TransactionState
ALLOWED = {
    (S.Empty, S.Empty),
    (S.CompleteCommit, S.Empty),
    (S.CompleteAbort, S.Empty),
    (S.Empty, S.Ongoing),
    (S.Ongoing, S.Ongoing),
    (S.CompleteCommit, S.Ongoing),
    (S.CompleteAbort, S.Ongoing),
    (S.Ongoing, S.PrepareCommit),
    (S.Ongoing, S.PrepareAbort),
    (S.Ongoing, S.PrepareEpochFence),
    (S.PrepareEpochFence, S.PrepareAbort),
    (S.PrepareCommit, S.CompleteCommit),
    (S.PrepareAbort, S.CompleteAbort),
    (S.Empty, S.Dead),
    (S.CompleteCommit, S.Dead),
    (S.CompleteAbort, S.Dead),
}


@pytest.mark.parametrize(("before", "after"), list(itertools.product(S, S)))
def test_a_transition_is_allowed_exactly_where_kafka_allows_it(before: S, after: S) -> None:
    if (before, after) in ALLOWED:
        check_transition(before, after)
    else:
        with pytest.raises(IllegalTransition, match=f"{after.name} cannot follow {before.name}"):
            check_transition(before, after)


def test_the_numbers_and_names_are_kafkas() -> None:
    assert [(state.value, state.name) for state in S] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]


def reached_from(start: S, avoiding: frozenset[S]) -> set[S]:
    """All states that may follow ``start`` without passing through one of ``avoiding``."""
    found: set[S] = set()
    new = {start}
    while new:
        found |= new
        new = {s for s in S if s not in found | avoiding and VALID_PREVIOUS[s] & found}
    return found


def test_a_decided_transaction_never_ends_the_other_way() -> None:
    begins = frozenset({S.Empty, S.Ongoing})  # the next transaction
    assert reached_from(S.PrepareCommit, begins) == {S.PrepareCommit, S.CompleteCommit, S.Dead}
    assert reached_from(S.PrepareAbort, begins) == {S.PrepareAbort, S.CompleteAbort, S.Dead}


def test_states_without_a_record_and_those_that_may_expire() -> None:
    assert set(S) - STORED == {S.Dead, S.PrepareEpochFence}
    assert {S.Empty, S.CompleteCommit, S.CompleteAbort} == EXPIRABLE
    assert all(after in EXPIRABLE for after in COMPLETED.values())


@pytest.fixture
def txn() -> TransactionMetadata:
    return TransactionMetadata("tx", 7, 1_000, 5)


def test_a_second_change_is_refused_while_one_is_pending(txn: TransactionMetadata) -> None:
    txn.prepare(S.Empty, producer_epoch=0)
    with pytest.raises(IllegalTransition, match="cannot go on to Ongoing yet"):
        txn.prepare(S.Ongoing)


def test_a_change_is_completed_only_as_it_was_prepared(txn: TransactionMetadata) -> None:
    target = txn.prepare(S.Empty, producer_epoch=0)
    with pytest.raises(IllegalTransition):
        txn.complete(target._replace(producer_epoch=2))
    with pytest.raises(IllegalTransition):
        txn.complete(target._replace(state=S.Ongoing))
    txn.complete(target)
    assert (txn.state, txn.producer_epoch, txn.pending_state) == (S.Empty, 0, None)


def test_no_producer_works_with_the_epoch_that_is_kept_for_fencing(txn: TransactionMetadata) -> None:
    txn.producer_epoch = 0x7FFF
    txn.state = S.Ongoing
    with pytest.raises(IllegalTransition, match="cannot have the epoch 32768"):
        txn.fence()
