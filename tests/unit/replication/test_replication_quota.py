"""Replication throttles: the rate, whom they cover, and what a leader gives a follower that catches up."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.config.log_config import LONG_MAX, LogConfig
from broker.log.log_manager import LogManager
from broker.protocol.control_messages import PartitionRole
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.logs import batch

TP = TopicPartition("t", 0)
ME, IN_SYNC, BEHIND = 1, 2, 3
MANY = 1 << 20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quota(clock: ManualClock) -> ReplicationQuota:
    made = ReplicationQuota(clock)
    made.limit = 1000
    return made


def test_nothing_taken_is_no_rate(quota: ReplicationQuota) -> None:
    assert (quota.rate(), quota.wait_ms()) == (0, 0)


def test_the_rate_is_that_of_at_least_one_sample(quota: ReplicationQuota, clock: ManualClock) -> None:
    quota.record(500)
    clock.now_ms += 10
    assert quota.rate() == 500
    clock.now_ms += 1990
    assert quota.rate() == 250


def test_what_was_taken_at_once_is_waited_for(quota: ReplicationQuota, clock: ManualClock) -> None:
    quota.record(5000)
    waits_ms = quota.wait_ms()
    assert 4000 <= waits_ms <= 4001
    clock.now_ms += 1000 + waits_ms
    assert quota.wait_ms() == 0
    assert quota.rate() <= 1000


def test_old_samples_count_no_more(quota: ReplicationQuota, clock: ManualClock) -> None:
    quota.record(1 << 40)
    assert quota.wait_ms() == 10_000
    clock.now_ms += 11_000
    assert (quota.rate(), quota.wait_ms()) == (0, 0)


def test_over_a_long_time_no_more_is_taken_than_allowed(quota: ReplicationQuota, clock: ManualClock) -> None:
    began_ms, taken = clock.now_ms, 0
    while clock.now_ms - began_ms < 120_000:
        if quota.wait_ms() == 0:
            quota.record(3000)
            taken += 3000
        clock.now_ms += 50
    assert 0.9 * 120_000 <= taken <= 1.1 * 120_000


@pytest.mark.parametrize(
    ("listed", "covered"),
    [((), False), (("*",), True), (("0:1",), True), (("0:2", "1:1"), False), (("1:1", "0:1"), True)],
)
def test_it_covers_the_replicas_that_the_topic_lists(quota: ReplicationQuota, listed, covered) -> None:
    assert quota.covers(listed, 0, 1) is covered


def test_a_rate_that_nobody_set_covers_nobody(quota: ReplicationQuota) -> None:
    quota.limit = LONG_MAX
    assert not quota.covers(("*",), 0, 1)


class Site:
    """A leader of t-0 with two followers, one of them out of the ISR."""

    def __init__(self, directory: Path, clock: ManualClock) -> None:
        self._timer = Timer()
        self._logs = LogManager(
            [str(directory)], LogConfig(leader_replication_throttled_replicas=(f"0:{ME}",)), clock=clock
        )
        self._logs.startup()
        self.quota = ReplicationQuota(clock)
        self.replicas = ReplicaManager(
            ME,
            self._logs,
            self,  # type: ignore[arg-type]
            self._timer,
            clock,
            max_lag_ms=30_000,
            submit_isr_change=lambda _change: None,
            leader_quota=self.quota,
        )
        topic_id = uuid.UUID(int=1)
        partition = self.replicas.get_or_create(TP, lambda: self._logs.get_or_create(TP, topic_id))
        partition.make_leader(PartitionRole(TP, topic_id, 1, ME, 0, (ME, IN_SYNC), 0, (ME, IN_SYNC, BEHIND)))
        self.log = partition.log

    def alive(self, _broker_id: int) -> bool:
        return True

    def fetch(self, follower: int, offset: int = 0, max_wait_ms: int = 0) -> list[int]:
        """Bytes of each answer that came at once."""
        sizes: list[int] = []
        self.replicas.fetch(
            FetchParams(follower, -1, max_wait_ms, 1, MANY),
            [FetchEntry(TP, uuid.UUID(int=1), offset, MANY)],
            lambda fetched: sizes.extend(0 if r.records is None else r.records.size for _, r in fetched),
        )
        return sizes

    def close(self) -> None:
        self.replicas.shutdown()
        self._timer.stop()
        self._logs.shutdown()


@pytest.fixture
def site(tmp_path: Path, clock: ManualClock) -> Iterator[Site]:
    made = Site(tmp_path, clock)
    made.log.append_as_leader(batch(bytes(20_000)), 0)
    made.fetch(IN_SYNC, 1)
    yield made
    made.close()


def test_a_follower_that_catches_up_gets_nothing_while_the_rate_is_exceeded(
    site: Site, clock: ManualClock
) -> None:
    site.quota.limit = 10_000
    (first,) = site.fetch(BEHIND)
    assert first > 20_000
    assert site.fetch(BEHIND) == [0]
    clock.now_ms += 3000
    assert site.fetch(BEHIND) == [first]


def test_whoever_is_in_sync_and_consumers_are_not_throttled(site: Site) -> None:
    site.quota.limit = 1
    site.fetch(BEHIND)
    assert all(size > 20_000 for reader in (IN_SYNC, -1) for _ in range(3) for size in site.fetch(reader))


def test_a_fetch_that_is_held_back_waits_instead_of_being_answered_with_nothing(
    site: Site, clock: ManualClock
) -> None:
    site.quota.limit = 10_000
    site.fetch(BEHIND)
    waiting = site.fetch(BEHIND, max_wait_ms=60_000)
    assert waiting == []
    site.log.append_as_leader(batch(b"more"), 0)
    site.replicas.wake(TP)
    assert waiting == [], "there is more, and it is held back still"
    clock.now_ms += 5000
    site.replicas.wake(TP)
    assert waiting[0] > 20_000


def test_without_a_rate_nothing_is_held_back(site: Site) -> None:
    assert all(size > 20_000 for _ in range(5) for size in site.fetch(BEHIND))
    assert site.quota.rate() == 0
