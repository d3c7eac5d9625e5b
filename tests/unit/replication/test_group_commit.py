"""Group commit: requests that wait for a sync share one, and nothing is acknowledged or shown before it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cluster.partition import Partition
from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.produce_messages import PartitionResponse
from broker.record.batch import Record, build_batch
from broker.replication.replica_manager import ReplicaManager
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.logs import Alone

TP = TopicPartition("orders", 0)


class Site:
    """A broker's one partition whose log syncs after every record; ``gate`` holds the disk while it is closed."""

    def __init__(self, directory: Path) -> None:
        self._logs = LogManager([str(directory)], LogConfig(flush_messages=1))
        self._logs.startup()
        self._timer = Timer()
        self.replicas = ReplicaManager(
            1,
            self._logs,
            Alone(),
            self._timer,
            SYSTEM_CLOCK,
            max_lag_ms=1000,
            submit_isr_change=lambda _: None,
        )
        self.partition: Partition = self.replicas.get_or_create(
            TP, lambda: self._logs.get_or_create(TP, None)
        )
        self.partition.make_leader(PartitionRole(TP, None, 1, 1, 0, (1,), 0, (1,)))
        self.log = self.partition.log
        self.syncs = 0
        self.fails = False
        self.gate = threading.Event()
        self.gate.set()
        sync = self.log.sync_records

        def counted() -> None:
            self.syncs += 1
            if not self.gate.wait(30):
                raise TimeoutError
            if self.fails:
                raise KafkaError(Errors.KAFKA_STORAGE_ERROR, "no disk")
            sync()

        self.log.sync_records = counted  # type: ignore[method-assign]

    def append(self, acks: int) -> list[PartitionResponse]:
        """Sends one record; the list has the answer once there is one."""
        answers: list[PartitionResponse] = []
        self.replicas.append_records(
            timeout_ms=30_000,
            required_acks=acks,
            entries={TP: memoryview(bytearray(build_batch([Record(key=None, value=b"v")])))},
            callback=lambda responses: answers.append(responses[TP]),
        )
        return answers

    def close(self) -> None:
        self.gate.set()
        self.replicas.shutdown()
        self._timer.stop()
        self._logs.shutdown()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    site = Site(tmp_path)
    yield site
    site.close()


@pytest.mark.parametrize("acks", [1, -1])
def test_nothing_is_acknowledged_or_shown_before_it_is_durable(site: Site, acks: int) -> None:
    site.gate.clear()
    answers = site.append(acks)
    wait_until(lambda: site.syncs == 1, 30)
    assert (answers, site.log.high_watermark, site.log.log_end_offset) == ([], 0, 1)
    site.gate.set()
    wait_until(lambda: answers, 30)
    assert (answers[0].error, site.log.recovery_point, site.log.high_watermark) == (Errors.NONE, 1, 1)


def test_all_that_comes_during_a_sync_shares_the_next(site: Site) -> None:
    site.gate.clear()
    first = site.append(-1)
    wait_until(lambda: site.syncs == 1, 30)
    others = [site.append(-1) for _ in range(20)]
    site.gate.set()
    wait_until(lambda: first and all(others), 30)
    assert site.syncs == 2
    assert site.log.high_watermark == 21


@pytest.mark.parametrize("acks", [1, -1])
def test_a_sync_that_fails_is_a_storage_error_for_all_who_waited(site: Site, acks: int) -> None:
    site.fails = True
    answers = site.append(acks)
    wait_until(lambda: answers, 30)
    assert answers[0].error is Errors.KAFKA_STORAGE_ERROR
    assert site.log.high_watermark == 0


def test_a_producer_that_wants_no_answer_does_not_wait_for_the_disk(site: Site) -> None:
    site.gate.clear()
    assert site.append(0)[0].error is Errors.NONE
    site.gate.set()
    wait_until(lambda: site.log.recovery_point == 1, 30)


def test_nothing_is_kept_for_requests_that_want_no_answer(site: Site) -> None:
    site.gate.clear()
    for _ in range(100):
        site.append(0)
    wait_until(lambda: site.syncs == 1, 30)
    assert site.replicas._group_commit._due == {site.partition: []}
    site.gate.set()
    wait_until(lambda: site.log.recovery_point == 100, 30)


def test_a_stop_answers_everybody_who_waits(site: Site) -> None:
    answers = [site.append(-1) for _ in range(5)]
    site.replicas.shutdown()
    assert all(answers)
    late = site.append(-1)
    assert late[0].error is Errors.NONE
