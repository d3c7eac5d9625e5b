"""Errors of the disk under a log: what is refused, what is taken back, and when the directory has failed."""

from __future__ import annotations

import errno
import os
import queue
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log import log_manager
from broker.log.dirs import log_dir
from broker.log.errors import LogDirError
from broker.log.filesystem_sync import NotSyncedError
from broker.log.free_space import FreeSpaceFloor, check_free_space
from broker.log.leader_epochs import LeaderEpochCache
from broker.log.log_dir_health import Fault, LogDirHealth, fault_of
from broker.log.log_manager import LogManager
from broker.log.segments.segment import Segment
from broker.protocol.errors import Errors, KafkaError
from broker.record.validator import AppendOrigin
from broker.utils.topic_partition import TopicPartition
from tests.support.logs import batch, contents, open_log
from tests.support.transactions import write

A, B = TopicPartition("a", 0), TopicPartition("b", 0)
NO_FLOOR = FreeSpaceFloor(0, 0)


def failing(code: int):
    def fail(*_args, **_options):
        raise OSError(code, os.strerror(code))

    return fail


def storage_error(action) -> str:
    with pytest.raises(KafkaError) as caught:
        action()
    assert caught.value.error_code is Errors.KAFKA_STORAGE_ERROR
    return caught.value.message


@pytest.mark.parametrize(
    ("code", "fault"),
    [
        (errno.EIO, Fault.FAILED),
        (errno.EROFS, Fault.FAILED),
        (errno.ENOSPC, Fault.FULL),
        (errno.EDQUOT, Fault.FULL),
        (errno.ENOENT, Fault.ABSENT),
        (errno.EMFILE, Fault.PROCESS),
    ],
)
def test_an_error_number_says_whether_the_disk_failed(code, fault):
    assert fault_of(OSError(code, "")) is fault


def test_a_file_that_is_missing_does_not_fail_a_directory_that_is_there(tmp_path):
    health = LogDirHealth(tmp_path)
    assert not health.report("read", FileNotFoundError(errno.ENOENT, "no such file"))
    assert LogDirHealth(tmp_path / "gone").report("read", FileNotFoundError(errno.ENOENT, "no such file"))


def test_the_first_failure_stands_and_is_told_once(tmp_path):
    health = LogDirHealth(tmp_path)
    told: list[str | None] = []
    health.listen(lambda: told.append(health.failure))
    health.report("append", OSError(errno.EIO, "Input/output error"))
    health.report("sync", OSError(errno.EROFS, "Read-only file system"))
    assert told == ["cannot append: Input/output error"]
    late: list[str | None] = []
    health.listen(lambda: late.append(health.failure))
    assert late == told


# --- appends


def test_a_full_disk_refuses_clients_until_there_is_space_and_followers_only_the_append(
    tmp_path, monkeypatch
):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(errno.ENOSPC))
        storage_error(lambda: log.append_as_leader(batch(b"b"), 0))
    assert "produce is refused" in storage_error(lambda: log.append_as_leader(batch(b"c"), 0))
    log.append_as_leader(batch(b"d"), 0, origin=AppendOrigin.COORDINATOR)  # offsets are still committed
    check_free_space(NO_FLOOR, [log.health])
    log.append_as_leader(batch(b"e"), 0)
    assert [value for _, value in contents(log)] == [b"a", b"d", b"e"]
    assert log.health.failure is None


