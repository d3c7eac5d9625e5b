"""Replicas that move between the log directories of a broker: complete, resumed, given up, throttled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.log_config import LogConfig
from broker.log import log_mover
from broker.log.log_manager import LogManager
from broker.log.log_mover import MOVED_FILE
from broker.protocol.errors import Errors
from broker.record.batch import Record, build_batch, iter_batches, read_records
from broker.record.validator import AppendOrigin
from broker.replication.log_dir_mover import LogDirMover
from broker.replication.replication_quota import ReplicationQuota
from broker.utils.topic_partition import TopicPartition
from rig.wait import last_for, wait_until
from tests.support.clocks import ManualClock
from tests.support.replica_world import ME, OTHER, Broker, state, tp

PARTITION = tp(0)
RECORDS = 50


@pytest.fixture
def dirs(tmp_path: Path) -> tuple[Path, Path]:
    return tmp_path / "a", tmp_path / "b"


@pytest.fixture
def broker(dirs: tuple[Path, Path]) -> Iterator[Broker]:
    """It leads a partition with records, which lies in the first directory."""
    made = Broker(*dirs)
    lead(made)
    fill(made, RECORDS)
    yield made
    made.close()


def lead(broker: Broker) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])


def fill(broker: Broker, count: int) -> None:
    partition = broker.replicas.partition(PARTITION)
    for _ in range(count):
        value = b"%d" % partition.log.log_end_offset
        records = memoryview(bytearray(build_batch([Record(None, value, timestamp=1)])))
        partition.append_as_leader(records, required_acks=1, origin=AppendOrigin.CLIENT)


def alter(broker: Broker, path: Path) -> Errors:
    return broker.leadership.alter_log_dirs({PARTITION: str(path)})[PARTITION]


def move(broker: Broker, path: Path) -> None:
    assert alter(broker, path) is Errors.NONE
    wait_until(lambda: lies_in(broker, path))


def lies_in(broker: Broker, path: Path) -> bool:
    return broker.replicas.partition(PARTITION).log.dir == path / str(PARTITION)


def values(log) -> list[bytes]:
    found: list[bytes] = []
    offset = log.log_start_offset
    while len(view := log.read_bytes(offset, 1 << 20)):
        found += [record.value for record in read_records(view)]
        offset = list(iter_batches(view))[-1].next_offset
    return found


def names(path: Path) -> set[str]:
    return {each.name for each in path.iterdir() if each.is_dir()}


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


def test_a_moved_replica_is_whole_and_goes_on_in_its_new_place(broker: Broker, dirs) -> None:
    first, second = dirs
    partition = broker.replicas.partition(PARTITION)
    before = partition.log
    move(broker, second)
    fill(broker, 3)
    log = partition.log
    assert values(log) == numbers(RECORDS + 3)
    assert log is broker.logs.get(PARTITION)
    assert log.topic_id == before.topic_id
    assert log.leader_epochs.entries == before.leader_epochs.entries
    assert names(second) == {str(PARTITION)}
    wait_until(lambda: names(first) == set())
    assert not (log.dir / MOVED_FILE).exists()
    move(broker, first)
    assert values(partition.log) == numbers(RECORDS + 3)


def test_what_is_appended_during_the_move_moves_too(broker: Broker, dirs) -> None:
    broker.mover.quota.limit = 1
    assert alter(broker, dirs[1]) is Errors.NONE
    fill(broker, 20)
    broker.mover.quota.limit = (1 << 63) - 1
    wait_until(lambda: lies_in(broker, dirs[1]))
    assert values(broker.logs.get(PARTITION)) == numbers(RECORDS + 20)


def test_the_marks_and_the_start_of_the_log_stay(broker: Broker, dirs) -> None:
    broker.fetched_by(OTHER, 0, RECORDS - 5, 1)
    broker.replicas.partition(PARTITION).delete_records(10)
    move(broker, dirs[1])
    log = broker.logs.get(PARTITION)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (10, RECORDS - 5, RECORDS)


def test_a_log_that_begins_within_a_batch_is_moved(broker: Broker, dirs) -> None:
    partition = broker.replicas.partition(PARTITION)
    records = [Record(None, b"%d" % number, timestamp=1) for number in range(RECORDS, RECORDS + 5)]
    batch = memoryview(bytearray(build_batch(records)))
    partition.append_as_leader(batch, required_acks=1, origin=AppendOrigin.CLIENT)
    broker.fetched_by(OTHER, 0, RECORDS + 5, 1)
    partition.delete_records(RECORDS + 2)
    move(broker, dirs[1])
    log = broker.logs.get(PARTITION)
    assert (log.log_start_offset, log.log_end_offset) == (RECORDS + 2, RECORDS + 5)
    assert values(log) == numbers(RECORDS + 5)[RECORDS:]


def test_what_the_log_loses_the_copy_loses(broker: Broker, dirs) -> None:
    """The partition is truncated as a follower while its copy is complete but for the last step."""
    partition = broker.replicas.partition(PARTITION)
    partition.begin_move(broker.logs.create_future(PARTITION, broker.logs.dir_at(str(dirs[1]))))
    partition.copy_to_future(1 << 20)
    future = partition.future
    assert future.log_end_offset == RECORDS
    broker.leadership.apply(1, [state(0, OTHER, 2, (ME, OTHER))])
    partition.truncate_as_follower(2, (1, 30), lambda *_: 30)
    assert (partition.log.log_end_offset, future.log_end_offset) == (30, 30)


def test_what_comes_while_the_copy_is_synced_does_not_put_off_its_end(
    broker: Broker, dirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a partition that gets more in a sync than is copied under its lock never moves."""
    partition = broker.replicas.partition(PARTITION)
    partition.begin_move(broker.logs.create_future(PARTITION, broker.logs.dir_at(str(dirs[1]))))
    partition.copy_to_future(1 << 20)
    future = partition.future
    flush = future.flush

    def flush_while_records_come() -> None:
        monkeypatch.undo()
        flush()
        fill(broker, 20)

    monkeypatch.setattr(future, "flush", flush_while_records_come)
    assert partition.finish_move(300, lambda: future)
    assert (partition.log, future.log_end_offset) == (future, RECORDS + 20)


