"""The name of a partition, used by all layers."""

from __future__ import annotations

from typing import Final, NamedTuple

GROUP_METADATA_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
# The log of KRaft's controllers, which no topic may be called.
CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
INTERNAL_TOPICS: Final = frozenset({GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC})


class TopicPartition(NamedTuple):
    """A topic name and a partition number; Kafka's TopicPartition."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"
