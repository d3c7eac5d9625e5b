"""Compacts one log: builds an offset map of its dirty part, then rewrites its segments with the
latest records.

Each group of segments is written as ``.cleaned`` and synced. Then it is renamed to ``.swap`` and put in place of the
old ones, in one step. A crash leaves either the old segments or the complete new one (see
:mod:`broker.log.loading.loader`). If a truncation or retention removes segments meanwhile, the work is dropped and
repeated later.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import structlog

from broker.log import look_ups
from broker.log.cleaning.aborts import AbortedRanges, first_refuted
from broker.log.cleaning.compaction import CompactionRules, compact_batch
from broker.log.cleaning.io_pace import CleaningAborted, IoPace
from broker.log.cleaning.offset_map import OffsetMap
from broker.log.loading.recovery import has_marker
from broker.log.log import Log
from broker.log.log_dir_health import Fault, fault_of
from broker.log.results import AbortedTransaction
from broker.log.segments.batch_file import (
    CLEANED_SUFFIX,
    INT32_MAX,
    LOG_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.segment import Segment
from broker.log.segments.txn_index import ENTRY_BYTES
from broker.protocol.errors import KafkaError
from broker.record.batch import each_record
from broker.record.header import NO_TIMESTAMP, BatchHeader, read_header

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CleanerStats:
    """The result of one compaction. The log is now clean up to ``end_offset`` (exclusive), as long as its segments have
    that ``generation``: later ones may have lost their ends.
    """

    end_offset: int
    generation: int
    bytes_before: int
    bytes_after: int
    keys: int


def clean_log(
    log: Log,
    first_dirty_offset: int,
    first_uncleanable_offset: int,
    offsets: OffsetMap,
    *,
    now_ms: int,
    pace: IoPace,
) -> CleanerStats:
    """Compacts ``log`` below ``first_uncleanable_offset``, where a segment begins, and syncs that part first.
    The keys come from ``first_dirty_offset`` on, as many as ``offsets`` can hold.

    Damaged data below that offset stays as it is: each batch's checksum is verified as it is copied, and a
    segment is removed only once all of it was copied. Raises CleaningAborted, KafkaError (CORRUPT_MESSAGE on
    damage), OSError.
    """
    # After a power loss, a record must not be gone together with the later record that replaced it.
    generation = log.generation
    with _undisturbed(log, generation):
        log.flush(first_uncleanable_offset)
    generation = log.generation
    segments = [segment for segment in log.segments[:-1] if segment.base_offset < first_uncleanable_offset]
    with _undisturbed(log, generation):
        aborted = AbortedRanges(_aborts(log.segments))
        end_offset = _fill(
            offsets, segments, first_dirty_offset, first_uncleanable_offset, aborted=aborted, pace=pace
        )
    segments = [segment for segment in segments if segment.base_offset < end_offset]
    with log.lock:
        producers = log.producer_state.producers.values()
        last_batches = {p.producer_id: p.batches[-1].last_offset for p in producers if p.batches}
        epochs = {p.producer_id: p.epoch for p in producers if not p.batches}
    rules = CompactionRules(offsets, aborted, last_batches, now_ms, log.config.delete_retention_ms, epochs)
    before = after = 0
    for group in group_segments(segments, log.config.segment_bytes):
        before += sum(segment.size for segment in group)
        with _undisturbed(log, generation), log.own_directory() as directory:
            cleaned = _clean_group(log, directory, group, rules, pace)
            if not log.replace_segments(group, cleaned, generation):
                cleaned.delete_files()
                raise CleaningAborted(f"{log.topic_partition} changed while it was compacted")
        after += cleaned.size
        generation += 2  # by the replacement; after any other change, the next replacement is refused
    return CleanerStats(end_offset, generation, before, after, len(offsets))


@contextmanager
def _undisturbed(log: Log, generation: int) -> Iterator[None]:
    """Raises CleaningAborted for errors that a concurrent removal of segments can cause, and once the log is
    closed. Data that seems damaged or missing then may be neither.
    """
    try:
        yield
    except (KafkaError, OSError) as error:
        moved = isinstance(error, DamagedError) or (
            isinstance(error, OSError) and fault_of(error) is Fault.ABSENT
        )
        if not log.is_closed and (generation == log.generation or not moved):
            raise
        raise CleaningAborted(f"{log.topic_partition} changed while it was compacted") from error


def group_segments(segments: Sequence[Segment], max_bytes: int) -> Iterator[list[Segment]]:
    """Neighbouring segments in groups that each become at most one full segment, whose indexes can have its offsets."""
    group: list[Segment] = []
    for segment in segments:
        if group and (
            sum(one.size for one in group) + segment.size > max_bytes
            or segment.limit - group[0].base_offset > INT32_MAX
        ):
            yield group
            group = []
        group.append(segment)
    if group:
        yield group


def _aborts(segments: Sequence[Segment]) -> list[AbortedTransaction]:
    """The aborted transactions of a log, confirmed by their markers and first batches. Raises DamagedError."""
    indexed = [(segment, segment.txn_index.entries()) for segment in segments]
    for segment, entries in indexed:
        for number, entry in enumerate(entries):
            if not 0 <= entry.first_offset < entry.last_offset or not has_marker(segment, entry):
                raise _refuted(segment, number, entry)
    aborted = [entry for _, entries in indexed for entry in entries]
    wrong = first_refuted(aborted, partial(_headers_for, segments))
    if wrong is None:
        return aborted
    raise next(
        _refuted(segment, entries.index(wrong), wrong) for segment, entries in indexed if wrong in entries
    )


def _refuted(segment: Segment, number: int, entry: AbortedTransaction) -> DamagedError:
    path = segment.path(TXN_INDEX_SUFFIX)
    return DamagedError(path, number * ENTRY_BYTES, entry.first_offset, "no such transaction was aborted")


def _headers_for(segments: Sequence[Segment], offset: int) -> Iterator[BatchHeader]:
    """The batches of the log from some batch at or before the one that holds ``offset``. Raises DamagedError."""
    for segment in segments[max(look_ups.floor_index(segments, offset), 0) :]:
        for _, header in segment.headers_for(offset):
            yield header


def _fill(
    offsets: OffsetMap,
    segments: Sequence[Segment],
    first_offset: int,
    end_offset: int,
    *,
    aborted: AbortedRanges,
    pace: IoPace,
) -> int:
    """Records the keys from ``first_offset`` on; returns the offset up to which all are recorded."""
    for segment in segments:
        for position, header in segment.headers_for(first_offset):
            if header.last_offset < first_offset or header.is_control or header in aborted:
                continue
            if header.base_offset >= end_offset:
                return end_offset
            if not offsets.has_room_for(header.record_count):
                return header.base_offset
            for record in each_record(_batch(segment, position, header, pace), header):
                if record.key is not None and record.offset >= first_offset:
                    offsets.put(record.key, record.offset)
    return end_offset


def _batch(segment: Segment, position: int, header: BatchHeader, pace: IoPace) -> memoryview:
    pace.spend(header.size_bytes)
    return segment.whole_batch(position, header)


def _clean_group(
    log: Log,
    directory: Path,
    group: Sequence[Segment],
    rules: CompactionRules,
    pace: IoPace,
) -> Segment:
    """Writes the group's compacted segment to ``directory``, synced, with the suffix ``.cleaned``."""
    config = log.config
    cleaned = Segment.create(
        directory, group[0].base_offset, config.segment_index_bytes, rules.now_ms, CLEANED_SUFFIX
    )
    try:
        for segment in group:
            for position, header in segment.headers_from(0):
                kept = compact_batch(_batch(segment, position, header, pace), header, rules)
                if kept is not None:
                    pace.spend(len(kept))
                    entry = (header.base_offset, header.last_offset, len(kept), _max_timestamp(kept))
                    cleaned.append(kept, [entry], config.index_interval_bytes)
            for aborted in segment.txn_index.entries():
                if aborted.last_offset in rules.transactions.markers:  # others have no record to hide
                    cleaned.txn_index.append(aborted)
            rules.transactions.markers.clear()
        cleaned.become_inactive()
        cleaned.sync()
        modified_ns = group[-1].path(LOG_SUFFIX).stat().st_mtime_ns
        os.utime(cleaned.path(LOG_SUFFIX), ns=(modified_ns, modified_ns))
    except BaseException:
        cleaned.delete_files()
        raise
    return cleaned


def _max_timestamp(view: memoryview) -> int:
    """The timestamp of the batch for the time index; none if no record is left in it."""
    header = read_header(view)
    return header.max_timestamp if header.record_count else NO_TIMESTAMP
