"""Verifies a segment's batches and rebuilds its indexes from them."""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import structlog
from crc32c import crc32c

from broker.config.log_config import LONG_MAX
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_dir_health import Fault, fault_of
from broker.log.producers.markers import CutMarkerError, read_marker
from broker.log.results import AbortedTransaction
from broker.log.segments.batch_file import INDEX_SUFFIX, INT32_MAX, LOG_SUFFIX
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.segment import Segment, sync_dir
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import KafkaError
from broker.record.header import (
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    BatchHeader,
    read_header,
)

_log = structlog.get_logger(__name__)
_BUFFER_BYTES = 1024 * 1024
_LEGACY_HEADER_BYTES = 26


@dataclass(frozen=True, slots=True)
class RecoveryResult:
    """The result of a segment's recovery: where it began, where the log continues, how much was cut off and
    why, and the last batch's epoch. ``without_producers``: every batch was read and none has a producer id.
    """

    first_offset: int
    next_offset: int
    truncated_bytes: int
    problem: str | None
    last_epoch: int
    without_producers: bool

    def checked_against(self, following_base: int) -> RecoveryResult:
        """Adds a problem if batches are missing before the next segment."""
        if self.next_offset >= following_base:
            return self
        missing = f"the batches of offsets {self.next_offset} to {following_base - 1} are missing"
        return replace(self, problem=missing)


class _Fault(Exception):
    """The batch at this position is incomplete or not what was written."""


def recover_segment(
    segment: Segment,
    trusted_offset: int,
    index_interval_bytes: int,
    *,
    end_offset: int | None = None,
    durable_offset: int | None = None,
    behind: Sequence[Segment] = (),
    keeps_aborts: bool = False,
    epoch_before: int = NO_EPOCH,
    epochs: LeaderEpochCache | None = None,
    cancel: threading.Event | None = None,
) -> RecoveryResult:
    """Verifies the batches from ``trusted_offset`` on, rebuilds their index entries and cuts off what
    is wrong.

    Batches and index entries below ``trusted_offset`` are durable and accepted as they are. No batch may
    reach ``end_offset``, where the next segment begins. ``keeps_aborts`` keeps the transaction index; set it
    if the producers' state is not rebuilt from these batches, which would add the aborted transactions again.
    If anything is cut off, the later segments ``behind`` are removed too. Raises LoadCancelled, LogDirError
    on batches of an older message format, OSError.
    """
    highest = segment.base_offset + INT32_MAX + 1
    end_offset = highest if end_offset is None else min(end_offset, highest)
    position = _rewind(segment, trusted_offset, keeps_aborts=keeps_aborts)
    without_producers = position == 0
    next_offset, last_epoch = segment.base_offset, epoch_before
    first_offset: int | None = None
    problem = None
    # The last batch after a gap: its position, the offset before the gap, the one after the batch.
    gap: tuple[int, int, int] | None = None
    durable_offset = trusted_offset if durable_offset is None else durable_offset
    try:
        for at, header in _batches(segment, position, cancel, durable_offset):
            position = at
            # The header's properties are computed inline, because there may be millions of batches.
            base_offset, epoch = header.base_offset, header.leader_epoch
            last_offset = base_offset + header.last_offset_delta
            # The checksum does not cover offsets.
            if base_offset < next_offset or last_offset >= end_offset:
                fault = _Fault(f"offset {base_offset} follows {next_offset - 1}")
                position, next_offset = _contradicted(segment, position, next_offset, gap)
                raise fault
            if base_offset > next_offset:
                gap = position, next_offset, last_offset + 1
            if first_offset is None:
                first_offset = base_offset
                if epochs is not None:
                    epochs.forget_from(max(first_offset, durable_offset))
            if last_offset >= durable_offset:  # below it, the equally durable checkpoint knows the epoch
                if epoch < last_epoch:
                    # Data from before a truncation that reached the disk only in part.
                    raise _Fault(f"epoch {epoch} follows {last_epoch}")
                if epoch > last_epoch:
                    last_epoch = epoch
                    if epochs is not None and epoch > epochs.latest_epoch:
                        epochs.assign(epoch, base_offset, write=False)
            if header.producer_id >= 0:
                without_producers = False
            _note(segment, header, last_offset, position, index_interval_bytes)
            next_offset = last_offset + 1
            position += header.length + LOG_OVERHEAD_BYTES
    except _Fault as fault:
        problem = str(fault)
    truncated = segment.size - position
    if truncated:
        refuse_legacy(segment, position)
        remove_segments(behind)
        segment.size = position
        segment.cut_back()
    _finish_indexes(segment)
    return RecoveryResult(
        next_offset if first_offset is None else first_offset,
        next_offset,
        truncated,
        problem,
        last_epoch,
        without_producers,
    )


