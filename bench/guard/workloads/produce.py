"""Produce: a prepared batch to one partition. Its log is emptied for each slice, so that its pages
are reused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from bench.guard.stage import Client, Stage, encode
from bench.guard.workloads.workload import Workload, await_leader, batch_of, create_topic
from broker.protocol.api_keys import ApiKey
from broker.utils.topic_partition import TopicPartition

PRODUCE_VERSION: Final = 11
_PRODUCER_ID: Final = 4711


class Produce(Workload):
    """One batch of ``batch_bytes`` per request."""

    api_key: ClassVar = ApiKey.PRODUCE
    version: ClassVar = PRODUCE_VERSION

    def __init__(
        self, stage: Stage, name: str, batch_bytes: int, *, acks: int, moving_share: float, per_slice: int
    ) -> None:
        super().__init__(stage)
        self.name = name
        self.moving_share = moving_share
        self.per_slice = per_slice
        create_topic(stage, name, 1)
        self._log = await_leader(stage, TopicPartition(name, 0)).log
        self._prepared = self._prepare(batch_bytes, acks)
        self._next: Iterator[bytes] = iter(())

    def _prepare(self, batch_bytes: int, acks: int) -> Sequence[bytes]:
        return [produce_request(self.name, batch_of(batch_bytes)[0], acks)]

    def begin_slice(self) -> None:
        self._log.truncate_to(0)
        self._next = itertools.cycle(self._prepared)

    def request(self) -> int:
        return self.request_by(self.client)

    def request_by(self, client: Client) -> int:
        """The next request, on a connection of the caller's."""
        return self.stage.exchange(client, next(self._next))


class IdempotentProduce(Produce):
    """A produce with a client's defaults: ``enable.idempotence``, acks=all."""

    def __init__(
        self, stage: Stage, name: str, batch_bytes: int, *, moving_share: float, per_slice: int
    ) -> None:
        super().__init__(stage, name, batch_bytes, acks=-1, moving_share=moving_share, per_slice=per_slice)

    def _prepare(self, batch_bytes: int, acks: int) -> Sequence[bytes]:
        requests = []
        sequence = 0
        for _ in range(2 * self.per_slice):
            batch, count = batch_of(batch_bytes, producer_id=_PRODUCER_ID, base_sequence=sequence)
            requests.append(produce_request(self.name, batch, acks))
            sequence += count
        return requests


def produce_request(topic: str, batch: bytes, acks: int, partition: int = 0) -> bytes:
    """One batch for one partition."""
    data = [{"index": partition, "records": batch}]
    topics = [{"name": topic, "partition_data": data}]
    fields = {"acks": acks, "timeout": 10_000, "topic_data": topics}
    return encode(ApiKey.PRODUCE, PRODUCE_VERSION, fields)
