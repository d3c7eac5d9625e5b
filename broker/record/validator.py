"""What a leader accepts: the checks of Kafka's LogValidator, made on batch headers and checksums.

All records inside are checked only if a config requires it: keys on a compacted topic, a lower bound of
timestamps, or another codec than the producer's. :mod:`.inspection` decides what else is checked. Knows
nothing about files or producers' sequences (see ``log.producers.producer_state``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple

from crc32c import crc32c

from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import records_body, replace_body
from broker.record.compression import (
    CODEC_IDS,
    CODEC_NAMES,
    CompressionError,
    TooLargeInsideError,
    decompress,
)
from broker.record.header import (
    CONTROL_FLAG,
    CRC_START,
    HEADER_BYTES,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    MIN_RECORD_BYTES,
    TRANSACTIONAL_FLAG,
    BatchHeader,
    batch_size_at,
    crc_is_valid,
    iter_batches,
    read_header,
    set_log_append_time,
    set_max_timestamp,
)
from broker.record.records import LONG_MAX, RecordFormatError, walk

# How much a batch may decompress to when its records are checked: far more than clients send, far less
# than memory.
LEAST_INSIDE_BYTES: Final = 32 * 1024 * 1024
INSIDE_FACTOR: Final = 8
# Checking that many records takes a second or two; clients' own limits are lower.
MOST_RECORDS: Final = 1_000_000
_HIGHEST_CODEC: Final = len(CODEC_NAMES) - 1


class RecordError(NamedTuple):
    """The number (from 0) of a batch's record, and its error; Kafka's BatchIndexAndErrorMessage."""

    number: int
    message: str


class RecordRefusedError(KafkaError):
    """A batch refused because of one of its records."""

    def __init__(self, error_code: Errors, where: object, index: int, problem: str) -> None:
        super().__init__(error_code, f"{where}: record {index}: {problem}")
        self.record_errors = (RecordError(index, problem),)


class AppendOrigin(Enum):
    """Who wrote the records. Clients are not trusted; a coordinator is this broker itself."""

    CLIENT = "client"
    COORDINATOR = "coordinator"
    REPLICATION = "replication"


_CLIENT: Final = AppendOrigin.CLIENT


@dataclass(frozen=True, slots=True)
class BatchRules:
    """What a topic's config requires of a batch. ``target_codec`` None keeps the producer's codec."""

    max_message_bytes: int
    log_append_time: bool = False
    before_max_ms: int = LONG_MAX
    after_max_ms: int = LONG_MAX
    keys_required: bool = False
    target_codec: int | None = None
    level: int | None = None
    looks_inside: bool = field(init=False)
    may_walk: bool = field(init=False)

    def __post_init__(self) -> None:
        """Precomputes what each batch needs."""
        looks_inside = self.keys_required or self.before_max_ms < LONG_MAX
        object.__setattr__(self, "looks_inside", looks_inside)
        object.__setattr__(self, "may_walk", looks_inside or self.target_codec is not None)

    def walks(self, codec_id: int) -> bool:
        """Whether the config requires a check of every record in a batch with this codec."""
        return self.looks_inside or self.target_codec not in (None, codec_id)

    @property
    def max_inside_bytes(self) -> int:
        """The most that a batch's records may decompress to."""
        return max(LEAST_INSIDE_BYTES, INSIDE_FACTOR * self.max_message_bytes)


def codec_for(compression_type: str) -> int | None:
    """The codec id of a ``compression.type``; None for ``producer``."""
    return None if compression_type == "producer" else CODEC_IDS[compression_type]


def check_batches(
    records: memoryview, rules: BatchRules, origin: AppendOrigin, now_ms: int, where: object
) -> list[BatchHeader]:
    """The headers of all batches in ``records``, each of them valid.

    ``where`` names the partition in messages. Raises KafkaError: CORRUPT_MESSAGE, INVALID_RECORD,
    MESSAGE_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, INVALID_TIMESTAMP.
    """
    end = len(records)
    headers = []
    position = 0
    while position < end:
        header = _checked_header(records, position, end, rules.max_message_bytes, where)
        if origin is _CLIENT:
            _check_client_batch(header, where)
        if header.attributes & LOG_APPEND_TIME_FLAG and not rules.log_append_time:
            raise KafkaError(
                Errors.INVALID_TIMESTAMP,
                f"{where}: a producer must not set the timestamp type LogAppendTime on a CreateTime topic",
            )
        if (
            rules.may_walk
            and origin is not AppendOrigin.COORDINATOR
            and rules.walks(header.attributes & 0x07)
        ):
            header = _check_inside(records, position, header, rules, now_ms=now_ms, where=where)
        if header.max_timestamp > now_ms + rules.after_max_ms and not rules.log_append_time:
            raise KafkaError(
                Errors.INVALID_TIMESTAMP,
                f"{where}: timestamp {header.max_timestamp} is later than now ({now_ms}) by more than "
                f"message.timestamp.after.max.ms={rules.after_max_ms}",
            )
        headers.append(header)
        position += header.length + LOG_OVERHEAD_BYTES
    if not headers:
        raise KafkaError(Errors.INVALID_RECORD, f"{where}: there is no record batch to append")
    return headers


