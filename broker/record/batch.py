"""Whole record batches (magic 2): builds them and reads their records. It also exports names
of :mod:`.header`.

Code that only needs headers, such as the hot paths, needs only :func:`iter_batches`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from crc32c import crc32c

from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.record.compression import (
    CODEC_IDS,
    DEFAULT_MAX_BYTES,
    Bytes,
    CompressionError,
    compress,
    decompress,
)
from broker.record.header import (
    CODEC_MASK,
    CONTROL_FLAG,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    crc_is_valid,
    iter_batches,
    read_header,
    set_crc,
)
from broker.record.records import Record, RecordFormatError, decode_records, encode_records

__all__ = [
    "HEADER_BYTES",
    "BatchHeader",
    "Record",
    "build_batch",
    "crc_is_valid",
    "iter_batches",
    "iter_records",
    "read_header",
    "read_records",
    "records_body",
    "replace_body",
]


def build_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_EPOCH,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    compression: str = "none",
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    keep_offsets: bool = False,
) -> bytes:
    """A v2 batch of ``records``.

    They get consecutive offsets from ``base_offset``, unless ``keep_offsets`` keeps their own (rising, none
    below ``base_offset``). Raises ValueError if there are no records.
    """
    if not records:
        raise ValueError("a batch needs a record")
    base_timestamp = records[0].timestamp
    attributes = CODEC_IDS[compression]
    attributes |= TRANSACTIONAL_FLAG if transactional else 0
    attributes |= CONTROL_FLAG if control else 0
    max_timestamp = max(record.timestamp for record in records)
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time_ms
    header = BatchHeader(
        base_offset,
        0,
        leader_epoch,
        MAGIC,
        0,
        attributes,
        records[-1].offset - base_offset if keep_offsets else len(records) - 1,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    return assemble(header, encode_records(records, base_offset if keep_offsets else None, base_timestamp))


def assemble(header: BatchHeader, body: Bytes, level: int | None = None) -> bytes:
    """A batch of ``header``, with its length and CRC computed, and an uncompressed body."""
    packed = compress(header.codec_id, body, level)
    out = bytearray(HEADER_BYTES + len(packed))
    out[HEADER_BYTES:] = packed
    HEADER.pack_into(out, 0, *header._replace(length=len(out) - LOG_OVERHEAD_BYTES, crc=0))
    set_crc(out, 0, crc32c(memoryview(out)[CRC_START:]))
    return bytes(out)


def replace_body(header: BatchHeader, body: Bytes, codec_id: int, level: int | None = None) -> bytes:
    """The batch of ``header`` with its uncompressed ``body`` compressed by another codec."""
    return assemble(header._replace(attributes=header.attributes & ~CODEC_MASK | codec_id), body, level)


def records_body(
    view: memoryview, header: BatchHeader, position: int = 0, max_bytes: int = DEFAULT_MAX_BYTES
) -> Bytes:
    """The decompressed records of the batch at ``position``. Raises KafkaError(CORRUPT_MESSAGE)."""
    body = view[position + HEADER_BYTES : position + header.size_bytes]
    try:
        return decompress(header.codec_id, body, max_bytes)
    except CompressionError as error:
        raise KafkaError(Errors.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}: {error}") from error


def iter_records(view: memoryview, header: BatchHeader, position: int = 0) -> list[Record]:
    """The records of one batch, with absolute offsets and timestamps. Raises KafkaError(CORRUPT_MESSAGE)."""
    return list(each_record(view, header, position))


def each_record(view: memoryview, header: BatchHeader, position: int = 0) -> Iterator[Record]:
    """As :func:`iter_records`, one by one, for callers that do not keep them: a million records of a batch
    take 200 MB. Errors are raised when they are reached.
    """
    append_time = header.max_timestamp if header.is_log_append_time else None
    body = records_body(view, header, position)
    try:
        yield from decode_records(
            body, header.record_count, header.base_offset, header.base_timestamp, append_time
        )
    except RecordFormatError as error:
        raise KafkaError(Errors.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}: {error}") from error


def read_records(view: memoryview | bytes, *, include_control: bool = False) -> list[Record]:
    """All records of the whole batches in ``view``; transaction markers only with ``include_control``.

    A trailing incomplete batch is skipped. Raises KafkaError(CORRUPT_MESSAGE) if a CRC or a record
    is invalid.
    """
    view = memoryview(view)
    records: list[Record] = []
    position = 0
    for header in iter_batches(view):
        if header.magic != MAGIC or not crc_is_valid(view, header, position):
            raise KafkaError(
                Errors.CORRUPT_MESSAGE, f"batch at offset {header.base_offset} fails its checksum"
            )
        if include_control or not header.is_control:
            records += iter_records(view, header, position)
        position += header.size_bytes
    return records
