"""Look-ups in a list of segments: data to read, the offset of a timestamp, aborted transactions.

They work on a snapshot of the segments, without the log's lock. The log repeats a look-up that a
truncation disturbed.
"""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache
from io import FileIO
from typing import Final

from broker.log.results import AbortedTransaction, LogRead, TimestampOffset
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.segment import Segment
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import records_body
from broker.record.header import HEADER_BYTES, LOG_OVERHEAD_BYTES, NO_TIMESTAMP, BatchHeader, batch_size_at
from broker.record.records import RecordFormatError, decode_records
from broker.utils.file_region import FileRegion

_NEAR_BYTES: Final = 64 * 1024  # what the kernel reads at once, or had read ahead
SegmentList = Sequence[Segment]
Lock = AbstractContextManager[object]


def floor_index(segments: SegmentList, offset: int) -> int:
    """The index of the segment whose range holds ``offset``; -1 if it is before all."""
    return bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1


def read_scanning(
    segments: SegmentList,
    offset: int,
    end_offset: int,
    max_bytes: int,
    min_one_batch: bool,
    *,
    known_end: tuple[Segment, int] | None = None,
) -> LogRead:
    """Reads from the batch that holds ``offset``, or the next after a gap; uses the index, then a scan.

    ``known_end``: a segment, and the position in it where the batches below ``end_offset`` end.
    """
    number = max(floor_index(segments, offset), 0)
    while number < len(segments):
        segment = segments[number]
        found = segment.find(offset)
        if found is not None:
            position, header = found
            if header.base_offset >= end_offset:
                break
            following = segments[number + 1] if number + 1 < len(segments) else None
            # If the end itself is read, the last batch is looked at: it may be damaged.
            if known_end is not None and known_end[0] is segment and known_end[1] - position > max_bytes:
                end = known_end[1]
            else:
                end = end_position(segment, following, end_offset)
            return slice_of(segment, header.base_offset, position, end, max_bytes, min_one_batch, header)
        number += 1
    return LogRead(None, offset, 0)


def place_of(segments: SegmentList, offset: int) -> tuple[int, int]:
    """The segment's base offset and the position in it of the batch that holds ``offset``, or of the next."""
    segment = segments[max(floor_index(segments, offset), 0)]
    found = segment.find(offset)
    return segment.base_offset, segment.size if found is None else found[0]


def headers_near(segments: SegmentList, offset: int) -> tuple[FileRegion, ...] | None:
    """Where the headers are that say where the batch with ``offset`` begins, by the index; None if the index has to be
    read from its file. Each region begins and ends with one. The last is that of the batch behind, which confirms it.
    """
    segment = segments[max(floor_index(segments, offset), 0)]
    around = segment.offset_index.around(offset)
    if around is None:
        return None
    before, after, behind = around
    file, size = segment.file, segment.size
    last = size if behind < 0 else min(behind + HEADER_BYTES, size)
    if last - before <= _NEAR_BYTES or not before < after < behind:
        return (FileRegion(file, before, max(last - before, 1)),)
    return FileRegion(file, before, after + HEADER_BYTES - before), FileRegion(file, last - 1, 1)


def end_position(segment: Segment, following: Segment | None, end_offset: int) -> int:
    """The position in ``segment`` where the batches that lie wholly below ``end_offset`` end."""
    if following is not None and end_offset >= following.base_offset:
        return segment.size
    size = segment.size
    try:
        found = segment.find(end_offset)
    except DamagedError as damage:
        return damage.position
    return found[0] if found is not None else size


def slice_of(  # noqa: PLR0917 - one a partition of a fetch: by name it takes 30 ns more
    segment: Segment,
    base_offset: int,
    position: int,
    end: int,
    max_bytes: int,
    min_one_batch: bool,
    header: BatchHeader | None = None,
) -> LogRead:
    """The region from ``position`` to ``end``, at most ``max_bytes`` unless the first batch is larger. Raises
    KafkaError: INVALID_REQUEST if ``max_bytes`` is below zero.
    """
    size = end - position
    if size <= 0:
        return LogRead(None, base_offset, 0)
    file = segment.file
    if size > max_bytes:
        if max_bytes < 0:
            raise KafkaError(Errors.INVALID_REQUEST, f"{max_bytes} bytes at most cannot be read")
        size = max_bytes
        first = header.size_bytes if header is not None else _batch_size(file, position)
        if first > max_bytes:
            segment.require_batch_of(position, first)
            if not min_one_batch:
                return LogRead(None, base_offset, 0, True)
            size = first
    return LogRead(FileRegion(file, position, size), base_offset, size)


def _batch_size(file: FileIO, position: int) -> int:
    return batch_size_at(os.pread(file.fileno(), LOG_OVERHEAD_BYTES, position))