def _checked_header(
    records: memoryview, position: int, end: int, max_message_bytes: int, where: object
) -> BatchHeader:
    if end - position < HEADER_BYTES:
        raise KafkaError(
            Errors.CORRUPT_MESSAGE,
            f"{where}: {end - position} bytes are too few for a record batch's header of {HEADER_BYTES}",
        )
    header = read_header(records, position)
    size = header.length + LOG_OVERHEAD_BYTES
    if header.magic != MAGIC:
        code = Errors.INVALID_RECORD if 0 <= header.magic < MAGIC else Errors.CORRUPT_MESSAGE
        raise KafkaError(code, f"{where}: record batch has magic {header.magic}, only {MAGIC} is accepted")
    if size < HEADER_BYTES or size > end - position:
        raise KafkaError(
            Errors.CORRUPT_MESSAGE,
            f"{where}: record batch claims {size} bytes where {end - position} are left",
        )
    _check_size(size, max_message_bytes, where)
    if crc32c(records[position + CRC_START : position + size]) != header.crc:
        raise KafkaError(Errors.CORRUPT_MESSAGE, f"{where}: record batch fails its CRC")
    if header.attributes & 0x07 > _HIGHEST_CODEC:
        raise KafkaError(
            Errors.UNSUPPORTED_COMPRESSION_TYPE,
            f"{where}: record batch has compression codec {header.codec_id}, known are 0 to {_HIGHEST_CODEC}",
        )
    return header


def _check_size(size: int, max_message_bytes: int, where: object) -> None:
    if size > max_message_bytes:
        raise KafkaError(
            Errors.MESSAGE_TOO_LARGE,
            f"{where}: record batch of {size} bytes exceeds max.message.bytes={max_message_bytes}",
        )


def _check_client_batch(header: BatchHeader, where: object) -> None:
    """Checks a client's batch: offsets 0..n-1, no markers, and a sequence with a producer id."""
    problem = None
    if header.base_offset != 0:
        problem = f"base offset must be 0, is {header.base_offset}"
    elif header.record_count <= 0 or header.last_offset_delta + 1 != header.record_count:
        problem = f"{header.record_count} records but last offset delta {header.last_offset_delta}"
    elif (
        not header.attributes & 0x07
        and header.record_count * MIN_RECORD_BYTES > header.length + LOG_OVERHEAD_BYTES - HEADER_BYTES
    ):
        problem = f"{header.record_count} records cannot fit in {header.size_bytes} bytes"
    elif header.attributes & CONTROL_FLAG:
        problem = "clients are not allowed to write control records"
    elif header.producer_id >= 0 and (header.base_sequence < 0 or header.producer_epoch < 0):
        problem = (
            f"producer id {header.producer_id} with sequence {header.base_sequence} "
            f"and epoch {header.producer_epoch}"
        )
    elif header.producer_id < 0 and header.attributes & TRANSACTIONAL_FLAG:
        problem = "transactional records need a producer id"
    if problem is not None:
        raise KafkaError(Errors.INVALID_RECORD, f"{where}: invalid record batch: {problem}")


def _check_inside(
    records: memoryview, position: int, header: BatchHeader, rules: BatchRules, *, now_ms: int, where: object
) -> BatchHeader:
    """Checks all records; returns the header with their highest timestamp, also set in ``records``."""
    check_count(header, rules)
    body = records[position + HEADER_BYTES : position + header.size_bytes]
    try:
        inside = decompress(header.codec_id, body, rules.max_inside_bytes)
        found = walk(inside, header.record_count, header.base_timestamp)
    except TooLargeInsideError as error:
        raise KafkaError(Errors.MESSAGE_TOO_LARGE, f"{where}: {error}") from error
    except (CompressionError, RecordFormatError) as error:
        raise KafkaError(Errors.INVALID_RECORD, f"{where}: {error}") from error
    if rules.keys_required and found.without_key >= 0:
        raise RecordRefusedError(
            Errors.INVALID_RECORD,
            where,
            found.without_key,
            "a compacted topic cannot accept a message without key",
        )
    if rules.log_append_time:
        return header
    if found.earliest_timestamp < now_ms - rules.before_max_ms:
        raise RecordRefusedError(
            Errors.INVALID_TIMESTAMP,
            where,
            found.earliest_index,
            f"timestamp {found.earliest_timestamp} is earlier than now ({now_ms}) by more than "
            f"message.timestamp.before.max.ms={rules.before_max_ms}",
        )
    if found.latest_timestamp == header.max_timestamp or records.readonly:
        return header
    return set_max_timestamp(records, position, header, found.latest_timestamp)