def test_a_move_goes_on_after_a_restart(broker: Broker, dirs) -> None:
    first, second = dirs
    broker.mover.quota.limit = 1
    assert alter(broker, second) is Errors.NONE
    wait_until(lambda: broker.logs.future(PARTITION)[0].log_end_offset > 0)
    broker.close()
    assert [name.endswith("-future") for name in names(second)] == [True]
    again = Broker(first, second)
    lead(again)
    wait_until(lambda: lies_in(again, second))
    assert values(again.logs.get(PARTITION)) == numbers(RECORDS)
    wait_until(lambda: names(first) == set())
    again.close()


def test_a_copy_that_has_more_than_the_log_after_a_crash_is_cut(broker: Broker, dirs) -> None:
    partition = broker.replicas.partition(PARTITION)
    future = broker.logs.create_future(PARTITION, broker.logs.dir_at(str(dirs[1])))
    partition.begin_move(future)
    partition.copy_to_future(1 << 20)
    partition.end_move()
    partition.log.truncate_to(20)
    partition.log.leader_epochs.assign(3, 20)
    partition.begin_move(future)
    assert future.log_end_offset == 20


def test_a_crash_between_the_two_renames_leaves_the_new_place(broker: Broker, dirs) -> None:
    first, second = dirs
    move(broker, second)
    broker.close()
    old = first / str(PARTITION)
    old.mkdir()
    (second / str(PARTITION) / MOVED_FILE).touch()
    again = LogManager([str(first), str(second)], LogConfig())
    again.startup()
    assert values(again.get(PARTITION)) == numbers(RECORDS)
    assert again.get(PARTITION).dir.parent == second
    assert not old.exists()
    again.shutdown()


