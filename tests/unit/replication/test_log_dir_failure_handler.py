"""What follows when a log directory fails: partitions given up, the controller told, the broker ended at the last."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from uuid import uuid4

import pytest

from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.protocol.control_messages import PartitionRole, StopState
from broker.protocol.errors import Errors
from broker.replication.fetcher_manager import ReplicaFetcherManager
from broker.replication.leadership import Leadership, LeadershipListener
from broker.replication.log_dir_failures import LogDirFailureHandler
from broker.replication.replica_manager import ReplicaManager
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.logs import batch

A, B, C = TopicPartition("a", 0), TopicPartition("b", 0), TopicPartition("c", 0)
ME = 1


class EverybodyAlive:
    def alive(self, broker_id: int) -> bool:
        return True


class Broker:
    """The parts of a broker that a failing directory concerns, leading ``A`` and ``B`` in a directory each."""

    def __init__(self, directory: Path, *, start: bool = True) -> None:
        self.timer = Timer("purgatory-timer")
        self.logs = LogManager([str(directory / "1"), str(directory / "2")], LogConfig())
        self.logs.startup()
        self.replicas = ReplicaManager(
            ME,
            self.logs,
            EverybodyAlive(),
            self.timer,
            SYSTEM_CLOCK,
            max_lag_ms=1000,
            submit_isr_change=lambda _change: None,
        )
        self.resigned: list[TopicPartition] = []
        self.leadership = Leadership(
            self.replicas,
            self.logs,
            ReplicaFetcherManager(1, None),
            LeadershipListener(lambda *_: None, lambda partition, _epoch: self.resigned.append(partition)),
            lambda _topic: None,
        )
        self.announced = 0
        self.failing_announcements = 0
        self.ended = 0
        self.handler = LogDirFailureHandler(self.logs, self.leadership, self.announce, self.end)
        self.ids = {A: uuid4(), B: uuid4()}
        assert self.lead(A, 0) is self.lead(B, 0) is Errors.NONE
        if start:
            self.handler.start()

    def lead(self, partition: TopicPartition, epoch: int, *, is_new: bool = True) -> Errors:
        state = PartitionRole(partition, self.ids[partition], 1, ME, epoch, (ME,), 0, (ME, 2), is_new=is_new)
        return self.leadership.apply(1, [state])[partition]

    def announce(self) -> None:
        if self.failing_announcements:
            self.failing_announcements -= 1
            raise ConnectionError("ZooKeeper is away")
        self.announced += 1

    def end(self) -> None:
        self.ended += 1

    def produce(self, partition: TopicPartition) -> Errors:
        answers = {}
        self.replicas.append_records(
            timeout_ms=1000, required_acks=1, entries={partition: batch(b"x")}, callback=answers.update
        )
        return answers[partition].error

    def directory_of(self, partition: TopicPartition):
        return self.logs.dirs.at(self.logs.get(partition).dir.parent)

    def close(self) -> None:
        self.handler.shutdown()
        self.logs.shutdown()
        self.timer.stop()


@pytest.fixture
def broker(tmp_path):
    made = Broker(tmp_path)
    yield made
    made.close()


def fail_writes_of(broker: Broker, partition: TopicPartition, monkeypatch) -> None:
    with monkeypatch.context() as patch:

        def broken(*_):
            raise OSError(errno.EIO, "Input/output error")

        patch.setattr(os, "pwrite", broken)
        assert broker.produce(partition) is Errors.KAFKA_STORAGE_ERROR


def test_partitions_of_a_failed_directory_are_given_up_and_the_controller_is_told(broker, monkeypatch):
    fail_writes_of(broker, A, monkeypatch)
    wait_until(lambda: broker.announced == 1, 30)
    assert broker.replicas.is_offline(A)
    assert broker.replicas.offline_count == 1
    assert broker.resigned == [A]
    assert broker.produce(A) is Errors.KAFKA_STORAGE_ERROR
    assert broker.produce(B) is Errors.NONE
    assert broker.lead(A, 1, is_new=False) is Errors.KAFKA_STORAGE_ERROR
    assert broker.leadership.stop(1, [StopState(A, 5, delete=True)]) == {A: Errors.KAFKA_STORAGE_ERROR}
    assert broker.lead(B, 1) is Errors.NONE
    assert not broker.ended


def test_the_controller_is_told_again_until_it_can_be(broker, monkeypatch):
    broker.failing_announcements = 1
    fail_writes_of(broker, A, monkeypatch)
    wait_until(lambda: broker.announced == 1, 30)


def test_while_the_controller_cannot_be_told_the_next_failure_is_handled_all_the_same(broker, monkeypatch):
    """Else a broker without a disk would go on until ZooKeeper is back."""
    broker.failing_announcements = 1_000_000
    fail_writes_of(broker, A, monkeypatch)
    wait_until(lambda: broker.failing_announcements < 1_000_000, 30)
    fail_writes_of(broker, B, monkeypatch)
    wait_until(lambda: broker.ended == 1, 30)
    assert broker.replicas.is_offline(B)
    assert broker.announced == 0


def test_after_the_last_directory_the_broker_ends_and_acknowledges_nothing_more(broker, monkeypatch):
    fail_writes_of(broker, A, monkeypatch)
    wait_until(lambda: broker.announced == 1, 30)
    fail_writes_of(broker, B, monkeypatch)
    wait_until(lambda: broker.ended == 1, 30)
    assert broker.produce(B) is Errors.KAFKA_STORAGE_ERROR
    assert broker.announced == 1


def test_a_directory_that_failed_before_the_handler_began_is_handled_then(tmp_path):
    broker = Broker(tmp_path, start=False)
    broker.directory_of(A).health.fail("broken")
    broker.handler.start()
    wait_until(lambda: broker.replicas.is_offline(A), 30)
    broker.close()


def test_a_log_that_is_made_while_its_directory_fails_is_given_up_as_well(broker, monkeypatch):
    """The handler has already looked which partitions the directory has."""
    looked = threading.Event()
    partitions_in, load_new = broker.logs.partitions_in, broker.logs._load_new

    def look(log_dir):
        found = partitions_in(log_dir)
        looked.set()
        return found

    def load_in_a_directory_that_fails(topic_partition, config, log_dir, path):
        log = load_new(topic_partition, config, log_dir, path)
        log_dir.health.fail("broken")
        assert looked.wait(30)
        return log

    monkeypatch.setattr(broker.logs, "partitions_in", look)
    monkeypatch.setattr(broker.logs, "_load_new", load_in_a_directory_that_fails)
    broker.ids[C] = uuid4()
    assert broker.lead(C, 0) is Errors.NONE
    wait_until(lambda: broker.announced == 1, 30)
    assert broker.replicas.is_offline(C)
    assert broker.replicas.partition(C) is None
    assert broker.logs.get(C) is None
    assert C in broker.resigned
    assert broker.lead(C, 1, is_new=False) is Errors.KAFKA_STORAGE_ERROR