def test_a_torn_append_is_cut_off_before_anything_else_is_written(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    size = log.segments[-1].size
    real = os.pwrite

    def torn(fd, data, position):
        if len(data) < 100:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data[:-99], position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", torn)
        storage_error(lambda: log.append_as_leader(batch(b"b" * 500), 0))
    assert log.segments[-1].path(".log").stat().st_size == size
    assert log.health.failure is None


def test_a_torn_append_that_cannot_be_cut_off_fails_the_directory(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(errno.ENOSPC))
        patch.setattr(os, "ftruncate", failing(errno.ENOSPC))
        storage_error(lambda: log.append_as_leader(batch(b"b"), 0))
    assert log.health.failure is not None
    storage_error(lambda: log.append_as_leader(batch(b"c"), 0))


def test_an_io_error_fails_the_directory_and_nothing_is_appended_after_it(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", failing(errno.EIO))
        storage_error(lambda: log.append_as_leader(batch(b"b"), 0))
    assert "Input/output error" in log.health.failure
    assert "Input/output error" in storage_error(lambda: log.append_as_leader(batch(b"c"), 0))
    assert log.log_end_offset == 0


def test_records_that_the_disk_does_not_give_back_fail_the_directory(tmp_path, monkeypatch):
    """Groups are loaded this way: an error that nobody was told of would leave them half known."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", failing(errno.EIO))
        storage_error(lambda: log.read_bytes(0, 1000))
    assert "Input/output error" in log.health.failure


def test_a_follower_that_meets_a_full_disk_knows_of_no_more_than_it_wrote(tmp_path, monkeypatch):
    """Epochs and producers' sequences of what was not written would be lies at the next fetch."""
    leader = open_log(tmp_path / "leader")
    for epoch, sequence in ((0, 0), (0, 1), (5, 2)):
        leader.append_as_leader(
            batch(b"x" * 300, producer_id=9, producer_epoch=0, base_sequence=sequence), epoch
        )
    fetched = leader.read_bytes(0, 1 << 20)
    log = open_log(tmp_path / "follower", LogConfig(segment_bytes=400, flush_messages=1))
    real, calls = os.pwrite, []

    def second_fails(fd, data, position):
        calls.append(len(data))
        if len(calls) > 1:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(fd, data, position)

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", second_fails)
        storage_error(lambda: log.append_as_follower(fetched))
    assert log.log_end_offset == 1
    assert log.leader_epochs.entries == ((0, 0),)
    assert log.producer_state.producers[9].batches[-1].last_sequence == 0
    assert log.health.failure is None
    assert log.durability.sync_wanted == 1  # the next fetch acknowledges what was written
    log.append_as_follower(leader.read_bytes(1, 1 << 20))
    assert log.leader_epochs.entries == ((0, 0), (5, 2))
    assert log.producer_state.producers[9].batches[-1].last_sequence == 2


# --- rolls, syncs and checkpoints


def test_a_segment_that_cannot_be_begun_leaves_no_file_behind(tmp_path, monkeypatch):
    """Its name would tell the next recovery that the segment before it ends there."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)

    def begin_and_fail(path, _mode):
        Path(path).touch()
        failing(errno.ENOSPC)()

    with monkeypatch.context() as patch:
        patch.setattr("broker.log.segments.segment.SegmentFile", begin_and_fail)
        storage_error(log.roll)
    check_free_space(NO_FLOOR, [log.health])
    log.append_as_leader(batch(b"b"), 0)
    assert [path.name for path in log.dir.glob("*.log")] == ["00000000000000000000.log"]
    again = open_log(tmp_path, clean=False)
    assert [value for _, value in contents(again)] == [b"a", b"b"]


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.ENOMEM, errno.EINTR, errno.ENOENT])
def test_a_sync_that_fails_fails_the_directory_whatever_its_error_is(tmp_path, monkeypatch, number):
    """The pages it could not write may be gone, and were acknowledged."""
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", failing(number))
        storage_error(log.flush)
    assert log.health.failure is not None
    assert log.recovery_point == 0
    storage_error(log.sync_records)


def test_too_many_open_files_fail_a_sync_but_not_the_directory(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    log.append_as_leader(batch(b"a"), 0)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", failing(errno.EMFILE))
        storage_error(log.flush)
    assert log.health.failure is None
    log.flush()
    assert log.recovery_point == 1


def test_segments_are_deleted_where_a_full_disk_cannot_rename_them(tmp_path, monkeypatch):
    log = open_log(tmp_path, LogConfig(segment_bytes=150, retention_bytes=0))
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(batch(value * 50), 0)
    with monkeypatch.context() as patch:
        patch.setattr(Segment, "change_suffix", failing(errno.ENOSPC))
        assert log.delete_old_segments(high_watermark=2) == 2
    assert [path.name for path in log.dir.glob("*.log*")] == ["00000000000000000002.log"]


def test_a_recovery_point_that_cannot_be_lowered_is_taken_away(tmp_path, monkeypatch):
    """Left as it was, it would vouch for what is not yet on the disk."""
    manager = started(tmp_path)
    log = manager.get_or_create(A)
    for value in (b"a", b"b"):
        log.append_as_leader(batch(value), 0)
    log.flush()
    manager.checkpoint_recovery_points()
    with monkeypatch.context() as patch:
        patch.setattr(log_dir.OffsetCheckpoint, "write", failing(errno.ENOSPC))
        log.truncate_to(1)
    assert not (tmp_path / "recovery-point-offset-checkpoint").exists()
    assert log.health.failure is None
    manager.shutdown()


def test_a_checkpoint_that_meets_an_io_error_fails_the_directory(tmp_path, monkeypatch):
    manager = started(tmp_path)
    manager.get_or_create(A)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", failing(errno.EIO))
        manager.checkpoint_recovery_points()
    assert [one.path for one in manager.dirs.failed] == [tmp_path]
    manager.shutdown()


# --- the manager


def started(*dirs, **options) -> LogManager:
    manager = LogManager([str(path) for path in dirs], LogConfig(), **options)
    manager.startup()
    return manager


def test_a_failed_directorys_logs_are_given_up_and_it_gets_no_clean_marker(tmp_path):
    one, two = tmp_path / "1", tmp_path / "2"
    manager = started(one, two)
    failed: queue.SimpleQueue = queue.SimpleQueue()
    manager.listen(failed.put)
    first, second = manager.get_or_create(A), manager.get_or_create(B)
    first.append_as_leader(batch(b"x"), 0)
    manager.dirs.at(first.dir.parent).health.fail("broken")
    gone = failed.get_nowait()
    assert manager.take_offline(gone) == [A]
    assert manager.get(A) is None
    assert manager.get(B) is second
    message = storage_error(lambda: manager.get_or_create(A, is_new=False))
    assert str(gone.path) in message
    assert manager.get_or_create(TopicPartition("new", 0), is_new=True).dir.parent == second.dir.parent
    manager.shutdown()
    assert not (gone.path / ".kafka_cleanshutdown").exists()
    assert (second.dir.parent / ".kafka_cleanshutdown").exists()


def test_a_log_whose_only_snapshot_of_producers_has_no_room_is_not_left_clean(tmp_path, monkeypatch):
    """A clean log without one has no producers: its open transaction would be forgotten."""
    manager = started(tmp_path)
    log = manager.get_or_create(A)
    write(log, b"uncommitted", pid=5)
    real = os.open

    def open_file(path, *arguments, **named):
        if ".snapshot" in str(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(path, *arguments, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_file)
        manager.shutdown()
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    again = started(tmp_path)
    log = again.get(A)
    log.high_watermark = 1
    assert log.last_stable_offset() == 0
    again.shutdown()
    assert (tmp_path / ".kafka_cleanshutdown").exists()


def test_a_start_passes_over_a_directory_whose_disk_does_not_work(tmp_path):
    good, bad = tmp_path / "good", tmp_path / "file" / "bad"
    (tmp_path / "file").write_text("")
    manager = started(good, bad)
    assert [one.path for one in manager.dirs.failed] == [bad]
    assert manager.get_or_create(A).dir.parent == good
    manager.shutdown()


def test_a_start_passes_over_a_directory_that_cannot_be_read(tmp_path, monkeypatch):
    good, bad = tmp_path / "good", tmp_path / "bad"
    before = started(good, bad)
    kept = before.get_or_create(A), before.get_or_create(B)
    before.shutdown()
    (lost,) = (log for log in kept if log.dir.parent == bad)
    lost_partition = lost.topic_partition
    real = Segment.open

    def read(directory, *args, **options):
        if directory.parent == bad:
            raise OSError(errno.EIO, "Input/output error")
        return real(directory, *args, **options)

    monkeypatch.setattr(Segment, "open", read)
    manager = started(good, bad)
    assert manager.get(lost_partition) is None
    assert [one.path for one in manager.dirs.failed] == [bad]
    manager.shutdown()


def stopped_uncleanly(*dirs) -> dict[Path, TopicPartition]:
    """Leaves a log with one record, not synced, in each directory; returns their partitions."""
    manager = started(*dirs)
    logs = [manager.get_or_create(TopicPartition("t", number)) for number in range(len(dirs))]
    for log in logs:
        log.append_as_leader(batch(b"x"), 0)
    manager.shutdown()
    for path in dirs:
        (path / ".kafka_cleanshutdown").unlink()
        (path / "recovery-point-offset-checkpoint").unlink()
    return {log.dir.parent: log.topic_partition for log in logs}


def test_a_start_passes_over_a_directory_that_cannot_sync_what_it_recovered(tmp_path, monkeypatch):
    """What was read again counts as durable, and is served and acknowledged."""
    good, bad = tmp_path / "good", tmp_path / "bad"
    partitions = stopped_uncleanly(good, bad)
    real = log_manager.sync_filesystem

    def sync(path: Path) -> None:
        if path == bad:
            raise NotSyncedError(errno.EIO, "Input/output error")
        real(path)

    with monkeypatch.context() as patch:
        patch.setattr(log_manager, "sync_filesystem", sync)
        manager = started(good, bad)
    assert [one.path for one in manager.dirs.failed] == [bad]
    assert manager.get(partitions[bad]) is None
    assert manager.get(partitions[good]).recovery_point == 1
    manager.shutdown()
    assert (good / ".kafka_cleanshutdown").exists()
    assert not (bad / ".kafka_cleanshutdown").exists()


def test_records_are_synced_though_there_is_no_room_for_the_epochs_that_recovery_read(tmp_path, monkeypatch):
    partitions = stopped_uncleanly(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(LeaderEpochCache, "finish", failing(errno.ENOSPC))
        manager = started(tmp_path)
    log = manager.get(partitions[tmp_path])
    assert (log.durability.synced_end, log.recovery_point) == (1, 0)
    assert not manager.dirs.failed
    manager.shutdown()


def test_a_start_without_one_working_directory_is_refused_naming_each(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirError, match=r"no log directory can be used: .*file/1: .*file/2: "):
        started(tmp_path / "file" / "1", tmp_path / "file" / "2")


def test_a_start_is_refused_when_the_last_directorys_checkpoint_cannot_be_read(tmp_path, monkeypatch):
    before = started(tmp_path)
    before.get_or_create(A)
    before.shutdown()
    monkeypatch.setattr(log_dir.OffsetCheckpoint, "read", failing(errno.EIO))
    with pytest.raises(LogDirError, match="no log directory can be used"):
        started(tmp_path)
