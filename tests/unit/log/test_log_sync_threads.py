"""Threads that meet while a log is synced: who syncs, who takes segments away, and who waits for it."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log import durability
from broker.log.durability import Durability
from broker.log.segments.segment import Segment
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors, KafkaError
from broker.utils.scheduler import KafkaScheduler
from tests.support.gate import WAIT_S, Gate
from tests.support.logs import TP, batch, fetched, managed, open_log, partition_of

# -- a follower that syncs


def test_a_follower_has_synced_what_it_acknowledges(tmp_path: Path) -> None:
    partition = partition_of(open_log(tmp_path, LogConfig(flush_messages=1)))
    partition.append_as_follower(fetched(0), 0, 0, 0)
    assert (partition.log.log_end_offset, partition.log.recovery_point) == (1, 1)


def test_a_follower_that_syncs_every_record_goes_on_through_its_rolls(tmp_path: Path) -> None:
    scheduler = KafkaScheduler(4)
    scheduler.startup()
    manager = managed(tmp_path, LogConfig(flush_messages=1, segment_bytes=4096), scheduler)
    partition = partition_of(manager.get_or_create(TP, None))
    thread = threading.Thread(
        target=lambda: [partition.append_as_follower(fetched(n), 0, 0, 0) for n in range(100)], daemon=True
    )
    thread.start()
    thread.join(WAIT_S)
    assert not thread.is_alive(), f"stands still at {partition.log!r}"
    assert partition.log.num_segments > 20
    scheduler.shutdown()


def test_nobody_waits_for_the_disk_of_a_follower_that_syncs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path, LogConfig(flush_messages=1)))
    gate = Gate(monkeypatch, Segment, "sync")
    with gate.held_by(lambda: partition.append_as_follower(fetched(0), 0, 0, 0)):
        for lock in (partition._lock, partition.log.lock):
            assert lock.acquire(timeout=0.5)
            lock.release()


def test_a_follower_made_leader_during_its_sync_commits_what_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path, LogConfig(flush_messages=1)))
    gate = Gate(monkeypatch, Segment, "sync")
    with gate.held_by(lambda: partition.append_as_follower(fetched(0), 0, 0, 0)):
        partition.make_leader(PartitionRole(TP, None, 1, 1, 1, (1,), 1, (1,)))
        assert partition.log.high_watermark == 0
    assert partition.log.high_watermark == 1


# -- a sync and what takes segments away


def test_a_sync_that_a_truncation_disturbs_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        log.append_as_leader(batch(b"a"), 0)
    gate = Gate(monkeypatch, Segment, "sync")
    with gate.held_by(log.flush):
        log.truncate_to(2)
        log.append_as_leader(batch(b"b"), 1)
    assert log.recovery_point == log.log_end_offset == 3


def test_a_failed_sync_is_an_error_whatever_was_truncated_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        log.append_as_leader(batch(b"a"), 0)

    real = Segment.sync

    def fail_once(segment: Segment) -> None:
        if (
            log.log_end_offset == 2
        ):  # the kernel has dropped the pages that it could not write, and says all is well
            real(segment)
            return
        log.truncate_to(2)
        raise OSError(errno.EIO, "bad disk")

    monkeypatch.setattr(Segment, "sync", fail_once)
    with pytest.raises(KafkaError) as error:
        log.flush()
    assert error.value.error_code is Errors.KAFKA_STORAGE_ERROR
    assert log.recovery_point == 0
    assert log.health.failure is not None


def test_a_flush_gets_on_though_segments_are_taken_away_all_the_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A step that retention repeats would end no sooner than retention does, on a disk slow enough."""
    log = open_log(tmp_path, LogConfig(segment_bytes=1000, retention_bytes=1))
    for _ in range(60):
        log.append_as_leader(batch(bytes(300)), 0)
    bases = [segment.base_offset for segment in log.segments]
    synced: list[int] = []
    real = Segment.sync

    def sync(segment: Segment) -> None:
        real(segment)
        synced.append(segment.base_offset)
        if len(synced) < len(bases):
            log.high_watermark = bases[len(synced)]
            assert log.delete_old_segments() == 1

    monkeypatch.setattr(Segment, "sync", sync)
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert synced == bases


