"""Threads that meet over one log: what each may hold, and what it may leave behind for the other."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.cluster.partition import Awaited, Partition
from broker.cluster.partition_state import PartitionState
from broker.config.log_config import LogConfig
from broker.log import checkpoints, leader_epochs, log_files
from broker.log.log import Log
from broker.log.log_manager import LogManager
from broker.log.segment import Segment
from broker.protocol.errors import Errors, KafkaError
from broker.record import validator
from broker.record.batch import Record, build_batch
from broker.record.validator import AppendOrigin
from broker.replication.replica_manager import ReplicaManager
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from tests.support.gate import WAIT_S, Gate
from tests.support.logs import batch, open_log
from tests.support.wait import wait_until

TP = TopicPartition("t", 0)


def fetched(offset: int, size: int = 900) -> memoryview:
    record = Record(None, b"v" * size, timestamp=1000)
    return memoryview(bytearray(build_batch([record], base_offset=offset, leader_epoch=0)))


def partition_of(log: Log, *, leads: bool = False) -> Partition:
    partition = Partition(
        TP, log, broker_id=1, max_lag_ms=1000, clock=SYSTEM_CLOCK, alive=lambda _broker_id: True
    )
    leader, isr = (1, (1,)) if leads else (2, (1, 2))
    state = PartitionState(TP, None, 1, leader, 0, isr, 0, isr)
    partition.make_leader(state) if leads else partition.make_follower(state)
    return partition


def managed(
    directory: Path, config: LogConfig | None = None, scheduler: KafkaScheduler | None = None
) -> LogManager:
    manager = LogManager([str(directory)], config or LogConfig(), scheduler=scheduler)
    manager.startup()
    return manager


# -- a follower that syncs ---------------------------------------------------------------------------------------------


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
        for lock in (partition.lock, partition.log.lock):
            assert lock.acquire(timeout=0.5)
            lock.release()


def test_a_follower_made_leader_during_its_sync_commits_what_was_synced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path, LogConfig(flush_messages=1)))
    gate = Gate(monkeypatch, Segment, "sync")
    with gate.held_by(lambda: partition.append_as_follower(fetched(0), 0, 0, 0)):
        partition.make_leader(PartitionState(TP, None, 1, 1, 1, (1,), 1, (1,)))
        assert partition.log.high_watermark == 0
    assert partition.log.high_watermark == 1


# -- a sync and what takes segments away -------------------------------------------------------------------------------


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
    """Begun anew from where it began, it would end no sooner than they do."""
    log = open_log(tmp_path, LogConfig(segment_bytes=1000, retention_bytes=1))
    for _ in range(60):
        log.append_as_leader(batch(bytes(300)), 0)
    bases = [segment.base_offset for segment in log.segments]
    synced: list[int] = []
    real = Segment.sync

    def sync(segment: Segment) -> None:
        real(segment)
        synced.append(segment.base_offset)
        if len(synced) % 3 == 0 and len(synced) < len(bases):
            log.high_watermark = bases[len(synced) // 3]
            assert log.delete_old_segments() == 1

    monkeypatch.setattr(Segment, "sync", sync)
    log.flush()
    assert log.recovery_point == log.log_end_offset
    assert len(bases) <= len(synced) < 1.5 * len(bases)
    assert synced == sorted(synced)


def test_who_waits_to_flush_is_content_with_what_another_has_synced(tmp_path: Path) -> None:
    """A follower that syncs each batch has the lock again before anybody who waits for it."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"x"), 0)
    with ThreadPoolExecutor(1) as pool, log._flush_lock:
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
    real_sync, real_flush = Segment.sync, log._flush

    def sync(segment: Segment) -> None:
        real_sync(segment)
        synced.append(segment.base_offset)

    def flush_one(up_to: int, settled: set[object]) -> bool:
        done = real_flush(up_to, settled)
        if log.log_end_offset == 12:
            assert synced == [first.base_offset]
            synced.clear()
            log.truncate_to(second.base_offset - 1)
            log.append_as_leader(batch(bytes(700)), 0)  # for which it has to roll
        return done

    monkeypatch.setattr(Segment, "sync", sync)
    monkeypatch.setattr(log, "_flush", flush_one)
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
    real = log_files.sync_dir

    def sync_dir(directory: Path) -> None:
        synced.append(directory)
        if len(synced) == 1:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        real(directory)

    monkeypatch.setattr(log_files, "sync_dir", sync_dir)
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


# -- what waits for a sync ---------------------------------------------------------------------------------------------


def test_records_after_a_truncation_wait_for_no_sync_that_nobody_makes(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(flush_messages=10))
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 0)
    log.flush()
    log.truncate_to(6)
    for _ in range(3):
        log.append_as_leader(batch(b"b"), 1)
    assert (log.flush_due, log.committable_end) == (False, 9)


