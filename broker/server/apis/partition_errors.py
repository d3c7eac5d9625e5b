"""The partitions of a response that have nothing but an error, by their topics: as fields, or encoded."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.protocol.primitives import INT32, pack_string, write_uvarint
from broker.utils.topic_partition import TopicPartition

PartitionErrors = dict[TopicPartition, Errors]
_THROTTLE_TIME_FROM: Final = 3
_FLEXIBLE_FROM: Final = 8
_PARTITION: Final = Struct(">ih")
_FLEXIBLE_PARTITION: Final = Struct(">ihB")  # with no tags
_NOT_THROTTLED: Final = INT32.pack(0)


def topics_with_errors(errors: Mapping[TopicPartition, Errors]) -> list[Fields]:
    """The ``topics`` of OffsetCommit's response, and of those with the same layout."""
    topics: dict[str, list[Fields]] = {}
    for (topic, partition), error in errors.items():
        topics.setdefault(topic, []).append({"partition_index": partition, "error_code": error})
    return [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]


def encode_commit_response(version: int, errors: Mapping[TopicPartition, Errors]) -> bytes:
    """Encodes the body of OffsetCommit's response, whose throttle time is 0. kio takes four times as long. The
    layouts are from Kafka 3.9's OffsetCommitResponse, versions 0 to 9.
    """
    flexible = version >= _FLEXIBLE_FROM
    topics: dict[str, list[bytes]] = {}
    for (topic, index), error in errors.items():
        partition = _FLEXIBLE_PARTITION.pack(index, error, 0) if flexible else _PARTITION.pack(index, error)
        known = topics.get(topic)
        if known is None:
            topics[topic] = [partition]
        else:
            known.append(partition)
    parts = [_NOT_THROTTLED] if version >= _THROTTLE_TIME_FROM else []
    if flexible:
        parts.append(write_uvarint(len(topics) + 1))
        for topic, partitions in topics.items():
            name = topic.encode()
            parts += (
                write_uvarint(len(name) + 1),
                name,
                write_uvarint(len(partitions) + 1),
                *partitions,
                b"\0",
            )
        parts.append(b"\0")
    else:
        parts.append(INT32.pack(len(topics)))
        for topic, partitions in topics.items():
            parts += (pack_string(topic), INT32.pack(len(partitions)), *partitions)
    return b"".join(parts)
