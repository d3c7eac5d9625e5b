"""Assigns followed partitions to fetchers; Kafka's ReplicaFetcherManager."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from broker.replication.fetcher import ReplicaFetcher
from broker.replication.follower_fetch import Followed
from broker.utils.topic_partition import TopicPartition


class ReplicaFetcherManager:
    """The fetchers of this broker, by leader and number; Kafka's ReplicaFetcherManager.
    ``num.replica.fetchers`` gives the count per leader; a partition always has the same number.
    """

    def __init__(self, per_leader: int, make_fetcher: Callable[[int, int], ReplicaFetcher]) -> None:
        self._per_leader = per_leader
        self._make_fetcher = make_fetcher
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._lock = threading.Lock()  # lock order 22

    @property
    def partition_count(self) -> int:
        """For metrics, which do not wait for a thread that is stopped."""
        return sum(len(fetcher) for fetcher in list(self._fetchers.values()))

    def add(self, by_leader: Mapping[int, Iterable[Followed]]) -> None:
        """Starts to fetch partitions, on new threads if needed."""
        with self._lock:
            for leader, items in by_leader.items():
                self._add(leader, items)

    def _add(self, leader: int, items: Iterable[Followed]) -> None:
        by_fetcher: dict[ReplicaFetcher, list[Followed]] = {}
        for item in items:
            fetcher = self._fetcher(leader, item.partition.topic_partition)
            by_fetcher.setdefault(fetcher, []).append(item)
        for fetcher, share in by_fetcher.items():
            fetcher.add(share)

    def remove(self, topic_partitions: frozenset[TopicPartition]) -> None:
        """Stops fetching partitions; stops fetchers that have none left."""
        with self._lock:
            for key, fetcher in list(self._fetchers.items()):
                fetcher.remove(topic_partitions)
                if len(fetcher) == 0:
                    fetcher.stop()
                    del self._fetchers[key]

    def resize(self, per_leader: int) -> None:
        """Changes the number of fetchers for each leader, and distributes the partitions again."""
        with self._lock:
            if per_leader == self._per_leader:
                return
            self._per_leader = per_leader
            before = list(self._fetchers.items())
            self._fetchers.clear()
            for _, fetcher in before:
                fetcher.stop()
            for _, fetcher in before:
                fetcher.join()  # two fetchers of one partition would append the same records
            for (leader, _), fetcher in before:
                self._add(leader, fetcher.followed())

    def shutdown(self) -> None:
        with self._lock:
            fetchers = list(self._fetchers.values())
            self._fetchers.clear()
        for fetcher in fetchers:
            fetcher.stop()
        for fetcher in fetchers:
            fetcher.join()

    def _fetcher(self, leader: int, topic_partition: TopicPartition) -> ReplicaFetcher:
        number = (31 * hash(topic_partition.topic) + topic_partition.partition) % self._per_leader
        fetcher = self._fetchers.get((leader, number))
        if fetcher is None:
            fetcher = self._make_fetcher(leader, number)
            fetcher.start()  # before it is known: where no thread can be started, the next request tries again
            self._fetchers[leader, number] = fetcher
        return fetcher
