"""Opening a partition's directory: swaps finished, segments found, the unclean part verified.

After a clean shutdown only the last few KiB of the last segment are read. Otherwise everything past the
recovery point is: each batch's checksum, and at the first that is wrong the log ends, with one line of how
much went. Indexes, leader epochs and producers' state are made again from what was read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import structlog

from broker.config.log_config import LogConfig
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.local_log import DELETED_SUFFIX
from broker.log.log import Log
from broker.log.partition_metadata import read_topic_id
from broker.log.producer_replay import remove_snapshots, take_snapshot, thin_out_snapshots
from broker.log.producer_snapshot import snapshot_offsets
from broker.log.producer_state import ProducerStateManager
from broker.log.recovery import RecoveryResult, recover_segment
from broker.log.segment import INDEX_SUFFIX, LOG_SUFFIX, SEGMENT_SUFFIXES, TIME_INDEX_SUFFIX, Segment
from broker.utils.clock import Clock
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition

CLEANED_SUFFIX, SWAP_SUFFIX = ".cleaned", ".swap"
_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class LoadParameters:
    """What loading needs to be told. ``clean``: the directory was closed cleanly. Offsets are the
    checkpoints'.
    """

    clean: bool
    recovery_point: int
    log_start_offset: int
    producer_expiration_ms: int
    clock: Clock
    scheduler: KafkaScheduler | None = None
    cancel: threading.Event | None = None


def load_log(
    directory: Path, topic_partition: TopicPartition, config: LogConfig, parameters: LoadParameters
) -> Log:
    """The log in ``directory``, which is made when it is not there.

    Raises LoadCancelled when told to stop, LogDirError when the data cannot be taken over, OSError.
    """
    directory.mkdir(exist_ok=True)
    _finish_swaps(directory)
    segments = _find_segments(directory, config)
    epochs = LeaderEpochCache(directory)
    recovered_from = (
        None if parameters.clean else _recover(segments, epochs, config, parameters, topic_partition)
    )
    segments = _fitting_segments(directory, segments, config, parameters)
    log_end_offset = segments[-1].next_offset()
    start_offset = max(parameters.log_start_offset, segments[0].base_offset)
    if epochs.file_was_corrupt:
        _epochs_from_batches(segments, epochs)
    epochs.truncate_from_end(log_end_offset)
    epochs.truncate_from_start(start_offset)
    log = Log(
        topic_partition,
        directory,
        config,
        segments,
        log_start_offset=start_offset,
        log_end_offset=log_end_offset,
        recovery_point=log_end_offset if parameters.clean else min(parameters.recovery_point, log_end_offset),
        topic_id=_topic_id(directory),
        leader_epochs=epochs,
        producer_state=ProducerStateManager(parameters.producer_expiration_ms),
        clock=parameters.clock,
        scheduler=parameters.scheduler,
    )
    _restore_producers(log, recovered_from)
    return log


def _topic_id(directory: Path) -> UUID | None:
    try:
        return read_topic_id(directory)
    except ValueError as error:
        raise LogDirError(
            f"{error}; restore the file, or remove it to let the controller's id be taken"
        ) from error


def _finish_swaps(directory: Path) -> None:
    """Drops unfinished compactions and segments already given up, and finishes compactions that were
    complete.
    """
    suffixes = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)
    listed = os.listdir(directory)  # noqa: PTH208 - names alone, thousands of times at start-up
    names = [directory / name for name in listed if name.endswith(suffixes)]
    if not names:
        return
    swapped = []
    for path in names:
        if path.suffix == SWAP_SUFFIX and path.stem.endswith(LOG_SUFFIX):
            swapped.append(path)
        elif path.suffix != SWAP_SUFFIX or not path.stem.endswith(".txnindex"):
            path.unlink()
    for path in swapped:
        _finish_swap(directory, path)
    for path in directory.glob(f"*{SWAP_SUFFIX}"):
        path.unlink()


def _finish_swap(directory: Path, path: Path) -> None:
    base_offset = int(path.stem.removesuffix(LOG_SUFFIX))
    swap = Segment.open(directory, base_offset, 0, SWAP_SUFFIX)
    end_offset = swap.next_offset()
    for old in directory.glob(f"*{LOG_SUFFIX}"):
        if base_offset <= int(old.stem) < max(end_offset, base_offset + 1):
            Segment(directory, int(old.stem), 0, 0).delete_files()
    swap.change_suffix("")
    _log.info("log_swap_finished", dir=str(directory), segment=base_offset, end_offset=end_offset)


def _find_segments(directory: Path, config: LogConfig) -> list[Segment]:
    names = set(os.listdir(directory))  # noqa: PTH208 - names alone
    bases = sorted(int(name[:20]) for name in names if name.endswith(LOG_SUFFIX) and name[:20].isdigit())
    known = {f"{base:020d}" for base in bases}
    for name in names:
        if name.endswith(SEGMENT_SUFFIXES[1:]) and name[:20] not in known:
            (directory / name).unlink()
    segments = []
    for base in bases:
        segment = Segment.open(directory, base, config.segment_index_bytes)
        if f"{base:020d}{INDEX_SUFFIX}" not in names or f"{base:020d}{TIME_INDEX_SUFFIX}" not in names:
            result = recover_segment(segment, base, config.index_interval_bytes)
            if result.truncated_bytes:
                _log_truncation(directory.name, segment, result)
        segments.append(segment)
    return segments


def _fitting_segments(
    directory: Path, segments: list[Segment], config: LogConfig, parameters: LoadParameters
) -> list[Segment]:
    """The segments, the last with indexes that make sense; one empty segment when there is nothing to
    keep.
    """
    start_offset = parameters.log_start_offset
    if segments:
        active = segments[-1]
        if not active.offset_index.is_sane(active.size) or not active.time_index.is_sane():
            _log.warning("index_rebuilt", file=str(active.path(INDEX_SUFFIX)))
            recover_segment(active, active.base_offset, config.index_interval_bytes)
        if start_offset <= active.base_offset or start_offset <= active.next_offset():
            return segments
        _log.warning("log_behind_its_start", dir=str(directory), log_start_offset=start_offset)
        for segment in segments:
            segment.delete_files()
    segment = Segment.create(directory, start_offset, config.segment_index_bytes, parameters.clock.wall_ms())
    segment.preallocate_indexes()
    return [segment]


def _recover(
    segments: list[Segment],
    epochs: LeaderEpochCache,
    config: LogConfig,
    parameters: LoadParameters,
    topic_partition: TopicPartition,
) -> int:
    """Verifies what lies past the recovery point; ``segments`` loses those behind a fault. Where it began."""
    recovery_point = parameters.recovery_point
    first = max((n for n, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)
    started_at = max(segments[first].base_offset, recovery_point) if segments else 0
    for number in range(first, len(segments)):
        if parameters.cancel is not None and parameters.cancel.is_set():
            raise LoadCancelled(str(topic_partition))
        segment = segments[number]
        result = recover_segment(
            segment,
            recovery_point,
            config.index_interval_bytes,
            end_offset=segments[number + 1].base_offset if number + 1 < len(segments) else None,
            epochs=epochs,
            cancel=parameters.cancel,
        )
        started_at = min(started_at, result.first_offset)
        if result.truncated_bytes:
            behind = segments[number + 1 :]
            _log_truncation(str(topic_partition), segment, result, behind)
            for later in behind:
                later.delete_files()
            del segments[number + 1 :]
            break
    return started_at


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


def _epochs_from_batches(segments: list[Segment], epochs: LeaderEpochCache) -> None:
    for segment in segments:
        for _, header in segment.headers_from(0):
            if header.leader_epoch > epochs.latest_epoch:
                epochs.assign(header.leader_epoch, header.base_offset)


def _restore_producers(log: Log, recovered_from: int | None) -> None:
    if recovered_from is None and not snapshot_offsets(log.dir):
        # A clean log of a broker that wrote no snapshots: it had no producers to remember.
        return
    remove_snapshots(log.dir, after=log.log_end_offset)
    if recovered_from is None:
        log.rebuild_producer_state()
    else:
        log.rebuild_producer_state(reindex_from=recovered_from)
        take_snapshot(log.producer_state, log.dir, log.log_end_offset)
    thin_out_snapshots(log.dir, (segment.base_offset for segment in log.segments))
