"""Fetch sessions as Kafka 3.9 keeps them: who gets one, what is news, who is put out."""

from __future__ import annotations

import uuid

import pytest

from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition
from broker.protocol.fetch_requests import FINAL_EPOCH
from broker.replication.delayed_fetch import FetchEntry
from broker.server.fetch_sessions import FetchSessionCache, Outcome, forgotten_keys, next_epoch
from broker.utils.file_region import FileRegion
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.session_requests import session_request

NO_ID = uuid.UUID(int=0)


def want(index: int, offset: int = 0, topic: str = "t") -> FetchEntry:
    return FetchEntry(TopicPartition(topic, index), NO_ID, offset, 1 << 20)


def nothing_new(index: int, mark: int = 5) -> FetchedPartition:
    return FetchedPartition(index, Errors.NONE, mark, mark, 0)


class Site:
    """A cache of ``slots``, and requests as a reader sends them."""

    def __init__(self, slots: int = 2, most_partitions: int = 500_000) -> None:
        self.clock = ManualClock()
        self.metrics = Metrics()
        self.cache = FetchSessionCache(
            lambda: slots, self.clock, self.metrics, most_partitions=most_partitions
        )

    def ask(
        self,
        session_id=0,
        epoch=0,
        wanted=(),
        forgotten=(),
        *,
        follower=False,
        by_id=False,
        results=None,
        owner="",
    ) -> Outcome:
        asked = session_request(session_id, epoch, forgotten, from_follower=follower, by_topic_id=by_id)
        fetch = self.cache.begin(asked, wanted, owner)
        if fetch.error is not Errors.NONE:
            return Outcome(0, fetch.error, [])
        given = results or {}
        return fetch.finish(
            [
                (each, given.get(each.key[1], nothing_new(each.topic_partition.partition)))
                for each in fetch.wanted
            ]
        )

    def full(self, partitions: int = 1, **more) -> int:
        return self.ask(wanted=[want(index) for index in range(partitions)], **more).session_id

    def gauge(self, name: str) -> float:
        (found,) = [
            m for m in self.metrics.registered() if m.name == f"kafka_server_fetchsessioncache_{name}"
        ]
        return found.instrument.function()


@pytest.fixture
def site() -> Site:
    return Site()


def indexes(outcome: Outcome) -> list[int]:
    return [result.partition for _, result in outcome.results]


def test_full_request_is_answered_whole_and_given_a_session(site: Site) -> None:
    outcome = site.ask(wanted=[want(0), want(1)])
    assert outcome.session_id > 0
    assert indexes(outcome) == [0, 1]
    assert (site.gauge("numincrementalfetchsessions"), site.gauge("numincrementalfetchpartitionscached")) == (
        1,
        2,
    )


def test_reader_without_a_wish_for_a_session_gets_none_and_ends_the_one_it_had(site: Site) -> None:
    session_id = site.full()
    outcome = site.ask(session_id, FINAL_EPOCH, [want(0)])
    assert (outcome.session_id, indexes(outcome)) == (0, [0])
    assert site.ask(session_id, 1).error is Errors.FETCH_SESSION_ID_NOT_FOUND


def test_incremental_fetch_reads_all_and_tells_only_what_is_news(site: Site) -> None:
    session_id = site.full(3)
    assert indexes(site.ask(session_id, 1)) == []
    outcome = site.ask(session_id, 2, results={1: nothing_new(1, mark=6)})
    assert (outcome.session_id, indexes(outcome)) == (session_id, [1])
    assert indexes(site.ask(session_id, 3, results={1: nothing_new(1, mark=6)})) == []


def test_errors_and_diverging_logs_are_told_each_time_and_success_after_an_error(site: Site) -> None:
    session_id = site.full(2)
    failed = FetchedPartition(0, Errors.NOT_LEADER_OR_FOLLOWER)
    diverging = FetchedPartition(1, Errors.NONE, 5, 5, 0, diverging=(1, 3))
    for epoch in (1, 2):
        assert indexes(site.ask(session_id, epoch, results={0: failed, 1: diverging})) == [0, 1]
    assert indexes(site.ask(session_id, 3)) == [0]


def test_partition_that_got_records_goes_behind_the_others(site: Site, tmp_path) -> None:
    path = tmp_path / "segment"
    path.write_bytes(b"records")
    session_id = site.full(2)
    with path.open("rb") as file:
        filled = FetchedPartition(0, Errors.NONE, 5, 5, 0, records=FileRegion(file, 0, 7))
        assert indexes(site.ask(session_id, 1, results={0: filled})) == [0]
        everything = {index: nothing_new(index, mark=9) for index in (0, 1)}
        assert indexes(site.ask(session_id, 2, results=everything)) == [1, 0]


def test_request_adds_changes_and_forgets_partitions(site: Site) -> None:
    session_id = site.full(2)
    fetch = site.cache.begin(session_request(session_id, 1, [("t", 0)]), [want(1, offset=7), want(4)])
    assert [(each.key[1], each.fetch_offset) for each in fetch.wanted] == [(1, 7), (4, 0)]


def test_session_that_forgot_everything_is_over(site: Site) -> None:
    session_id = site.full()
    assert site.ask(session_id, 1, forgotten=[("t", 0)]) == Outcome(0, Errors.NONE, [])
    assert site.ask(session_id, 2).error is Errors.FETCH_SESSION_ID_NOT_FOUND


