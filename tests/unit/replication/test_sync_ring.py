"""Syncs without threads: what a Processor's loop submits and answers, and what it leaves to threads."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.cluster.partition import Partition
from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.network.request_channel import Verdict
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors
from broker.protocol.produce_messages import PartitionResponse
from broker.replication.group_commit import GroupCommit
from broker.replication.replica_manager import ReplicaManager
from broker.replication.sync_ring import SyncRing, load_aio
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.fake_aio import FakeAio
from tests.support.logs import Alone, batch
from tests.support.loops import bound_server

WAIT_S = 30
LOOP = "network-thread-0"
PARTITIONS = [TopicPartition("t", number) for number in range(4)]


def no_aio() -> Any:
    raise ImportError("none here")


class Site:
    """Partitions whose logs sync each record, led by a broker with a real loop."""

    def __init__(self, directory: Path, load: Callable[[], Any]) -> None:
        self.logs = LogManager([str(directory)], LogConfig(flush_messages=1))
        self.logs.startup()
        self._timer = Timer()
        self.replicas = ReplicaManager(
            1,
            self.logs,
            Alone(),
            self._timer,
            SYSTEM_CLOCK,
            max_lag_ms=1000,
            submit_isr_change=lambda _: None,
        )
        self.partitions = [self._leader_of(partition) for partition in PARTITIONS]
        self.loop = bound_server()
        self.loop.start(lambda _request: Verdict.SERVED, self.replicas.settle)
        self.replicas.sync_on_loop(self.loop.invite, load)
        # The first records of a log are synced with its names, which is for a thread.
        with capture_logs() as lines:
            for partition in PARTITIONS:
                answers = self.append(partition)
                wait_until(lambda found=answers: found, WAIT_S)
        (self.said,) = [line for line in lines if line["event"] == "log_syncs"]
        wait_until(lambda: not self.replicas._group_commit._syncing, WAIT_S)

    def _leader_of(self, topic_partition: TopicPartition) -> Partition:
        partition = self.replicas.get_or_create(
            topic_partition, lambda: self.logs.get_or_create(topic_partition, None)
        )
        partition.make_leader(PartitionRole(topic_partition, None, 1, 1, 0, (1,), 0, (1,)))
        return partition

    def append(
        self, *partitions: TopicPartition, acks: int = -1, told: list[str] | None = None
    ) -> list[dict[TopicPartition, PartitionResponse]]:
        """Sends a record to each; the list has the answer once there is one, and ``told`` the thread of it."""
        answers: list[dict[TopicPartition, PartitionResponse]] = []

        def answer(responses: Any) -> None:
            if told is not None:
                told.append(threading.current_thread().name)
            answers.append(dict(responses))

        self.replicas.append_records(
            timeout_ms=WAIT_S * 1000,
            required_acks=acks,
            entries={partition: batch(b"v") for partition in partitions or (PARTITIONS[0],)},
            callback=answer,
        )
        return answers

    def answered(self, *partitions: TopicPartition, acks: int = -1) -> set[Errors]:
        answers = self.append(*partitions, acks=acks)
        wait_until(lambda: answers, WAIT_S)
        return {response.error for response in answers[0].values()}

    def close(self) -> None:
        self.loop.stop()
        self.replicas.shutdown()
        self._timer.stop()
        self.logs.shutdown()


@pytest.fixture
def aio() -> FakeAio:
    return FakeAio()


@pytest.fixture
def site(tmp_path: Path, aio: FakeAio) -> Iterator[Site]:
    site = Site(tmp_path, lambda: aio)
    yield site
    aio.release()
    site.close()


# -- on the loop


def test_the_kernel_syncs_and_the_loop_answers(tmp_path: Path) -> None:
    """With the real library, where this machine has Linux AIO."""
    try:
        load_aio()
    except ImportError as error:
        pytest.skip(str(error))
    site = Site(tmp_path, load_aio)
    try:
        assert site.said["by"] == "Linux AIO"
        told: list[str] = []
        for _ in range(5):
            answers = site.append(*PARTITIONS, told=told)
            wait_until(lambda found=answers: found, WAIT_S)
            assert {response.error for response in answers[0].values()} == {Errors.NONE}
        assert set(told) == {LOOP}
        for partition in site.partitions:
            assert partition.log.high_watermark == partition.log.durability.synced_end == 6
    finally:
        site.close()


@pytest.mark.parametrize("acks", [1, -1])
def test_nothing_is_acknowledged_or_shown_before_its_sync_has_ended(
    site: Site, aio: FakeAio, acks: int
) -> None:
    aio.is_held = True
    answers = site.append(acks=acks)
    wait_until(lambda: aio.submitted, WAIT_S)
    log = site.partitions[0].log
    assert (answers, log.high_watermark, log.log_end_offset, log.durability.synced_end) == ([], 1, 2, 1)
    aio.release()
    wait_until(lambda: answers, WAIT_S)
    assert (answers[0][PARTITIONS[0]].error, log.high_watermark) == (Errors.NONE, 2)


def test_all_that_comes_during_a_sync_shares_the_next(site: Site, aio: FakeAio) -> None:
    aio.is_held = True
    answers = [site.append() for _ in range(20)]
    aio.release()
    wait_until(lambda: all(answers), WAIT_S)
    assert aio.submitted == [1, 1]
    assert set(aio.ended_on) == {LOOP}


def test_a_request_for_several_logs_waits_for_all_of_them(site: Site, aio: FakeAio) -> None:
    aio.takes = 1  # the kernel takes one of four: threads sync the others
    assert site.answered(*PARTITIONS) == {Errors.NONE}
    assert all(partition.log.durability.synced_end == 2 for partition in site.partitions)
    assert sum(aio.submitted) == 1


# -- errors


@pytest.mark.parametrize("acks", [1, -1])
def test_a_sync_that_fails_is_a_storage_error_and_its_directory_has_failed(
    site: Site, aio: FakeAio, acks: int
) -> None:
    failed: list[object] = []
    directories = list(site.logs.dirs)
    site.logs.listen(failed.append)
    aio.error = errno.EIO
    assert site.answered(*PARTITIONS, acks=acks) == {Errors.KAFKA_STORAGE_ERROR}
    assert failed == directories
    for partition in site.partitions:
        assert (partition.log.high_watermark, partition.log.durability.synced_end) == (1, 1)
    assert site.answered(acks=acks) == {Errors.KAFKA_STORAGE_ERROR}, "nothing more is appended"


def test_what_came_during_a_sync_that_fails_is_not_acknowledged_by_the_next(site: Site, aio: FakeAio) -> None:
    """Of which the kernel would say that all is well: it reports the loss of a page once."""
    aio.is_held = True
    answers = [site.append(acks=1)]
    wait_until(lambda: aio.submitted, WAIT_S)
    answers.append(site.append(acks=1))
    aio.error, aio.fails_once = errno.EIO, True
    aio.release()
    wait_until(lambda: all(answers), WAIT_S)
    assert [found[0][PARTITIONS[0]].error for found in answers] == [Errors.KAFKA_STORAGE_ERROR] * 2
    assert site.partitions[0].log.high_watermark == 1


def test_a_disk_that_was_full_at_a_sync_has_failed_as_the_pages_may_be_gone(site: Site, aio: FakeAio) -> None:
    aio.error = errno.ENOSPC
    assert site.answered() == {Errors.KAFKA_STORAGE_ERROR}
    assert site.partitions[0].log.health.failure is not None


@pytest.mark.parametrize(
    "refusal",
    [OverflowError("EAGAIN"), ValueError("EINVAL"), SystemError("ENOMEM"), OSError("?"), MemoryError()],
    ids=repr,
)
def test_what_the_kernel_does_not_take_is_synced_by_threads(
    site: Site, aio: FakeAio, refusal: Exception
) -> None:
    aio.refusal = refusal
    assert site.answered(*PARTITIONS) == {Errors.NONE}
    assert all(partition.log.high_watermark == 2 for partition in site.partitions)
    aio.refusal = None
    assert site.answered() == {Errors.NONE}
    assert aio.submitted == [1]


def test_without_aio_threads_sync_and_one_line_says_so(tmp_path: Path) -> None:
    site = Site(tmp_path, no_aio)
    try:
        assert (site.said["event"], site.said["by"], site.said["reason"]) == (
            "log_syncs",
            "threads",
            "none here",
        )
        assert site.answered(*PARTITIONS) == {Errors.NONE}
    finally:
        site.close()


def test_a_kernel_that_grants_no_context_leaves_all_to_threads(tmp_path: Path) -> None:
    class Full(FakeAio):
        def Context(self, _max_requests: int) -> FakeAio:  # noqa: N802 - its name in the library
            raise SystemError(errno.EAGAIN, "Resource temporarily unavailable")

    site = Site(tmp_path, Full)
    try:
        assert site.said["by"] == "threads"
        assert site.answered(*PARTITIONS) == {Errors.NONE}
    finally:
        site.close()


def test_a_kernel_that_does_not_tell_of_results_leaves_all_to_threads(tmp_path: Path) -> None:
    """As a container's filter may, by which submissions would be taken and never end."""

    class Silent(FakeAio):
        def process_events(self, _max_requests: int = 512) -> int:
            raise SystemError(errno.EPERM, "Operation not permitted")

    site = Site(tmp_path, Silent)
    try:
        assert site.said["by"] == "threads"
        assert site.answered(*PARTITIONS) == {Errors.NONE}
    finally:
        site.close()


