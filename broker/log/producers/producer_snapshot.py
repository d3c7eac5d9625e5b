"""Kafka's ``.snapshot`` files: the producers' state at the offset in the file's name.

The format is int16 version 1, uint32 CRC32C of all that follows it, int32 count, then 46 bytes per producer:
int64 id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta, int64 timestamp, int32
coordinator epoch, int64 first offset of the open transaction (-1 if none).

Kafka writes only each producer's last batch. After a restart it therefore refuses the retry of an earlier
batch as out of order, although it had appended it. This broker writes a row for every remembered batch, the
last one last. In Kafka a later row replaces an earlier one of the same producer, so Kafka reads what it would
have written itself.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from struct import Struct

from crc32c import crc32c

from broker.log.producers.producer_state import BatchMetadata, ProducerEntry
from broker.log.sealed_file import replace_file
from broker.protocol.offsets import UNKNOWN_OFFSET
from broker.record.header import NO_SEQUENCE

SUFFIX = ".snapshot"
VERSION = 1
_HEAD = Struct(">hIi")
_ENTRY = Struct(">qhiqiqiq")
_CRC_END = 6


class SnapshotError(ValueError):
    """The file is not a snapshot, or is damaged."""


def snapshot_path(directory: Path, offset: int) -> Path:
    return directory / f"{offset:020d}{SUFFIX}"


def snapshot_offsets(directory: Path) -> list[int]:
    """The offsets of all snapshots in ``directory``, rising."""
    return snapshots_among(os.listdir(directory))  # noqa: PTH208 - names alone


def snapshots_among(names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among a directory's ``names``, rising."""
    numbers = [name[: -len(SUFFIX)] for name in names if name.endswith(SUFFIX)]
    return sorted(int(number) for number in numbers if number.isdigit())


def write_snapshot(path: Path, entries: Iterable[ProducerEntry], *, sync: bool) -> None:
    """Replaces the file at ``path``. Raises OSError."""
    replace_file(path, encode_snapshot(entries), sync=sync)


def encode_snapshot(entries: Iterable[ProducerEntry]) -> bytes:
    """The content of a snapshot file."""
    body = b"".join(row for entry in entries for row in _encode(entry))
    rest = (len(body) // _ENTRY.size).to_bytes(4, "big") + body
    return VERSION.to_bytes(2, "big") + crc32c(rest).to_bytes(4, "big") + rest


def read_snapshot(path: Path) -> Iterator[ProducerEntry]:
    """The producers in the file, each with all its batches. Raises SnapshotError, OSError."""
    data = path.read_bytes()
    if len(data) < _HEAD.size:
        raise SnapshotError(f"{path} is too short for a snapshot: {len(data)} bytes")
    version, crc, count = _HEAD.unpack_from(data)
    if version != VERSION:
        raise SnapshotError(f"{path} has version {version}, known is {VERSION}")
    if crc != crc32c(data[_CRC_END:]):
        raise SnapshotError(f"{path} fails its checksum")
    if count * _ENTRY.size != len(data) - _HEAD.size:
        raise SnapshotError(f"{path} announces {count} rows in {len(data)} bytes")
    producers: dict[int, ProducerEntry] = {}
    for fields in _ENTRY.iter_unpack(data[_HEAD.size :]):
        _decode(fields, producers)
    return iter(producers.values())


def _encode(entry: ProducerEntry) -> Iterator[bytes]:
    first_offset = entry.current_txn_first_offset
    *earlier, last = entry.batches or [BatchMetadata(NO_SEQUENCE, UNKNOWN_OFFSET, 0, entry.last_timestamp)]
    for batch in (*earlier, last._replace(timestamp=entry.last_timestamp)):
        yield _ENTRY.pack(
            entry.producer_id,
            entry.epoch,
            batch.last_sequence,
            batch.last_offset,
            batch.offset_delta,
            batch.timestamp,
            entry.coordinator_epoch,
            UNKNOWN_OFFSET if first_offset is None else first_offset,
        )


def _decode(fields: tuple[int, ...], producers: dict[int, ProducerEntry]) -> None:
    """Adds a row to its producer; it is that producer's newest row."""
    producer_id, epoch, sequence, offset, delta, timestamp, coordinator_epoch, txn_first = fields
    entry = producers.setdefault(producer_id, ProducerEntry(producer_id, epoch))
    entry.set_epoch(epoch)
    if offset >= 0:
        entry.add(BatchMetadata(sequence, offset, delta, timestamp))
    entry.last_timestamp = timestamp
    entry.coordinator_epoch = coordinator_epoch
    entry.current_txn_first_offset = None if txn_first < 0 else txn_first
