"""Compares replicas' segment files byte for byte, by offset, and with the final log as it was read.

Only what is below the high watermark must agree. Segments may end at different offsets, and retention may
have removed different starts, so batches are compared, not files. Reads whole partitions into memory, one
after another.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from broker.log.checkpoints import HIGH_WATERMARK_CHECKPOINT, OffsetCheckpoint
from broker.protocol.errors import KafkaError
from broker.record.batch import BatchHeader, crc_is_valid, iter_batches
from broker.utils.topic_partition import TopicPartition
from chaos.anomalies import Anomaly, AnomalyKind
from chaos.committed_records import committed_records
from chaos.facts import Facts, Partition
from chaos.history import StoredRange


@dataclass(frozen=True, slots=True)
class Batch:
    """One batch of one replica: its header, and its bytes including the header."""

    header: BatchHeader
    data: memoryview


@dataclass(frozen=True, slots=True)
class Replica:
    """A partition on one broker: ``start`` is its first segment's base offset; batches are in the
    files' order.
    """

    broker: int
    start: int
    batches: Sequence[Batch]


def compare(facts: Facts, replica_dirs: Mapping[int, Path]) -> Iterator[Anomaly]:
    """Returns the first difference of every partition of the history's topics.

    ``replica_dirs`` are the brokers' log directories by broker id; if a broker has several, their parent.
    Raises OSError when a file cannot be read.
    """
    topics = {topic for topic, _ in facts.ranges} or {sent.topic for sent in facts.sent.values()}
    directories = _partition_dirs(replica_dirs, topics)
    for key in sorted(facts.ranges.keys() | directories.keys()):
        found = directories.get(key, {})
        known = facts.ranges.get(key)
        end = known.end if known else max(map(_checkpointed, found.values()))
        replicas = [_load(broker, path) for broker, path in sorted(found.items())]
        anomaly = _compare(key, replicas, end)
        if anomaly is None and known is not None:
            anomaly = _against_final(key, replicas, known, facts.final.get(key, {}))
        if anomaly is not None:
            yield anomaly


def _partition_dirs(replica_dirs: Mapping[int, Path], topics: set[str]) -> dict[Partition, dict[int, Path]]:
    found: dict[Partition, dict[int, Path]] = defaultdict(dict)
    for broker, root in replica_dirs.items():
        for path in (*root.glob("*-*/"), *root.glob("*/*-*/")):
            topic, _, number = path.name.rpartition("-")
            if topic in topics and number.isdecimal():
                found[topic, int(number)][broker] = path
    return found


def _checkpointed(partition_dir: Path) -> int:
    """The high watermark in the broker's checkpoint; the actual one may be newer."""
    topic, _, number = partition_dir.name.rpartition("-")
    offsets = OffsetCheckpoint(partition_dir.parent, HIGH_WATERMARK_CHECKPOINT).read()
    return offsets.get(TopicPartition(topic, int(number)), 0)


def _load(broker: int, path: Path) -> Replica:
    segments = sorted(each for each in path.glob("*.log") if each.stem.isdecimal())
    batches: list[Batch] = []
    for segment in segments:
        view = memoryview(segment.read_bytes())
        position = 0
        for header in iter_batches(view):
            batches.append(Batch(header, view[position : position + header.size_bytes]))
            position += header.size_bytes
    return Replica(broker, int(segments[0].stem) if segments else 0, batches)


def _compare(key: Partition, replicas: Sequence[Replica], end: int) -> Anomaly | None:
    """The first batch below ``end`` that is not the same in all replicas."""
    if not replicas:
        return Anomaly(
            AnomalyKind.DIVERGED, "", key[1], f"no replica has files, the log ends at {end}", key[0]
        )
    start = max(replica.start for replica in replicas)
    columns = [
        [
            batch
            for batch in replica.batches
            if batch.header.last_offset >= start and batch.header.base_offset < end
        ]
        for replica in replicas
    ]
    last = start
    for row in zip_longest(*columns):
        if any(batch is None or batch.data != row[0].data for batch in row):
            story = "; ".join(f"{brokers} {what}" for what, brokers in _by_content(replicas, row).items())
            detail = f"from offset {last} on, below the high watermark {end}: {story}"
            return Anomaly(AnomalyKind.DIVERGED, "", key[1], detail, key[0])
        last = row[0].header.next_offset
    if last < end:
        brokers = ", ".join(str(replica.broker) for replica in replicas)
        detail = f"every replica ({brokers}) ends at {last}, below the high watermark {end}"
        return Anomaly(AnomalyKind.DIVERGED, "", key[1], detail, key[0])
    return None


def _by_content(replicas: Sequence[Replica], row: Sequence[Batch | None]) -> dict[str, str]:
    """Which brokers hold what; checksums distinguish two batches that have the same description."""
    holders: dict[bytes | None, list[int]] = defaultdict(list)
    described: dict[bytes | None, str] = {}
    for replica, batch in zip(replicas, row, strict=True):
        content = None if batch is None else bytes(batch.data)
        holders[content].append(replica.broker)
        described[content] = "ends" if batch is None else f"holds {_describe(batch)}"
    names = {content: "broker " + ", ".join(map(str, brokers)) for content, brokers in holders.items()}
    told: dict[str, str] = {}
    for number, (content, name) in enumerate(names.items(), 1):
        text = described[content]
        told[text if text not in told else f"{text} (other bytes, {number})"] = name
    return told


def _describe(batch: Batch) -> str:
    header = batch.header
    crc = "a right" if crc_is_valid(batch.data, header, 0) else "a WRONG"
    span = f"{header.base_offset} to {header.last_offset}"
    return (
        f"a batch of {span}, epoch {header.leader_epoch}, {len(batch.data)} bytes, {crc} CRC {header.crc:08x}"
    )


def _against_final(
    key: Partition, replicas: Sequence[Replica], known: StoredRange, final: Mapping[int, str]
) -> Anomaly | None:
    """The first offset at which the files have another record than was read; here all replicas are equal."""
    start = max(known.start, *(replica.start for replica in replicas))
    batches = min(replicas, key=lambda replica: replica.start).batches
    try:
        held = committed_records((batch.header, batch.data) for batch in batches)
    except KafkaError as error:
        return Anomaly(AnomalyKind.DIVERGED, "", key[1], f"every replica is corrupt: {error}", key[0])
    for offset in range(start, known.end):
        stored, read = held.get(offset, "nothing"), final.get(offset, "nothing")
        if stored != read:
            detail = f"the files hold {stored} at offset {offset}, read as {read}"
            return Anomaly(AnomalyKind.DIVERGED, final.get(offset, ""), key[1], detail, key[0])
    return None
