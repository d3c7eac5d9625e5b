"""The header of a record batch (magic 2): reads it, and sets in place the fields that the broker may set.

It works on memoryviews and never touches the records. The layout, big endian, 61 bytes::

     0 base_offset      int64    23 last_offset_delta int32    51 producer_epoch int16
     8 length           int32    27 base_timestamp    int64    53 base_sequence  int32
    12 leader_epoch     int32    35 max_timestamp     int64    57 record_count   int32
    16 magic            int8     43 producer_id       int64    61 records ...
    17 crc              uint32      (CRC32C of everything from ``attributes`` on)
    21 attributes       int16

``length`` counts what follows it, so a batch has ``length + 12`` bytes. The CRC does not cover the base
offset and the leader epoch, so setting them needs no new checksum. Source: Kafka 3.9, message format v2
(KIP-98, KIP-534).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from crc32c import crc32c

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LOG_OVERHEAD_BYTES: Final = 12  # base_offset and length, which ``length`` does not count
CRC_START: Final = 21
MAGIC: Final = 2
# Length, attributes, deltas of timestamp and offset, lengths of key and value, number of headers.
MIN_RECORD_BYTES: Final = 7

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1

_OFFSET_LENGTH_EPOCH: Final = struct.Struct(">qii")
_CRC: Final = struct.Struct(">I")
_CRC_AT: Final = 17
_CRC_ATTRIBUTES: Final = struct.Struct(">Ih")
_INT64: Final = struct.Struct(">q")
_OFFSET_AND_LENGTH: Final = struct.Struct(">qi")


class BatchHeader(NamedTuple):
    """The header of a batch. Offsets are the partition's, timestamps are in milliseconds, -1 means none."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size_bytes(self) -> int:
        """The size of the whole batch, header included."""
        return self.length + LOG_OVERHEAD_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec_id(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_FLAG)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_FLAG)

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_FLAG)

    @property
    def delete_horizon_ms(self) -> int | None:
        """When a compacted batch's tombstones may be removed; stored in ``base_timestamp`` (KIP-534)."""
        return self.base_timestamp if self.attributes & DELETE_HORIZON_FLAG else None

    @property
    def last_sequence(self) -> int:
        """The sequence of the last record; sequences wrap from 2^31 - 1 to 0. -1 without a producer id, and without
        sequences, as coordinators' batches are.
        """
        if self.producer_id == NO_PRODUCER_ID or self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return increment_sequence(self.base_sequence, self.last_offset_delta)


def increment_sequence(sequence: int, increment: int) -> int:
    """``sequence + increment``, wrapped from 2^31 - 1 to 0."""
    return (sequence + increment) & 0x7FFFFFFF


def read_header(view: memoryview | bytes, position: int = 0) -> BatchHeader:
    """The header at ``position``. Raises struct.error if fewer than 61 bytes follow."""
    return tuple.__new__(BatchHeader, HEADER.unpack_from(view, position))  # _make, without its length check


def batch_size_at(view: memoryview | bytes, position: int = 0) -> int:
    """The claimed size of the batch at ``position``, including its first 12 bytes."""
    size: int = _OFFSET_AND_LENGTH.unpack_from(view, position)[1] + LOG_OVERHEAD_BYTES
    return size


def iter_batches(view: memoryview | bytes) -> Iterator[BatchHeader]:
    """The headers of the whole batches in ``view``, in order.

    Stops before a trailing incomplete batch, and before one with an impossible length. It checks nothing
    else: see :func:`crc_is_valid`.
    """
    position = 0
    end = len(view)
    while end - position >= HEADER_BYTES:
        header = read_header(view, position)
        size = header.length + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES or size > end - position:
            return
        yield header
        position += size


def compute_crc(view: memoryview, position: int, size: int) -> int:
    """The CRC32C of the batch of ``size`` bytes at ``position``, over what its ``crc`` field covers."""
    return crc32c(view[position + CRC_START : position + size])


def crc_is_valid(view: memoryview, header: BatchHeader, position: int = 0) -> bool:
    """Whether the batch at ``position``, wholly inside ``view``, has the right checksum."""
    return compute_crc(view, position, header.length + LOG_OVERHEAD_BYTES) == header.crc


def set_offset_and_epoch(view: memoryview, position: int, base_offset: int, length: int, epoch: int) -> None:
    """Sets the base offset and leader epoch in place. ``length``, between them, must be the current one."""
    _OFFSET_LENGTH_EPOCH.pack_into(view, position, base_offset, length, epoch)


def set_crc(view: memoryview | bytearray, position: int, crc: int) -> None:
    """Sets the CRC of the batch at ``position`` in place."""
    _CRC.pack_into(view, position + _CRC_AT, crc)


def set_max_timestamp(view: memoryview, position: int, header: BatchHeader, timestamp: int) -> BatchHeader:
    """Sets the batch's highest timestamp (ms) and CRC in place, and returns the new header."""
    _INT64.pack_into(view, position + 35, timestamp)
    crc = compute_crc(view, position, header.size_bytes)
    _CRC_ATTRIBUTES.pack_into(view, position + 17, crc, header.attributes)
    return header._replace(max_timestamp=timestamp, crc=crc)


def set_log_append_time(view: memoryview, position: int, header: BatchHeader, now_ms: int) -> BatchHeader:
    """Sets the broker's time and the CRC of the batch in place, and returns the new header."""
    attributes = header.attributes | LOG_APPEND_TIME_FLAG
    _CRC_ATTRIBUTES.pack_into(view, position + 17, 0, attributes)
    _INT64.pack_into(view, position + 35, now_ms)
    crc = compute_crc(view, position, header.size_bytes)
    _CRC_ATTRIBUTES.pack_into(view, position + 17, crc, attributes)
    return header._replace(attributes=attributes, max_timestamp=now_ms, crc=crc)
