"""Rules for a copier, which reads records and writes each in a transaction with its group's offsets: every
input record is in the output exactly once, and the offsets are those of committed transactions. Pure.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from chaos.anomalies import Anomaly, AnomalyKind
from chaos.facts import Facts, Partition, Place
from chaos.history import GroupOffset, Wrote
from chaos.transactions import Transactions


def copies(facts: Facts, found: Transactions) -> Iterator[Anomaly]:
    """Input records that are not copied exactly once, and offsets of no committed transaction."""
    if facts.ranges:
        yield from _exactly_once(facts, found)
    for told in facts.group_offsets:
        yield from _offset(facts, found, told)


def _exactly_once(facts: Facts, found: Transactions) -> Iterator[Anomaly]:
    copied: dict[str, list[Wrote]] = defaultdict(list)
    sources: set[str] = set()
    for transaction in found.each():
        sources.update(sent.topic for sent in transaction.offsets)
        if transaction.took_effect(facts):
            for record in transaction.records:
                copied[record.copy_of].append(record)
    outputs = {copy.topic for original, written in copied.items() if original for copy in written}
    cut = any(known.start > 0 for (topic, _), known in facts.ranges.items() if topic in outputs)
    for stored_in, records in facts.final.items():
        if stored_in[0] not in sources:
            continue
        for offset, original in records.items():
            place = (*stored_in, offset)
            visible = [copy for copy in copied[original] if copy.record_id in facts.places]
            if len(visible) > 1:
                names = ", ".join(f"{copy.record_id} of {copy.transaction}" for copy in visible)
                yield _about(facts, AnomalyKind.COPIED_TWICE, original, place, f"its copies are {names}")
            elif not copied[original] and not cut:
                detail = "no committed transaction has a copy"
                yield _about(facts, AnomalyKind.NOT_COPIED, original, place, detail)


def _about(facts: Facts, kind: AnomalyKind, record: str, place: Place, detail: str) -> Anomaly:
    topic, partition, offset = place
    known = facts.ranges.get((topic, partition))
    at_s = known.at_s if known else 0.0
    return Anomaly(kind, record, partition, f"at offset {offset}, {detail}", topic, at_s)


def _offset(facts: Facts, found: Transactions, told: GroupOffset) -> Iterator[Anomaly]:
    """An offset below a committed one is COMMIT_LOST: see ``commit_rules``."""
    key: Partition = (told.topic, told.partition)
    sent = [
        (transaction, offset.offset)
        for transaction in found.each()
        for offset in transaction.offsets
        if offset.group == told.group and (offset.topic, offset.partition) == key
    ]
    if not sent:
        return
    committed = [offset for transaction, offset in sent if transaction.took_effect(facts)]
    maybe = [offset for each, offset in sent if each.may_commit and not each.records]
    if told.offset > max(committed, default=-1) and told.offset not in maybe:
        known = max(committed, default=-1)
        of = ", ".join(each.name for each, offset in sent if offset == told.offset) or "no transaction"
        detail = f"{told.group} is at {told.offset}, sent by {of}; the last committed offset is {known}"
        yield Anomaly(AnomalyKind.ABORTED_OFFSET, "", told.partition, detail, told.topic, told.at_s)
