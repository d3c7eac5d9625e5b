"""Incremental fetch sessions (KIP-227): a reader sends what changed since its last fetch, and is told what changed.

The cache keeps what each session's reader wants and what it was last told; the records themselves are read by the
ReplicaManager. Sessions are declined (id 0) when the cache is full, and then readers send full requests.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import NamedTuple

from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition
from broker.protocol.fetch_requests import FINAL_EPOCH, NO_SESSION, FetchRequest, TopicKey
from broker.replication.delayed_fetch import FetchEntry
from broker.replication.replica_manager import Fetched
from broker.replication.session_news import NewsBoard, SessionNews
from broker.utils.clock import Clock

INITIAL_EPOCH = 0
_LAST_EPOCH = (1 << 31) - 1
# A session may be put out for another when it was not used, or existed, for so long (Kafka's
# min.incremental.fetch.session.eviction.ms).
_EVICTION_MS = 120_000
# Kafka bounds sessions only; a peer that names partitions by the million is to find an end here as well.
_MOST_PARTITIONS = 500_000
# In this time all partitions of a follower's session are read once, though nothing happened to them: for the time when
# it was last caught up, and for what nobody tells, like a log's new start. A tenth of replica.lag.time.max.ms at most.
LOOK_AT_ALL_MS = 2_000
_NEVER_MS = -(1 << 60)
# So many partitions are read faster than those are found that something happened to.
_FEW = 8

Key = tuple[TopicKey, int]


class Outcome(NamedTuple):
    """What to answer: the session's id (0: none), an error for the whole request, and the partitions to tell of."""

    session_id: int
    error: Errors
    results: Fetched


class FetchContext:
    """One request: reads ``wanted``, then answers with what ``finish`` leaves. This one has no session.

    With ``news``, these are only what has to be read at once, and more of it may be told.
    """

    def __init__(self, wanted: Sequence[FetchEntry], error: Errors = Errors.NONE) -> None:
        self.wanted = wanted
        self.error = error
        self.news: SessionNews | None = None

    def resolve(self, wanted: FetchEntry) -> None:
        """The topic of one of ``wanted`` has a name by now."""

    def finish(self, results: Fetched) -> Outcome:
        return Outcome(NO_SESSION, self.error, results)


@dataclass(slots=True)
class _Told:
    """A partition of a session, and what its reader knows of it; -1 for nothing."""

    wanted: FetchEntry
    high_watermark: int = -1
    log_start_offset: int = -1
    place: int = 0  # of the session's; where it is read, when only some are

    def tell(self, result: FetchedPartition) -> bool:
        """Notes the result; whether the reader has to hear of it."""
        news = (
            result.error is not Errors.NONE
            or result.diverging is not None
            or (result.records is not None and result.records.size > 0)
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )
        # After an error the reader hears of the next success, whatever that brings.
        self.high_watermark = result.high_watermark if result.error is Errors.NONE else -1
        self.log_start_offset = result.log_start_offset
        return news


@dataclass(slots=True)
class _Session:
    """One reader's. ``lock`` guards all but ``used_ms`` and ``counted``, which are the cache's."""

    id: int
    epoch: int
    privileged: bool
    by_topic_id: bool
    created_ms: int
    used_ms: int
    told: dict[Key, _Told] = field(default_factory=dict)
    counted: int = 0  # of the cache's partitions
    lock: threading.Lock = field(init=False)
    # A follower's; whose turn it is to be looked at, and when some had theirs last.
    news: SessionNews | None = None
    turns: Iterator[Key] = field(default_factory=lambda: iter(()))
    turned_ms: int = _NEVER_MS
    places: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()  # lock order 58

    @property
    def rank(self) -> tuple[bool, int]:
        """Who stays when there is no room: followers, then those with more partitions."""
        return self.privileged, len(self.told)

    def take_turns(self, round_ms: int) -> Iterable[Key]:
        """As many as are due now, so that in ``round_ms`` each has a turn. There may be some that left meanwhile."""
        due = len(self.told) * (self.used_ms - self.turned_ms) // round_ms
        if due >= len(self.told):
            self.turns, self.turned_ms = iter(()), self.used_ms
            return self.told
        if due == 0:
            return ()
        self.turned_ms += due * round_ms // len(self.told)
        turns = list(itertools.islice(self.turns, due))
        if len(turns) < due:
            self.turns = iter(list(self.told))
            turns += itertools.islice(self.turns, due - len(turns))
        return turns


