"""Incremental fetch sessions (KIP-227): requests and responses contain only what changed since the
last fetch.

The cache keeps which partitions each session's reader wants and what was last sent for them. The
ReplicaManager reads the records. When the cache is full, new sessions are declined (id 0), and readers send
full requests.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final, NamedTuple

from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition
from broker.protocol.fetch_requests import FINAL_EPOCH, NO_SESSION, FetchRequest, TopicKey
from broker.replication.delayed_fetch import Fetched, FetchEntry
from broker.replication.session_news import NewsBoard, SessionNews
from broker.utils.clock import Clock

INITIAL_EPOCH: Final = 0
_LAST_EPOCH: Final = (1 << 31) - 1
# A session may be evicted in favour of another if it was not used, or has existed, for this long
# (Kafka's min.incremental.fetch.session.eviction.ms).
_EVICTION_MS: Final = 120_000
# Kafka limits only the number of sessions; this also limits peers that name millions of partitions.
_MOST_PARTITIONS: Final = 500_000
# A longer name may have 32 KiB and is no topic's. A session keeps names for as long as it lasts.
_LONGEST_NAME: Final = 249
# All partitions of a follower's session are read once in this period even without changes. This updates the
# time when it was last caught up, and finds unreported changes, such as a new log start offset. At most a
# tenth of replica.lag.time.max.ms.
LOOK_AT_ALL_MS: Final = 2_000
_NEVER_MS: Final = -(1 << 60)
# Reading up to this many partitions is faster than finding the changed ones.
_FEW: Final = 8
_NO_ERROR: Final = Errors.NONE  # looked up here once, and not for each partition

Key = tuple[TopicKey, int]


class Outcome(NamedTuple):
    """The response: the session's id (0: none), an error for the whole request, and the partitions
    to include.
    """

    session_id: int
    error: Errors
    results: Fetched


class FetchContext:
    """One fetch request: reads ``wanted``, then responds with the result of ``finish``. This one has no
    session; Kafka's SessionlessFetchContext.

    With ``news``, ``wanted`` holds only the partitions to read at once, and more may be reported.
    """

    def __init__(self, wanted: Sequence[FetchEntry], error: Errors = Errors.NONE) -> None:
        self.wanted = wanted
        self.error = error
        self.news: SessionNews | None = None

    def resolve(self, wanted: FetchEntry) -> None:
        """Called when the topic name of one of ``wanted`` has become known."""

    def finish(self, results: Fetched) -> Outcome:
        return Outcome(NO_SESSION, self.error, results)

    def news_of(self, results: Fetched) -> Fetched:
        """What ``finish`` would send of the results; nothing is noted."""
        return results

    def throttled(self) -> Outcome:
        """The response instead of ``finish`` if the reader is throttled: no partitions, and nothing is noted."""
        return Outcome(NO_SESSION, Errors.NONE, [])


@dataclass(slots=True)
class _Told:
    """A partition of a session, and what its reader was last sent; -1 for nothing."""

    wanted: FetchEntry
    high_watermark: int = -1
    log_start_offset: int = -1
    place: int = 0  # order in the session; the read order when only some partitions are read

    def tell(self, result: FetchedPartition) -> bool:
        """Records the result; returns whether it must be sent to the reader."""
        if not self.is_news(result):
            return False
        # After an error, the next success is always sent to the reader.
        self.high_watermark = result.high_watermark if result.error is _NO_ERROR else -1
        self.log_start_offset = result.log_start_offset
        return True

    def is_news(self, result: FetchedPartition) -> bool:
        return (
            result.error is not _NO_ERROR
            or result.diverging is not None
            or result.preferred >= 0
            or (result.records is not None and result.records.size > 0)
            or result.high_watermark != self.high_watermark
            or result.log_start_offset != self.log_start_offset
        )


@dataclass(slots=True)
class _Session:
    """One reader's session; Kafka's FetchSession. Only its ``owner``, a principal, may go on with it. ``lock``
    guards all fields except ``used_ms`` and ``counted``, which belong to the cache.
    """

    id: int
    epoch: int
    privileged: bool
    by_topic_id: bool
    created_ms: int
    used_ms: int
    told: dict[Key, _Told] = field(default_factory=dict)
    counted: int = 0  # its part of the cache's partition count
    owner: str = ""
    lock: threading.Lock = field(init=False)
    # For followers: the partitions whose turn is next, and when the last ones had theirs.
    news: SessionNews | None = None
    turns: Iterator[Key] = field(default_factory=lambda: iter(()))
    turned_ms: int = _NEVER_MS
    places: Iterator[int] = field(default_factory=itertools.count)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()  # lock order 58

    @property
    def rank(self) -> tuple[bool, int]:
        """Eviction order: followers stay longest, then sessions with more partitions."""
        return self.privileged, len(self.told)

    def take_turns(self, round_ms: int) -> Iterable[Key]:
        """The partitions that are due now, so that each has a turn within ``round_ms``. May include
        removed ones.
        """
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
    """All fetch sessions; Kafka's FetchSessionCache. Thread-safe: several connections may use one session,
    but its epoch lets only one of them continue.

    Processing a session of many partitions takes milliseconds. It happens under the session's own lock, so
    that no other session waits for it. The cache's lock is held only briefly.
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
        """``board`` is the ReplicaManager's; without it, all partitions are read each time."""
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
            prefix + "numincrementalfetchsessions", "Incremental fetch sessions", lambda: len(self._sessions)
        )
        metrics.gauge(
            prefix + "numincrementalfetchpartitionscached",
            "Partitions in incremental fetch sessions",
            lambda: self._partitions,
        )
        self._evictions = metrics.counter(
            prefix + "incrementalfetchsessionevictions_total",
            "Fetch sessions evicted to make room for others",
        )

    def begin(self, asked: FetchRequest, wanted: Sequence[FetchEntry], owner: str = "") -> FetchContext:
        """Determines what to read for the request of ``owner``, which names the partitions ``wanted``. If the
        ``error`` of the result is set, it applies to the whole request and nothing is read.
        """
        session = self._sessions.get(asked.session_id)
        if asked.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            if session is not None and session.owner == owner:
                with self._lock:
                    self._remove(session.id)
            if asked.session_epoch == FINAL_EPOCH:
                return FetchContext(wanted)
            return _FullFetch(self, asked, wanted, owner)
        if session is None or session.owner != owner:
            return FetchContext((), Errors.FETCH_SESSION_ID_NOT_FOUND)
        with session.lock:
            return self._go_on(session, asked, wanted)

    def _go_on(self, session: _Session, asked: FetchRequest, named: Sequence[FetchEntry]) -> FetchContext:
        if session.epoch != asked.session_epoch:
            return FetchContext((), Errors.INVALID_FETCH_SESSION_EPOCH)
        if session.by_topic_id != asked.by_topic_id:
            return FetchContext((), Errors.FETCH_SESSION_TOPIC_ID_ERROR)
        told = session.told
        if any(map(_is_too_long, named)) or self._has_no_room(session, named):
            # The reader starts again with a full request, which is declined a session.
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
        takes_any = asked.min_bytes <= 1  # it is answered as soon as there is one byte
        return self._to_read(session, named, [each.wanted for each in gone], takes_any=takes_any)

    def _has_no_room(self, session: _Session, named: Sequence[FetchEntry]) -> bool:
        """Whether there are too many partitions with those that are new among ``named``."""
        if self._partitions + len(named) <= self._most_partitions:
            return False
        new = len({wanted.key for wanted in named}.difference(session.told))
        return new > 0 and self._partitions + new > self._most_partitions

    def _used(self, session: _Session) -> bool:
        """Marks the session as used; False if it is gone, or is removed because it has no partitions left."""
        with self._lock:
            if self._sessions.get(session.id) is not session:
                return False
            self._partitions += len(session.told) - session.counted
            session.counted = len(session.told)
            if not session.told:
                self._remove(session.id)
                return False
            session.used_ms = self._clock.monotonic_ms()
            # The sessions are ordered by their last use.
            self._sessions[session.id] = self._sessions.pop(session.id)
            return True

    def _to_read(
        self, session: _Session, named: Sequence[FetchEntry], gone: Iterable[FetchEntry], *, takes_any: bool
    ) -> FetchContext:
        """Selects all partitions of the session, or the requested ones and those that may have changed."""
        told, news = session.told, session.news
        stirred: list[Key] = []
        if news is not None and self._board is not None:
            with self._lock:
                # An evicted session must not follow the board any more.
                if self._sessions.get(session.id) is session:
                    for wanted in named:
                        self._board.follow(news, wanted)
                for entry in gone:
                    self._board.unfollow(news, entry)
            if takes_any and len(told) <= _FEW:
                # All are read anyway, so the notes are not needed.
                news.stirred.clear()
                return _IncrementalFetch(self, session, list(told.values()), news)
            stirred = [entry.key for entry in news.take()]
        if news is None or not takes_any:
            return _IncrementalFetch(self, session, list(told.values()), None)
        turns = session.take_turns(self._look_at_all_ms)
        keys = dict.fromkeys(itertools.chain((wanted.key for wanted in named), stirred, turns))
        some = sorted((told[key] for key in keys if key in told), key=attrgetter("place"))
        return _IncrementalFetch(self, session, some, news)

    def resolve(self, session_id: int, wanted: FetchEntry) -> None:
        """Updates a session's partition whose topic name has only now become known."""
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

    def open(self, results: Fetched, *, from_follower: bool, by_topic_id: bool, owner: str = "") -> int:
        """Creates a session for the results of a full fetch; returns its id, or 0 if there is no room."""
        told: dict[Key, _Told] = {}
        for wanted, result in results:
            if _is_too_long(wanted):
                return NO_SESSION
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
                owner,
            )
            if from_follower and self._board is not None:
                # Changes since these were read are found when the next request reads all partitions.
                session.news = SessionNews()
                for known in told.values():
                    known.place = next(session.places)
                    self._board.follow(session.news, known.wanted)
            self._partitions += len(told)
            return session_id

    def tell(self, session_id: int, epoch: int, results: Fetched, read: Sequence[_Told] = ()) -> Outcome:
        """Reduces an incremental fetch's results to the changes; an error if another request has overtaken it.

        The first results are usually those of the partitions ``read``, in that order: they need no look-up.
        """
        session = self._sessions.get(session_id)
        if session is None:
            return Outcome(NO_SESSION, Errors.FETCH_SESSION_ID_NOT_FOUND, [])
        with session.lock:
            if session.epoch != epoch:
                return Outcome(NO_SESSION, Errors.INVALID_FETCH_SESSION_EPOCH, [])
            told = session.told
            news: Fetched = []
            expected = iter(read)
            for wanted, result in results:
                known = next(expected, None)
                if known is None or known.wanted is not wanted:
                    known = told.get(wanted.key)
                if result.error is not _NO_ERROR or result.diverging is not None:
                    session.turned_ms = _NEVER_MS
                if known is None or not known.tell(result):
                    continue
                news.append((wanted, result))
                if result.records is not None and result.records.size:
                    # Partitions with records move to the end, so that all get their turn despite the
                    # response limit.
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
        """A random id, so that no reader of an earlier broker process matches a new session by accident."""
        while True:
            session_id = int.from_bytes(os.urandom(4), "big") & _LAST_EPOCH
            if session_id != NO_SESSION and session_id not in self._sessions:
                return session_id


