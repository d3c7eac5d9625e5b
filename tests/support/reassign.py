"""Requests and observes reassignments with Kafka's protocol: moves through the controller, the rest through
any broker.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from rig.brokers import HOST, BrokerProcess
from rig.raw_client import RawClient

Ids = tuple[int, ...]
TIMEOUT_MS = 30_000


def ask_to_move(
    broker: BrokerProcess, wishes: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, Errors]:
    """Asks the controller to move partitions, or with None to cancel a move; returns its answer for each."""
    topics: dict[str, list[Mapping[str, object]]] = {}
    for partition, replicas in wishes.items():
        row = {"partition_index": partition.partition, "replicas": replicas}
        topics.setdefault(partition.topic, []).append(row)
    fields = {
        "timeout": TIMEOUT_MS,
        "topics": [{"name": name, "partitions": rows} for name, rows in topics.items()],
    }
    with RawClient(HOST, broker.port) as client:
        answer = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, fields)
    assert answer.error_code == Errors.NONE, answer
    return {
        TopicPartition(topic.name, row.partition_index): Errors(int(row.error_code))
        for topic in answer.responses
        for row in topic.partitions
    }


def moving(broker: BrokerProcess) -> dict[TopicPartition, tuple[Ids, Ids, Ids]]:
    """The replicas, the added and the removed ones, of each partition that is being moved."""
    with RawClient(HOST, broker.port) as client:
        answer = client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, {"timeout": TIMEOUT_MS, "topics": None})
    assert answer.error_code == Errors.NONE, answer
    return {
        TopicPartition(topic.name, row.partition_index): (
            tuple(row.replicas),
            tuple(row.adding_replicas),
            tuple(row.removing_replicas),
        )
        for topic in answer.topics
        for row in topic.partitions
    }


def replicas(broker: BrokerProcess, topic: str) -> dict[int, Ids]:
    """The replicas of each partition as clients see them, the preferred leader first."""
    return {row.partition_index: tuple(row.replica_nodes) for row in _metadata(broker, topic)}


def leaders(broker: BrokerProcess, topic: str) -> dict[int, int]:
    """The leader of each partition, -1 for none."""
    return {row.partition_index: int(row.leader_id) for row in _metadata(broker, topic)}


def _metadata(broker: BrokerProcess, topic: str) -> Sequence[Any]:
    with RawClient(HOST, broker.port) as client:
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        (found,) = client.ask(ApiKey.METADATA, 4, fields).topics
    partitions: Sequence[Any] = found.partitions
    return partitions
