"""What the controller says of one partition: the content of LeaderAndIsr, in one shape for all its versions."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from broker.utils.topic_partition import TopicPartition

NO_LEADER = -1


@dataclass(frozen=True, slots=True)
class PartitionState:
    """What a LeaderAndIsr says of one partition; Kafka's LeaderAndIsrPartitionState. ``partition_epoch`` is
    the version of the partition's state znode; ``topic_id`` is None before version 5.
    """

    topic_partition: TopicPartition
    topic_id: uuid.UUID | None
    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    partition_epoch: int
    replicas: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    is_new: bool = False
    leader_recovery_state: int = 0
