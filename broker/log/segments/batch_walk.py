"""Walks from batch to batch in a segment's file and detects damage.

A batch's checksum does not cover its base offset, length or leader epoch; the neighbouring batches verify
them. Each batch must begin where the previous one ends, with offsets between those of its neighbours. A walk
yields a batch only once the next one fits, and raises :class:`DamagedError` otherwise. :func:`next_sound`
finds the next valid batch after the damage. This module reads and never writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from broker.log.segments.segment_file import SegmentFile
from broker.protocol.errors import Errors, KafkaError
from broker.record.header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    BatchHeader,
    crc_is_valid,
    read_header,
)

SCAN_BYTES: Final = 8192
_SEARCH_BYTES: Final = 1 << 20
_HIGH_BYTES: Final = 4

Found = tuple[int, BatchHeader]


class Extent(NamedTuple):
    """A segment as a walk sees it: bytes up to ``end``, offsets from ``base_offset`` to below ``limit``.

    ``file`` keeps the file open, so that ``fd`` stays valid.
    """

    fd: int
    path: str | Path
    end: int
    base_offset: int
    limit: int
    file: SegmentFile | None = None


class DamagedError(KafkaError):
    """Some bytes of a segment cannot be what was written; CORRUPT_MESSAGE for a peer.

    ``position``: where the damage begins. ``expected``: the offset that must follow the valid batches before
    it. ``second``: if two batches contradict each other and either may be damaged, the second of them.
    """

    def __init__(
        self, path: str | Path, position: int, expected: int, reason: str, second: Found | None = None
    ) -> None:
        super().__init__(
            Errors.CORRUPT_MESSAGE,
            f"{path} is damaged at byte {position}, where offset {expected} is expected: {reason}",
        )
        self.path = Path(path)
        self.position = position
        self.expected = expected
        self.reason = reason
        self.second = second


def walk(extent: Extent, position: int, chunk: bytes = b"") -> Iterator[Found]:
    """``(position, header)`` of the batches from ``position`` to the end, read a few KiB at a time. ``chunk``: what
    was read there already.

    Raises DamagedError after the last batch that fits, OSError.
    """
    fd, end = extent.fd, extent.end
    chunk_start, size = position, 0
    expected = extent.base_offset
    before: Found | None = None
    while position < end:
        if position + HEADER_BYTES > chunk_start + len(chunk):
            # Reading more than the header helps only if batches are small.
            chunk = os.pread(fd, SCAN_BYTES if size < SCAN_BYTES else HEADER_BYTES, position)
            chunk_start = position
        left = min(end - position, len(chunk) - (position - chunk_start))
        if left < HEADER_BYTES:
            if before is not None:
                yield before
                expected = before[1].next_offset
            raise DamagedError(extent.path, position, expected, f"{left} bytes are no whole batch header")
        header = read_header(chunk, position - chunk_start)
        problem = implausible(header, end - position, extent)
        if before is not None:
            follows = before[1].next_offset
            overlaps = problem is None and header.base_offset < follows
            if (overlaps or problem is not None) and not has_right_crc(extent, *before):
                # The two do not fit together, and the previous batch's length or last offset may be the wrong
                # part. The data that it would then cover may be valid.
                raise DamagedError(
                    extent.path,
                    before[0],
                    expected,
                    "the batch fails its checksum, and none follows where it ends",
                )
            if overlaps and before[1].base_offset > expected:
                raise _contradiction(extent, before, (position, header), expected)
            yield before
            expected = follows
        if problem is None and header.base_offset < expected:
            problem = f"offset {header.base_offset} follows {expected - 1}"
        if problem is not None:
            raise DamagedError(extent.path, position, expected, problem)
        before = position, header
        size = header.length + LOG_OVERHEAD_BYTES
        position += size
    if before is not None:
        yield before


def _contradiction(extent: Extent, one: Found, other: Found, expected: int) -> DamagedError:
    """The error for two batches that contradict each other. Unless the second follows exactly on what was
    before the first, either may be damaged, and neither is yielded.
    """
    reason = f"offset {other[1].base_offset} follows {one[1].last_offset}"
    is_first = other[1].base_offset == expected + one[1].last_offset_delta + 1
    return DamagedError(extent.path, one[0], expected, reason, None if is_first else other)


def implausible(header: BatchHeader, left: int, extent: Extent) -> str | None:
    """What is impossible in a header with ``left`` bytes from its start to the segment's end, or None."""
    size = header.length + LOG_OVERHEAD_BYTES
    if header.magic != MAGIC:
        return f"magic {header.magic} instead of {MAGIC}"
    if not HEADER_BYTES <= size <= left:
        return f"batch claims {size} bytes, {left} are left"
    if header.last_offset_delta < 0:
        return f"last offset delta is {header.last_offset_delta}"
    if header.base_offset < extent.base_offset or header.last_offset >= extent.limit:
        return (
            f"offsets {header.base_offset} to {header.last_offset} in a segment of "
            f"{extent.base_offset} to {extent.limit - 1}"
        )
    return None


