"""Tracks which partitions of a follower's fetch session may have something new for it.

A follower of thousands of partitions sends as many requests as a follower of few, each for all partitions of
its session. Checking all of them would cost milliseconds of the interpreter for each record that waits for
that follower. So the session is notified of changes to its partitions. Each request then reads the partitions
that it names, those with changes, and some of the others in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from broker.cluster.partition import Partition
from broker.protocol.fetch_messages import FetchedPartition
from broker.replication.delayed_fetch import DelayedFetch, FetchEntry, FetchParams
from broker.utils.topic_partition import TopicPartition


class SessionNews:
    """The changes for one fetch session. Any thread may call ``stir`` and ``take``, without a lock.

    The :class:`NewsBoard` does the rest.
    """

    __slots__ = ("entries", "stirred")

    def __init__(self) -> None:
        # The follower's latest request for each partition.
        self.entries: dict[TopicPartition, FetchEntry] = {}
        # Never replaced by another dict, because a thread that adds to it may hold an earlier reference.
        self.stirred: dict[TopicPartition, None] = {}

    def stir(self, topic_partition: TopicPartition) -> None:
        """Notes a change to the partition, or data left to read.

        Call it after the change, so that a reader of the note sees the change.
        """
        self.stirred[topic_partition] = None

    def take(self) -> Iterator[FetchEntry]:
        """The entries of partitions with changes, until none is left. Each note is removed with its entry."""
        while self.stirred:
            try:
                topic_partition, _ = self.stirred.popitem()
            except KeyError:  # another thread took it
                return
            entry = self.entries.get(topic_partition)
            if entry is not None:
                yield entry


class NewsBoard:
    """The sessions to notify for each partition. ``of`` and ``stir`` may be called by any thread, the rest
    only by the owner of the sessions' lock.
    """

    def __init__(self) -> None:
        self._readers: dict[TopicPartition, dict[SessionNews, None]] = {}

    def of(self, topic_partition: TopicPartition) -> Sequence[SessionNews]:
        """The sessions that fetch the partition."""
        readers = self._readers.get(topic_partition)
        return () if readers is None else list(readers)

    def stir(self, topic_partition: TopicPartition) -> None:
        """Notifies every session that fetches the partition of a change."""
        readers = self._readers.get(topic_partition)
        if readers is not None:  # called for each append; few partitions have waiting followers
            for news in list(readers):
                news.stir(topic_partition)

    def follow(self, news: SessionNews, entry: FetchEntry) -> None:
        """Adds or replaces the session's entry for a partition, and notifies it from now on. An entry whose
        topic name is not known here is ignored.
        """
        topic_partition = entry.topic_partition
        if not topic_partition.topic:
            return
        if topic_partition not in news.entries:
            self._readers.setdefault(topic_partition, {})[news] = None
        news.entries[topic_partition] = entry

    def unfollow(self, news: SessionNews, entry: FetchEntry) -> None:
        """Removes the entry, unless the session now fetches another topic of that name."""
        if news.entries.get(entry.topic_partition) is entry:
            del news.entries[entry.topic_partition]
            self._leave(news, entry.topic_partition)

    def close(self, news: SessionNews) -> None:
        """Removes a closed session."""
        for topic_partition in news.entries:
            self._leave(news, topic_partition)
        news.entries = {}

    def _leave(self, news: SessionNews, topic_partition: TopicPartition) -> None:
        readers = self._readers.get(topic_partition, {})
        readers.pop(news, None)
        if not readers:
            self._readers.pop(topic_partition, None)


class DelayedSessionFetch(DelayedFetch):
    """A follower's fetch that waits for changes to its session's partitions. It completes when a byte can
    be read, or a partition is no longer led here in the follower's epoch. The partitions that it checked
    are in :attr:`touched`.
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
    """Notes partitions for the next request: those with data that did not fit the answer or was throttled,
    and those where the follower is not in sync. Each of its fetches may bring it into the ISR.
    """
    for entry, result in fetched:
        if result.records is None or not result.records.size:
            partition = partition_of(entry.topic_partition)
            if partition is not None and (
                partition.log.offsets.end > entry.fetch_offset or follower not in partition.isr.committed
            ):
                news.stir(entry.topic_partition)
