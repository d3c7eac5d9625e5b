"""Indexes the transactions of a history for ``transaction_rules`` and ``copy_rules``. Pure.

A record is visible when it is in the final log, which is read with read_committed, or, without a final log,
when a consumer read it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.facts import Facts
from chaos.history import (
    ABORTED,
    COMMITTED,
    UNKNOWN,
    Began,
    Ended,
    Ending,
    Event,
    Fenced,
    History,
    OffsetSent,
    Wrote,
)


@dataclass(slots=True)
class Transaction:
    """One transaction. Without ``ended`` its producer never learned of its end."""

    name: str
    producer: str = ""
    records: list[Wrote] = field(default_factory=list)
    offsets: list[OffsetSent] = field(default_factory=list)
    ending: Ending | None = None
    ended: Ended | None = None

    @property
    def outcome(self) -> str:
        """COMMITTED, ABORTED or UNKNOWN, as its producer knows it."""
        return UNKNOWN if self.ended is None else self.ended.outcome

    @property
    def may_commit(self) -> bool:
        """Whether its producer asked to commit it, and was not told that it was aborted."""
        return self.ending is not None and self.ending.commits and self.outcome != ABORTED

    def visible(self, facts: Facts) -> list[Wrote]:
        """Its records that are visible."""
        return [record for record in self.records if record.record_id in facts.places]

    def took_effect(self, facts: Facts) -> bool:
        """Whether it is committed: as its producer knows, or as a visible record shows."""
        return self.outcome == COMMITTED or (self.may_commit and bool(self.visible(facts)))


@dataclass(slots=True)
class Transactions:
    """All transactions of a history by name, and when each instance of a producer was first fenced."""

    by_name: dict[str, Transaction] = field(default_factory=dict)
    of_record: dict[str, Transaction] = field(default_factory=dict)
    """By record id."""
    fenced: dict[str, Fenced] = field(default_factory=dict)

    def each(self) -> Iterator[Transaction]:
        """The transactions in the order in which they began."""
        return iter(self.by_name.values())

    def fence_of(self, transaction: Transaction) -> Fenced | None:
        """What fenced its producer before it asked to end the transaction, if anything did."""
        fence = self.fenced.get(transaction.producer)
        asked = transaction.ending
        return fence if fence and (asked is None or asked.at_s > fence.at_s) else None


def gather_transactions(history: History) -> Transactions:
    """Indexes a history."""
    found = Transactions()
    for event in history.events:
        _note(found, event)
    return found


def _note(found: Transactions, event: Event) -> None:
    if isinstance(event, Fenced):
        found.fenced.setdefault(event.producer, event)
    elif isinstance(event, Began | Wrote | OffsetSent | Ending | Ended):
        transaction = found.by_name.setdefault(event.transaction, Transaction(event.transaction))
        match event:
            case Began():
                transaction.producer = event.producer
            case Wrote():
                transaction.records.append(event)
                found.of_record[event.record_id] = transaction
            case OffsetSent():
                transaction.offsets.append(event)
            case Ending():
                transaction.ending = event
            case Ended():
                transaction.ended = event
