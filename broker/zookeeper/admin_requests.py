"""Decodes the requests that old tools write into znodes: to move partitions, and to elect preferred leaders.

Kafka's tools before 2.4 wrote them, and Kafka 3.9's controller still handles them. Current tools use
AlterPartitionReassignments and ElectLeaders. Paths and JSON are Kafka's (``ZkData``). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping

from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.znodes import STRANGE, BadZnodeError, dump, field_of, int32, load

REASSIGN_PARTITIONS = "/admin/reassign_partitions"
PREFERRED_ELECTION = "/admin/preferred_replica_election"

Targets = Mapping[TopicPartition, tuple[int, ...]]


def encode_reassignment(targets: Targets) -> bytes:
    rows = [
        {"topic": tp.topic, "partition": tp.partition, "replicas": list(ids)} for tp, ids in targets.items()
    ]
    return dump({"version": 1, "partitions": rows})


def decode_reassignment(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
    """The target replicas of each partition. Raises :class:`~broker.zookeeper.znodes.BadZnodeError`."""
    rows = field_of(REASSIGN_PARTITIONS, load(REASSIGN_PARTITIONS, data), "partitions")
    try:
        return {
            TopicPartition(str(row["topic"]), int32(row["partition"])): tuple(
                int32(i) for i in row["replicas"]
            )
            for row in rows
        }
    except STRANGE as error:
        raise _strange(REASSIGN_PARTITIONS, data, error) from error


def decode_preferred_election(data: bytes) -> list[TopicPartition]:
    """The partitions that need a preferred leader election. Raises BadZnodeError."""
    rows = field_of(PREFERRED_ELECTION, load(PREFERRED_ELECTION, data), "partitions")
    try:
        return [TopicPartition(str(row["topic"]), int32(row["partition"])) for row in rows]
    except STRANGE as error:
        raise _strange(PREFERRED_ELECTION, data, error) from error


def _strange(path: str, data: bytes, error: Exception) -> BadZnodeError:
    return BadZnodeError(f"{path} holds no list of partitions ({error!r}): {data[:500]!r}")