def test_the_old_place_goes_after_the_name_of_the_new_one_is_durable(
    broker: Broker, dirs, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of two file systems the one may commit its rename before the other: a loss of power then left neither."""
    first, second = dirs
    seen: list[tuple[Path, set[str]]] = []
    monkeypatch.setattr(log_mover, "sync_dir", lambda path: seen.append((path, names(first))))
    move(broker, second)
    wait_until(lambda: names(first) == set())
    by_place = {path: there for path, there in seen if path in dirs}
    assert by_place[second] == {str(PARTITION)}
    assert str(PARTITION) not in by_place[first]


def test_another_goal_or_the_present_place_ends_a_move(broker: Broker, dirs) -> None:
    first, second = dirs
    broker.mover.quota.limit = 1
    assert alter(broker, second) is Errors.NONE
    assert alter(broker, second) is Errors.NONE
    wait_until(lambda: broker.logs.future(PARTITION)[0].log_end_offset > 0)
    assert alter(broker, first) is Errors.NONE
    assert broker.logs.future(PARTITION) is None
    assert broker.replicas.partition(PARTITION).future is None
    wait_until(lambda: names(second) == set())
    assert lies_in(broker, first)


def test_a_deleted_replica_takes_its_copy_along(broker: Broker, dirs) -> None:
    broker.mover.quota.limit = 1
    assert alter(broker, dirs[1]) is Errors.NONE
    broker.logs.delete_async(PARTITION)
    assert broker.logs.future(PARTITION) is None
    wait_until(lambda: names(dirs[1]) == set())


def test_a_replica_that_is_not_here_is_created_where_it_was_asked_for(broker: Broker, dirs) -> None:
    other = tp(7)
    assert broker.leadership.alter_log_dirs({other: str(dirs[0])}) == {other: Errors.REPLICA_NOT_AVAILABLE}
    broker.logs.get_or_create(other)
    assert broker.logs.dir_of(other).path == dirs[0]
    broker.logs.get_or_create(tp(8))
    assert broker.logs.dir_of(tp(8)).path == dirs[1]


@pytest.mark.parametrize("name", ["x" * 250, "x" * 32_767, "a/b", ".."])
def test_where_to_create_what_cannot_be_a_topic_is_not_kept(broker: Broker, dirs, name: str) -> None:
    never = TopicPartition(name, 0)
    assert broker.leadership.alter_log_dirs({never: str(dirs[0])}) == {never: Errors.REPLICA_NOT_AVAILABLE}
    assert broker.logs._preferred == {}


def test_a_move_to_a_disk_that_fails_is_given_up(broker: Broker, dirs) -> None:
    broker.mover.quota.limit = 1
    assert alter(broker, dirs[1]) is Errors.NONE
    wait_until(lambda: broker.logs.future(PARTITION)[0].log_end_offset > 0)
    failing = broker.logs.dir_at(str(dirs[1]))
    failing.health.fail("broken", quiet=True)
    broker.logs.take_offline(failing)
    broker.mover.quota.limit = (1 << 63) - 1
    wait_until(lambda: broker.replicas.partition(PARTITION).future is None)
    fill(broker, 1)
    assert lies_in(broker, dirs[0])
    assert values(broker.logs.get(PARTITION)) == numbers(RECORDS + 1)


def test_a_move_waits_while_the_other_disk_is_low_on_space(broker: Broker, dirs) -> None:
    health = broker.logs.dir_at(str(dirs[1])).health
    health.refusal = "low on space"
    assert alter(broker, dirs[1]) is Errors.NONE
    last_for(0.2)
    assert broker.logs.future(PARTITION)[0].log_end_offset == 0
    health.refusal = None
    wait_until(lambda: lies_in(broker, dirs[1]))


def test_a_directory_that_the_broker_does_not_have_or_that_failed_is_refused(broker: Broker, dirs) -> None:
    assert alter(broker, dirs[0].parent) is Errors.LOG_DIR_NOT_FOUND
    broker.logs.dir_at(str(dirs[1])).health.fail("broken", quiet=True)
    assert alter(broker, dirs[1]) is Errors.KAFKA_STORAGE_ERROR


class HeldMover(LogDirMover):
    """Its turns last until they are let go."""

    def __init__(self) -> None:
        quota = ReplicationQuota(ManualClock())
        super().__init__(None, lambda _partition: None, lambda _partition: None, quota, threads=2)
        self.turns: list[TopicPartition] = []
        self.let_go = threading.Event()

    def _move(self, topic_partition: TopicPartition) -> bool:
        self.turns.append(topic_partition)
        assert self.let_go.wait(30)
        return False


def test_a_partition_whose_target_changes_during_its_turn_gets_no_second_thread() -> None:
    """Two would copy the same records to the same log, and one of them might go on when it is in its place."""
    mover = HeldMover()
    for partition in (tp(0), tp(0), tp(1)):
        mover._add(partition)
        wait_until(lambda: mover.turns)
    wait_until(lambda: len(mover.turns) == 2)
    assert mover.turns == [tp(0), tp(1)]
    mover.let_go.set()
    wait_until(lambda: mover.turns == [tp(0), tp(1), tp(0)])
    mover.shutdown()
