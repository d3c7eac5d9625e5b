"""The base of workloads: a fixed request, sent repeatedly, whose cost is measured in the
reference's units.
"""

from __future__ import annotations

import abc
import time
import uuid
from typing import ClassVar, Final

from bench.guard.stage import Stage, StageError, decode_answer
from broker.cluster.partition import Partition
from broker.protocol.api_keys import ApiKey
from broker.record.batch import Record, build_batch
from broker.utils.topic_partition import TopicPartition

RECORD_BYTES: Final = 1024
_TIMEOUT_MS: Final = 10_000


class Workload(abc.ABC):
    """A workload. ``moving_share`` is the kernel's part of its cost, which selects the reference.

    ``per_slice`` is the number of requests that take about a millisecond.
    """

    name: str
    moving_share: float
    per_slice: int
    api_key: ClassVar[ApiKey]
    version: ClassVar[int]

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.client = stage.connect()

    @abc.abstractmethod
    def request(self) -> int:
        """Sends one request; returns the broker's CPU time in nanoseconds."""

    def begin_slice(self) -> None:  # noqa: B027 - most have nothing to put back
        """Resets the broker to the state at the start of the previous slice."""

    def check(self) -> None:
        """Raises :class:`StageError` if the last answer was an error."""
        decode_answer(self.api_key, self.version, self.client.answer)


def create_topic(stage: Stage, name: str, partitions: int) -> uuid.UUID:
    """Creates a topic and waits until this broker leads it; returns its id."""
    topic = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    fields = {"topics": [topic], "timeout": _TIMEOUT_MS, "validate_only": False}
    answer = stage.ask(ApiKey.CREATE_TOPICS, 7, fields)
    for number in range(partitions):
        await_leader(stage, TopicPartition(name, number))
    topic_id: uuid.UUID = answer.topics[0].topic_id
    return topic_id


def await_leader(stage: Stage, topic_partition: TopicPartition) -> Partition:
    """Returns the partition as soon as this broker leads it and reports so in Metadata."""
    replicas, metadata = stage.server.replica_manager, stage.server.metadata_cache

    def leads() -> bool:
        found = replicas.partition(topic_partition)
        return found is not None and found.is_leader and metadata.contains_partition(topic_partition)

    stage.wait_until(leads, f"{topic_partition} has no leader")
    partition = replicas.partition(topic_partition)
    if partition is None:
        raise StageError(f"{topic_partition} went away")
    return partition


def batch_of(
    target_bytes: int, *, producer_id: int = -1, base_sequence: int = -1, transactional: bool = False
) -> tuple[bytes, int]:
    """A batch of at most ``target_bytes`` with records of 1 KiB, or one smaller record; and the number
    of records.
    """
    now_ms = int(time.time() * 1000)
    overhead = 80
    size = min(RECORD_BYTES, target_bytes - overhead)
    count = max((target_bytes - overhead) // (size + 12), 1)
    records = [Record(None, bytes(size), (), now_ms)] * count
    epoch = 0 if producer_id >= 0 else -1
    data = build_batch(
        records,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=base_sequence,
        transactional=transactional,
    )
    return data, count
