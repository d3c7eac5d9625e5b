"""Builds a follower's fetch requests to one leader, and decides which answers still count. Pure except that
it reads the followed logs.

A request covers all partitions or, if nothing else can have moved, only those with data in the last answer. A
follower of thousands of partitions sends as many requests as a follower of few.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Self

from broker.cluster.partition import Partition
from broker.protocol.fetch_messages import ReceivedFetch, ReceivedPartition, WantedPartition
from broker.replication.follower_session import FollowerSession, Key, NextFetch


@dataclass(frozen=True, slots=True)
class Followed:
    """A partition to fetch in one leader epoch, not before ``not_before_ms``."""

    partition: Partition
    topic_id: uuid.UUID
    leader_epoch: int
    not_before_ms: int = 0

    @property
    def key(self) -> Key:
        return self.topic_id, self.partition.topic_partition.partition

    @property
    def topic(self) -> str:
        return self.partition.topic_partition.topic

    @property
    def index(self) -> int:
        return self.partition.topic_partition.partition

    def put_off(self, until_ms: int) -> Self:
        """The same role, delayed until ``until_ms``."""
        return replace(self, not_before_ms=until_ms)


class FollowerFetch:
    """The fetch requests of a follower to one leader, one at a time: each answer is to the latest request."""

    def __init__(self) -> None:
        self._session = FollowerSession()
        # The end of each log when it was requested; an answer to an older request is dropped.
        self._asked: dict[Key, tuple[Followed, int]] = {}

    @property
    def is_open(self) -> bool:
        """Whether :meth:`ask_on` may be used: the leader knows the last request."""
        return self._session.is_open

    def reset(self) -> None:
        """Drops the session state; the next request is a full one."""
        self._session.reset()

    def ask(self, followed: Iterable[Followed]) -> NextFetch:
        """The next request, for exactly ``followed``."""
        self._asked = {item.key: (item, item.partition.log.offsets.end) for item in followed}
        return self._session.next({key: _wanted(*asked) for key, asked in self._asked.items()})

    def ask_on(self, response: ReceivedFetch) -> NextFetch:
        """As :meth:`ask`, for the same partitions as before, of which only ``response`` moved any."""
        changed = {}
        for received in response.partitions:
            key = (received.topic_id, received.partition)
            item = self._asked[key][0]
            asked = self._asked[key] = (item, item.partition.log.offsets.end)
            changed[key] = _wanted(*asked)
        return self._session.go_on(changed)

    def answered(self, response: ReceivedFetch) -> bool:
        """Whether the answer may be read; False if only the session ended."""
        return self._session.answered(response.error, response.session_id)

    def meant(self, received: ReceivedPartition, followed: Mapping[Key, Followed]) -> Followed | None:
        """The partition that ``received`` is for; None if its role changed or its log moved since the
        request. The leader assumes that its answer was used, so the next request is then a full one.
        """
        key = (received.topic_id, received.partition)
        item, offset = self._asked.get(key, (None, -1))
        if item is not None and followed.get(key) is item and item.partition.log.offsets.end == offset:
            return item
        self._session.reset()
        return None


def _wanted(item: Followed, offset: int) -> WantedPartition:
    log = item.partition.log
    return WantedPartition(
        item.partition.topic_partition.partition,
        item.leader_epoch,
        offset,
        log.leader_epochs.latest_epoch,
        log.offsets.start,
    )
