"""Finds commits that an older request of the same client undid, because that request arrived late.

A client whose coordinator does not answer sends its commit to the next one. The first request may still wait
in a socket's buffer. When a cut link is healed, the request reaches a broker that coordinates the group
again, and the older offset is committed after the newer one. Kafka's protocol does not order commits, so the
group reads some records again. The log of the group's offsets shows the difference to a lost commit: it has
the newer commit, then the older one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from broker.coordinator.common.records import MalformedRecord
from broker.coordinator.group.records import OffsetKey, decode_key, decode_offset_value
from broker.record.batch import read_records
from chaos.anomalies import Anomaly, AnomalyKind
from chaos.coordination import GROUP_TOPIC
from chaos.facts import Partition
from chaos.history import Assigned, Committed, GroupOffset, History, Polled


def undone_by_late_commits(
    found: Iterable[Anomaly], history: History, replica_dirs: Mapping[int, Path]
) -> set[Anomaly]:
    """Returns the lost commits for which the groups' offsets log has a later commit of where the
    group continued.

    Raises OSError when a replica's file cannot be read.
    """
    lost = [anomaly for anomaly in found if anomaly.kind is AnomalyKind.COMMIT_LOST]
    if not lost:
        return set()
    groups = {event.group for event in history.of_type(Assigned) if event.group}
    stored = _stored_commits(groups, replica_dirs)
    return {each for each in lost if _is_undone(each, history, stored)}


def _is_undone(anomaly: Anomaly, history: History, stored: Mapping[Partition, Sequence[int]]) -> bool:
    went_on = _went_on_at(anomaly, history)
    newer = [
        event.offset
        for event in history.of_type(Committed)
        if (event.topic, event.partition) == (anomaly.topic, anomaly.partition)
        and event.at_s <= anomaly.at_s
        and went_on is not None
        and event.offset > went_on
    ]
    log = stored.get((anomaly.topic, anomaly.partition), ())
    return bool(newer) and newer[-1] in log and went_on in log[log.index(newer[-1]) :]


def _went_on_at(anomaly: Anomaly, history: History) -> int | None:
    for event in history.events:
        if isinstance(event, Polled | GroupOffset) and event.at_s == anomaly.at_s:
            same_record = isinstance(event, GroupOffset) or event.record_id == anomaly.record_id
            if same_record and (event.topic, event.partition) == (anomaly.topic, anomaly.partition):
                return event.offset
    return None


def _stored_commits(groups: set[str], replica_dirs: Mapping[int, Path]) -> dict[Partition, list[int]]:
    """The groups' commits in the order of the log, from any broker that has it, because replicas agree."""
    for root in replica_dirs.values():
        stored: dict[Partition, list[int]] = defaultdict(list)
        for segment in sorted(root.glob(f"{GROUP_TOPIC}-*/*.log")):
            for group, partition, offset in _commits_in(segment):
                if group in groups:
                    stored[partition].append(offset)
        if stored:
            return stored
    return {}


def _commits_in(segment: Path) -> Iterable[tuple[str, Partition, int]]:
    for record in read_records(segment.read_bytes()):
        try:
            key = decode_key(record.key or b"")
            if isinstance(key, OffsetKey) and record.value is not None:
                partition = (key.partition.topic, key.partition.partition)
                yield key.group_id, partition, decode_offset_value(record.value).offset
        except MalformedRecord:
            continue
