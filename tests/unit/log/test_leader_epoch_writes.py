"""When a log's leader epochs reach their file: not when a broker starts or a role begins, and before a batch does."""

from __future__ import annotations

import pytest

from broker.cluster.partition import Partition
from broker.config.log_config import LogConfig
from broker.log.checkpoints import read_checkpoint
from broker.log.leader_epochs import FILE_NAME, LeaderEpochCache
from broker.log.log import Log
from broker.log.log_manager import LogManager
from broker.protocol.control_messages import PartitionRole
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.logs import batch, open_log

TP = TopicPartition("t", 0)


@pytest.fixture
def writes(monkeypatch) -> list[str]:
    """One entry for each write of an epoch file."""
    from broker.log import leader_epochs

    seen: list[str] = []
    real = leader_epochs.write_checkpoint

    def write(path, lines, *, sync=True):
        seen.append(str(path))
        real(path, lines, sync=sync)

    monkeypatch.setattr(leader_epochs, "write_checkpoint", write)
    return seen


def led(log: Log, epoch: int) -> None:
    partition = Partition(
        TP, log, broker_id=1, max_lag_ms=30_000, clock=ManualClock(), alive=lambda _broker_id: True
    )
    partition.make_leader(PartitionRole(TP, None, 1, 1, epoch, (1,), epoch, (1,)))


def in_file(log: Log) -> list[tuple[int, int]]:
    return [(int(epoch), int(start)) for epoch, start in read_checkpoint(log.dir / FILE_NAME)]


def started(tmp_path) -> tuple[LogManager, Log]:
    manager = LogManager([str(tmp_path)], LogConfig())
    manager.startup()
    return manager, manager.get_or_create(TP)


def closed_with_an_epoch_at_its_end(tmp_path) -> None:
    """As logs were left that wrote an epoch with its role."""
    manager, log = started(tmp_path)
    led(log, 3)
    log.append_as_leader(batch(b"x"), 3)
    log.leader_epochs.assign(5, 1)
    manager.shutdown()
    assert in_file(log) == [(3, 0), (5, 1)]


def test_starts_roles_and_stops_without_records_write_no_file(tmp_path, writes) -> None:
    closed_with_an_epoch_at_its_end(tmp_path)
    writes.clear()
    for epoch in (6, 7, 8):
        manager, log = started(tmp_path)
        led(log, epoch)
        assert log.leader_epochs.entries == ((3, 0), (epoch, 1)), "a follower may ask where it began"
        manager.shutdown()
    assert writes == []


def test_a_new_log_has_its_epochs_with_its_first_batch_and_writes_no_more(tmp_path, writes) -> None:
    _, log = started(tmp_path)
    led(log, 0)
    assert writes == []
    for _ in range(3):
        log.append_as_leader(batch(b"x"), 0)
    assert len(writes) == 1
    assert in_file(log) == [(0, 0)]


def test_a_follower_of_an_older_epoch_does_not_leave_the_file_a_later_one(tmp_path) -> None:
    """Kafka's recovery believes what the file says of offsets that the log has."""
    closed_with_an_epoch_at_its_end(tmp_path)
    leader = open_log(tmp_path.with_name(tmp_path.name + "-leader"))
    for _ in range(2):
        leader.append_as_leader(batch(b"x"), 3)
    _, log = started(tmp_path)
    assert log.leader_epochs.entries == ((3, 0),)
    log.append_as_follower(memoryview(bytearray(leader.read_bytes(1, 1 << 20))), 4)
    assert log.log_end_offset == 2
    assert in_file(log) == [(3, 0)]


def test_a_flush_writes_epochs_before_the_recovery_point_moves(tmp_path) -> None:
    _, log = started(tmp_path)
    led(log, 2)
    log.append_as_leader(batch(b"x"), 2)
    (log.dir / FILE_NAME).unlink()
    log.flush()
    assert (in_file(log), log.recovery_point) == ([(2, 0)], 1)


def test_epochs_that_recovery_read_from_batches_are_written_before_it_counts_as_synced(tmp_path) -> None:
    manager, log = started(tmp_path)
    led(log, 2)
    log.append_as_leader(batch(b"x"), 2)
    manager.dirs.unlock()
    (log.dir / FILE_NAME).unlink()  # a power loss may take it
    manager, log = started(tmp_path)
    assert (in_file(log), log.recovery_point) == ([(2, 0)], 1)
    manager.shutdown()
    _, log = started(tmp_path)
    assert log.leader_epochs.entries == ((2, 0),)


def test_a_file_that_cannot_be_written_is_tried_again_by_the_close_and_not_by_each_batch(
    tmp_path, monkeypatch
) -> None:
    from broker.log import leader_epochs

    tries = []

    def full(*args, **options) -> None:
        tries.append(args)
        raise OSError(28, "No space left on device")

    _, log = started(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(leader_epochs, "write_checkpoint", full)
        for _ in range(3):
            log.append_as_leader(batch(b"x"), 1)
        assert len(tries) == 1
    log.close()
    assert in_file(log) == [(1, 0)]


def test_a_file_is_finished_only_where_it_is_wrong_below_the_end(tmp_path, writes) -> None:
    cache = LeaderEpochCache(tmp_path)
    cache.assign(1, 0)
    cache.assign(2, 10, write=False)
    cache.finish(10)
    assert len(writes) == 1
    cache.finish(11)
    assert len(writes) == 2
    assert LeaderEpochCache(tmp_path).entries == ((1, 0), (2, 10))
