"""Rules for transactions: consumers with read_committed see all of a committed one, nothing of another, and
nothing before its end; a producer that was fenced has no effect. Pure.

A record of a committed transaction is acknowledged, so if it is not visible, ``log_rules`` names it LOST.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.anomalies import Anomaly, AnomalyKind, at
from chaos.facts import Facts
from chaos.history import COMMITTED, Polled, Wrote
from chaos.transactions import Transaction, Transactions


def transactions(facts: Facts, found: Transactions) -> Iterator[Anomaly]:
    """Everything that is wrong with single transactions; a record is named once."""
    first_polls = _first_polls(facts, found)
    for transaction in found.each():
        fence = found.fence_of(transaction)
        seen = _seen(facts, transaction, first_polls)
        if fence is not None and (seen or transaction.outcome == COMMITTED):
            told = f"{transaction.producer} was fenced by {fence.by} {at(fence.at_s)}"
            yield from _zombie(transaction, seen, told)
        elif not transaction.may_commit:
            yield from _aborted(transaction, seen)
        else:
            yield from _undecided(transaction, first_polls)
            if transaction.outcome != COMMITTED:
                yield from _torn(facts, transaction)


def _first_polls(facts: Facts, found: Transactions) -> dict[str, Polled]:
    """By record: the earliest poll of it."""
    first: dict[str, Polled] = {}
    if found.by_name:
        for polled in facts.polls:
            if polled.record_id in found.of_record:
                first.setdefault(polled.record_id, polled)
    return first


def _seen(
    facts: Facts, transaction: Transaction, first_polls: dict[str, Polled]
) -> list[tuple[Wrote, str, float]]:
    """The records that anyone saw, who saw it, and when; the final log's reader comes last."""
    seen = []
    for record in transaction.records:
        polled = first_polls.get(record.record_id)
        if polled is not None:
            seen.append((record, f"{polled.consumer} read it {at(polled.at_s)}", polled.at_s))
        elif record.record_id in facts.places:
            offset = facts.places[record.record_id][0][2]
            seen.append((record, f"the final log holds it at offset {offset}", record.at_s))
    return seen


def _zombie(transaction: Transaction, seen: list[tuple[Wrote, str, float]], told: str) -> Iterator[Anomaly]:
    for record, where, at_s in seen:
        yield _about(AnomalyKind.ZOMBIE, record, f"{told}, but {where}", at_s)
    if not seen:
        place = transaction.records[0] if transaction.records else None
        partition, topic = (place.partition, place.topic) if place else (0, "")
        at_s = transaction.ended.at_s if transaction.ended else 0.0
        detail = f"{told}, but {transaction.name} was committed {at(at_s)}"
        yield Anomaly(AnomalyKind.ZOMBIE, "", partition, detail, topic, at_s)


def _aborted(transaction: Transaction, seen: list[tuple[Wrote, str, float]]) -> Iterator[Anomaly]:
    for record, where, at_s in seen:
        yield _about(AnomalyKind.ABORTED_READ, record, f"{_end_of(transaction)}, but {where}", at_s)


def _undecided(transaction: Transaction, first_polls: dict[str, Polled]) -> Iterator[Anomaly]:
    asked = transaction.ending
    for record in transaction.records:
        polled = first_polls.get(record.record_id)
        if polled is not None and asked is not None and polled.at_s < asked.at_s:
            read = f"{polled.consumer} read it at offset {polled.offset} {at(polled.at_s)}"
            detail = f"{read}, but {transaction.producer} asked to commit {transaction.name} {at(asked.at_s)}"
            yield _about(AnomalyKind.UNDECIDED_READ, record, detail, polled.at_s)


def _torn(facts: Facts, transaction: Transaction) -> Iterator[Anomaly]:
    """A transaction whose end nobody knows is visible whole or not at all. Where retention has removed the
    start of a partition, nothing is known.
    """
    ranges = [facts.ranges.get((record.topic, record.partition)) for record in transaction.records]
    if any(known is None or known.start > 0 for known in ranges):
        return
    there = {record.record_id for record in transaction.visible(facts)}
    if not there:
        return
    for record in transaction.records:
        if record.record_id not in there:
            detail = f"not visible, but {len(there)} other records of {transaction.name} are"
            yield _about(AnomalyKind.TORN, record, detail, record.at_s)
    for sent in transaction.offsets:
        last = [
            told
            for told in facts.group_offsets
            if (told.group, told.topic, told.partition) == (sent.group, sent.topic, sent.partition)
        ]
        if last and last[-1].offset < sent.offset:
            detail = (
                f"{transaction.name} is visible, but {sent.group} is at {last[-1].offset}, not {sent.offset}"
            )
            yield Anomaly(AnomalyKind.TORN, "", sent.partition, detail, sent.topic, last[-1].at_s)


def _end_of(transaction: Transaction) -> str:
    if transaction.ended is not None and transaction.ending is not None and transaction.ending.commits:
        return f"{transaction.name} was aborted ({transaction.ended.reason}) {at(transaction.ended.at_s)}"
    return f"{transaction.producer} never asked to commit {transaction.name}"


def _about(kind: AnomalyKind, record: Wrote, detail: str, at_s: float) -> Anomaly:
    return Anomaly(kind, record.record_id, record.partition, detail, record.topic, at_s)
