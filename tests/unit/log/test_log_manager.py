"""A broker's log directories: locked, checked, loaded, checkpointed, left clean or not."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from broker.config.log_config import LogConfig
from broker.log.checkpoints import CheckpointError, OffsetCheckpoint
from broker.log.errors import LoadCancelled, LogDirError
from broker.log.loading.load_progress import LoadProgress
from broker.log.log_manager import LogManager, LogManagerSettings
from broker.log.partition_metadata import parse_topic_id, read_topic_id, topic_id_text, write_topic_id
from broker.log.producers.producer_state import level_for
from broker.protocol.errors import Errors, KafkaError
from broker.utils.scheduler import KafkaScheduler
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.clocks import TickingClock
from tests.support.logs import batch, contents

A, B = TopicPartition("a", 0), TopicPartition("b-c", 1)


def started(*dirs, config=None, **options) -> LogManager:
    manager = LogManager([str(path) for path in dirs], config or LogConfig(), **options)
    manager.startup()
    return manager


def marker(directory):
    return directory / ".kafka_cleanshutdown"


def test_logs_are_there_again_after_a_clean_restart(tmp_path):
    manager = started(tmp_path)
    topic_id = uuid4()
    log = manager.get_or_create(B, topic_id)
    log.append_as_leader(batch(b"x"), 0)
    manager.shutdown(broker_epoch=77)
    assert json.loads(marker(tmp_path).read_text()) == {"version": 0, "brokerEpoch": 77}
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nb-c 1 1\n"
    again = LogManager([str(tmp_path)], LogConfig())
    again.lock_and_check()
    assert again.clean
    again.startup()
    assert not marker(tmp_path).exists()
    assert contents(again.get(B)) == [(0, b"x")]
    assert again.get(B).topic_id == topic_id
    assert again.get(A) is None
    again.shutdown()


def test_a_killed_broker_left_no_marker_and_is_recovered(tmp_path):
    manager = started(tmp_path)
    manager.get_or_create(A).append_as_leader(batch(b"x"), 0)
    manager.dirs.unlock()  # the process died
    again = LogManager([str(tmp_path)], LogConfig())
    again.lock_and_check()
    assert not again.clean
    progress = []
    again.startup(progress=progress.append)
    assert progress[-1] == LoadProgress(1, 1, 1, 1)
    assert contents(again.get(A)) == [(0, b"x")]
    again.shutdown()


def test_an_empty_directory_is_clean(tmp_path):
    manager = LogManager([str(tmp_path / "new" / "dir")], LogConfig())
    manager.lock_and_check()
    assert manager.clean
    manager.shutdown()


def test_a_directory_in_use_is_refused_saying_what_to_do(tmp_path):
    used = tmp_path / "used"
    manager = started(used)
    other = LogManager([str(tmp_path / "own"), str(used)], LogConfig())
    with pytest.raises(LogDirError, match="locked by another broker"):
        other.lock_and_check()
    started(tmp_path / "own").shutdown()  # it was let go again
    manager.shutdown()
    started(used).shutdown()


def test_a_directory_that_a_jvm_has_locked_is_refused(tmp_path):
    """Java locks with fcntl records, not with flock."""
    script = (
        "import fcntl,sys; f=open(sys.argv[1],'w'); fcntl.lockf(f,fcntl.LOCK_EX); print('locked',flush=True); "
        "sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / ".lock")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout.readline() == b"locked\n"
        with pytest.raises(LogDirError, match="locked by another broker"):
            started(tmp_path)


def test_an_unusable_directory_is_refused_saying_what_to_do(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(LogDirError, match=r"change log\.dirs"):
        started(tmp_path / "file" / "below")


def test_a_directory_that_is_no_partition_is_refused_and_lost_found_is_not(tmp_path):
    (tmp_path / "lost+found").mkdir()
    started(tmp_path).shutdown()
    (tmp_path / "stuff").mkdir()
    with pytest.raises(LogDirError, match="stuff is not the directory of a partition"):
        started(tmp_path)


def test_directories_of_different_brokers_or_clusters_are_refused(tmp_path):
    one, two = tmp_path / "1", tmp_path / "2"
    for directory, broker_id, cluster_id in ((one, 1, "c"), (two, 2, "c")):
        manager = started(directory)
        manager.dirs.write_meta_properties(broker_id, cluster_id)
        manager.shutdown()
    with pytest.raises(LogDirError, match=r"broker\.id"):
        started(one, two)
    text = (two / "meta.properties").read_text()
    (two / "meta.properties").unlink()
    (two / "meta.properties").write_text(text.replace("broker.id=2", "broker.id=1").replace("id=c", "id=d"))
    with pytest.raises(LogDirError, match=r"cluster\.id"):
        started(one, two)


def test_identity_is_kept_in_meta_properties(tmp_path):
    manager = started(tmp_path / "first")
    assert (manager.dirs.broker_id, manager.dirs.cluster_id) == (None, None)
    manager.dirs.write_meta_properties(1001, "abc=")
    manager.shutdown()
    again = started(tmp_path / "first", tmp_path / "second")
    assert (again.dirs.broker_id, again.dirs.cluster_id) == (1001, "abc=")
    again.dirs.write_meta_properties(1001, "abc=")
    assert (tmp_path / "second" / "meta.properties").exists()
    again.shutdown()


@pytest.mark.parametrize("text", ["version=1\nnode.id=3\n", "broker.id=x\nversion=0\n"])
def test_a_meta_properties_that_is_not_understood_is_refused(tmp_path, text):
    (tmp_path / "meta.properties").write_text(text)
    with pytest.raises(LogDirError, match=r"meta\.properties has"):
        started(tmp_path)


def test_new_partitions_go_where_the_fewest_are(tmp_path):
    manager = started(tmp_path / "1", tmp_path / "2")
    for n in range(6):
        manager.get_or_create(TopicPartition("t", n))
    assert [len(list((tmp_path / d).glob("t-*"))) for d in "12"] == [3, 3]
    manager.shutdown()


def test_another_topics_id_is_refused(tmp_path):
    manager = started(tmp_path)
    manager.get_or_create(A, UUID(int=1))
    with pytest.raises(KafkaError) as raised:
        manager.get_or_create(A, UUID(int=2))
    assert raised.value.error_code is Errors.INCONSISTENT_TOPIC_ID
    manager.shutdown()


def test_topic_ids_are_written_as_kafka_does(tmp_path):
    topic_id = parse_topic_id("uYNj6CzFTruy9O1_wYKzpg")
    assert topic_id_text(topic_id) == "uYNj6CzFTruy9O1_wYKzpg"
    manager = started(tmp_path)
    manager.get_or_create(A, topic_id)
    assert (
        tmp_path / "a-0" / "partition.metadata"
    ).read_text() == "version: 0\ntopic_id: uYNj6CzFTruy9O1_wYKzpg"
    assert read_topic_id(tmp_path / "a-0") == topic_id
    manager.shutdown()


def test_a_topic_id_is_on_the_disk_before_its_file_has_its_name(tmp_path, monkeypatch):
    synced = []

    def fsync(fd):
        file = Path(f"/proc/self/fd/{fd}")
        synced.append(
            (file.read_bytes() if file.is_file() else b"", (tmp_path / "partition.metadata").exists())
        )

    monkeypatch.setattr("os.fsync", fsync)
    write_topic_id(tmp_path, UUID("b98363e8-2cc5-4ebb-b2f4-ed7fc182b3a6"))
    assert synced[0] == (b"version: 0\ntopic_id: uYNj6CzFTruy9O1_wYKzpg", False)
    assert synced[1:] == [(b"", True)], "the directory after the file"


def test_a_deleted_partition_is_gone_at_once_and_its_files_later(tmp_path):
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    manager = started(tmp_path, config=LogConfig(file_delete_delay_ms=200), scheduler=scheduler)
    log = manager.get_or_create(A)
    log.append_as_leader(batch(b"old"), 0)
    region = log.reader.read(0, 999, end_offset=1, min_one_batch=True).region
    assert manager.delete_async(A)
    assert not manager.delete_async(A)
    assert manager.get(A) is None
    assert len(list(tmp_path.glob("a-0.*-delete"))) == 1
    with pytest.raises(KafkaError):
        log.append_as_leader(batch(b"late"), 0)
    assert manager.get_or_create(A).log_end_offset == 0
    wait_until(lambda: not list(tmp_path.glob("*-delete")))
    assert len(os.pread(region.file.fileno(), region.size, region.position)) == region.size
    scheduler.shutdown()
    manager.shutdown()


def test_deletion_begun_before_a_restart_is_finished_after_it(tmp_path):
    (tmp_path / "a-0.0123456789abcdef0123456789abcdef-delete").mkdir()
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    manager = started(tmp_path, scheduler=scheduler)
    wait_until(lambda: not list(tmp_path.glob("*-delete")))
    assert manager.all_logs() == []
    scheduler.shutdown()
    manager.shutdown()


def test_a_stopped_clean_start_leaves_the_directory_clean(tmp_path):
    manager = started(tmp_path)
    for n in range(4):
        manager.get_or_create(TopicPartition("t", n)).append_as_leader(batch(b"x"), 0)
    manager.shutdown()
    before = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    cancel = threading.Event()
    stopped = LogManager([str(tmp_path)], LogConfig(), clock=TickingClock())
    with pytest.raises(LoadCancelled):
        stopped.startup(cancel, lambda progress: cancel.set() if progress.logs == 2 else None)
    assert len(stopped.all_logs()) == 2
    stopped.shutdown()
    assert marker(tmp_path).exists()
    after = (tmp_path / "recovery-point-offset-checkpoint").read_text()
    assert sorted(after.split("\n")) == sorted(before.split("\n"))


def test_a_stopped_recovery_stays_unclean_and_keeps_what_it_did(tmp_path):
    manager = started(tmp_path)
    for n in range(4):
        manager.get_or_create(TopicPartition("t", n)).append_as_leader(batch(b"x"), 0)
    manager.dirs.unlock()
    cancel = threading.Event()
    stopped = LogManager([str(tmp_path)], LogConfig(), clock=TickingClock())
    with pytest.raises(LoadCancelled):
        stopped.startup(cancel, lambda progress: cancel.set() if progress.logs == 2 else None)
    stopped.shutdown()
    assert not marker(tmp_path).exists()
    assert sorted(OffsetCheckpoint(tmp_path, "recovery-point-offset-checkpoint").read().values()) == [1, 1]
    again = started(tmp_path)
    assert len(again.all_logs()) == 4
    again.shutdown()
    assert marker(tmp_path).exists()


def test_start_up_stopped_before_it_touched_anything_keeps_the_marker(tmp_path):
    started(tmp_path).shutdown()
    manager = LogManager([str(tmp_path)], LogConfig())
    manager.lock_and_check()
    manager.shutdown()
    assert marker(tmp_path).exists()


def test_a_log_that_cannot_be_closed_cleanly_costs_its_directory_the_marker(tmp_path, monkeypatch):
    manager = started(tmp_path / "1", tmp_path / "2")
    first, second = manager.get_or_create(A), manager.get_or_create(B)
    assert {first.dir.parent.name, second.dir.parent.name} == {"1", "2"}

    def fail() -> None:
        raise KafkaError(Errors.KAFKA_STORAGE_ERROR, "disk")

    monkeypatch.setattr(first, "close", fail)
    manager.shutdown()
    assert not marker(first.dir.parent).exists()
    assert marker(second.dir.parent).exists()


def test_changed_settings_take_effect_at_once(tmp_path):
    scheduler = KafkaScheduler(2)
    scheduler.startup()
    manager = started(
        tmp_path, scheduler=scheduler, settings=LogManagerSettings(log_initial_task_delay_ms=600_000)
    )
    log = manager.get_or_create(B)
    runs = []
    manager.cleaner.run = lambda: runs.append(1)
    manager.update_settings(
        LogManagerSettings(
            producer_id_expiration_ms=5, log_cleaner_backoff_ms=1, log_cleaner_dedupe_buffer_size=1 << 20
        )
    )
    wait_until(lambda: len(runs) > 1)
    assert manager.cleaner.dedupe_buffer_bytes == 1 << 20
    assert log.producer_state.expiration_ms == 5
    assert manager.get_or_create(A).producer_state.expiration_ms == 5
    scheduler.shutdown()
    manager.shutdown()


@pytest.mark.parametrize("threads", [1, 4])
def test_many_logs_are_recovered_in_parallel(tmp_path, threads):
    dirs = [tmp_path / "1", tmp_path / "2"]
    manager = started(*dirs)
    for n in range(30):
        manager.get_or_create(TopicPartition("t", n)).append_as_leader(batch(b"%d" % n), 0)
    manager.dirs.unlock()
    again = started(*dirs, settings=LogManagerSettings(num_recovery_threads_per_data_dir=threads))
    assert {contents(log)[0][1] for log in again.all_logs()} == {b"%d" % n for n in range(30)}
    again.shutdown()


def test_high_watermarks_are_checkpointed_and_those_not_told_stay(tmp_path):
    manager = started(tmp_path / "1", tmp_path / "2")
    manager.get_or_create(A)
    manager.get_or_create(B)
    manager.checkpoint_high_watermarks({A: 5, B: 7, TopicPartition("not-here", 0): 1})
    manager.checkpoint_high_watermarks({A: 6})
    assert manager.read_high_watermarks() == {A: 6, B: 7}
    manager.delete_async(B)
    manager.checkpoint_high_watermarks({A: 6})
    assert manager.read_high_watermarks() == {A: 6}
    manager.shutdown()


def test_the_log_start_survives_a_restart(tmp_path):
    manager = started(tmp_path)
    log = manager.get_or_create(A)
    for _ in range(3):
        log.append_as_leader(batch(b"x"), 0)
    log.high_watermark = 3
    log.increment_log_start_offset(2)
    manager.shutdown()
    again = started(tmp_path)
    assert again.get(A).log_start_offset == 2
    again.shutdown()


def test_what_was_checkpointed_of_a_log_that_is_gone_is_not_said_of_the_next_one(tmp_path):
    """Its deletion was interrupted before the checkpoints were written, or somebody removed the directory."""
    manager = started(tmp_path)
    log = manager.get_or_create(A)
    for _ in range(3):
        log.append_as_leader(batch(b"old"), 0)
    log.high_watermark = 3
    log.increment_log_start_offset(2)
    manager.shutdown()
    OffsetCheckpoint(tmp_path, "cleaner-offset-checkpoint").write({A: 2})
    shutil.rmtree(tmp_path / "a-0")
    again = started(tmp_path)
    again.get_or_create(A).append_as_leader(batch(b"new"), 0)
    again.dirs.unlock()  # the process died
    last = started(tmp_path)
    assert contents(last.get(A)) == [(0, b"new")]
    for name in ("recovery-point-offset", "log-start-offset", "cleaner-offset"):
        assert OffsetCheckpoint(tmp_path, f"{name}-checkpoint").read() == {}
    last.shutdown()


def test_a_truncation_below_the_recovery_point_is_checkpointed_at_once(tmp_path):
    manager = started(tmp_path)
    log = manager.get_or_create(A)
    for _ in range(3):
        log.append_as_leader(batch(b"x"), 0)
    log.flush()
    manager.checkpoint_recovery_points()
    log.truncate_to(1)
    assert OffsetCheckpoint(tmp_path, "recovery-point-offset-checkpoint").read() == {A: 1}
    manager.shutdown()


def test_topic_configs_reach_logs_at_creation_and_later(tmp_path):
    configs = {"a": LogConfig(segment_bytes=111)}
    manager = LogManager([str(tmp_path)], LogConfig(), lambda topic: configs.get(topic, LogConfig()))
    manager.startup()
    assert manager.get_or_create(A).config.segment_bytes == 111
    manager.update_topic_config("a", LogConfig(segment_bytes=222))
    assert manager.get(A).config.segment_bytes == 222
    manager.shutdown()


def test_logs_are_synced_when_flush_ms_has_passed(tmp_path):
    manager = started(tmp_path, config=LogConfig(flush_ms=0))
    log = manager.get_or_create(A)
    log.append_as_leader(batch(b"x"), 0)
    assert manager.flush_due_logs() == 1
    assert log.recovery_point == 1
    manager.shutdown()


def test_an_empty_checkpoint_as_kafka_makes_it_at_first_says_nothing_and_is_no_error(tmp_path, capsys):
    for name in ("recovery-point", "log-start", "replication"):
        (tmp_path / f"{name}-offset-checkpoint").touch()
    (tmp_path / "cleaner-offset-checkpoint").touch()
    manager = started(tmp_path)
    log = manager.get_or_create(A)
    manager.cleaner.run()
    manager.shutdown()
    (log.dir / "leader-epoch-checkpoint").write_text("")
    started(tmp_path).shutdown()
    assert "unreadable" not in capsys.readouterr().out


@pytest.mark.parametrize("text", ["1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na b c\n", "x"])
def test_an_unreadable_checkpoint_is_an_error_and_costs_only_time(tmp_path, text):
    path = tmp_path / "recovery-point-offset-checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError, match="recovery-point-offset-checkpoint"):
        OffsetCheckpoint(tmp_path, path.name).read()
    started(tmp_path).shutdown()


def test_a_checkpoint_is_replaced_whole(tmp_path):
    checkpoint = OffsetCheckpoint(tmp_path, "c")
    checkpoint.write({A: 1, B: 2})
    assert checkpoint.path.read_text() == "0\n2\na 0 1\nb-c 1 2\n"
    assert checkpoint.read() == {A: 1, B: 2}
    assert not list(tmp_path.glob("*.tmp"))


def test_the_clock_like_tasks_run_on_the_scheduler(tmp_path):
    from broker.log.log_manager import LogManagerSettings

    scheduler = KafkaScheduler(2)
    scheduler.startup()
    settings = LogManagerSettings(log_initial_task_delay_ms=0, log_flush_offset_checkpoint_interval_ms=20)
    manager = started(tmp_path, scheduler=scheduler, settings=settings)
    log = manager.get_or_create(A)
    log.append_as_leader(batch(b"x"), 0)
    log.flush()
    path = tmp_path / "recovery-point-offset-checkpoint"
    wait_until(lambda: path.exists() and path.read_text() == "0\n1\na 0 1\n")
    scheduler.shutdown()
    manager.shutdown()


def fill_with_producers(manager: LogManager, *counts: int) -> list:
    logs = [manager.get_or_create(TopicPartition("t", number), uuid4()) for number in range(len(counts))]
    for log, count in zip(logs, counts, strict=True):
        for pid in range(count):
            log.append_as_leader(batch(b"v", producer_id=pid, producer_epoch=0, base_sequence=0), 0)
    return [log.producer_state.producers for log in logs]


def test_producer_ids_of_all_partitions_are_bounded_and_who_has_few_keeps_them(tmp_path):
    settings = LogManagerSettings(landline_producer_id_broker_max_count=100)
    manager = started(tmp_path, settings=settings)
    known = fill_with_producers(manager, 5, 60, 300)
    assert manager.bound_producers() == 276
    assert [len(producers) for producers in known] == [5, 42, 42]
    assert 299 in known[2]
    assert manager.bound_producers() == 0
    manager.shutdown()


def test_producer_ids_of_all_partitions_are_looked_at_again_and_again(tmp_path):
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    settings = LogManagerSettings(  # the batches are old, and their producers are not to go by age
        landline_producer_id_broker_max_count=100, producer_id_expiration_ms=1 << 60
    )
    manager = started(tmp_path, scheduler=scheduler, settings=settings)
    known = fill_with_producers(manager, 60, 300)
    wait_until(lambda: sum(map(len, known)) <= 100)
    assert sum(map(len, known)) > 50
    scheduler.shutdown()
    manager.shutdown()


def test_partitions_share_a_bound_by_what_they_have():
    assert level_for([10_000] * 30 + [5] * 100, 200_000) == 6650
    assert level_for([9, 9, 1], 9) == 4
    assert level_for([7], 5) == 5
