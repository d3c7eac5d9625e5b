"""Updates the producers' state from batches: while appending, and by replaying the log after a restart."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final

import structlog

from broker.log import look_ups
from broker.log.errors import LoadCancelled
from broker.log.producers.markers import CutMarkerError, TransactionMarker, read_marker
from broker.log.producers.producer_snapshot import encode_snapshot, read_snapshot, snapshot_path
from broker.log.producers.producer_state import ProducerStateManager
from broker.log.sealed_file import replace_file
from broker.log.segments.batch_file import LOG_SUFFIX
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.segment import Segment
from broker.protocol.errors import KafkaError
from broker.protocol.offsets import UNKNOWN_OFFSET
from broker.record.header import BatchHeader

_log = structlog.get_logger(__name__)
_WHAT_TO_DO: Final = (
    "nothing if the transaction is known as ended; otherwise its records hold back consumers with "
    "isolation.level=read_committed: find it with kafka-transactions.sh find-hanging and end it with its abort"
)


def note_batch(
    state: ProducerStateManager, view: memoryview, position: int, header: BatchHeader, segment: Segment
) -> None:
    """Updates ``state`` with a producer's batch that was appended to ``segment``.

    ``view`` holds the batch at ``position``; only markers are read from it. Raises
    KafkaError(CORRUPT_MESSAGE), OSError.
    """
    if not header.is_control:
        state.update(header, header.base_offset)
        return
    if not header.record_count:
        state.update_emptied(header)
        return
    marker = read_marker(view, position, header)
    if marker is not None:
        aborted = state.update_marker(header, marker)
        if aborted is not None:
            segment.txn_index.append(aborted)


def _note_stored_marker(
    state: ProducerStateManager, segment: Segment, position: int, header: BatchHeader, *, indexed: bool
) -> None:
    """Updates ``state`` with a control batch in ``segment``. ``indexed``: its abort is already in the index.

    Nothing behind a damaged marker is wrong, so it must not stop the load: it is logged, and costs the end of its
    transaction at most. Kafka does not start then, or after a crash cuts off all that follows. Raises OSError.
    """
    if not header.record_count:
        state.update_emptied(header)
        return
    marker, is_cut = None, False
    try:
        marker = read_marker(segment.whole_batch(position, header), 0, header)
    except DamagedError as damage:
        segment.tell_damage(damage)
    except CutMarkerError as cut:
        marker, is_cut = cut.marker, True
        _tell_unreadable(segment, position, header, cut.message, marker)
    except KafkaError as error:
        _tell_unreadable(segment, position, header, error.message)
    aborted = None if marker is None else state.update_marker(header, marker)
    if aborted is None:
        return
    if not indexed:
        segment.txn_index.append(aborted)
    elif is_cut:  # whoever wrote it may not have taken it as an abort
        segment.txn_index.insert(aborted)


def _tell_unreadable(
    segment: Segment,
    position: int,
    header: BatchHeader,
    reason: str,
    marker: TransactionMarker | None = None,
) -> None:
    file = segment.path(LOG_SUFFIX)
    if segment.is_first_word(file.name, position):
        _log.error(
            "marker_unreadable",
            file=str(file),
            offset=header.base_offset,
            producer_id=header.producer_id,
            reason=reason,
            taken_as="nothing" if marker is None else "commit" if marker.committed else "abort",
            do=_WHAT_TO_DO,
        )


def replay(
    state: ProducerStateManager,
    segments: Iterable[Segment],
    start_offset: int,
    reindex_from: int,
    *,
    cancel: threading.Event | None = None,
    without_producers: Collection[int] = (),
) -> None:
    """Replays the batches of ``segments`` from ``start_offset`` on, except those of the segments with base
    offsets in ``without_producers``. Aborts from ``reindex_from`` on are added to the transaction index.

    Raises LoadCancelled between two segments.
    """
    for segment in segments:
        if cancel is not None and cancel.is_set():
            raise LoadCancelled("reading the producers' state was told to stop")
        if segment.base_offset in without_producers:
            continue
        for position, header in segment.sound_headers_for(start_offset):
            if header.base_offset >= start_offset and header.producer_id >= 0:
                if header.is_control:
                    _note_stored_marker(
                        state, segment, position, header, indexed=header.base_offset < reindex_from
                    )
                else:
                    state.update(header, header.base_offset)


def drop_compacted(state: ProducerStateManager, segments: Sequence[Segment], end_offset: int) -> None:
    """Drops the open transactions of a snapshot at ``end_offset``, just loaded into ``state``, of which the log has no
    batch any more. Those of a transaction that is open are not compacted. So it has ended behind the snapshot, and when
    compaction had taken its batches, it took its marker, too: nothing that is replayed would end it.

    Deleted batches tell nothing. Raises OSError.
    """
    missing = {
        first_offset: producer_id
        for first_offset, producer_id in state.transactions.open_ones.items()
        if first_offset >= segments[0].base_offset and not _begins_with(segments, first_offset, producer_id)
    }
    if not missing:
        return
    last = _last_offsets(set(missing.values()), segments, min(missing), end_offset)
    for first_offset, producer_id in missing.items():
        if last.get(producer_id, UNKNOWN_OFFSET) < first_offset:
            state.drop_transaction(first_offset)


def _begins_with(segments: Sequence[Segment], offset: int, producer_id: int) -> bool:
    """Whether the producer's batch is at ``offset``, or may be: damaged data tells nothing."""
    try:
        found = segments[look_ups.floor_index(segments, offset)].find(offset)
    except DamagedError:
        return True
    return found is not None and found[1].base_offset <= offset and found[1].producer_id == producer_id


