"""The records of __transaction_state, byte for byte as Kafka 3.9 writes them.

Key v0 (TransactionLogKey): int16 version, transactional id string.

Value (TransactionLogValue): int16 version, producer id int64, producer epoch int16, timeout int32 (ms), state int8,
partitions (null in Empty; an array of topic string and array of int32), time of the last update int64, start
time int64 (both wall-clock ms; -1: no transaction began). v1 is the same in the flexible layout. Kafka 3.9 reads
both and writes v0 in ZooKeeper mode, because v1 needs the feature ``transaction.version``.

A null value is a tombstone. Pure.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from broker.coordinator.common.records import MalformedRecord, element_count, open_value, told_as_malformed
from broker.coordinator.transaction.partitions import Partitions
from broker.coordinator.transaction.states import STORED, TransactionState
from broker.protocol.primitives import INT16, INT32, Reader, pack_string

MAX_ID_BYTES: Final = 0x7FFF
_KEY_VERSION: Final = 0
_VALUE_VERSION: Final = 0
_HIGHEST_VALUE_VERSION: Final = 1
_FLEXIBLE_FROM: Final = 1
_HEAD: Final = struct.Struct(">qhib")
_TIMES: Final = struct.Struct(">qq")
_NULL: Final = INT32.pack(-1)


class TransactionRecord(NamedTuple):
    """A transaction as stored; Kafka's TransactionLogValue. Times are wall-clock ms."""

    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: Partitions
    last_update_ms: int
    start_ms: int


def encode_key(transactional_id: str) -> bytes:
    """Raises ValueError for an id of more than 32,767 bytes."""
    return INT16.pack(_KEY_VERSION) + pack_string(transactional_id)


@told_as_malformed
def decode_key(key: bytes) -> str:
    """The transactional id. Raises :class:`MalformedRecord`, also for keys of later versions."""
    reader = Reader(memoryview(key))
    version = reader.int16()
    if version != _KEY_VERSION:
        raise MalformedRecord(f"unknown key version {version}")
    return reader.string()


def encode_value(record: TransactionRecord) -> bytes:
    """Encodes version 0."""
    head = _HEAD.pack(record.producer_id, record.producer_epoch, record.timeout_ms, record.state)
    times = _TIMES.pack(record.last_update_ms, record.start_ms)
    return b"".join((INT16.pack(_VALUE_VERSION), head, _encode_partitions(record), times))


def _encode_partitions(record: TransactionRecord) -> bytes:
    if record.state is TransactionState.Empty:
        return _NULL
    pieces = [INT32.pack(len(record.partitions))]
    for topic, numbers in record.partitions.items():
        pieces += (pack_string(topic), struct.pack(f">i{len(numbers)}i", len(numbers), *numbers))
    return b"".join(pieces)


@told_as_malformed
def decode_value(value: bytes) -> TransactionRecord:
    """Raises :class:`MalformedRecord`."""
    reader, _ = open_value(value, _HIGHEST_VALUE_VERSION, _FLEXIBLE_FROM)
    producer_id, producer_epoch, timeout_ms, state = reader.fields(_HEAD)
    if state not in STORED:
        raise MalformedRecord(f"no state of a stored transaction: {state}")
    partitions = dict(_decode_topic(reader) for _ in range(element_count(reader)))
    last_update_ms, start_ms = reader.fields(_TIMES)
    reader.end_struct()
    return TransactionRecord(
        producer_id,
        producer_epoch,
        timeout_ms,
        TransactionState(state),
        partitions,
        last_update_ms,
        start_ms,
    )


def _decode_topic(reader: Reader) -> tuple[str, frozenset[int]]:
    topic = reader.string()
    size = element_count(reader)
    numbers = struct.unpack(f">{size}i", reader.take(4 * size))
    reader.end_struct()
    return topic, frozenset(numbers)