def test_a_sync_that_ends_between_an_append_and_its_request_leaves_nobody_waiting(tmp_path: Path) -> None:
    log = open_log(tmp_path, LogConfig(flush_messages=10))
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 0)
    log.flush(5)
    assert log.flush_due == (log.committable_end < log.log_end_offset)


# -- a name that two logs have had -------------------------------------------------------------------------------------


def test_a_deleted_log_leaves_the_epochs_of_the_next_one_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed(tmp_path, LogConfig(file_delete_delay_ms=60_000))
    old = manager.get_or_create(TP, None)
    for epoch in (0, 3, 7):
        old.append_as_leader(batch(b"a"), epoch)
    gate = Gate(monkeypatch, Segment, "sync")

    def flush() -> None:
        with pytest.raises(KafkaError, match="closed"):
            old.flush()

    with gate.held_by(flush):
        manager.delete_async(TP)
        new = manager.get_or_create(TP, None)
        new.append_as_leader(batch(b"b"), 0)
    old.leader_epochs.truncate_from_start(1)
    assert (tmp_path / "t-0" / leader_epochs.FILE_NAME).read_text().split() == ["0", "1", "0", "0"]


def test_epochs_that_are_being_written_go_with_their_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed(tmp_path)
    log = manager.get_or_create(TP, None)
    log.append_as_leader(batch(b"a"), 0)
    gate = Gate(monkeypatch, leader_epochs, "write_checkpoint")
    renamed = threading.Event()
    deleting = threading.Thread(target=lambda: (manager.delete_async(TP), renamed.set()), daemon=True)
    with gate.held_by(log.leader_epochs.flush):
        deleting.start()
        assert not renamed.wait(0.3)
    assert renamed.wait(WAIT_S)


# -- checkpoints -------------------------------------------------------------------------------------------------------


def test_a_recovery_point_seen_before_a_truncation_does_not_outlive_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed(tmp_path)
    log = manager.get_or_create(TP, None)
    for _ in range(10):
        log.append_as_leader(batch(b"a"), 0)
    log.flush()
    gate = Gate(monkeypatch, checkpoints, "replace_file")
    truncated = threading.Event()
    truncating = threading.Thread(target=lambda: (log.truncate_to(5), truncated.set()), daemon=True)
    with gate.held_by(manager.checkpoint_recovery_points):
        truncating.start()
        wait_until(lambda: log.recovery_point == 5, WAIT_S)
        truncated.wait(0.3)  # it waits for the file, or wrote it too early
    assert truncated.wait(WAIT_S)
    assert next(iter(manager.dirs)).recovery_points.read() == {TP: 5}


