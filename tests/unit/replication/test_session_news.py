"""What a follower's fetch session costs its leader: looks at the partitions that something happened to, not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.cluster.partition import Partition
from broker.config.log_config import LONG_MAX, LogConfig
from broker.log.log_manager import LogManager
from broker.metrics.registry import Metrics
from broker.protocol.alter_partition_messages import IsrChange
from broker.protocol.control_messages import PartitionRole
from broker.protocol.errors import Errors
from broker.protocol.fetch_requests import FetchRequest
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.replication.replica_manager import ReplicaManager
from broker.replication.replication_quota import ReplicationQuota
from broker.replication.session_news import NewsBoard, SessionNews
from broker.server.fetch_sessions import LOOK_AT_ALL_MS, FetchSessionCache, Outcome
from broker.utils.timer import Timer
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.logs import batch
from tests.support.session_requests import session_request

ME, FOLLOWER = 1, 2
MANY = 1 << 20
COUNT = 40
LAG_MS = 30_000
TOPIC_ID = uuid.UUID(int=1)


def tp(index: int) -> TopicPartition:
    return TopicPartition("t", index)


class Site:
    """The leader of ``COUNT`` partitions, and one follower with a session for all of them that has heard of all."""

    def __init__(self, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock = ManualClock()
        self.changes: list[IsrChange] = []
        self._timer = Timer()
        self._logs = LogManager(
            [str(directory)], LogConfig(leader_replication_throttled_replicas=("*",)), clock=self.clock
        )
        self._logs.startup()
        self.quota = ReplicationQuota(self.clock)
        self.replicas = ReplicaManager(
            ME,
            self._logs,
            self,  # type: ignore[arg-type]
            self._timer,
            self.clock,
            max_lag_ms=LAG_MS,
            submit_isr_change=self._note,
            leader_quota=self.quota,
        )
        self.partitions = [self._lead(index) for index in range(COUNT)]
        self.sessions = FetchSessionCache(lambda: 10, self.clock, Metrics(), self.replicas.news_board)
        self.looked_at: list[int] = []
        self.session_id = self.epoch = 0
        self.offsets = [0] * COUNT
        self.outcomes: list[Outcome] = []
        look = Partition.fetch_as_follower

        def noted(partition: Partition, *arguments, **named):
            self.looked_at.append(partition.topic_partition.partition)
            return look(partition, *arguments, **named)

        monkeypatch.setattr(Partition, "fetch_as_follower", noted)
        self.session_id = self.fetch(range(COUNT)).session_id
        self.fetch()  # looks at all once more: what happened before there was a session is seen
        self.looked_at.clear()

    def _lead(self, index: int) -> Partition:
        partition = self.replicas.get_or_create(
            tp(index), lambda: self._logs.get_or_create(tp(index), TOPIC_ID)
        )
        replicas = (ME, FOLLOWER)
        partition.make_leader(PartitionRole(tp(index), TOPIC_ID, 1, ME, 0, replicas, 0, replicas))
        return partition

    def _note(self, change: IsrChange) -> None:
        self.changes.append(change)

    def fall_behind(self, index: int, *, catches_up: bool = False) -> tuple[int, ...]:
        """The follower leaves the ISR of a partition: it did not ask for what is there for long, or not until
        the controller was asked.
        """
        partition = self.partitions[index]
        self.append(index)
        self.clock.now_ms += LAG_MS + 1
        change = partition.maybe_shrink_isr()
        assert change is not None
        self.changes.append(change)
        if catches_up:
            self.fetch(self.take(self.fetch()))
            self.fetch()
        self.replicas.on_isr_accepted(change, (ME,), 0, 1)
        return tuple(partition.isr.committed - {ME})

    def alive(self, _broker_id: int) -> bool:
        return True

    def append(self, index: int, size: int = 10) -> None:
        self.partitions[index].log.append_as_leader(batch(bytes(size)), 0)
        self.replicas.wake(tp(index))

    def ask(
        self, named=(), *, wait_ms: int = 0, max_bytes: int = MANY, min_bytes: int = 1, forgotten=()
    ) -> list[Outcome]:
        """A request that names these partitions; its answer is in the list once it is given."""
        answers: list[Outcome] = []
        wanted = [FetchEntry(tp(index), TOPIC_ID, self.offsets[index], MANY) for index in named]
        gone = [(TOPIC_ID, index) for index in forgotten]
        fetch = self.sessions.begin(self.asked(gone, min_bytes), wanted)
        assert fetch.error is Errors.NONE
        self.epoch += 1

        def answer(fetched):
            answers.append(fetch.finish(list(fetched)))

        params = FetchParams(FOLLOWER, -1, wait_ms, min_bytes, max_bytes)
        self.replicas.fetch(params, fetch.wanted, answer, fetch.news)
        return answers

    def asked(self, forgotten=(), min_bytes: int = 1) -> FetchRequest:
        return session_request(
            self.session_id,
            self.epoch,
            forgotten,
            from_follower=True,
            by_topic_id=True,
            min_bytes=min_bytes,
        )

    def fetch(self, named=(), **more) -> Outcome:
        """A request that does not wait, and its answer; the follower appends what it got."""
        (outcome,) = self.ask(named, **more)
        return outcome

    def take(self, outcome: Outcome) -> list[int]:
        """The follower appends what it got, and names these partitions next."""
        got = records_in(outcome)
        for index in got:
            self.offsets[index] = self.partitions[index].log.log_end_offset
        return got

    def close(self) -> None:
        self.replicas.shutdown()
        self._timer.stop()
        self._logs.shutdown()


def records_in(outcome: Outcome) -> list[int]:
    return [each.partition for _, each in outcome.results if each.records is not None and each.records.size]


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    made = Site(tmp_path, monkeypatch)
    yield made
    made.close()


def test_a_record_costs_looks_at_its_own_partition(site: Site) -> None:
    answers = site.ask(wait_ms=60_000)
    assert site.looked_at == []
    site.append(7)
    (outcome,) = answers
    assert records_in(outcome) == [7]
    site.fetch(site.take(outcome))
    assert site.partitions[7].log.high_watermark == 1
    assert set(site.looked_at) == {7}


def test_the_follower_is_told_that_its_record_is_committed(site: Site) -> None:
    site.append(7)
    outcome = site.fetch(site.take(site.fetch()))
    assert [(each.partition, each.high_watermark) for _, each in outcome.results] == [(7, 1)]


def test_a_mark_that_moves_by_another_followers_doing_is_in_the_next_answer(site: Site) -> None:
    site.append(7)
    site.take(site.fetch())
    site.partitions[7].log.high_watermark = 1
    site.replicas.wake(tp(7))
    assert [(each.partition, each.high_watermark) for _, each in site.fetch().results] == [(7, 1)]


def test_what_happened_in_one_turn_is_told_in_one_answer(site: Site) -> None:
    answers = site.ask(wait_ms=60_000)
    with site.replicas.putting_off():
        for index in (3, 1, 2):
            site.append(index)
        assert answers == []
    assert sorted(records_in(answers[0])) == [1, 2, 3]
    assert len(site.looked_at) == 3


def test_what_happens_between_two_requests_is_in_the_next_answer(site: Site) -> None:
    site.append(7)
    assert records_in(site.fetch()) == [7]


def test_each_partition_is_looked_at_in_turn(site: Site) -> None:
    for _ in range(COUNT):
        before = len(site.looked_at)
        site.clock.now_ms += LOOK_AT_ALL_MS // COUNT
        site.fetch()
        assert len(site.looked_at) - before == 1
    assert sorted(site.looked_at) == list(range(COUNT))
    site.looked_at.clear()
    site.clock.now_ms += LOOK_AT_ALL_MS
    site.fetch()
    assert sorted(site.looked_at) == list(range(COUNT))


@pytest.mark.parametrize("every_ms", [7, 99, 499])
def test_a_turn_takes_no_longer_however_often_the_follower_asks(site: Site, every_ms: int) -> None:
    for _ in range(2 * LOOK_AT_ALL_MS // every_ms):
        site.clock.now_ms += every_ms
        site.fetch()
    rounds = 2 * LOOK_AT_ALL_MS // every_ms * every_ms / LOOK_AT_ALL_MS
    assert len(site.looked_at) >= COUNT * rounds - 1


def test_a_follower_that_is_idle_stays_in_sync(site: Site) -> None:
    for _ in range(120):
        site.clock.now_ms += 500
        site.fetch()
    assert [site.replicas.partition(tp(index)).maybe_shrink_isr() for index in range(COUNT)] == [None] * COUNT


def test_what_an_answer_had_no_room_for_is_in_the_next_one(site: Site) -> None:
    for index in range(3):
        site.append(index, size=5_000)
    first = site.take(site.fetch(max_bytes=6_000))
    second = site.take(site.fetch(first, max_bytes=6_000))
    third = site.take(site.fetch(second, max_bytes=6_000))
    assert sorted(first + second + third) == [0, 1, 2]


def test_partitions_with_much_to_send_take_turns(site: Site) -> None:
    for index in range(3):
        for _ in range(30):
            site.append(index, size=5_000)
    got: list[int] = []
    named: list[int] = []
    for _ in range(30):
        outcome = site.fetch(named, max_bytes=6_000)
        named = records_in(outcome)
        for index in named:
            site.offsets[index] += 1
        got += named
    assert {got.count(index) for index in range(3)} == {10}


def test_a_follower_that_is_out_of_sync_is_looked_at_each_time(site: Site) -> None:
    assert site.fall_behind(7) == ()
    site.fetch(site.take(site.fetch()))
    site.looked_at.clear()
    for _ in range(3):
        site.fetch()
    assert site.looked_at == [7, 7, 7]


def test_a_follower_that_has_caught_up_when_it_leaves_the_isr_comes_back_with_its_next_fetch(
    site: Site,
) -> None:
    site.changes.clear()
    assert site.fall_behind(7, catches_up=True) == ()
    assert [change.isr for change in site.changes] == [(ME,)]
    site.fetch()
    assert [change.isr for change in site.changes] == [(ME,), (ME, FOLLOWER)]


def test_what_is_held_back_is_looked_at_until_it_is_not(site: Site) -> None:
    assert site.fall_behind(7) == ()
    site.quota.limit = 1_000
    site.quota.record(50_000)
    for _ in range(3):
        assert records_in(site.fetch()) == []
    site.quota.limit = LONG_MAX
    assert records_in(site.fetch()) == [7]


def test_a_partition_that_is_led_elsewhere_is_told_of_and_all_are_looked_at_next(site: Site) -> None:
    answers = site.ask(wait_ms=60_000)
    site.replicas.forget(tp(7))
    ((_, result),) = answers[0].results
    assert (result.partition, result.error) == (7, Errors.NOT_LEADER_OR_FOLLOWER)
    site.looked_at.clear()
    site.fetch(forgotten=[7])
    assert sorted(site.looked_at) == [index for index in range(COUNT) if index != 7]


def test_who_asks_for_more_than_a_byte_waits_for_as_much(site: Site) -> None:
    answers = site.ask(wait_ms=60_000, min_bytes=10_000)
    for index in range(3):
        assert answers == []
        site.append(index, size=4_000)
    assert sorted(records_in(answers[0])) == [0, 1, 2]


def test_of_a_forgotten_partition_nothing_is_told(site: Site) -> None:
    answers = site.ask(wait_ms=60_000, forgotten=[7])
    site.append(7)
    assert answers == []
    site.append(8)
    assert records_in(answers[0]) == [8]


def test_what_is_named_and_forgotten_in_one_request_is_forgotten(site: Site) -> None:
    site.offsets[7] = 0
    site.fetch([7], forgotten=[7])
    assert not site.replicas.news_board.of(tp(7))


def test_a_topic_whose_name_came_later_is_followed_from_then_on(site: Site) -> None:
    nameless = FetchEntry(TopicPartition("", 50), uuid.UUID(int=2), 0, MANY)
    fetch = site.sessions.begin(site.asked(), [nameless])
    named = FetchEntry(TopicPartition("later", 50), nameless.topic_id, 0, MANY)
    fetch.resolve(named)
    assert len(site.replicas.news_board.of(named.topic_partition)) == 1
    site.epoch += 1
    site.sessions.begin(site.asked([(named.topic_id, 50)]), [])
    assert not site.replicas.news_board.of(named.topic_partition)


def test_a_session_that_is_gone_is_told_of_nothing(site: Site) -> None:
    assert len(site.replicas.news_board.of(tp(0))) == 1
    site.epoch = 0
    site.session_id = site.fetch(range(COUNT)).session_id
    assert len(site.replicas.news_board.of(tp(0))) == 1, "the new one's"
    site.epoch = -1
    site.fetch([0])
    assert not any(site.replicas.news_board.of(tp(index)) for index in range(COUNT))


def test_a_topic_that_was_made_anew_is_followed_though_the_older_one_is_forgotten() -> None:
    board, news = NewsBoard(), SessionNews()
    older, newer = (FetchEntry(tp(0), uuid.UUID(int=number), 0, 1) for number in (1, 2))
    board.follow(news, older)
    board.follow(news, newer)
    board.unfollow(news, older)
    board.stir(tp(0))
    assert list(news.take()) == [newer]
    board.unfollow(news, newer)
    assert not board.of(tp(0))
