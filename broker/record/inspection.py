"""Checks whether the records of a client's batch match its header: how many are checked, and on which thread.

Kafka's LogValidator reads every record. Here that would cost more than the rest of a small request. So by
default a plain batch is checked up to its first record, and a compressed one is also decompressed completely
(docs/replication.md). It runs before :mod:`.validator`, without a lock. The validator checks the header and
the checksum.
"""

from __future__ import annotations

from enum import Enum
from struct import Struct
from typing import Final

from broker.protocol.errors import Errors, KafkaError
from broker.record.compression import (
    CODEC_NAMES,
    ZSTD,
    Bytes,
    CompressionError,
    TooLargeInsideError,
    decompress,
    decompress_small,
    decompressed_pieces,
)
from broker.record.header import (
    CODEC_MASK,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MIN_RECORD_BYTES,
    NO_TIMESTAMP,
    BatchHeader,
    crc_is_valid,
    read_header,
    set_max_timestamp,
)
from broker.record.records import RecordFormatError, first_timestamp, is_usual, walk
from broker.record.validator import BatchRules, check_count

# Limits of what the network thread checks itself: compressed bytes, decompressed bytes, and records.
INLINE_PACKED_BYTES: Final = 32 * 1024
INLINE_INSIDE_BYTES: Final = 256 * 1024
INLINE_RECORDS: Final = 64
# A handler decompresses zstd in one step up to 16 times its size, but at least up to this.
_AT_ONCE_BYTES: Final = 1024 * 1024
# How much of a large batch is kept while the rest is only counted.
_HEAD_BYTES: Final = 64 * 1024


# Attributes, last offset delta, base and highest timestamp.
_FIELDS: Final = Struct(">hiqq")
_FIELDS_AT: Final = 21


class Depth(Enum):
    """How far clients' batches are checked; the values of ``landline.produce.validation``."""

    NONE = "none"
    FIRST = "first"
    ALL = "all"


def inspect(records: memoryview, depth: Depth, rules: BatchRules, where: object, *, inline: bool) -> bool:
    """Checks the one batch that a client sent for the partition ``where``.

    False: too much for the network thread (only with ``inline``), and nothing was decided. True: the
    batch is valid, or its header is wrong, which the validator reports. If all records were read and the
    highest timestamp is not theirs, it is corrected in place, as in Kafka. Raises KafkaError:
    INVALID_RECORD, MESSAGE_TOO_LARGE.
    """
    if depth is Depth.NONE or len(records) <= HEADER_BYTES:
        return True
    if depth is Depth.FIRST:
        attributes, last_delta, base_timestamp, max_timestamp = _FIELDS.unpack_from(records, _FIELDS_AT)
        if (
            not attributes & CODEC_MASK
            and last_delta >= 0
            and base_timestamp <= max_timestamp
            # Of a batch of one record the timestamp is the highest, and it fills the batch.
            and (last_delta > 0 or NO_TIMESTAMP <= base_timestamp == max_timestamp)
            and is_usual(records, HEADER_BYTES, alone=last_delta == 0)
        ):
            return True
    header = read_header(records)
    count = header.record_count
    codec = header.attributes & CODEC_MASK
    if (
        header.magic != MAGIC
        or count <= 0
        or header.length != len(records) - LOG_OVERHEAD_BYTES
        or codec >= len(CODEC_NAMES)
        or rules.walks(codec)
    ):
        return True
    try:
        if codec == 0:
            done = _plain(records, header, depth, rules, inline=inline)
        else:
            check_count(header, rules)
            done = _packed(records, header, codec, depth, rules, inline=inline)
    except TooLargeInsideError as error:
        code, problem = Errors.MESSAGE_TOO_LARGE, str(error)
    except (CompressionError, RecordFormatError) as error:
        code, problem = Errors.INVALID_RECORD, str(error)
    except KafkaError as error:
        code, problem = error.error_code, error.message
    else:
        return done
    if not crc_is_valid(records, header):
        return True  # damaged in transit: the validator reports it, and the client retries
    raise KafkaError(code, f"{where}: the records are not what their batch says: {problem}")


def _plain(
    records: memoryview, header: BatchHeader, depth: Depth, rules: BatchRules, *, inline: bool
) -> bool:
    body = records[HEADER_BYTES:]
    count = header.record_count
    total = len(body)
    if count * MIN_RECORD_BYTES > total:
        return True
    # If the first record is later than the highest timestamp, all records are checked.
    if (
        depth is Depth.FIRST
        and count > 1
        and first_timestamp(body, total, header.base_timestamp) <= header.max_timestamp
    ):
        return True
    if inline and count > INLINE_RECORDS:
        return False
    _walk(records, header, body, rules)
    return True


def _packed(
    records: memoryview, header: BatchHeader, codec: int, depth: Depth, rules: BatchRules, *, inline: bool
) -> bool:
    packed = records[HEADER_BYTES:]
    count = header.record_count
    whole = depth is Depth.ALL
    if inline and (len(packed) > INLINE_PACKED_BYTES or (whole and count > INLINE_RECORDS)):
        return False
    most = rules.max_inside_bytes
    if inline or codec == ZSTD:
        at_once = INLINE_INSIDE_BYTES if inline else min(most, max(_AT_ONCE_BYTES, 16 * len(packed)))
        body = decompress_small(codec, packed, at_once)
        if body is not None and _holds(records, header, body, len(body), rules, whole=whole):
            return True
        if inline:  # a closer look on a handler thread finds the error
            return False
    if whole:
        body = decompress(codec, packed, most)
        head, total = body, len(body)
    else:
        head, total = _counted(codec, packed, most)
    if count * MIN_RECORD_BYTES > total:
        raise RecordFormatError(f"{count} records cannot fit in the {total} bytes that they decompress to")
    if whole or (count == 1 and len(head) == total):
        _walk(records, header, head, rules)
    elif first_timestamp(head, total, header.base_timestamp) > header.max_timestamp:
        _walk(records, header, decompress(codec, packed, most) if len(head) < total else head, rules)
    return True


def _holds(
    records: memoryview, header: BatchHeader, body: Bytes, total: int, rules: BatchRules, *, whole: bool
) -> bool:
    """Whether the records decompressed in one step are valid; further zstd frames may be missing."""
    count = header.record_count
    if count * MIN_RECORD_BYTES > total:
        return False
    try:
        if (
            not whole
            and count > 1
            and first_timestamp(body, total, header.base_timestamp) <= header.max_timestamp
        ):
            return True
        if not whole and count > INLINE_RECORDS:
            return False
        _walk(records, header, body, rules)
    except RecordFormatError:
        return False
    return True


def _counted(codec: int, packed: memoryview, max_bytes: int) -> tuple[bytes, int]:
    """The first of the decompressed bytes, and how many there are: a bomb is counted, not kept."""
    head = bytearray()
    total = 0
    for piece in decompressed_pieces(codec, packed, max_bytes):
        if len(head) < _HEAD_BYTES:
            head += piece
        total += len(piece)
    return bytes(head), total


def _walk(records: memoryview, header: BatchHeader, body: Bytes, rules: BatchRules) -> None:
    latest = walk(body, header.record_count, header.base_timestamp).latest_timestamp
    # With a wrong checksum, computing a new one would hide the damage.
    if latest != header.max_timestamp and not rules.log_append_time and crc_is_valid(records, header):
        set_max_timestamp(records, 0, header, latest)
