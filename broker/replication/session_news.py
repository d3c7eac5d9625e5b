"""Which partitions of a follower's fetch session may have something new for it: those that something happened to.

A follower of thousands of partitions asks as often as one of few, each time for all that its session holds. To look
at all of them costs milliseconds of the interpreter for each record that waits for that follower. So its session is
told of what happens to its partitions: with each request those are read that it names, those that something happened
to, and some of the others in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from broker.cluster.partition import Partition
from broker.protocol.fetch_messages import FetchedPartition
from broker.replication.delayed_fetch import DelayedFetch, FetchEntry, FetchParams
from broker.utils.topic_partition import TopicPartition


class SessionNews:
    """Of one session. ``stir`` and the taking: any thread, no lock; the rest is the :class:`NewsBoard`'s."""

    __slots__ = ("entries", "stirred")

    def __init__(self) -> None:
        # What is asked for of each partition, as the follower said last.
        self.entries: dict[TopicPartition, FetchEntry] = {}
        # Never exchanged for another: who adds to it may have looked it up before.
        self.stirred: dict[TopicPartition, None] = {}

    def stir(self, topic_partition: TopicPartition) -> None:
        """Something happened to the partition, or is left to be read of it. After it happened, so that who takes the
        note sees it.
        """
        self.stirred[topic_partition] = None

    def take(self) -> Iterator[FetchEntry]:
        """What is asked for of each partition that something happened to, until nothing is left; each is taken when it
        is given.
        """
        while self.stirred:
            try:
                topic_partition, _ = self.stirred.popitem()
            except KeyError:  # another thread took it
                return
            entry = self.entries.get(topic_partition)
            if entry is not None:
                yield entry


class NewsBoard:
    """Who is told of a partition. All but ``of`` and ``stir`` by one thread at a time: the owner of the sessions'
    lock.
    """

    def __init__(self) -> None:
        self._readers: dict[TopicPartition, dict[SessionNews, None]] = {}

    def of(self, topic_partition: TopicPartition) -> Sequence[SessionNews]:
        """The sessions that ask for the partition."""
        readers = self._readers.get(topic_partition)
        return () if readers is None else list(readers)

    def stir(self, topic_partition: TopicPartition) -> None:
        """Something happened to the partition: every session that asks for it is told."""
        readers = self._readers.get(topic_partition)
        if readers is not None:  # of each append, and few partitions have followers that wait
            for news in list(readers):
                news.stir(topic_partition)

    def follow(self, news: SessionNews, entry: FetchEntry) -> None:
        """From now on the session is told of the entry's partition, and asks for this of it. A topic whose name is not
        known here is of no partition.
        """
        topic_partition = entry.topic_partition
        if not topic_partition.topic:
            return
        if topic_partition not in news.entries:
            self._readers.setdefault(topic_partition, {})[news] = None
        news.entries[topic_partition] = entry

    def unfollow(self, news: SessionNews, entry: FetchEntry) -> None:
        """No longer; unless the session asks for another topic of that name by now."""
        if news.entries.get(entry.topic_partition) is entry:
            del news.entries[entry.topic_partition]
            self._leave(news, entry.topic_partition)

    def close(self, news: SessionNews) -> None:
        """The session is gone."""
        for topic_partition in news.entries:
            self._leave(news, topic_partition)
        news.entries = {}

    def _leave(self, news: SessionNews, topic_partition: TopicPartition) -> None:
        readers = self._readers.get(topic_partition, {})
        readers.pop(news, None)
        if not readers:
            self._readers.pop(topic_partition, None)


class DelayedSessionFetch(DelayedFetch):
    """A follower's fetch that waits for whatever happens to a partition of its session. Completes when there is a byte
    to be had, or a partition is no longer led here in the follower's epoch; what it looked at is :attr:`touched`.
    """

    def __init__(
        self,
        params: FetchParams,
        news: SessionNews,
        partition_of: Callable[[TopicPartition], Partition | None],
        answer: Callable[[], None],
        held_back: Callable[[Partition], bool] | None = None,
    ) -> None:
        super().__init__(params, (), partition_of, answer, held_back)
        self._news = news
        self.touched: dict[TopicPartition, FetchEntry] = {}

    def can_complete(self) -> bool:
        for entry in self._news.take():
            self.touched[entry.topic_partition] = entry
            if self._look(entry, 0) != 0:
                return True
        return False


def stir_what_is_left(
    fetched: Iterable[tuple[FetchEntry, FetchedPartition]],
    news: SessionNews,
    follower: int,
    partition_of: Callable[[TopicPartition], Partition | None],
) -> None:
    """What is to be looked at with the next request too: what the answer's size, or a throttle, had no room for, and
    where the follower is not in sync, for each of its fetches may bring it into the ISR.
    """
    for entry, result in fetched:
        if result.records is None or not result.records.size:
            partition = partition_of(entry.topic_partition)
            if partition is not None and (
                partition.log.offsets.end > entry.fetch_offset or follower not in partition.isr.committed
            ):
                news.stir(entry.topic_partition)