def _last_offsets(
    producers: Collection[int], segments: Sequence[Segment], first_offset: int, end_offset: int
) -> dict[int, int]:
    """Where the last transactional batch of each of the ``producers`` ends, of those between the two offsets."""
    found: dict[int, int] = {}
    number = look_ups.floor_index(segments, first_offset)
    for segment in segments[number:]:
        for _, header in segment.sound_headers_for(first_offset):
            if header.base_offset >= end_offset:
                return found
            if header.producer_id in producers and header.is_transactional and not header.is_control:
                found[header.producer_id] = header.last_offset
    return found


def load_latest_snapshot(
    state: ProducerStateManager, directory: Path, snapshots: Iterable[int], end_offset: int, now_ms: int
) -> int | None:
    """Loads the latest readable snapshot that is not past ``end_offset`` into ``state``, which is empty; returns its
    offset, None if there is none. ``snapshots`` are the existing ones' offsets.

    Unreadable snapshots are removed. Raises OSError.
    """
    for offset in sorted(snapshots, reverse=True):
        if offset > end_offset:
            continue
        path = snapshot_path(directory, offset)
        try:
            state.load(read_snapshot(path), now_ms)
        except ValueError as error:
            _log.warning("producer_snapshot_unreadable", file=str(path), error=str(error))
            path.unlink(missing_ok=True)
        else:
            return offset
    return None


def take_snapshot(
    state: ProducerStateManager, directory: Path, offset: int, *, is_needed: bool = False
) -> None:
    """As :func:`keep_snapshot`, of ``state``."""
    keep_snapshot(encode_snapshot(state.producers.values()), directory, offset, is_needed=is_needed)


def keep_snapshot(data: bytes, directory: Path, offset: int, *, is_needed: bool = False) -> None:
    """Writes an encoded snapshot at ``offset``. A disk error only logs a warning: it can be rebuilt. If ``is_needed``,
    raises OSError as well.
    """
    try:
        replace_file(snapshot_path(directory, offset), data, sync=False)
    except OSError as error:
        _log.warning("producer_snapshot_failed", dir=str(directory), error=str(error))
        if is_needed:
            raise


def thin_out_snapshots(directory: Path, snapshots: Sequence[int], bases: Iterable[int]) -> None:
    """Unlinks the ``snapshots`` (offsets, rising) that are neither the latest nor at one of ``bases``.

    ``bases`` are the segments' base offsets. Raises OSError.
    """
    keep = set(bases)
    for offset in snapshots[:-1]:
        if offset not in keep:
            snapshot_path(directory, offset).unlink(missing_ok=True)


def remove_snapshots(
    directory: Path, snapshots: Iterable[int], *, after: int | None = None, before: int | None = None
) -> None:
    """Unlinks the ``snapshots`` (offsets) past ``after`` or below ``before``. Raises OSError."""
    for offset in snapshots:
        if (after is not None and offset > after) or (before is not None and offset < before):
            snapshot_path(directory, offset).unlink(missing_ok=True)


def remove_snapshots_between(directory: Path, snapshots: Sequence[int], first: int, end: int) -> None:
    """Unlinks the ``snapshots`` (offsets, rising) from ``first`` up to ``end``, but never the latest of all.
    Raises OSError.
    """
    for offset in snapshots[:-1]:
        if first <= offset < end:
            snapshot_path(directory, offset).unlink(missing_ok=True)