def test_a_process_that_has_no_more_threads_syncs_once_it_has_one(
    tmp_path: Path, aio: FakeAio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The new names of its first records are for a thread."""
    refused: list[str] = []
    start = threading.Thread.start

    def refuse_some(thread: threading.Thread) -> None:
        if thread.name.startswith("log-syncer") and len(refused) < 3:
            refused.append(thread.name)
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse_some)
    site = Site(tmp_path, lambda: aio)
    assert len(refused) == 3
    assert site.answered(*PARTITIONS) == {Errors.NONE}
    site.close()


def test_a_log_that_cannot_be_synced_is_told_of_once_the_others_are_submitted(
    site: Site, aio: FakeAio, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who is told may wait for a lock of somebody who waits for one of the others."""
    commit = site.replicas._group_commit
    site.partitions[0].log.close()
    submitted_then: list[list[int]] = []
    with monkeypatch.context() as patch:
        patch.setattr(commit, "begin", lambda: None)
        commit.submit([site.partitions[0]], lambda _failures: submitted_then.append(list(aio.submitted)))
        answers = site.append(PARTITIONS[1])
    commit.begin()
    wait_until(lambda: submitted_then and answers, WAIT_S)
    assert submitted_then == [[1]]


def test_what_comes_while_a_failure_is_told_is_answered_too(site: Site, aio: FakeAio) -> None:
    """Without another turn of the loop, which may be a second later: here there is none at all."""
    commit = GroupCommit(lambda _partition: None)
    commit.sync_on_loop(lambda _ring: True, lambda: aio)
    partition = site.partitions[0]
    partition.log.close()
    second: list[Any] = []

    def told(_failures: Any) -> None:
        other = threading.Thread(target=commit.submit, args=([partition], second.append))
        other.start()
        other.join()

    commit.submit([partition], told)
    assert set(second[0]) == {PARTITIONS[0]}
    commit.shutdown()


def test_syncs_of_the_ring_wake_no_thread(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads that had their part in the first syncs wait for more; to wake one costs more than a sync."""
    woken: list[int] = []
    commit = site.replicas._group_commit
    wait_until(lambda: commit._idle == len(commit._threads) > 0, WAIT_S)
    notify = commit._changed.notify

    def noted(threads: int = 1) -> None:
        woken.append(threads)
        notify(threads)

    monkeypatch.setattr(commit._changed, "notify", noted)
    for _ in range(5):
        assert site.answered(*PARTITIONS) == {Errors.NONE}
    wait_until(lambda: not commit._syncing, WAIT_S)
    assert not woken


# -- what meets a sync that is under way


def test_a_truncation_during_a_sync_has_the_records_after_it_synced_again(site: Site, aio: FakeAio) -> None:
    aio.is_held = True
    answers = site.append()
    wait_until(lambda: aio.submitted, WAIT_S)
    log = site.partitions[0].log
    log.truncate_to(1)
    log.append_as_leader(batch(b"other"), 1)
    aio.release()
    wait_until(lambda: answers, WAIT_S)
    assert log.durability.synced_end == log.log_end_offset == 2
    assert aio.submitted == [1]
    assert log.durability._names_settled, "a thread synced what the truncation changed"


def test_a_checkpoint_waits_for_the_sync_and_goes_before_the_next(site: Site, aio: FakeAio) -> None:
    log = site.partitions[0].log
    assert site.answered() == {Errors.NONE}
    aio.is_held = True
    first = site.append()
    wait_until(lambda: len(aio.submitted) == 2, WAIT_S)
    with ThreadPoolExecutor(1) as pool:
        flushed = pool.submit(log.flush)
        wait_until(log.durability.flushing.locked, WAIT_S)
        second = site.append()
        aio.release()
        flushed.result(WAIT_S)
        wait_until(lambda: first and second, WAIT_S)
    assert log.recovery_point >= 3
    assert log.durability.synced_end == 4


def test_a_thread_that_waits_for_a_sync_ends_it_itself(tmp_path: Path, aio: FakeAio) -> None:
    """It may be the loop's own thread, which nobody else could replace."""
    site = Site(tmp_path, lambda: aio)
    log = site.partitions[0].log
    inside, go_on = threading.Event(), threading.Event()

    def stand_still(_responses: object) -> None:
        inside.set()
        assert go_on.wait(WAIT_S)

    site.replicas.append_records(
        timeout_ms=1000, required_acks=1, entries={PARTITIONS[1]: batch(b"v")}, callback=stand_still
    )
    assert inside.wait(WAIT_S)  # the loop stands still, in an answer
    answers = site.append()
    assert len(aio.submitted) == 2
    log.flush()
    assert log.recovery_point == 2
    assert not answers, "the loop answers"
    go_on.set()
    wait_until(lambda: answers, WAIT_S)
    site.close()


def test_a_stop_answers_everybody_who_waits(tmp_path: Path, aio: FakeAio) -> None:
    site = Site(tmp_path, lambda: aio)
    aio.is_held = True
    answers = [site.append(partition) for partition in PARTITIONS for _ in range(3)]
    wait_until(lambda: aio.submitted, WAIT_S)
    site.loop.stop()
    with ThreadPoolExecutor(1) as pool:
        stopped = pool.submit(site.replicas.shutdown)
        with pytest.raises(TimeoutError):
            stopped.result(0.2)
        assert not any(answers)
        aio.release()
        stopped.result(WAIT_S)
    assert all(answers)
    assert all(partition.log.high_watermark == 4 for partition in site.partitions)
    assert site.answered() == {Errors.NONE}, "on the caller's thread"
    site.close()


def test_after_the_loop_threads_sync(site: Site, aio: FakeAio) -> None:
    site.loop.stop()
    assert site.answered(*PARTITIONS) == {Errors.NONE}
    assert aio.submitted == []


def test_a_closed_log_is_an_error_of_its_own(site: Site) -> None:
    site.partitions[0].log.close()
    commit = site.replicas._group_commit
    told: list[Any] = []
    commit.submit([site.partitions[0]], told.append)
    wait_until(lambda: told, WAIT_S)
    assert told[0][PARTITIONS[0]].error_code is Errors.KAFKA_STORAGE_ERROR
    assert site.answered(PARTITIONS[1]) == {Errors.NONE}


def test_the_library_is_loaded_again_for_a_second_broker_of_a_process() -> None:
    try:
        first, second = load_aio(), load_aio()
    except ImportError as error:
        pytest.skip(str(error))
    assert first.Context(1).fileno != second.Context(1).fileno or first is second


# -- the ring alone


class One:
    """A sync whose end takes as long as ``stay``."""

    def __init__(self, stay: threading.Event | None = None) -> None:
        self._stay = stay
        self.is_ending = threading.Event()

    def fileno(self) -> int:
        return 0

    def ended(self, _error: OSError | None) -> None:
        self.is_ending.set()
        if self._stay is not None:
            assert self._stay.wait(WAIT_S)


def a_ring(aio: FakeAio, delivered: list[One]) -> SyncRing:
    aio.error = errno.EIO  # so that no file is needed
    return SyncRing(aio, delivered.extend, lambda: None)


def test_a_drain_waits_for_a_sync_that_another_thread_is_about_to_end(aio: FakeAio) -> None:
    """Else it would be given to nobody: its log would be synced no more, and a stop would wait for it."""
    delivered: list[One] = []
    ring, stay = a_ring(aio, delivered), threading.Event()
    one = One(stay)
    assert ring.submit([one]) == 1
    with ThreadPoolExecutor(2) as pool:
        reaped = pool.submit(ring.reap)  # as a checkpoint does that waits for this log
        assert one.is_ending.wait(WAIT_S)
        drained = pool.submit(ring.drain)
        try:
            with pytest.raises(TimeoutError):
                drained.result(0.3)
        finally:
            stay.set()
        reaped.result(WAIT_S)
        drained.result(WAIT_S)
    assert delivered == [one]


def test_a_process_that_is_stopped_and_goes_on_delivers_what_has_ended(aio: FakeAio) -> None:
    """The call that asks for results is interrupted then, on whichever thread makes it."""
    delivered: list[One] = []
    ring, one = a_ring(aio, delivered), One()
    assert ring.submit([one]) == 1
    ring.reap()
    aio.interruptions = 3
    ring.reap()
    ring.on_ready()
    assert delivered == [one]
    ring.drain()
    assert aio.interruptions == 0