def read_region(region: FileRegion) -> bytes:
    """The bytes of ``region``, or fewer if the file is shorter. Raises OSError."""
    return os.pread(region.file.fileno(), region.size, region.position)


def is_cached(region: FileRegion) -> bool:
    """Whether the first and last byte of ``region`` are in the page cache; True if the kernel cannot tell."""
    fd = region.file.fileno()
    byte = bytearray(1)
    try:
        os.preadv(fd, [byte], region.position, os.RWF_NOWAIT)
        if region.size > 1:
            os.preadv(fd, [byte], region.position + region.size - 1, os.RWF_NOWAIT)
    except OSError as error:
        # A disk error (EIO) also counts as not cached, so that a Processor does not meet it.
        return error.errno not in (errno.EAGAIN, errno.EIO)
    return True


def bring_in(region: FileRegion) -> None:
    """Reads ``region`` into the page cache, up to the file's end. Raises OSError.

    It sends the pages to /dev/null, so nothing is copied. That takes a fifteenth of the CPU of a read, which
    the Processors of a small machine need.
    """
    position, end = region.position, region.position + region.size
    while position < end:
        count = os.sendfile(_nowhere(), region.file.fileno(), position, end - position)
        if count == 0:
            return
        position += count


@cache
def _nowhere() -> int:
    return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def offset_for_timestamp(
    segments: SegmentList, timestamp: int, start_offset: int, lock: Lock
) -> TimestampOffset | None:
    """The first record at or after ``start_offset`` with a timestamp of at least ``timestamp`` (ms), or None.

    ``lock`` is the log's, because appends change the indexes.
    """
    for segment in segments:
        with lock:
            is_late_enough = segment.size > 0 and segment.largest_noted_timestamp >= timestamp
            first = max(segment.first_offset_for(timestamp), start_offset) if is_late_enough else -1
        if not is_late_enough:
            continue
        for position, header in segment.headers_for(first):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                found = _record_at(segment, position, header, timestamp, start_offset)
                if found is not None:
                    return found
    return None


def offset_of_max_timestamp(segments: SegmentList, lock: Lock) -> TimestampOffset | None:
    """The first record with the highest timestamp of all; None if no record has one."""
    best, latest = None, NO_TIMESTAMP
    for segment in segments:
        with lock:
            noted = segment.largest_noted_timestamp
        if noted > latest:
            best, latest = segment, noted
    return None if best is None else offset_for_timestamp([best], latest, best.base_offset, lock)


def _record_at(
    segment: Segment, position: int, header: BatchHeader, timestamp: int, start_offset: int
) -> TimestampOffset | None:
    if header.is_log_append_time or header.is_control:
        return TimestampOffset(
            header.max_timestamp, max(header.base_offset, start_offset), header.leader_epoch
        )
    body = records_body(segment.whole_batch(position, header), header)
    records = decode_records(body, header.record_count, header.base_offset, header.base_timestamp)
    try:
        for record in records:  # one by one: a batch may hold millions
            if record.timestamp >= timestamp and record.offset >= start_offset:
                return TimestampOffset(record.timestamp, record.offset, header.leader_epoch)
    except RecordFormatError as error:
        raise KafkaError(Errors.CORRUPT_MESSAGE, f"batch at offset {header.base_offset}: {error}") from error
    return None


def bytes_of_aborts(segments: SegmentList, offset: int) -> int:
    """The size of the largest index of aborted transactions of the segments from ``offset`` on."""
    first = max(floor_index(segments, offset), 0)
    return max(segment.txn_index.size for segment in segments[first:])


def aborted_in(
    segments: SegmentList, offset: int, read: LogRead, end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions with records in ``read``, a read from ``offset`` to below ``end_offset``."""
    if read.region is None or not bytes_of_aborts(segments, offset):
        return []
    return aborted_transactions(segments, offset, bound_of(segments, read, end_offset))


def bound_of(segments: SegmentList, read: LogRead, end_offset: int) -> int:
    """An offset above those of all batches in ``read``, as low as the index can tell."""
    if read.region is None:
        return read.base_offset
    number = floor_index(segments, read.base_offset)
    bound = segments[number].offset_index.bound_at(read.region.position + read.region.size)
    if bound is None:
        bound = segments[number + 1].base_offset if number + 1 < len(segments) else end_offset
    return min(bound, end_offset)


def aborted_transactions(
    segments: SegmentList, first_offset: int, end_offset: int
) -> list[AbortedTransaction]:
    """The aborted transactions with records in the range, by first offset, for read_committed fetches."""
    found: list[AbortedTransaction] = []
    first = max(floor_index(segments, first_offset), 0)
    for segment in segments[first:]:
        if segment.txn_index.collect(first_offset, end_offset, found):
            break
    return sorted(found, key=lambda transaction: transaction.first_offset)
