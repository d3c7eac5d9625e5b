"""Fetch: a megabyte by sendfile, a follower's fetch, a session without news, and a long poll that a
record wakes.
"""

from __future__ import annotations

import itertools
import uuid
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from bench.guard.stage import BROKER_ID, Stage, StageError, decode_answer, encode, frame
from bench.guard.workloads.produce import PRODUCE_VERSION, produce_request
from bench.guard.workloads.workload import Workload, await_leader, batch_of, create_topic
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import PartitionRole
from broker.protocol.fetch_messages import WantedPartition, encode_follower_fetch
from broker.replication.follower_session import FollowerSession
from broker.utils.topic_partition import TopicPartition

FETCH_VERSION: Final = 17
_FOLLOWER_ID: Final = 1
_MIB: Final = 1 << 20
_BATCH_BYTES: Final = 16 * 1024
_WAIT_MS: Final = 20_000


class _Fetch(Workload):
    api_key: ClassVar = ApiKey.FETCH
    version: ClassVar = FETCH_VERSION

    def fill(self, topic: str, partition: int, batches: int) -> int:
        """Writes batches of 16 KiB; returns the number of records in one."""
        batch, count = batch_of(_BATCH_BYTES)
        request = produce_request(topic, batch, -1, partition)
        for _ in range(batches):
            self.stage.exchange(self.client, request)
            decode_answer(ApiKey.PRODUCE, PRODUCE_VERSION, self.client.answer)
        return count


class LargeFetch(_Fetch):
    """A fetch of 1 MiB in 16 KiB batches of one partition, for a consumer without a session, from
    rising offsets.
    """

    name = "fetch-1m"
    moving_share = 0.6
    per_slice = 4

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        topic_id = create_topic(stage, self.name, 1)
        batches = 160
        count = self.fill(self.name, 0, batches)
        offsets = range(0, count * batches // 2, count)
        requests = [consumer_fetch(topic_id, [(0, offset)], max_bytes=_MIB) for offset in offsets]
        self._next = itertools.cycle(requests)

    def request(self) -> int:
        return self.stage.exchange(self.client, next(self._next))

    def check(self) -> None:
        super().check()
        if len(self.client.answer) <= _MIB:
            raise StageError(f"{len(self.client.answer)} bytes where 1 MiB is asked for")


class FollowerFetch(_Fetch):
    """A follower in the ISR that fetches the last 16 KiB of three partitions in its session."""

    name = "fetch-follower"
    moving_share = 0.35
    per_slice = 6

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._topic_id = create_topic(stage, self.name, 3)
        self._epochs = {}
        for number in range(3):
            self._count = self.fill(self.name, number, 2)
            self._epochs[number] = self._add_follower(TopicPartition(self.name, number))
        self._session = FollowerSession()
        self._turns = itertools.count()

    def _add_follower(self, topic_partition: TopicPartition) -> int:
        partition = await_leader(self.stage, topic_partition)
        epoch = partition.state.leader_epoch
        replicas = (BROKER_ID, _FOLLOWER_ID)
        partition.make_leader(
            PartitionRole(
                topic_partition,
                self._topic_id,
                partition.state.controller_epoch,
                BROKER_ID,
                epoch,
                replicas,
                partition.state.partition_epoch,
                replicas,
            )
        )
        return epoch

    def request(self) -> int:
        # Back and forth, so that each request moves the follower's position as a real one does.
        offset = self._count if next(self._turns) % 2 else 0
        wanted = {
            (self._topic_id, number): WantedPartition(number, epoch, offset, epoch, 0)
            for number, epoch in self._epochs.items()
        }
        fetch = self._session.next(wanted)
        body = encode_follower_fetch(
            _FOLLOWER_ID,
            -1,
            fetch.topics,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=10 * _MIB,
            partition_max_bytes=_BATCH_BYTES,
            session_id=fetch.session_id,
            session_epoch=fetch.epoch,
        )
        spent = self.stage.exchange(self.client, frame(self.api_key, self.version, body))
        if fetch.epoch == 0:
            answer = decode_answer(self.api_key, self.version, self.client.answer)
            self._session.answered(0, answer.session_id)
        else:
            self._session.answered(0, fetch.session_id)
        return spent


class IdleSession(_Fetch):
    """A consumer of 100 partitions fetches in its session, and there is nothing new."""

    name = "fetch-session-idle"
    moving_share = 0.15
    per_slice = 3

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        topic_id = create_topic(stage, self.name, 100)
        first = consumer_fetch(topic_id, [(number, 0) for number in range(100)], session_epoch=0)
        stage.exchange(self.client, first)
        self._session_id = decode_answer(self.api_key, self.version, self.client.answer).session_id
        if not self._session_id:
            raise StageError("the broker opened no fetch session")
        self._epochs = itertools.count(1)

    def request(self) -> int:
        epoch = next(self._epochs)
        request = consumer_fetch(None, [], session_id=self._session_id, session_epoch=epoch)
        return self.stage.exchange(self.client, request)


class WokenFetch(_Fetch):
    """A consumer waits in a long poll, a record of 100 B arrives, and both are answered: the
    end-to-end path.
    """

    name = "produce-wakes-fetch"
    moving_share = 0.2
    per_slice = 5

    def __init__(self, stage: Stage) -> None:
        super().__init__(stage)
        self._topic_id = create_topic(stage, self.name, 1)
        self._producer = stage.connect()
        self._log = await_leader(stage, TopicPartition(self.name, 0)).log
        self._produce = produce_request(self.name, batch_of(180)[0], -1)
        self._offset = 0

    def begin_slice(self) -> None:
        self._log.truncate_to(0)
        self._offset = 0

    def request(self) -> int:
        fetch = consumer_fetch(self._topic_id, [(0, self._offset)], max_wait_ms=_WAIT_MS)
        self._offset += 1
        spent = self.stage.park(self.client, fetch)
        spent += self.stage.exchange(self._producer, self._produce)
        if not self.client.receive():
            raise StageError("the record was written and the waiting fetch not answered")
        return spent


def consumer_fetch(
    topic_id: uuid.UUID | None,
    wanted: list[tuple[int, int]],
    *,
    max_bytes: int = 50 * _MIB,
    max_wait_ms: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
) -> bytes:
    """Fetches (partition, offset) each; waits for at least one byte if ``max_wait_ms`` allows."""
    partitions = [
        {
            "partition": number,
            "current_leader_epoch": -1,
            "fetch_offset": offset,
            "last_fetched_epoch": -1,
            "log_start_offset": -1,
            "partition_max_bytes": _MIB,
        }
        for number, offset in wanted
    ]
    fields: Mapping[str, Any] = {
        "max_wait": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "session_id": session_id,
        "session_epoch": session_epoch,
        "topics": [{"topic_id": topic_id, "partitions": partitions}] if wanted else [],
        "forgotten_topics_data": [],
    }
    return encode(ApiKey.FETCH, FETCH_VERSION, fields)
