"""Commits that an older request of the same client undid: sent again elsewhere meanwhile, it arrived late after all.

A client whose coordinator does not answer sends its commit to the next one. The first request may still wait in a
socket's buffer, and when a cut link is mended it reaches a broker that coordinates the group again: the older offset is
then committed after the newer one. Kafka's protocol has no order among commits, so the group reads some records again.
The log of the group's offsets tells this from a commit that was lost: it holds the newer one, then the older.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from broker.coordinator.group.records import MalformedRecord, OffsetKey, decode_key, decode_offset_value
from broker.record.batch import read_records
from chaos.anomalies import Anomaly, AnomalyKind
from chaos.coordination import GROUP_TOPIC
from chaos.facts import Partition
from chaos.history import Assigned, Committed, GroupOffset, History, Polled


def undone_by_late_commits(
    found: Iterable[Anomaly], history: History, replica_dirs: Mapping[int, Path]
) -> set[Anomaly]:
    """Returns the lost commits after which the log of the groups' offsets holds a commit of where the group went on.

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
    """What the groups committed, in the order of the log; from any broker that has it, for replicas agree."""
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