def test_who_write_the_same_checkpoint_do_not_disturb_one_another(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    manager.get_or_create(TP, None)
    failures: list[str] = []
    log_dir = next(iter(manager.dirs))
    log_dir.health.report = lambda doing, error, **_: failures.append(f"{doing}: {error}") or False  # type: ignore[method-assign, assignment]
    writers = [
        threading.Thread(target=lambda: [manager.checkpoint_recovery_points() for _ in range(100)])
        for _ in range(3)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert failures == []


def test_recovery_points_that_fall_together_are_one_write_of_a_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed(tmp_path)
    logs = [manager.get_or_create(TopicPartition("t", n), None) for n in range(20)]
    for log in logs:
        for _ in range(3):
            log.append_as_leader(batch(b"a"), 0)
        log.flush()
    written: list[Path] = []
    real = checkpoints.replace_file
    monkeypatch.setattr(
        checkpoints,
        "replace_file",
        lambda path, *args, **options: (written.append(path), real(path, *args, **options)),
    )
    log_files.lower_recovery_points(dict.fromkeys(logs[:-1], 1))
    points = next(iter(manager.dirs)).recovery_points
    assert points.read() == {log.topic_partition: 1 for log in logs[:-1]} | {logs[-1].topic_partition: 3}
    for log in logs[:-1]:
        log.truncate_to(1)
    assert written == [points.path]
    assert {log.recovery_point for log in logs[:-1]} == {1}


def test_a_flush_after_recovery_points_fell_is_taken_back_by_the_truncation(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    log = manager.get_or_create(TP, None)
    for _ in range(3):
        log.append_as_leader(batch(b"a"), 0)
    log.flush()
    log_files.lower_recovery_points({log: 1})
    log.flush()
    manager.checkpoint_recovery_points()
    log.truncate_to(1)
    assert next(iter(manager.dirs)).recovery_points.read() == {TP: 1}


def test_the_checkpoint_of_a_slow_directory_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = LogManager([str(tmp_path / "one"), str(tmp_path / "two")], LogConfig())
    manager.startup()
    logs = [manager.get_or_create(TopicPartition("t", n), None) for n in range(2)]
    assert len({log.dir.parent for log in logs}) == 2
    for log in logs:
        for _ in range(2):
            log.append_as_leader(batch(b"a"), 0)
        log.flush()
    gate = Gate(monkeypatch, checkpoints, "replace_file")
    with gate.held_by(lambda: logs[0].truncate_to(1)):
        other = threading.Thread(target=lambda: logs[1].truncate_to(1), daemon=True)
        other.start()
        other.join(WAIT_S / 2)
        assert logs[1].log_end_offset == 1


# -- who need not wait for a partition ---------------------------------------------------------------------------------


def test_who_takes_a_follower_for_the_leader_is_told_so_while_it_truncates(tmp_path: Path) -> None:
    partition = partition_of(open_log(tmp_path))
    with ThreadPoolExecutor(1) as another, partition.lock:  # as while segments are unlinked
        append = another.submit(
            partition.append_as_leader, batch(b"a"), required_acks=-1, origin=AppendOrigin.CLIENT
        )
        assert refusal_of(append) is Errors.NOT_LEADER_OR_FOLLOWER
        fetch = another.submit(partition.fetch_as_follower, 2, 1, 0, 0, 1000, 0, -1, min_one=True)
        assert refusal_of(fetch) is Errors.NOT_LEADER_OR_FOLLOWER
        reached = another.submit(partition.has_reached, Awaited(1, 0))
        assert reached.result(WAIT_S) is Errors.NOT_LEADER_OR_FOLLOWER
        assert another.submit(partition.maybe_shrink_isr).result(WAIT_S) is None
        assert another.submit(partition.advance_high_watermark).result(WAIT_S) is False


def refusal_of(future: Future[object]) -> Errors:
    error = future.exception(WAIT_S)
    assert isinstance(error, KafkaError)
    return error.error_code


def test_nobody_waits_while_records_are_compressed_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path, LogConfig(compression_type="gzip")), leads=True)
    gate = Gate(monkeypatch, validator, "recompress")
    with gate.held_by(lambda: append_to(partition)):
        for lock in (partition.lock, partition.log.lock):
            assert lock.acquire(timeout=WAIT_S)
            lock.release()
    assert partition.log.log_end_offset == 1


def test_records_whose_partition_lost_its_leader_meanwhile_are_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path, LogConfig(compression_type="gzip")), leads=True)
    gate = Gate(monkeypatch, validator, "recompress")
    with pytest.raises(KafkaError), gate.held_by(lambda: append_to(partition)):
        partition.make_follower(PartitionState(TP, None, 1, 2, 1, (1, 2), 0, (1, 2)))
    assert partition.log.log_end_offset == 0


def test_nobody_waits_while_a_followers_records_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path))
    gate = Gate(monkeypatch, validator, "check_fetched")
    with gate.held_by(lambda: partition.append_as_follower(fetched(0), 0, 0, 0)):
        for lock in (partition.lock, partition.log.lock):
            assert lock.acquire(timeout=WAIT_S)
            lock.release()
    assert partition.log.log_end_offset == 1


def test_fetched_records_of_a_leader_that_was_replaced_meanwhile_are_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path))
    gate = Gate(monkeypatch, validator, "check_fetched")
    with gate.held_by(lambda: partition.append_as_follower(fetched(0), 0, 0, 0)):
        partition.make_follower(PartitionState(TP, None, 1, 2, 1, (1, 2), 0, (1, 2)))
    assert partition.log.log_end_offset == 0


def append_to(partition: Partition) -> None:
    partition.append_as_leader(batch(b"a"), required_acks=1, origin=AppendOrigin.CLIENT)


# -- a partition that goes ---------------------------------------------------------------------------------------------


def test_a_partition_is_forgotten_only_between_two_appends(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    replicas = ReplicaManager(
        1, manager, _Alone(), Timer(), SYSTEM_CLOCK, max_lag_ms=1000, submit_isr_change=lambda _: None
    )
    partition = replicas.get_or_create(TP, lambda: manager.get_or_create(TP, None))
    partition.make_leader(PartitionState(TP, None, 1, 1, 0, (1,), 0, (1,)))
    forgetting = threading.Thread(target=lambda: replicas.forget(TP), daemon=True)
    with partition.lock:
        forgetting.start()
        wait_until(lambda: replicas.partition(TP) is None, WAIT_S)
        partition.append_as_leader(batch(b"a"), required_acks=1, origin=AppendOrigin.CLIENT)
    forgetting.join(WAIT_S)
    assert not partition.is_leader


class _Alone:
    """A cluster of one broker."""

    def alive(self, _broker_id: int) -> bool:
        return True