class FetchSessionCache:
    """Thread-safe: a session may be used from several connections, though its epoch lets only one go on.

    A session of many partitions takes milliseconds to go through. That is done under its own lock, so that no other
    waits for it; the cache's own is held for moments.
    """

    def __init__(
        self,
        slots: Callable[[], int],
        clock: Clock,
        metrics: Metrics,
        board: NewsBoard | None = None,
        *,
        look_at_all_ms: int = LOOK_AT_ALL_MS,
        most_partitions: int = _MOST_PARTITIONS,
    ) -> None:
        """``board`` is the ReplicaManager's; without one all is read each time."""
        self._board = board
        self._look_at_all_ms = look_at_all_ms
        self._slots = slots
        self._most_partitions = most_partitions
        self._clock = clock
        self._lock = threading.Lock()  # lock order 67
        self._sessions: dict[int, _Session] = {}
        self._partitions = 0
        prefix = "kafka_server_fetchsessioncache_"
        metrics.gauge(
            prefix + "numincrementalfetchsessions", "Incremental fetch sessions.", lambda: len(self._sessions)
        )
        metrics.gauge(
            prefix + "numincrementalfetchpartitionscached",
            "Partitions in incremental fetch sessions.",
            lambda: self._partitions,
        )
        self._evictions = metrics.counter(
            prefix + "incrementalfetchsessionevictions_total",
            "Fetch sessions put out to make room for others.",
        )

    def begin(self, asked: FetchRequest, wanted: Sequence[FetchEntry]) -> FetchContext:
        """Finds out what the request wants read: ``wanted`` are the partitions that it names. The result's ``error`` is
        for the whole request, then nothing is read.
        """
        if asked.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if asked.session_id != NO_SESSION:
                with self._lock:
                    self._remove(asked.session_id)
            if asked.session_epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            return _FullFetch(self, asked, wanted)
        session = self._sessions.get(asked.session_id)
        if session is None:
            return FetchContext((), Errors.FETCH_SESSION_ID_NOT_FOUND)
        with session.lock:
            return self._go_on(session, asked, wanted)

    def _go_on(self, session: _Session, asked: FetchRequest, named: Sequence[FetchEntry]) -> FetchContext:
        if session.epoch != asked.session_epoch:
            return FetchContext((), Errors.INVALID_FETCH_SESSION_EPOCH)
        if session.by_topic_id != asked.by_topic_id:
            return FetchContext((), Errors.FETCH_SESSION_TOPIC_ID_ERROR)
        told = session.told
        if self._partitions + len(named) > self._most_partitions:
            new = len({wanted.key for wanted in named} - told.keys())
            if new and self._partitions + new > self._most_partitions:
                # The reader begins anew with a full request, and is declined a session.
                with self._lock:
                    self._remove(session.id)
                return FetchContext((), Errors.FETCH_SESSION_ID_NOT_FOUND)
        for wanted in named:
            key = wanted.key
            known = told.get(key)
            if known is None:
                told[key] = _Told(wanted, place=next(session.places))
            else:
                known.wanted = wanted
        gone = [told.pop(key) for key in forgotten_keys(asked) if key in told]
        if not self._used(session):
            return FetchContext(()) if not told else FetchContext((), Errors.FETCH_SESSION_ID_NOT_FOUND)
        session.epoch = next_epoch(session.epoch)
        takes_any = asked.min_bytes <= 1  # it is answered with the first byte there is
        return self._to_read(session, named, [each.wanted for each in gone], takes_any=takes_any)

    def _used(self, session: _Session) -> bool:
        """Notes that the session was used; False when it is gone, or goes for it has no partitions left."""
        with self._lock:
            if self._sessions.get(session.id) is not session:
                return False
            self._partitions += len(session.told) - session.counted
            session.counted = len(session.told)
            if not session.told:
                self._remove(session.id)
                return False
            session.used_ms = self._clock.monotonic_ms()
            # Sessions stand in order of their last use.
            self._sessions[session.id] = self._sessions.pop(session.id)
            return True

    def _to_read(
        self, session: _Session, named: Sequence[FetchEntry], gone: Iterable[FetchEntry], *, takes_any: bool
    ) -> FetchContext:
        """All of the session, or what it names and what something happened to."""
        told, news = session.told, session.news
        stirred: list[Key] = []
        if news is not None and self._board is not None:
            with self._lock:
                # Who was put out meanwhile is told of nothing.
                if self._sessions.get(session.id) is session:
                    for wanted in named:
                        self._board.follow(news, wanted)
                for entry in gone:
                    self._board.unfollow(news, entry)
            if takes_any and len(told) <= _FEW:
                # Each is looked at anyway, so whatever the notes say is seen.
                news.stirred.clear()
                return _IncrementalFetch(self, session, [each.wanted for each in told.values()], news)
            stirred = [entry.key for entry in news.take()]
        if news is None or not takes_any:
            return _IncrementalFetch(self, session, [each.wanted for each in told.values()], None)
        turns = session.take_turns(self._look_at_all_ms)
        keys = dict.fromkeys(itertools.chain((wanted.key for wanted in named), stirred, turns))
        some = sorted((told[key] for key in keys if key in told), key=attrgetter("place"))
        return _IncrementalFetch(self, session, [each.wanted for each in some], news)

    def resolve(self, session_id: int, wanted: FetchEntry) -> None:
        """The session asks for a partition whose topic has a name only since."""
        session = self._sessions.get(session_id)
        if session is None:
            return
        with session.lock:
            known = session.told.get(wanted.key)
            if known is None:
                return
            known.wanted = wanted
            with self._lock:
                is_there = self._sessions.get(session_id) is session
                if is_there and session.news is not None and self._board is not None:
                    self._board.follow(session.news, wanted)

    def open(self, results: Fetched, *, from_follower: bool, by_topic_id: bool) -> int:
        """Keeps a session for what a full fetch was told; its id, 0 where there is no room."""
        told: dict[Key, _Told] = {}
        for wanted, result in results:
            known = told[wanted.key] = _Told(wanted)
            known.tell(result)
        now_ms = self._clock.monotonic_ms()
        with self._lock:
            if not told or not self._make_room((from_follower, len(told)), now_ms):
                return NO_SESSION
            session_id = self._new_id()
            session = self._sessions[session_id] = _Session(
                session_id,
                next_epoch(INITIAL_EPOCH),
                from_follower,
                by_topic_id,
                now_ms,
                now_ms,
                told,
                len(told),
            )
            if from_follower and self._board is not None:
                # What happened since these were read is seen when the next request looks at all of them.
                session.news = SessionNews()
                for known in told.values():
                    known.place = next(session.places)
                    self._board.follow(session.news, known.wanted)
            self._partitions += len(told)
            return session_id

    def tell(self, session_id: int, epoch: int, results: Fetched) -> Outcome:
        """What is news of an incremental fetch's results; an error where another request overtook it."""
        session = self._sessions.get(session_id)
        if session is None:
            return Outcome(NO_SESSION, Errors.FETCH_SESSION_ID_NOT_FOUND, [])
        with session.lock:
            if session.epoch != epoch:
                return Outcome(NO_SESSION, Errors.INVALID_FETCH_SESSION_EPOCH, [])
            told = session.told
            news: Fetched = []
            for wanted, result in results:
                known = told.get(wanted.key)
                if result.error is not Errors.NONE or result.diverging is not None:
                    session.turned_ms = _NEVER_MS
                if known is None or not known.tell(result):
                    continue
                news.append((wanted, result))
                if result.records is not None and result.records.size:
                    # Whoever got records goes to the end, so that all get theirs though an answer has a limit.
                    told[wanted.key] = told.pop(wanted.key)
                    known.place = next(session.places)
            return Outcome(session_id, Errors.NONE, news)

    def _make_room(self, rank: tuple[bool, int], now_ms: int) -> bool:
        slots = self._slots()
        if slots <= 0 or self._partitions + rank[1] > self._most_partitions:
            return False
        while len(self._sessions) >= slots:
            victim = self._victim(rank, now_ms)
            if victim is None:
                return False
            self._remove(victim.id)
            self._evictions.inc()
        return True

    def _victim(self, rank: tuple[bool, int], now_ms: int) -> _Session | None:
        oldest = next(iter(self._sessions.values()))
        if now_ms - oldest.used_ms > _EVICTION_MS:
            return oldest
        settled: Iterable[_Session] = (
            session
            for session in self._sessions.values()
            if now_ms - session.created_ms > _EVICTION_MS or rank[0] > session.privileged
        )
        least = min(settled, key=lambda session: session.rank, default=None)
        return least if least is not None and least.rank < rank else None

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._partitions -= session.counted
            if session.news is not None and self._board is not None:
                self._board.close(session.news)

    def _new_id(self) -> int:
        """At random, so that a reader of an earlier life of this broker is not taken for one of this."""
        while True:
            session_id = int.from_bytes(os.urandom(4), "big") & _LAST_EPOCH
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id


