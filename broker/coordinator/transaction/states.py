"""The states of a transaction, and which follows which. Pure.

::

    InitProducerId          AddPartitionsToTxn         EndTxn             markers written
        ------> Empty ---------------> Ongoing ---------> PrepareCommit ---------> CompleteCommit
                                        |   |                                           |
              (time-out, fencing)       |   +-----------> PrepareAbort ----------> CompleteAbort
                                        v                    ^                          |
                                   PrepareEpochFence --------+       InitProducerId -> Empty
                                                                     AddPartitionsToTxn -> Ongoing
                                                                     expiry -> Dead

The decision between commit and abort is made once, when PrepareCommit or PrepareAbort is written to the log: each
leads to its own Complete state and to nothing else. So no transaction is both committed and aborted, whichever
broker coordinates it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final


class TransactionState(IntEnum):
    """The state of a transaction; Kafka's TransactionState. The names are those of DescribeTransactions, the
    numbers those in the records of __transaction_state.
    """

    Empty = 0
    Ongoing = 1
    PrepareCommit = 2
    PrepareAbort = 3
    CompleteCommit = 4
    CompleteAbort = 5
    Dead = 6
    PrepareEpochFence = 7


_S = TransactionState

VALID_PREVIOUS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    _S.Empty: frozenset({_S.Empty, _S.CompleteCommit, _S.CompleteAbort}),
    _S.Ongoing: frozenset({_S.Ongoing, _S.Empty, _S.CompleteCommit, _S.CompleteAbort}),
    _S.PrepareCommit: frozenset({_S.Ongoing}),
    _S.PrepareAbort: frozenset({_S.Ongoing, _S.PrepareEpochFence}),
    _S.CompleteCommit: frozenset({_S.PrepareCommit}),
    _S.CompleteAbort: frozenset({_S.PrepareAbort}),
    _S.Dead: frozenset({_S.Empty, _S.CompleteCommit, _S.CompleteAbort}),
    _S.PrepareEpochFence: frozenset({_S.Ongoing}),
}
"""From which states each state may be reached."""

PREPARED: Final[Mapping[bool, TransactionState]] = {True: _S.PrepareCommit, False: _S.PrepareAbort}
"""The state that EndTxn leads to, by whether it commits."""

COMPLETED: Final[Mapping[TransactionState, TransactionState]] = {
    _S.PrepareCommit: _S.CompleteCommit,
    _S.PrepareAbort: _S.CompleteAbort,
}
"""The state that follows when all markers are written."""

STORED: Final = frozenset(_S) - {_S.Dead, _S.PrepareEpochFence}
"""The states that a record may have. The other two are passed through without a record."""

EXPIRABLE: Final = frozenset({_S.Empty, _S.CompleteCommit, _S.CompleteAbort})
"""The states in which an unused transactional id may be forgotten."""

NAMES: Final[Mapping[str, TransactionState]] = {state.name: state for state in _S}


class IllegalTransition(Exception):
    """A transition that no request may cause: a defect, after which the state is unchanged."""


def check_transition(before: TransactionState, after: TransactionState) -> None:
    """Raises :class:`IllegalTransition` unless ``after`` may follow ``before``."""
    if before not in VALID_PREVIOUS[after]:
        raise IllegalTransition(f"{after.name} cannot follow {before.name}")