def _contradicted(
    segment: Segment, position: int, next_offset: int, gap: tuple[int, int, int] | None
) -> tuple[int, int]:
    """The position and offset to cut at if the batch at ``position`` does not follow the one before.

    If the previous batch is after a gap, either of the two may be wrong, and both are cut off.
    """
    if gap is None or gap[2] != next_offset:
        return position, next_offset
    position, next_offset, _ = gap
    segment.offset_index.truncate_to(position)
    segment.time_index.truncate_to(next_offset)
    segment.max_timestamp = None
    return position, next_offset


def _finish_indexes(segment: Segment) -> None:
    try:
        segment.become_inactive()
    except OSError as error:
        if fault_of(error) is not Fault.FULL:
            raise
        # A full disk must not stop the start, because then the broker could not free space on it.
        _log.warning("index_not_written", file=str(segment.path(INDEX_SUFFIX)), kept="in memory")


def remove_segments(segments: Sequence[Segment]) -> None:
    """Unlinks the segments after a fault, durably and before the fault itself is cut off. If recovery stopped
    in between, the next one would find no fault and keep those segments. Raises OSError.
    """
    for segment in reversed(segments):
        segment.delete_files()
    if segments:
        sync_dir(segments[0].dir)


def _rewind(segment: Segment, trusted_offset: int, *, keeps_aborts: bool) -> int:
    """Truncates the indexes to what is durable; returns the position to verify from."""
    segment.max_timestamp = None
    segment.first_timestamp = None
    segment.bytes_since_index_entry = 0
    offset_index, time_index = segment.offset_index, segment.time_index
    durable = segment.has_indexes and trusted_offset > segment.base_offset
    if durable and offset_index.is_sane(segment.size) and time_index.is_sane():
        offset_index.truncate_to_offset(trusted_offset)
        last = segment.last_sound_entry()
        if last is not None:
            time_index.truncate_to(last[0] + 1)
            time_index.drop_unordered_end()
            segment.txn_index.truncate_to(last[0])
            segment.txn_index.keep_while(partial(may_have_marker, segment))
            position = last[1]
            offset_index.truncate_to(position)
            segment.bytes_since_index_entry = LONG_MAX  # so that this batch gets its index entry again
            return position
    offset_index.file.reset()
    time_index.reset()
    if keeps_aborts:
        segment.txn_index.keep_while(partial(may_have_marker, segment))
    else:
        segment.txn_index.reset()
    segment.max_timestamp = NO_TIMESTAMP
    return 0


def may_have_marker(segment: Segment, aborted: AbortedTransaction) -> bool:
    """As :func:`has_marker`, and true if the marker cannot be read: the entry knew it when it could be, and keeps the
    transaction's records from those who want committed ones. Raises OSError.
    """
    try:
        return has_marker(segment, aborted)
    except KafkaError:
        return True


def has_marker(segment: Segment, aborted: AbortedTransaction) -> bool:
    """Whether the segment holds the abort marker of an index entry. Raises KafkaError(CORRUPT_MESSAGE) if the marker is
    damaged, OSError.
    """
    if aborted.last_offset < segment.base_offset:
        return False
    found = segment.find(aborted.last_offset)
    if found is None:
        return False
    position, header = found
    if (header.base_offset, header.producer_id) != (aborted.last_offset, aborted.producer_id):
        return False
    if not header.is_control:
        return False
    try:
        marker = read_marker(segment.whole_batch(position, header), 0, header)
    except CutMarkerError as cut:
        if cut.marker is None:
            raise
        marker = cut.marker
    return marker is not None and not marker.committed


def _note(
    segment: Segment, header: BatchHeader, last_offset: int, position: int, index_interval_bytes: int
) -> None:
    largest_timestamp = segment.max_timestamp
    if largest_timestamp is None:
        largest_timestamp = segment.largest_noted_timestamp
    if header.max_timestamp > largest_timestamp and header.record_count:
        largest_timestamp = segment.max_timestamp = header.max_timestamp
        segment.max_timestamp_offset = last_offset
    since_entry = segment.bytes_since_index_entry
    if since_entry > index_interval_bytes:
        segment.offset_index.append(last_offset, position)
        segment.time_index.maybe_append(largest_timestamp, segment.max_timestamp_offset)
        since_entry = 0
    segment.bytes_since_index_entry = since_entry + header.length + LOG_OVERHEAD_BYTES