class _FullFetch(FetchContext):
    """Epoch 0: reads all it names and asks for a session."""

    def __init__(self, cache: FetchSessionCache, asked: FetchRequest, wanted: Sequence[FetchEntry]) -> None:
        super().__init__(wanted)
        self._cache = cache
        # Of the request no more is kept while it waits.
        self._from_follower = asked.from_follower
        self._by_topic_id = asked.by_topic_id

    def finish(self, results: Fetched) -> Outcome:
        session_id = self._cache.open(
            results, from_follower=self._from_follower, by_topic_id=self._by_topic_id
        )
        return Outcome(session_id, Errors.NONE, results)


class _IncrementalFetch(FetchContext):
    """Reads all of its session, or what there may be news of; tells the news."""

    def __init__(
        self,
        cache: FetchSessionCache,
        session: _Session,
        wanted: Sequence[FetchEntry],
        news: SessionNews | None,
    ) -> None:
        super().__init__(wanted)
        self.news = news
        self._cache = cache
        self._session = session
        self._epoch = session.epoch

    def resolve(self, wanted: FetchEntry) -> None:
        self._cache.resolve(self._session.id, wanted)

    def finish(self, results: Fetched) -> Outcome:
        return self._cache.tell(self._session.id, self._epoch, results)


def forgotten_keys(asked: FetchRequest) -> Iterator[Key]:
    """By the keys of what was asked for: no id is no name."""
    for topic, partitions in asked.forgotten:
        key = topic if isinstance(topic, str) or topic.int else ""
        for partition in partitions:
            yield key, partition


def next_epoch(epoch: int) -> int:
    """1 follows on the last, for 0 asks for a session."""
    return 1 if epoch >= _LAST_EPOCH else epoch + 1
