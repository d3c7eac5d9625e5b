"""Opens a partition's directory: finishes swaps, finds the segments, verifies what was not closed cleanly.

After a clean shutdown only the last few KiB of the last segment are read. Otherwise all data past the
recovery point is read and each batch's checksum verified. The log ends at the first wrong batch, and one line
logs how much was cut off. Indexes, leader epochs and the producers' state are rebuilt from what was read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from uuid import UUID

import structlog

from broker.config.log_config import LONG_MAX, LogConfig
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.leader_epochs import FILE_NAME as EPOCHS_FILE_NAME
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.loading.old_segments import begins_with_old, upgrade
from broker.log.loading.recovery import RecoveryResult, may_have_marker, recover_segment, remove_segments
from broker.log.log import Log
from broker.log.log_dir_health import LogDirHealth
from broker.log.partition_metadata import FILE_NAME as METADATA_FILE_NAME
from broker.log.partition_metadata import read_topic_id
from broker.log.producers.producer_replay import remove_snapshots, thin_out_snapshots
from broker.log.producers.producer_snapshot import snapshot_offsets, snapshots_among
from broker.log.producers.producer_state import MAX_PRODUCERS, ProducerStateManager
from broker.log.roll_pace import RollPace
from broker.log.sealed_file import TEMPORARY_SUFFIX
from broker.log.segments.batch_file import (
    CLEANED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TXN_INDEX_SUFFIX,
)
from broker.log.segments.batch_walk import DamagedError
from broker.log.segments.segment import DELETED_SUFFIX, SEGMENT_SUFFIXES, Segment, base_offset_of, set_limits
from broker.protocol.epochs import NO_EPOCH
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadParameters:
    """The parameters of loading a log. ``clean``: the directory was closed cleanly. Offsets are
    from checkpoints.
    """

    clean: bool
    recovery_point: int
    log_start_offset: int
    producer_expiration_ms: int
    clock: Clock
    scheduler: KafkaScheduler | None = None
    cancel: threading.Event | None = None
    health: LogDirHealth | None = None
    on_verified: Callable[[int], None] = lambda _segments: None
    max_producers: int = MAX_PRODUCERS
    # Shared by all logs of a broker; None gives the log its own.
    roll_pace: RollPace | None = None
    # Whether the directory probably does not exist yet; then creating it is tried first.
    for_new: bool = False

    @property
    def durable_offset(self) -> int:
        """Data below it was durable once."""
        return LONG_MAX if self.clean else self.recovery_point


@dataclass(frozen=True, slots=True)
class _Recovered:
    """The result of a recovery. ``first_offset``: batches were verified from there on. ``without_producers``:
    base offsets of segments that were read whole and hold no batch with a producer id.
    """

    first_offset: int
    without_producers: set[int]


def load_log(
    directory: Path, topic_partition: TopicPartition, config: LogConfig, parameters: LoadParameters
) -> Log:
    """Opens the log in ``directory``, which is created if missing.

    Raises LoadCancelled on cancellation, LogDirError if the data cannot be used, OSError.
    """
    listed = _names_or_made(directory, for_new=parameters.for_new)
    is_new = listed is None
    names = set[str]() if listed is None else _finish_swaps(directory, listed)
    segments = _find_segments(directory, names, config, parameters)
    epochs = LeaderEpochCache(directory, has_file=EPOCHS_FILE_NAME in names)
    recovered = None if parameters.clean else _recover(segments, epochs, config, parameters, topic_partition)
    found = segments
    segments, log_end_offset = _fitting_segments(directory, found, config, parameters, is_new=is_new)
    start_offset = max(parameters.log_start_offset, segments[0].base_offset)
    if epochs.must_be_rebuilt:
        epochs.replace(_epochs_in(segments))
    epochs.truncate_from_end(log_end_offset, write=False)
    epochs.truncate_from_start(start_offset)
    log = Log(
        topic_partition,
        directory,
        config,
        segments,
        log_start_offset=start_offset,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset if parameters.clean else min(parameters.recovery_point, log_end_offset),
        topic_id=_topic_id(directory) if METADATA_FILE_NAME in names else None,
        leader_epochs=epochs,
        producer_state=ProducerStateManager(parameters.producer_expiration_ms, parameters.max_producers),
        clock=parameters.clock,
        scheduler=parameters.scheduler,
        health=parameters.health,
        roll_pace=parameters.roll_pace,
        is_new=is_new,
    )
    _restore_producers(log, snapshots_among(names), recovered, parameters.cancel)
    if recovered is None and segments is found:
        log.note_as_closed()
    return log


def _names_in(directory: Path) -> set[str]:
    """Lists the directory once: a start opens thousands, and each look-up costs time."""
    return set(os.listdir(directory))  # noqa: PTH208 - names alone


def _names_or_made(directory: Path, *, for_new: bool) -> set[str] | None:
    """The names in the directory, or None if it was just created."""
    with suppress(FileExistsError):
        if for_new:
            os.mkdir(directory)  # noqa: PTH102 - thousands of times when a topic is made
            return None
    try:
        return _names_in(directory)
    except FileNotFoundError:
        directory.mkdir()
        return None


def _topic_id(directory: Path) -> UUID | None:
    try:
        return read_topic_id(directory)
    except ValueError as error:
        raise LogDirError(
            f"{error}; restore the file, or remove it to let the controller's id be taken"
        ) from error


def _finish_swaps(directory: Path, listed: set[str]) -> set[str]:
    """Removes unfinished files and compactions and deleted segments, and finishes complete compactions.

    ``listed`` are the names before. Returns the names afterwards.
    """
    suffixes = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX, TEMPORARY_SUFFIX)
    names = [directory / name for name in listed if name.endswith(suffixes)]
    if not names:
        return listed
    # The .log is renamed last: if its swap file exists, the other files of that compaction are at least
    # as far.
    for path in names:
        if path.suffix != SWAP_SUFFIX:
            path.unlink()
    for path in (path for path in names if path.name.endswith(LOG_SUFFIX + SWAP_SUFFIX)):
        base_offset = base_offset_of(path.stem)
        if base_offset is not None:
            _finish_swap(directory, base_offset)
    for path in directory.glob(f"*{SWAP_SUFFIX}"):
        path.unlink()
    return _names_in(directory)


def _finish_swap(directory: Path, base_offset: int) -> None:
    swap = Segment.open(directory, base_offset, 0, SWAP_SUFFIX)
    end_offset = swap.next_offset()
    # The index of aborted transactions is renamed first. If that was done, it must not go with the old files: other
    # indexes are rebuilt, this one is not.
    aborts = directory / f"{base_offset:020d}{TXN_INDEX_SUFFIX}"
    was_renamed = aborts.exists() and not swap.path(TXN_INDEX_SUFFIX).exists()
    if was_renamed:
        aborts.rename(aborts.with_name(aborts.name + SWAP_SUFFIX))
    for name in _names_in(directory):
        base = base_offset_of(name)
        if base is not None and base_offset <= base < max(end_offset, base_offset + 1):
            Segment(directory, base, 0, 0).delete_files()
    swap.change_suffix("")
    if was_renamed:  # or it is the old segment's, which had aborts that compaction has removed
        swap.txn_index.keep_while(partial(may_have_marker, swap))
    _log.info("log_swap_finished", dir=str(directory), segment=base_offset, end_offset=end_offset)


def _find_segments(
    directory: Path, names: Collection[str], config: LogConfig, parameters: LoadParameters
) -> list[Segment]:
    found = {name: base_offset_of(name) for name in names if name.endswith(LOG_SUFFIX)}
    bases = sorted(base for base in found.values() if base is not None)
    known = {f"{base:020d}" for base in bases}
    for name in names:
        if name in found and found[name] is None:
            _log.warning(
                "log_file_passed_over", file=str(directory / name), reason="it is not named as a segment"
            )
        if name.endswith(SEGMENT_SUFFIXES[1:]) and name[:20] not in known:
            (directory / name).unlink()
    segments = [Segment.open(directory, base, config.segment_index_bytes, among=names) for base in bases]
    # Formats only rise, so the first messages have the oldest format. Compaction may leave empty segments.
    first = next((segment for segment in segments if segment.size), None)
    if first is not None and begins_with_old(first):
        upgrade(segments, config, parameters.cancel)
        return _find_segments(directory, _names_in(directory), config, parameters)
    set_limits(segments)
    for segment in segments:
        if parameters.cancel is not None and parameters.cancel.is_set():
            raise LoadCancelled(str(directory))
        # An empty segment has no index files, and a recovery that follows rebuilds missing ones itself.
        recovers = not parameters.clean and (
            segment is segments[-1] or segment.limit >= parameters.recovery_point
        )
        if segment.size and not segment.has_indexes and not recovers:
            _rebuild_indexes(segment, config, parameters)
    return segments


def _rebuild_indexes(segment: Segment, config: LogConfig, parameters: LoadParameters) -> RecoveryResult:
    """Rebuilds the indexes from the batches; verifies what is not known to be durable.

    Raises LoadCancelled, OSError.
    """
    result = recover_segment(
        segment,
        segment.base_offset,
        config.index_interval_bytes,
        durable_offset=parameters.durable_offset,
        keeps_aborts=True,
        cancel=parameters.cancel,
    )
    if result.truncated_bytes:
        _log_truncation(segment.dir.name, segment, result)
    return result


def _fitting_segments(
    directory: Path, segments: list[Segment], config: LogConfig, parameters: LoadParameters, *, is_new: bool
) -> tuple[list[Segment], int]:
    """The segments, with plausible indexes for the last one, and the log's end offset. If no data can be
    kept, the result is one empty segment.
    """
    start_offset = parameters.log_start_offset
    if segments:
        active = segments[-1]
        if not active.offset_index.is_sane(active.size) or not active.time_index.is_sane():
            _log.warning("index_rebuilt", file=str(active.path(INDEX_SUFFIX)))
            _rebuild_indexes(active, config, parameters)
        end_offset = _end_of(active, config, parameters)
        if start_offset <= max(active.base_offset, end_offset):
            return segments, end_offset
        _log.warning("log_behind_its_start", dir=str(directory), log_start_offset=start_offset)
        for segment in segments:
            segment.delete_files()
    now_ms = parameters.clock.wall_ms()
    segment = Segment.create(directory, start_offset, config.segment_index_bytes, now_ms, in_new_dir=is_new)
    return [segment], start_offset


def _end_of(active: Segment, config: LogConfig, parameters: LoadParameters) -> int:
    """The log's end offset. Cuts off a damaged end of a cleanly closed log.

    Nothing can be appended after an end whose position is unknown.
    """
    try:
        return active.next_offset()
    except DamagedError:
        _rebuild_indexes(active, config, parameters)
        return active.next_offset()


def _recover(
    segments: list[Segment],
    epochs: LeaderEpochCache,
    config: LogConfig,
    parameters: LoadParameters,
    topic_partition: TopicPartition,
) -> _Recovered:
    """Verifies what lies past the recovery point. Removes the segments after a fault from ``segments``."""
    recovery_point = parameters.recovery_point
    # Include a segment that ends at the recovery point: it may have been synced before rolling trimmed
    # its indexes.
    first = max((n for n, segment in enumerate(segments) if segment.base_offset < recovery_point), default=0)
    started_at = max(segments[first].base_offset, recovery_point) if segments else 0
    epoch = NO_EPOCH
    without_producers = set()
    for number in range(first, len(segments)):
        if parameters.cancel is not None and parameters.cancel.is_set():
            raise LoadCancelled(str(topic_partition))
        segment, behind = segments[number], segments[number + 1 :]
        result = recover_segment(
            segment,
            recovery_point,
            config.index_interval_bytes,
            end_offset=behind[0].base_offset if behind else None,
            behind=behind,
            epoch_before=epoch,
            epochs=epochs,
            cancel=parameters.cancel,
        )
        started_at, epoch = min(started_at, result.first_offset), result.last_epoch
        if result.without_producers:
            without_producers.add(segment.base_offset)
        parameters.on_verified(1)
        if (
            behind
            and not result.truncated_bytes
            and not config.compact
            and behind[0].base_offset > recovery_point
        ):
            # Batches are missing that reached the disk later than the next segment. Compaction leaves such gaps, too,
            # but below the recovery point: the topic may have been a compacted one.
            result = result.checked_against(behind[0].base_offset)
        if result.problem is not None:
            _log_truncation(str(topic_partition), segment, result, behind)
            if not result.truncated_bytes:
                remove_segments(behind)
            del segments[number + 1 :]
            parameters.on_verified(len(behind))
            break
    return _Recovered(started_at, without_producers)


def _log_truncation(
    partition: str, segment: Segment, result: RecoveryResult, behind: Sequence[Segment] = ()
) -> None:
    _log.warning(
        "log_tail_truncated",
        partition=partition,
        file=str(segment.path(LOG_SUFFIX)),
        at_offset=result.next_offset,
        bytes=result.truncated_bytes + sum(later.size for later in behind),
        segments_removed=len(behind),
        reason=result.problem,
    )


def _epochs_in(segments: list[Segment]) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for segment in segments:
        for _, header in segment.sound_headers_for(segment.base_offset - 1):
            if header.leader_epoch > (found[-1][0] if found else NO_EPOCH):
                found.append((header.leader_epoch, header.base_offset))
    return found


def _restore_producers(
    log: Log, snapshots: Sequence[int], recovered: _Recovered | None, cancel: threading.Event | None
) -> None:
    """``snapshots`` are the offsets of the existing snapshots."""
    if recovered is None and not snapshots:
        # A clean log without snapshots has no producers.
        return
    remove_snapshots(log.dir, snapshots, after=log.log_end_offset)
    kept = [offset for offset in snapshots if offset <= log.log_end_offset]
    if recovered is None:
        log.producers.rebuild(cancel=cancel, snapshots=kept)
    else:
        log.producers.rebuild(recovered.first_offset, cancel, recovered.without_producers, kept)
        if log.producers.take_last_snapshot(kept):
            kept = snapshot_offsets(log.dir)
    thin_out_snapshots(log.dir, kept, (segment.base_offset for segment in log.segments))