def _batches(
    segment: Segment, position: int, cancel: threading.Event | None, durable_offset: int
) -> Iterator[tuple[int, BatchHeader]]:
    """The valid batches from ``position`` on. Damaged ones below ``durable_offset`` are skipped and logged.

    Raises _Fault at the first other damaged batch, and if no valid batch follows.
    """
    if durable_offset > segment.base_offset:
        damage: DamagedError | None = None
        for start, header in segment.sound_headers_from(position):
            _heed(cancel)
            if damage is not None:
                segment.tell_damage(damage)
                damage = None
            if header.next_offset > durable_offset:
                position = start
                break
            try:
                segment.whole_batch(start, header)
            except DamagedError as error:
                damage = error  # treated as the end of the log unless another batch follows
                continue
            yield start, header
            position = start + header.size_bytes
    yield from _verified(segment, position, cancel)


def _verified(
    segment: Segment, position: int, cancel: threading.Event | None
) -> Iterator[tuple[int, BatchHeader]]:
    """``(position, header)`` of the batches from ``position`` on, with valid checksums.

    Raises _Fault at the first wrong one.
    """
    if position >= segment.size:
        return  # thousands of logs have no record: their files stay closed
    file = segment.file  # held, because its descriptor could otherwise be reused
    fd = file.fileno()
    buffer = bytearray(min(_BUFFER_BYTES, segment.size))
    view = memoryview(buffer)
    start = filled = 0  # the buffer holds ``filled`` bytes of the file from ``start`` on
    while position < segment.size:
        left = segment.size - position
        if left < HEADER_BYTES:
            raise _Fault(f"{left} bytes are no whole batch header")
        if position + HEADER_BYTES > start + filled:
            start, filled = position, _fill(fd, buffer, position, cancel)
        header = read_header(view, position - start)
        size = header.length + LOG_OVERHEAD_BYTES
        if header.magic != MAGIC or not HEADER_BYTES <= size <= left or header.last_offset_delta < 0:
            raise _implausible(header, size, left)
        if size > _BUFFER_BYTES:
            crc = _streamed_crc(fd, buffer, position + CRC_START, position + size, cancel)
            filled = 0  # the buffer was overwritten
        else:
            if position + size > start + filled:
                start, filled = position, _fill(fd, buffer, position, cancel)
            at = position - start
            crc = crc32c(view[at + CRC_START : min(at + size, filled)])
        if crc != header.crc:
            raise _Fault(f"batch at offset {header.base_offset} fails its checksum")
        yield position, header
        position += size


def _streamed_crc(fd: int, buffer: bytearray, position: int, end: int, cancel: threading.Event | None) -> int:
    """The CRC32C of a batch that may claim any size; reads through the fixed buffer."""
    crc = 0
    while position < end:
        count = min(_fill(fd, buffer, position, cancel), end - position)
        if count <= 0:
            break
        crc = crc32c(memoryview(buffer)[:count], crc)
        position += count
    return crc


def _fill(fd: int, buffer: bytearray, position: int, cancel: threading.Event | None) -> int:
    _heed(cancel)
    return os.preadv(fd, [buffer], position)


def _heed(cancel: threading.Event | None) -> None:
    if cancel is not None and cancel.is_set():
        raise LoadCancelled("recovery was told to stop")


def _implausible(header: BatchHeader, size: int, left: int) -> _Fault:
    if header.magic != MAGIC:
        return _Fault(f"magic {header.magic} instead of {MAGIC}")
    if size < HEADER_BYTES or size > left:
        return _Fault(f"batch claims {size} bytes, {left} are left")
    return _Fault(f"last offset delta is {header.last_offset_delta}")


def refuse_legacy(segment: Segment, position: int) -> None:
    """Refuses a directory with messages of an old format (magic 0 and 1), so that valid data is not cut off
    or overwritten.

    Raises LogDirError if such a message is at ``position``, OSError.
    """
    file = segment.file
    head = os.pread(file.fileno(), _LEGACY_HEADER_BYTES, position)
    if len(head) < _LEGACY_HEADER_BYTES or head[16] > 1:
        return
    size = int.from_bytes(head[8:12], "big", signed=True)
    if (
        size < _LEGACY_HEADER_BYTES - LOG_OVERHEAD_BYTES
        or size > segment.size - position - LOG_OVERHEAD_BYTES
    ):
        return
    message = os.pread(file.fileno(), size, position + LOG_OVERHEAD_BYTES)
    if zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big"):
        raise LogDirError(
            f"{segment.path(LOG_SUFFIX)} holds messages of format version {head[16]}, which this broker "
            "does not read; let Apache Kafka 3 rewrite or expire them first, nothing was changed"
        )