def check_count(header: BatchHeader, rules: BatchRules) -> None:
    """Refuses too many records before any is read. INVALID_RECORD if their bytes could not fit.
    MESSAGE_TOO_LARGE if they would occupy a thread for seconds; a producer then sends smaller batches.
    """
    count = header.record_count
    if count * MIN_RECORD_BYTES > rules.max_inside_bytes:
        raise KafkaError(
            Errors.INVALID_RECORD,
            f"{count} records cannot fit in {rules.max_inside_bytes} bytes, the most that a batch may hold",
        )
    if count > MOST_RECORDS:
        raise KafkaError(
            Errors.MESSAGE_TOO_LARGE, f"{count} records are more than the {MOST_RECORDS} of a batch"
        )


def check_fetched(records: memoryview, where: object) -> list[BatchHeader]:
    """The headers of the whole batches that a follower fetched, with valid checksums, up to the first wrong
    one. That one is found again as the first batch of a later fetch.

    Raises KafkaError(CORRUPT_MESSAGE) if there is none.
    """
    position = 0
    headers: list[BatchHeader] = []
    for header in iter_batches(records):
        if header.magic != MAGIC or not crc_is_valid(records, header, position):
            if headers:
                return headers
            raise KafkaError(
                Errors.CORRUPT_MESSAGE,
                f"{where}: fetched batch at offset {header.base_offset} (magic {header.magic}) "
                "fails its checksum",
            )
        headers.append(header)
        position += header.length + LOG_OVERHEAD_BYTES
    if not headers and len(records) >= LOG_OVERHEAD_BYTES:
        size = batch_size_at(records)
        raise KafkaError(
            Errors.CORRUPT_MESSAGE, f"{where}: fetched batch claims {size} bytes, {len(records)} were sent"
        )
    return headers


def check_follows(headers: Sequence[BatchHeader], log_end_offset: int, epochs: range, where: object) -> int:
    """How many of the batches continue the log, each after the previous one; checks the fields that checksums
    do not cover.

    ``epochs`` range from the log's last batch to the current leader's. A batch after a gap, which compaction
    leaves, is accepted only if another fetched batch follows it, or if it is the first: then the leader has
    verified its position. Raises KafkaError if no batch continues the log: OFFSET_OUT_OF_RANGE, or
    CORRUPT_MESSAGE for a wrong epoch.
    """
    expected, epoch = log_end_offset, epochs.start
    count = 0
    gap = False
    problem: KafkaError | None = None
    for header in headers:
        problem = _misfit(header, expected, range(epoch, epochs.stop), where)
        if problem is not None:
            break
        count += 1
        gap = header.base_offset > expected
        expected, epoch = header.next_offset, max(epoch, header.leader_epoch)
    if gap and (problem is not None or count > 1):
        count -= 1
    if problem is not None and count == 0:
        raise problem
    return count


def _misfit(header: BatchHeader, expected: int, epochs: range, where: object) -> KafkaError | None:
    if header.base_offset < expected or header.last_offset_delta < 0:
        return KafkaError(
            Errors.OFFSET_OUT_OF_RANGE,
            f"{where}: fetched batch begins at offset {header.base_offset}, the log continues at {expected}",
        )
    if header.leader_epoch >= 0 and header.leader_epoch not in epochs:
        return KafkaError(
            Errors.CORRUPT_MESSAGE,
            f"{where}: fetched batch at offset {header.base_offset} claims leader epoch {header.leader_epoch}, "
            f"possible are {epochs.start} to {epochs.stop - 1}",
        )
    return None


def needs_recompression(headers: list[BatchHeader], rules: BatchRules) -> bool:
    """Whether a batch has another codec than the topic's. Control batches stay as they are."""
    target = rules.target_codec
    return target is not None and any(_is_to_recompress(header, target) for header in headers)


def _is_to_recompress(header: BatchHeader, target: int) -> bool:
    return header.codec_id != target and not header.is_control


def recompress(
    records: memoryview, headers: list[BatchHeader], rules: BatchRules, where: object
) -> tuple[memoryview, list[BatchHeader]]:
    """Recompresses the batches with the topic's codec. The records inside stay byte for byte.

    Raises KafkaError(MESSAGE_TOO_LARGE) if one becomes larger than the topic allows.
    """
    assert rules.target_codec is not None
    out = bytearray()
    position = 0
    for header in headers:
        if not _is_to_recompress(header, rules.target_codec):
            out += records[position : position + header.size_bytes]
        else:
            body = records_body(records, header, position, rules.max_inside_bytes)
            batch = replace_body(header, body, rules.target_codec, rules.level)
            _check_size(len(batch), rules.max_message_bytes, where)
            out += batch
        position += header.size_bytes
    view = memoryview(out)
    return view, _headers(view)


def stamp_append_time(records: memoryview, headers: list[BatchHeader], now_ms: int) -> list[BatchHeader]:
    """Sets the broker's time in every batch in place; returns the new headers."""
    stamped = []
    position = 0
    for header in headers:
        stamped.append(set_log_append_time(records, position, header, now_ms))
        position += header.size_bytes
    return stamped


def _headers(view: memoryview) -> list[BatchHeader]:
    headers = []
    position = 0
    while position < len(view):
        headers.append(read_header(view, position))
        position += headers[-1].size_bytes
    return headers
