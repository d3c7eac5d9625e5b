"""A follower's session against its leader's, with answers that get lost: the follower knows what it was to be told."""

from __future__ import annotations

import uuid

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition, WantedPartition
from broker.replication.delayed_fetch import FetchEntry
from broker.replication.follower_session import FollowerSession, Key
from broker.server.fetch_sessions import FetchSessionCache
from broker.utils.topic_partition import TopicPartition
from tests.support.clocks import ManualClock
from tests.support.session_requests import session_request

TOPICS = [uuid.UUID(int=number) for number in (1, 2)]
keys = st.tuples(st.sampled_from(TOPICS), st.integers(0, 2))


class Sessions(RuleBasedStateMachine):
    """``positions`` is what the follower wants, ``marks`` the leader's high watermarks, ``heard`` what was told."""

    def __init__(self) -> None:
        super().__init__()
        self.slots = 3
        self.cache = FetchSessionCache(lambda: self.slots, ManualClock(), Metrics())
        self.session = FollowerSession()
        self.positions: dict[Key, int] = {}
        self.marks: dict[Key, int] = {}
        self.heard: dict[Key, int] = {}
        self.fetched_all = True
        self.moved: set[Key] = set()
        self.unfollowed = False

    @rule(key=keys)
    def follow(self, key: Key) -> None:
        if key not in self.positions:
            self.positions[key] = 0
            self.marks.setdefault(key, 0)
            self.session.reset()  # as the fetcher does for a partition it is given

    @rule(key=keys)
    def unfollow(self, key: Key) -> None:
        self.positions.pop(key, None)
        self.heard.pop(key, None)
        self.unfollowed = True

    @rule(key=keys, by=st.integers(1, 3))
    def commit(self, key: Key, by: int) -> None:
        if key in self.marks:
            self.marks[key] += by
            self.fetched_all = False

    @rule(key=keys)
    def move(self, key: Key) -> None:
        if key in self.positions:
            self.positions[key] += 1
            self.moved.add(key)

    @rule(slots=st.sampled_from([0, 3]))
    def resize(self, slots: int) -> None:
        self.slots = slots

    @rule()
    def forget_all_sessions(self) -> None:
        """The leader restarts."""
        self.cache = FetchSessionCache(lambda: self.slots, ManualClock(), Metrics())

    @rule()
    def fetch(self) -> None:
        """A session that ended costs one more request, never two."""
        if self.positions and not self._fetch(answer_lost=False):
            assert self._fetch(answer_lost=False)

    @rule()
    def fetch_and_lose_the_answer(self) -> None:
        if self.positions:
            self._fetch(answer_lost=True)
            self.session.reset()

    def _fetch(self, *, answer_lost: bool) -> bool:
        wanted = {key: WantedPartition(key[1], 0, at, 0, 0) for key, at in self.positions.items()}
        if (
            self.session.is_open and not self.unfollowed
        ):  # as the fetcher does in between its looks at everything
            request = self.session.go_on({key: wanted[key] for key in self.moved})
        else:
            request = self.session.next(wanted)
        self.moved.clear()
        self.unfollowed = False
        rows = [
            FetchEntry(TopicPartition(str(topic), row.partition), topic, row.fetch_offset, 1)
            for topic, partitions in request.topics
            for row in partitions
        ]
        forgotten = [(topic, index) for topic, found in request.forgotten for index in found]
        context = self.cache.begin(
            session_request(
                request.session_id, request.epoch, forgotten, from_follower=True, by_topic_id=True
            ),
            rows,
        )
        if context.error is not Errors.NONE:
            assert not self.session.answered(context.error, 0)
            return False
        read = {each.key: each.fetch_offset for each in context.wanted}
        assert read == self.positions, "the leader reads what the follower wants, from where it wants it"
        outcome = context.finish(
            [
                (each, FetchedPartition(each.key[1], Errors.NONE, self.marks[each.key], -1, 0))  # type: ignore[index]
                for each in context.wanted
            ]
        )
        if answer_lost:
            return True
        assert self.session.answered(outcome.error, outcome.session_id)
        for each, result in outcome.results:
            self.heard[each.key] = result.high_watermark  # type: ignore[index]
        self.fetched_all = True
        assert self.positions.keys() <= self.heard.keys(), "something was heard of every partition"
        return True

    @invariant()
    def the_follower_knows_every_mark(self) -> None:
        if self.fetched_all:
            for key, mark in self.heard.items():
                assert mark == self.marks[key]


Sessions.TestCase.settings = settings(max_examples=150, stateful_step_count=30, deadline=None)
TestSessions = Sessions.TestCase
