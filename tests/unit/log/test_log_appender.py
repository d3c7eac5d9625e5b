"""LogAppender alone, without a Log around it."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log.log_appender import LogAppender
from broker.log.results import AppendInfo
from broker.log.segments.segment import Segment
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import crc_is_valid, read_header
from broker.record.validator import AppendOrigin
from tests.support.log_parts import NOW_MS, LogParts, NotedTasks
from tests.support.logs import batch, fetched

TEN = [b"x"] * 10


def appender_of(parts: LogParts) -> LogAppender:
    return LogAppender(
        context=parts.context,
        offsets=parts.offsets,
        segments=parts.segments,
        durability=parts.durability,
        epochs=parts.epochs,
        producers=parts.producers,
        config=parts.config,
    )


def code_of(action, *args, **kwargs) -> Errors:
    with pytest.raises(KafkaError) as raised:
        action(*args, **kwargs)
    return raised.value.error_code


def of_producer(sequence: int, producer_id: int = 7) -> memoryview:
    return batch(b"v", producer_id=producer_id, producer_epoch=0, base_sequence=sequence)


def told(info: AppendInfo) -> tuple[object, ...]:
    """All of it, in the order of its documentation."""
    return (
        info.first_offset,
        info.last_offset,
        info.max_timestamp,
        info.log_append_time,
        info.log_start_offset,
        info.duplicate,
        info.size_bytes,
        info.record_count,
        info.last_leader_epoch,
    )


def state_of(parts: LogParts) -> tuple[object, ...]:
    """Everything that an append may change."""
    return (
        parts.offsets.end,
        parts.bases,
        parts.segments.size_bytes,
        parts.segments.active.path(".log").stat().st_size,
        parts.epochs.entries,
        {entry.producer_id: entry.batches for entry in parts.producers.state.producers.values()},
        parts.durability.sync_wanted,
    )


# --- as leader


def test_an_append_sets_offset_and_epoch_in_place_and_the_checksum_stays_valid(
    tmp_path: Path,
) -> None:
    parts = LogParts(tmp_path / "t-0", base_offset=40)
    parts.offsets.start = 35
    view = batch(*TEN)
    info = appender_of(parts).append_as_leader(view, 6)
    header = read_header(view)
    assert (header.base_offset, header.leader_epoch, crc_is_valid(view, header)) == (40, 6, True)
    assert parts.segments.active.path(".log").read_bytes() == bytes(view)
    assert told(info) == (40, 49, 1000, -1, 35, False, len(view), 10, 6)


def test_the_log_end_moves_after_the_write_and_then_a_sync_is_requested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = LogParts(tmp_path / "t-0", LogConfig(flush_messages=1))
    appender = appender_of(parts)
    real, seen = Segment.append, []

    def append(segment: Segment, *args) -> None:
        real(segment, *args)
        seen.append((segment.size > 0, parts.offsets.end, parts.durability.sync_wanted))

    monkeypatch.setattr(Segment, "append", append)
    appender.append_as_leader(batch(*TEN), 0)
    assert seen == [(True, 0, 0)]
    assert (parts.offsets.end, parts.durability.sync_wanted) == (10, 10)


@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_a_batch_of_a_fenced_producer_changes_nothing(tmp_path: Path, origin: AppendOrigin) -> None:
    """Not even the leader epochs, though the batch would have been the first of its epoch."""
    parts = LogParts(tmp_path / "t-0", LogConfig(flush_messages=1))
    appender = appender_of(parts)
    first = batch(b"v", producer_id=7, producer_epoch=3, base_sequence=0)
    appender.append_as_leader(first, 1, origin=origin)
    before = state_of(parts)
    refused = batch(b"v", producer_id=7, producer_epoch=2, base_sequence=1)
    assert code_of(appender.append_as_leader, refused, 2, origin=origin) is Errors.INVALID_PRODUCER_EPOCH
    assert state_of(parts) == before


def test_a_failed_write_requests_no_sync_and_its_retry_is_not_a_duplicate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = LogParts(tmp_path / "t-0", LogConfig(flush_messages=1))
    appender = appender_of(parts)
    appender.append_as_leader(of_producer(0), 1)
    before = state_of(parts)

    def pwrite(*_args: object) -> int:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", pwrite)
        assert code_of(appender.append_as_leader, of_producer(1), 1) is Errors.KAFKA_STORAGE_ERROR
    assert state_of(parts) == before
    again = appender.append_as_leader(of_producer(1), 1)
    assert (again.duplicate, again.first_offset) == (False, 1)


def test_a_duplicate_reports_the_epoch_of_the_original_batch_and_the_current_log_start(
    tmp_path: Path,
) -> None:
    parts = LogParts(tmp_path / "t-0")
    appender = appender_of(parts)
    appender.append_as_leader(of_producer(0), 1)
    appender.append_as_leader(of_producer(1), 3)
    parts.offsets.start = 1
    before = state_of(parts)
    info = appender.append_as_leader(of_producer(0), 5)
    assert told(info) == (0, 0, 1000, -1, 1, True, 0, 1, 1)
    assert state_of(parts) == before, "a duplicate does not begin epoch 5"


def test_the_append_time_is_the_time_of_the_append_and_not_of_the_check(tmp_path: Path) -> None:
    """Records may wait between the two; append times must rise with the offsets."""
    parts = LogParts(tmp_path / "t-0", LogConfig(message_timestamp_type="LogAppendTime"))
    appender = appender_of(parts)
    checked = appender.check(batch(*TEN, timestamp=5))
    parts.clock.now_ms += 50
    info = appender.append_checked(checked, 0)
    assert (info.log_append_time, info.max_timestamp) == (NOW_MS + 50, NOW_MS + 50)
    assert read_header(parts.segments.active.path(".log").read_bytes()).max_timestamp == NOW_MS + 50


def test_a_changed_config_applies_from_the_next_check_on(tmp_path: Path) -> None:
    parts = LogParts(tmp_path / "t-0")
    appender = appender_of(parts)
    checked = appender.check(batch(b"a"))
    appender.update_config(LogConfig(message_timestamp_type="LogAppendTime", max_message_bytes=200))
    info = appender.append_checked(checked, 0)
    assert (info.log_append_time, info.max_timestamp) == (-1, 1000)
    assert appender.append_as_leader(batch(b"b"), 0).log_append_time == NOW_MS
    assert code_of(appender.check, batch(bytes(200))) is Errors.MESSAGE_TOO_LARGE


def test_large_or_compressed_records_go_to_a_handler_thread_where_each_is_inspected(tmp_path: Path) -> None:
    parts = LogParts(tmp_path / "t-0", LogConfig(cleanup_policy=frozenset({"compact"})))
    appender = appender_of(parts)
    large = batch(bytes(65 * 1024), key=b"k")
    assert not appender.needs_recompression(batch(b"a", key=b"k"))
    assert appender.needs_recompression(batch(b"a", key=b"k", compression="gzip")), (
        "they must be decompressed"
    )
    assert appender.needs_recompression(large)
    appender.update_config(LogConfig())
    assert not appender.needs_recompression(large)


# --- as follower


def test_a_fetch_without_a_batch_appends_nothing(tmp_path: Path) -> None:
    parts = LogParts(tmp_path / "t-0", LogConfig(flush_messages=0))
    before = state_of(parts)
    info = appender_of(parts).append_as_follower(memoryview(b""))
    assert told(info) == (-1, -1, -1, -1, 0, False, 0, 0, -1)
    assert state_of(parts) == before


def test_a_follower_appends_a_fetch_only_up_to_the_first_misplaced_batch(tmp_path: Path) -> None:
    parts = LogParts(tmp_path / "t-0", LogConfig(flush_messages=1))
    appender = appender_of(parts)
    following, misplaced = bytes(fetched(0)), bytes(fetched(0))
    info = appender.append_as_follower(memoryview(following + misplaced), 0)
    assert (info.last_offset, info.record_count, info.size_bytes) == (0, 1, len(following))
    assert (parts.offsets.end, parts.durability.sync_wanted) == (1, 1)
    assert parts.segments.size_bytes == len(following)


# --- rolls


def test_a_batch_that_does_not_fit_begins_a_new_segment_and_one_that_just_fits_does_not(
    tmp_path: Path,
) -> None:
    size = len(batch(b"a"))
    parts = LogParts(tmp_path / "t-0", LogConfig(segment_bytes=2 * size))
    appender = appender_of(parts)
    for value in (b"a", b"b", b"c"):
        appender.append_as_leader(batch(value), 0)
    assert (parts.bases, parts.segments.active.size) == ([0, 2], size)


@pytest.mark.parametrize(
    ("producers", "later", "snapshots"),
    [
        (100, [("flush-log", 0)], [100]),
        (101, [("flush-log", 0), ("producer-snapshot", 1_000)], []),
        (101, None, [101]),
    ],
)
def test_a_roll_schedules_the_sync_and_the_snapshot_of_many_producers_if_there_is_a_scheduler(
    tmp_path: Path, producers: int, later: list[tuple[str, int]] | None, snapshots: list[int]
) -> None:
    scheduler = None if later is None else NotedTasks()
    parts = LogParts(tmp_path / "t-0", scheduler=scheduler)
    appender = appender_of(parts)
    for producer_id in range(producers):
        appender.append_as_leader(of_producer(0, producer_id), 0)
    assert appender.roll() is parts.segments.active
    assert parts.bases == [0, producers]
    assert (scheduler and scheduler.asked) == later
    assert parts.files(".snapshot") == snapshots
