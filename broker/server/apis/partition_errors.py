"""The partitions of a response that have nothing but an error, by their topics."""

from __future__ import annotations

from collections.abc import Mapping

from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.utils.topic_partition import TopicPartition

PartitionErrors = dict[TopicPartition, Errors]


def topics_with_errors(errors: Mapping[TopicPartition, Errors]) -> list[Fields]:
    """The ``topics`` of OffsetCommit's response, and of those with the same layout."""
    topics: dict[str, list[Fields]] = {}
    for (topic, partition), error in errors.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": error})
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
