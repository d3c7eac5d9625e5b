"""Rules for the log: each acknowledged record is in it, in order, at the acknowledged offset; idempotent ones
once. Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from chaos.anomalies import Anomaly, AnomalyKind, at
from chaos.facts import Facts, Partition, Place
from chaos.history import Acked, History, Sent


def lost(facts: Facts) -> Iterator[Anomaly]:
    """Acknowledged records that the log does not have."""
    for ack in facts.acked.values():
        key = (ack.topic, ack.partition)
        if ack.record_id in facts.places or (ack.offset is not None and facts.is_gone(key, ack.offset)):
            continue
        if ack.offset is None and key in facts.ranges and facts.ranges[key].start > 0:
            continue  # Retention may have removed it.
        told = f"acknowledged to {ack.producer} at offset {ack.offset} {at(ack.at_s)}"
        yield _about(AnomalyKind.LOST, ack, f"{told}, {_where_to(facts, ack)}")


def _where_to(facts: Facts, ack: Acked) -> str:
    key = (ack.topic, ack.partition)
    if key not in facts.ranges:
        return "never read"
    seen = facts.read[key].get(ack.offset) if ack.offset is not None else None
    by = "never read"
    if seen is not None and seen.record_id == ack.record_id:
        by = f"read by {seen.consumer} {at(seen.at_s)}"
    where = "is without it" if ack.offset is None else facts.holds(key, ack.offset)
    return f"{by}; {where if ack.offset is not None else f'the final log {where}'}"


def phantoms(facts: Facts) -> Iterator[Anomaly]:
    """Records in the log that nobody sent."""
    for record, found in facts.places.items():
        if record not in facts.sent:
            topic, partition, offset = found[0]
            detail = f"read at offset {offset}, never sent"
            yield Anomaly(AnomalyKind.PHANTOM, record, partition, detail, topic)
    for key, polls in facts.read.items():
        for offset, polled in polls.items():
            if polled.record_id not in facts.sent and polled.record_id not in facts.places:
                detail = f"read by {polled.consumer} at offset {offset} {at(polled.at_s)}, never sent"
                yield Anomaly(AnomalyKind.PHANTOM, polled.record_id, key[1], detail, key[0], polled.at_s)


def duplicates(facts: Facts) -> Iterator[Anomaly]:
    """Records of idempotent producers at more than one place."""
    for sent in facts.sent.values():
        found = facts.places.get(sent.record_id, [])
        if sent.producer in facts.idempotent and len(found) > 1:
            topic, partition, _ = found[0]
            detail = f"{sent.producer} is idempotent, read at (partition, offset) {_short(found)}"
            yield Anomaly(AnomalyKind.DUPLICATE, sent.record_id, partition, detail, topic, sent.at_s)


def reordered(history: History, facts: Facts) -> Iterator[Anomaly]:
    """Records before one that the same idempotent producer sent earlier, or that was acknowledged before they
    were sent.
    """
    by_sending = list(_before_sent_earlier(facts))
    yield from by_sending
    yield from _before_acknowledged(history, facts, {anomaly.record_id for anomaly in by_sending})


def _before_sent_earlier(facts: Facts) -> Iterator[Anomaly]:
    """Only idempotent producers guarantee this order: librdkafka retries a plain batch after later ones when
    the leader changes.

    A failed record may arrive late, from a socket's buffer.
    """
    last: dict[tuple[str, Partition], tuple[int, str]] = {}
    for sent in facts.sent.values():
        if sent.producer not in facts.idempotent or sent.record_id in facts.failed:
            continue
        for topic, partition, offset in _first_places(facts.places.get(sent.record_id, [])):
            key = (sent.producer, (topic, partition))
            before_offset, before_id = last.get(key, (-1, ""))
            if offset < before_offset:
                detail = f"at offset {offset}, but {before_id}, sent earlier, is at {before_offset}"
                yield Anomaly(AnomalyKind.REORDERED, sent.record_id, partition, detail, topic, sent.at_s)
            else:
                last[key] = (offset, sent.record_id)


def _before_acknowledged(history: History, facts: Facts, named: Collection[str]) -> Iterator[Anomaly]:
    """A log only grows at its end: a record sent after another was acknowledged must come after it."""
    highest: dict[Partition, Acked] = {}
    for event in history.events:
        if isinstance(event, Acked):
            key = (event.topic, event.partition)
            offset = -1 if event.offset is None else event.offset
            if (*key, offset) in facts.places.get(event.record_id, ()) and (
                key not in highest or offset > (highest[key].offset or 0)
            ):
                highest[key] = event
        elif isinstance(event, Sent) and event.record_id not in named:
            for topic, partition, offset in _first_places(facts.places.get(event.record_id, [])):
                earlier = highest.get((topic, partition))
                if earlier is not None and offset <= (earlier.offset or 0):
                    known = f"{earlier.record_id} was acknowledged at {earlier.offset} {at(earlier.at_s)}"
                    detail = f"at offset {offset}, sent {at(event.at_s)}, but {known}"
                    yield Anomaly(
                        AnomalyKind.REORDERED, event.record_id, partition, detail, topic, event.at_s
                    )


def _first_places(places: list[Place]) -> Iterator[Place]:
    """The lowest offset in each partition; ``places`` is sorted. A plain record that was retried counts at
    its first place.
    """
    seen: set[Partition] = set()
    for topic, partition, offset in places:
        if (topic, partition) not in seen:
            seen.add((topic, partition))
            yield topic, partition, offset


def inconsistent_offsets(facts: Facts) -> Iterator[Anomaly]:
    """Offsets with two values, and acknowledged offsets that hold another record.

    If there is a final log, ``read_rules.above_high_watermark`` handles the polls that disagree with it.
    """
    for first, other in facts.conflicts:
        if (other.topic, other.partition) not in facts.ranges:
            detail = f"offset {other.offset} was read as {first.record_id} and as {other.record_id}"
            story = f"{detail} ({first.consumer} {at(first.at_s)}, {other.consumer} {at(other.at_s)})"
            kind = AnomalyKind.INCONSISTENT_OFFSET
            yield Anomaly(kind, other.record_id, other.partition, story, other.topic, other.at_s)
    for ack in facts.acked.values():
        found = facts.places.get(ack.record_id)
        if not found or ack.offset is None or facts.is_gone((ack.topic, ack.partition), ack.offset):
            continue
        if (ack.topic, ack.partition, ack.offset) not in found:
            detail = f"acknowledged at offset {ack.offset} {at(ack.at_s)}, read at (partition, offset)"
            yield _about(AnomalyKind.INCONSISTENT_OFFSET, ack, f"{detail} {_short(found)}")


def nonmonotonic_acks(facts: Facts, named: Collection[str]) -> Iterator[Anomaly]:
    """Offsets acknowledged to an idempotent producer that do not grow in the order of sending.

    Excludes records that are already ``named`` for their place. A plain producer may get the offset of a
    second copy.
    """
    last: dict[tuple[str, str, int], Acked] = {}
    for record in facts.sent:
        ack = facts.acked.get(record)
        if ack is None or ack.offset is None or record in named or ack.producer not in facts.idempotent:
            continue
        key = (ack.producer, ack.topic, ack.partition)
        before = last.get(key)
        if before is not None and before.offset is not None and ack.offset <= before.offset:
            earlier = f"{before.record_id}, sent earlier, at {before.offset} {at(before.at_s)}"
            detail = f"acknowledged at offset {ack.offset} {at(ack.at_s)}, but {earlier}"
            yield _about(AnomalyKind.NONMONOTONIC_ACK, ack, detail)
        else:
            last[key] = ack


def _about(kind: AnomalyKind, ack: Acked, detail: str) -> Anomaly:
    return Anomaly(kind, ack.record_id, ack.partition, detail, ack.topic, ack.at_s)


def _short(places: list[Place]) -> list[tuple[int, int]]:
    return [(partition, offset) for _, partition, offset in places]
