"""Rewrites segments with messages of magic 0 and 1 as segments of record batches, before their log is loaded.

So nothing else of a log has to know the old formats. Offsets and times stay. A crash leaves a segment in its old or
its new form: the new one is written as ``.cleaned``, synced and renamed, like a compacted one. Old segments come
first in a log, and the last of them is rewritten first, so that those still to be rewritten come first, too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from itertools import takewhile

import structlog

from broker.config.log_config import LogConfig
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.segments.batch_file import CLEANED_SUFFIX, INT32_MAX, LOG_SUFFIX, SWAP_SUFFIX
from broker.log.segments.segment import Segment, sync_dir
from broker.protocol.errors import Errors, KafkaError
from broker.record.compression import DEFAULT_MAX_BYTES
from broker.record.conversion import OldPart, upgraded
from broker.record.header import (
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    NO_TIMESTAMP,
    batch_size_at,
    read_header,
)
from broker.record.message_set import LEAST_BYTES, MAGIC_AT, begins_old, each_message

_log = structlog.get_logger(__name__)


def begins_with_old(segment: Segment) -> bool:
    """Whether the segment begins with messages of magic 0 or 1: with a sound one, or one before a sound one. A single
    damaged message may as well be a damaged batch. Raises OSError.
    """
    if not _looks_old(segment):
        return False
    size = batch_size_at(_head(segment))
    return _is_sound(segment, 0, size) or (
        segment.size - size > MAGIC_AT and _is_sound(segment, size, batch_size_at(_head(segment, size)))
    )


def _is_sound(segment: Segment, position: int, size: int) -> bool:
    """Whether an old message of ``size`` bytes with the right checksum is at ``position``."""
    if not 0 < size <= min(segment.size - position, DEFAULT_MAX_BYTES):
        return False
    message = os.pread(segment.file.fileno(), size, position)
    try:
        return next(each_message(memoryview(message)), None) is not None
    except KafkaError:
        return False


def _looks_old(segment: Segment) -> bool:
    """Whether the segment's first bytes are those of a message of magic 0 or 1. Zeros are not."""
    if segment.size <= MAGIC_AT:
        return False
    head = _head(segment)
    return begins_old(head) and LEAST_BYTES + LOG_OVERHEAD_BYTES <= batch_size_at(head) <= segment.size


def _head(segment: Segment, position: int = 0) -> bytes:
    return os.pread(segment.file.fileno(), MAGIC_AT + 1, position)


def upgrade(segments: Sequence[Segment], config: LogConfig, cancel: threading.Event | None) -> None:
    """Rewrites those of the ``segments`` of a log that begin with old messages, as the first one with data does. They
    have to be opened again.

    Raises LogDirError if messages are damaged; the file that has them is as it was. Raises LoadCancelled, OSError.
    """
    with_data = (segment for segment in segments if segment.size)
    for segment in reversed(list(takewhile(_looks_old, with_data))):
        _upgrade(segment, config, cancel)


def _upgrade(segment: Segment, config: LogConfig, cancel: threading.Event | None) -> None:
    before = segment.size
    new = Segment.create(
        segment.dir, segment.base_offset, config.segment_index_bytes, segment.created_ms, CLEANED_SUFFIX
    )
    try:
        _rewrite(segment, new, config, cancel)
        for aborted in segment.txn_index.entries():
            new.txn_index.append(aborted)
        new.become_inactive()
        new.sync()
        modified_ns = segment.path(LOG_SUFFIX).stat().st_mtime_ns
        os.utime(new.path(LOG_SUFFIX), ns=(modified_ns, modified_ns))
        new.change_suffix(SWAP_SUFFIX)
    except BaseException:
        new.delete_files()
        raise
    sync_dir(segment.dir)
    new.change_suffix("")
    sync_dir(segment.dir)
    _log.info(
        "old_segment_upgraded", file=str(new.path(LOG_SUFFIX)), bytes_before=before, bytes_after=new.size
    )


def _rewrite(old: Segment, new: Segment, config: LogConfig, cancel: threading.Event | None) -> None:
    file = old.file  # held, because its descriptor could otherwise be reused

    def read(position: int, size: int) -> bytes:
        if cancel is not None and cancel.is_set():
            raise LoadCancelled(str(old.dir))
        return os.pread(file.fileno(), size, position)

    part = OldPart(read, old.size)
    try:
        for batch in upgraded(part, old.base_offset):
            _append(new, batch, config)
        position = part.position
        while position < old.size:
            batch = _whole_batch(read, position, old.size - position)
            _append(new, batch, config)
            position += len(batch)
    except KafkaError as error:
        raise LogDirError(
            f"{old.path(LOG_SUFFIX)} holds messages of format version 0 or 1 and is damaged at byte {part.position} or "
            f"behind it: {error}; let Apache Kafka 3 recover it first, this file was not changed"
        ) from error


def _append(new: Segment, batch: bytes, config: LogConfig) -> None:
    """Raises KafkaError if an index could not have the batch's offsets."""
    header = read_header(batch)
    if not 0 <= header.base_offset - new.base_offset <= header.last_offset - new.base_offset <= INT32_MAX:
        raise KafkaError(
            Errors.CORRUPT_MESSAGE, f"offsets to {header.last_offset} are too far from the segment's first"
        )
    timestamp = header.max_timestamp if header.record_count else NO_TIMESTAMP
    entry = (header.base_offset, header.last_offset, len(batch), timestamp)
    new.append(memoryview(batch), [entry], config.index_interval_bytes)


def _whole_batch(read: Callable[[int, int], bytes], position: int, left: int) -> bytes:
    """A batch behind the old messages, unchanged. Its checksum is for the loader. Raises KafkaError."""
    head = read(position, HEADER_BYTES)
    if len(head) == HEADER_BYTES:
        header = read_header(head)
        size = header.length + LOG_OVERHEAD_BYTES
        if header.magic == MAGIC and HEADER_BYTES <= size <= left and header.last_offset_delta >= 0:
            return read(position, size)
    raise KafkaError(Errors.CORRUPT_MESSAGE, f"there is no whole batch at byte {position}")
