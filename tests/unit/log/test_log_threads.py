"""Threads that meet over one log: what each may hold, and what it may leave behind for the other."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from broker.cluster.partition import Partition
from broker.cluster.results import Awaited
from broker.config.log_config import LogConfig
from broker.log import checkpoints, leader_epochs
from broker.log.log import lower_recovery_points
from broker.log.log_manager import LogManager
from broker.log.segments.segment import Segment
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors, KafkaError
from broker.record import validator
from broker.record.validator import AppendOrigin
from broker.replication.replica_manager import ReplicaManager
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.gate import WAIT_S, Gate
from tests.support.logs import TP, Alone, batch, fetched, managed, open_log, partition_of

# -- a name that two logs have had


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


# -- checkpoints


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
    lower_recovery_points(dict.fromkeys(logs[:-1], 1))
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
    lower_recovery_points({log: 1})
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


# -- who need not wait for a partition


def test_who_takes_a_follower_for_the_leader_is_told_so_while_it_truncates(tmp_path: Path) -> None:
    partition = partition_of(open_log(tmp_path))
    with ThreadPoolExecutor(1) as another, partition._lock:  # as while segments are unlinked
        append = another.submit(
            partition.append_as_leader, batch(b"a"), required_acks=-1, origin=AppendOrigin.CLIENT
        )
        assert refusal_of(append) is Errors.NOT_LEADER_OR_FOLLOWER
        epochs = {"current_leader_epoch": 0, "last_fetched_epoch": -1}
        fetch = another.submit(partition.fetch_as_follower, 2, 1, 0, 0, 1000, **epochs, min_one=True)
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
        for lock in (partition._lock, partition.log.lock):
            assert lock.acquire(timeout=WAIT_S)
            lock.release()
    assert partition.log.log_end_offset == 1


def test_records_whose_partition_lost_its_leader_meanwhile_are_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path, LogConfig(compression_type="gzip")), leads=True)
    gate = Gate(monkeypatch, validator, "recompress")
    with pytest.raises(KafkaError), gate.held_by(lambda: append_to(partition)):
        partition.make_follower(PartitionRole(TP, None, 1, 2, 1, (1, 2), 0, (1, 2)))
    assert partition.log.log_end_offset == 0


def test_nobody_waits_while_a_followers_records_are_verified(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path))
    gate = Gate(monkeypatch, validator, "check_fetched")
    with gate.held_by(lambda: partition.append_as_follower(fetched(0), 0, 0, 0)):
        for lock in (partition._lock, partition.log.lock):
            assert lock.acquire(timeout=WAIT_S)
            lock.release()
    assert partition.log.log_end_offset == 1


def test_fetched_records_of_a_leader_that_was_replaced_meanwhile_are_not_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(open_log(tmp_path))
    gate = Gate(monkeypatch, validator, "check_fetched")
    with gate.held_by(lambda: partition.append_as_follower(fetched(0), 0, 0, 0)):
        partition.make_follower(PartitionRole(TP, None, 1, 2, 1, (1, 2), 0, (1, 2)))
    assert partition.log.log_end_offset == 0


def append_to(partition: Partition) -> None:
    partition.append_as_leader(batch(b"a"), required_acks=1, origin=AppendOrigin.CLIENT)


# -- a partition that goes


def test_a_partition_is_forgotten_only_between_two_appends(tmp_path: Path) -> None:
    manager = managed(tmp_path)
    replicas = ReplicaManager(
        1, manager, Alone(), Timer(), SYSTEM_CLOCK, max_lag_ms=1000, submit_isr_change=lambda _: None
    )
    partition = replicas.get_or_create(TP, lambda: manager.get_or_create(TP, None))
    partition.make_leader(PartitionRole(TP, None, 1, 1, 0, (1,), 0, (1,)))
    forgetting = threading.Thread(target=lambda: replicas.forget(TP), daemon=True)
    with partition._lock:
        forgetting.start()
        wait_until(lambda: replicas.partition(TP) is None, WAIT_S)
        partition.append_as_leader(batch(b"a"), required_acks=1, origin=AppendOrigin.CLIENT)
    forgetting.join(WAIT_S)
    assert not partition.is_leader