class _FullFetch(FetchContext):
    """Epoch 0: reads all named partitions and requests a session; Kafka's FullFetchContext."""

    def __init__(
        self, cache: FetchSessionCache, asked: FetchRequest, wanted: Sequence[FetchEntry], owner: str
    ) -> None:
        super().__init__(wanted)
        self._cache = cache
        self._owner = owner
        # The request itself is not kept while it waits.
        self._from_follower = asked.from_follower
        self._by_topic_id = asked.by_topic_id

    def finish(self, results: Fetched) -> Outcome:
        session_id = self._cache.open(
            results, from_follower=self._from_follower, by_topic_id=self._by_topic_id, owner=self._owner
        )
        return Outcome(session_id, Errors.NONE, results)


class _IncrementalFetch(FetchContext):
    """Reads all partitions of its session, or those that may have changed; returns the changes.
    Kafka's IncrementalFetchContext.
    """

    def __init__(
        self,
        cache: FetchSessionCache,
        session: _Session,
        read: Sequence[_Told],
        news: SessionNews | None,
    ) -> None:
        super().__init__([known.wanted for known in read])
        self.news = news
        self._read = read
        self._cache = cache
        self._session = session
        self._epoch = session.epoch

    def resolve(self, wanted: FetchEntry) -> None:
        self._cache.resolve(self._session.id, wanted)

    def finish(self, results: Fetched) -> Outcome:
        return self._cache.tell(self._session.id, self._epoch, results, self._read)

    def news_of(self, results: Fetched) -> Fetched:
        with self._session.lock:
            told = self._session.told
            return [
                (wanted, result)
                for wanted, result in results
                if (known := told.get(wanted.key)) is not None and known.is_news(result)
            ]

    def throttled(self) -> Outcome:
        with self._session.lock:
            is_current = self._session.epoch == self._epoch
        return Outcome(
            self._session.id, Errors.NONE if is_current else Errors.INVALID_FETCH_SESSION_EPOCH, []
        )


def _is_too_long(wanted: FetchEntry) -> bool:
    return len(wanted.topic_partition.topic) > _LONGEST_NAME


def forgotten_keys(asked: FetchRequest) -> Iterator[Key]:
    """The keys of the forgotten partitions, in the form of the requested ones: the zero id stands for no name."""
    for topic, partitions in asked.forgotten:
        key = topic if isinstance(topic, str) or topic.int else ""
        for partition in partitions:
            yield key, partition


def next_epoch(epoch: int) -> int:
    """The next session epoch. 1 follows the last one, because 0 requests a new session."""
    return 1 if epoch >= _LAST_EPOCH else epoch + 1