def next_sound(extent: Extent, damage: DamagedError) -> Found | None:
    """The first batch after ``damage`` that its checksum and the next batch confirm; None if none."""
    position, lowest = _behind(extent, damage)
    while position + HEADER_BYTES <= extent.end:
        data = os.pread(extent.fd, _SEARCH_BYTES, position)
        if len(data) < HEADER_BYTES:
            return None
        for start in _candidates(data, lowest, extent.limit):
            found = _sound_at(extent, position + start, lowest)
            if found is not None:
                return found
        position += max(len(data) - HEADER_BYTES + 1, 1)
    return None


def _behind(extent: Extent, damage: DamagedError) -> tuple[int, int]:
    """The position to search from and the lowest offset possible there.

    The search skips the batch at the damage if its checksum confirms its length; otherwise that batch could
    be taken for its own successor.
    """
    if damage.second is not None:
        position, header = damage.second
        return position + header.size_bytes, damage.expected + header.last_offset_delta + 1
    first = _header_at(extent, damage.position)
    if first is not None and has_right_crc(extent, damage.position, first):
        return damage.position + first.size_bytes, damage.expected + first.last_offset_delta + 1
    return damage.position + 1, damage.expected


def _candidates(data: bytes, lowest: int, limit: int) -> Iterator[int]:
    """Positions with the high half of an offset that is possible here."""
    high = {offset >> 32 for offset in (lowest, limit - 1)}
    starts = []
    for half in high:
        pattern = half.to_bytes(_HIGH_BYTES, "big")
        start = data.find(pattern)
        while 0 <= start <= len(data) - HEADER_BYTES:
            if data[start + 16] == MAGIC:
                starts.append(start)
            start = data.find(pattern, start + 1)
    return iter(sorted(starts))


def _sound_at(extent: Extent, position: int, lowest: int) -> Found | None:
    header = _header_at(extent, position)
    if header is None or header.base_offset < lowest or not _is_followed(extent, position, header):
        return None
    return (position, header) if has_right_crc(extent, position, header) else None


def _is_followed(extent: Extent, position: int, header: BatchHeader) -> bool:
    end = position + header.size_bytes
    if end == extent.end:
        return True
    following = _header_at(extent, end)
    return following is not None and following.base_offset >= header.next_offset


def _header_at(extent: Extent, position: int) -> BatchHeader | None:
    data = os.pread(extent.fd, HEADER_BYTES, position)
    if len(data) < HEADER_BYTES:
        return None
    header = read_header(data)
    return header if implausible(header, extent.end - position, extent) is None else None


def has_right_crc(extent: Extent, position: int, header: BatchHeader) -> bool:
    """Whether the batch at ``position`` is unchanged, except perhaps its base offset and leader epoch."""
    view = memoryview(os.pread(extent.fd, header.size_bytes, position))
    return len(view) == header.size_bytes and crc_is_valid(view, header)