def test_wrong_epoch_other_topic_names_and_unknown_sessions_have_kafkas_errors(site: Site) -> None:
    session_id = site.full()
    assert site.ask(session_id, 2).error is Errors.INVALID_FETCH_SESSION_EPOCH
    assert site.ask(session_id, 1, by_id=True).error is Errors.FETCH_SESSION_TOPIC_ID_ERROR
    assert site.ask(session_id + 1, 1).error is Errors.FETCH_SESSION_ID_NOT_FOUND
    assert site.ask(session_id, 1).error is Errors.NONE, "none of these changed the session"


def test_fetch_that_another_overtook_while_it_waited_is_told_so(site: Site) -> None:
    session_id = site.full()
    waiting = site.cache.begin(session_request(session_id, 1), ())
    site.ask(session_id, 2)
    assert waiting.finish([(want(0), nothing_new(0))]).error is Errors.INVALID_FETCH_SESSION_EPOCH


def test_full_cache_declines_until_a_session_was_unused_for_two_minutes(site: Site) -> None:
    first, second = site.full(), site.full()
    assert site.full() == 0
    site.clock.now_ms += 120_001
    site.ask(second, 1)
    assert site.full() > 0
    assert site.ask(first, 1).error is Errors.FETCH_SESSION_ID_NOT_FOUND
    assert site.ask(second, 2).error is Errors.NONE


def test_follower_takes_the_place_of_a_consumer_and_not_the_other_way(site: Site) -> None:
    consumer, follower = site.full(), site.full(follower=True)
    assert site.full(follower=True) > 0
    assert site.ask(consumer, 1).error is Errors.FETCH_SESSION_ID_NOT_FOUND
    assert site.ask(follower, 1).error is Errors.NONE
    assert site.full(partitions=9) == 0


def test_of_settled_sessions_the_smaller_gives_way_to_a_larger(site: Site) -> None:
    small, large = site.full(1), site.full(5)
    site.clock.now_ms += 119_000
    site.ask(small, 1)
    site.ask(large, 1)
    site.clock.now_ms += 2_000
    assert site.full(1) == 0
    assert site.full(3) > 0
    assert site.ask(small, 2).error is Errors.FETCH_SESSION_ID_NOT_FOUND
    assert site.ask(large, 2).error is Errors.NONE


def test_no_sessions_are_kept_where_none_are_configured() -> None:
    assert Site(slots=0).full() == 0


def test_sessions_hold_a_bounded_number_of_partitions() -> None:
    site = Site(slots=1000)
    entry = want(0)
    many = [entry._replace(topic_partition=TopicPartition(f"t{number}", 0)) for number in range(300_000)]
    assert site.ask(wanted=many).session_id > 0
    assert site.ask(wanted=many).session_id == 0


def test_epoch_one_follows_on_the_last() -> None:
    assert next_epoch((1 << 31) - 1) == 1


def test_session_does_not_grow_past_what_all_may_hold() -> None:
    site = Site(most_partitions=10)
    session = site.full(partitions=4)
    outcome = site.ask(session, 1, wanted=[want(index) for index in range(4, 10)])
    assert outcome.error is Errors.NONE
    outcome = site.ask(session, 2, wanted=[want(9), want(10)])
    assert outcome.error is Errors.FETCH_SESSION_ID_NOT_FOUND
    assert site.gauge("numincrementalfetchpartitionscached") == 0


def test_session_that_asks_for_what_it_has_goes_on_where_there_is_no_room() -> None:
    site = Site(most_partitions=4)
    session = site.full(partitions=4)
    assert site.ask(session, 1, wanted=[want(0, offset=5)]).error is Errors.NONE


def test_a_topic_of_no_id_is_forgotten_as_it_was_asked_for() -> None:
    entry = FetchEntry(TopicPartition("", 3), NO_ID, 0, 1)
    asked = session_request(7, 1, [(NO_ID, 3), ("t", 4)])
    assert list(forgotten_keys(asked)) == [entry.key, ("t", 4)]


def test_a_session_is_its_owners_alone_and_nobody_else_can_end_it() -> None:
    site = Site()
    session_id = site.full(2)
    assert site.ask(session_id, 1, owner="User:bob").error is Errors.FETCH_SESSION_ID_NOT_FOUND
    site.ask(session_id, FINAL_EPOCH, owner="User:bob")
    assert site.ask(session_id, 0, wanted=[want(0)], owner="User:bob").session_id not in (0, session_id)
    assert site.ask(session_id, 1).error is Errors.NONE
    site.ask(session_id, FINAL_EPOCH)
    assert site.ask(session_id, 2).error is Errors.FETCH_SESSION_ID_NOT_FOUND


def test_names_that_no_topic_can_have_are_kept_in_no_session(site: Site) -> None:
    """A thousand sessions of long names would take all memory, and last when their readers have gone."""
    longest, long = "t" * 249, "t" * 250
    outcome = site.ask(wanted=[want(0), want(0, topic=long)])
    assert outcome.session_id == 0
    assert len(outcome.results) == 2, "it is answered all the same"
    session_id = site.ask(wanted=[want(0, topic=longest)]).session_id
    assert session_id > 0
    assert site.ask(session_id, 1, [want(0, topic=long)]).error is Errors.FETCH_SESSION_ID_NOT_FOUND
    assert site.gauge("numincrementalfetchpartitionscached") == 0