def test_a_flush_leaves_out_a_segment_that_retention_took_before_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To write its indexes would make files anew that nothing deletes."""
    log = open_log(tmp_path, LogConfig(segment_bytes=1000, retention_bytes=1))
    for _ in range(12):
        log.append_as_leader(batch(bytes(300)), 0)
    first, *rest = log.segments
    gate = Gate(monkeypatch, Durability, "_sync_names")
    with gate.held_by(log.flush):
        log.high_watermark = rest[0].base_offset
        assert log.delete_old_segments() == 1
    assert log.recovery_point == log.log_end_offset
    assert not list(log.dir.glob(f"{first.base_offset:020}.*index"))


def test_who_waits_to_flush_is_content_with_what_another_has_synced(tmp_path: Path) -> None:
    """A follower that syncs each batch has the lock again before anybody who waits for it."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"x"), 0)
    with ThreadPoolExecutor(1) as pool, log.durability.flushing:
        waiting = pool.submit(log.flush)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        log.note_synced()
        waiting.result(WAIT_S)


def test_a_segment_that_is_cut_after_a_flush_has_synced_it_is_synced_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power loss might undo the cut, below a recovery point that says that all is as it should be."""
    log = open_log(tmp_path, LogConfig(segment_bytes=1000))
    for _ in range(12):
        log.append_as_leader(batch(bytes(300)), 0)
    first, second, *_ = log.segments
    synced: list[int] = []
    real_sync, real_flush = Segment.sync, Durability._flush_some

    def sync(segment: Segment) -> None:
        real_sync(segment)
        synced.append(segment.base_offset)

    def flush_one(own: Durability, up_to: int, settled: set[tuple[Segment, int]]) -> bool:
        done = real_flush(own, up_to, settled)
        if log.log_end_offset == 12:
            assert synced == [first.base_offset]
            synced.clear()
            log.truncate_to(second.base_offset - 1)
            log.append_as_leader(batch(bytes(700)), 0)  # for which it has to roll
        return done

    monkeypatch.setattr(Segment, "sync", sync)
    monkeypatch.setattr(Durability, "_flush_some", flush_one)
    log.flush()
    assert first.limit == log.segments[-1].base_offset == second.base_offset - 1
    assert log.recovery_point == log.log_end_offset
    assert first.base_offset in synced


def test_names_that_could_not_be_synced_are_synced_by_the_next_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = open_log(tmp_path)
    for _ in range(4):
        log.append_as_leader(batch(b"a"), 0)
    log.truncate_to(2)
    synced: list[Path] = []
    real = durability.sync_dir

    def sync_dir(directory: Path) -> None:
        synced.append(directory)
        if len(synced) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        real(directory)

    monkeypatch.setattr(durability, "sync_dir", sync_dir)
    with pytest.raises(KafkaError):
        log.flush()
    log.flush()
    assert synced.count(log.dir) == 2


def test_a_log_that_is_closed_says_so_and_leaves_its_directory_in_good_health(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    log = manager.get_or_create(TP, None)
    for _ in range(4):
        log.append_as_leader(batch(b"a"), 0)
    assert manager.delete_async(TP)
    for action in (
        log.flush,
        log.roll,
        lambda: log.truncate_to(1),
        lambda: log.truncate_fully_and_start_at(0),
    ):
        with pytest.raises(KafkaError, match="closed"):
            action()
    assert log.delete_old_segments() == 0
    assert log.health.failure is None


# -- what waits for a sync


def test_records_after_a_truncation_wait_for_no_sync_that_nobody_makes(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(flush_messages=10))
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 0)
    log.flush()
    log.truncate_to(6)
    for _ in range(3):
        log.append_as_leader(batch(b"b"), 1)
    assert (log.durability.flush_due, log.durability.committable_end) == (False, 9)


def test_a_sync_that_ends_between_an_append_and_its_request_leaves_nobody_waiting(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(flush_messages=10))
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 0)
    log.flush(5)
    assert log.durability.flush_due == (log.durability.committable_end < log.log_end_offset)
