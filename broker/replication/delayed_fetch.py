"""A fetch that waits for data: a consumer's for committed records, a follower's for any.
Kafka's DelayedFetch.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import NamedTuple

from broker.cluster.partition import Partition
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import KafkaError
from broker.protocol.fetch_messages import FetchedPartition
from broker.protocol.fetch_requests import TopicKey
from broker.replication.replica_selector import Client
from broker.utils.purgatory import DelayedOperation
from broker.utils.topic_partition import TopicPartition


class FetchEntry(NamedTuple):
    """A requested partition. Epochs and ``log_start_offset`` are -1 if not given. ``topic_id`` is zero if the
    request names topics; the topic's name is empty if its id is not known here.
    """

    topic_partition: TopicPartition
    topic_id: uuid.UUID
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = -1

    @property
    def topic(self) -> TopicKey:
        """The topic as in the request: by id (from version 13 on) or by name."""
        return self.topic_id if self.topic_id.int else self.topic_partition.topic

    @property
    def key(self) -> tuple[TopicKey, int]:
        name, index = self.topic_partition
        return self.topic_id if self.topic_id.int else name, index


Fetched = list[tuple[FetchEntry, FetchedPartition]]
"""The result for each requested partition, in the order of the request."""


class FetchParams(NamedTuple):
    """Who fetches, how much, and how long to wait; Kafka's FetchParams. ``replica_id`` is negative for
    consumers; ``replica_epoch`` is the follower's broker epoch, -1 if not given. ``committed_only``: a consumer
    reads only records whose transactions are decided (READ_COMMITTED). ``or_follower``: a follower may answer
    (KIP-392). ``client`` is given if another replica may be preferred for it.
    """

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    committed_only: bool = False
    or_follower: bool = False
    client: Client | None = None

    @property
    def from_follower(self) -> bool:
        return self.replica_id >= 0


class DelayedFetch(DelayedOperation):
    """A fetch that waits; Kafka's DelayedFetch. It completes when ``min_bytes`` can be read, or a partition
    is no longer led here in the reader's epoch. Partitions that a throttle holds back do not count.

    It is checked at every append to its partitions, so it reads nothing: the available bytes are the
    difference of two positions in one segment. If a segment was rolled in between, the fetch is answered at
    once, as in Kafka.
    """

    def __init__(
        self,
        params: FetchParams,
        entries: Sequence[FetchEntry],
        partition_of: Callable[[TopicPartition], Partition | None],
        answer: Callable[[], None],
        held_back: Callable[[Partition], bool] | None = None,
    ) -> None:
        super().__init__(params.max_wait_ms)
        self._held_back = held_back
        self._params = params
        self._entries = entries
        self._partition_of = partition_of
        self._answer = answer
        # The log position where each entry begins, once there is data after it.
        self._starts: list[tuple[int, int] | None] = [None] * len(entries)

    def can_complete(self) -> bool:
        available = 0
        for number, entry in enumerate(self._entries):
            found = self._look(entry, number)
            if found is None:
                return True
            available += found
            if available >= self._params.min_bytes:
                return True
        return False

    def _look(self, entry: FetchEntry, number: int) -> int | None:
        """The available bytes. None if the fetch must be answered: on an error, or if only a read tells."""
        partition = self._partition_of(entry.topic_partition)
        if partition is None:
            return None
        try:
            return self._available(partition, entry, number)
        except KafkaError:
            return None

    def _available(self, partition: Partition, entry: FetchEntry, number: int) -> int | None:
        """The available bytes of a partition, 0 while there are none; None if only a read can tell.

        Raises :class:`KafkaError` for an error.
        """
        partition.require_leader(entry.current_leader_epoch, or_follower=self._params.or_follower)
        log = partition.log
        params = self._params
        end_offset = (
            log.offsets.end
            if params.from_follower
            else log.fetchable_end(committed_only=params.committed_only)
        )
        if entry.fetch_offset >= end_offset or (self._held_back is not None and self._held_back(partition)):
            return 0
        if self._params.min_bytes <= 1:
            return 1
        start = self._starts[number]
        if start is None:
            start = self._starts[number] = log.reader.place_of(entry.fetch_offset)
        end = log.reader.place_of(end_offset)
        if start is None or end is None or start[0] != end[0]:
            return None
        return min(max(end[1] - start[1], 0), entry.max_bytes)

    def on_complete(self) -> None:
        self._answer()
