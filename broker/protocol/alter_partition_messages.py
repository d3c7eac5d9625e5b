"""AlterPartition, by which a leader asks the controller to change its ISR, in one shape for
versions 0 to 3 (KIP-497, KIP-704, KIP-841, KIP-903). Each message's encoder is beside its decoder,
as in :mod:`broker.protocol.control_messages`.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from broker.protocol.codec import get
from broker.protocol.control_messages import error_of
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.utils.topic_partition import TopicPartition

ALTER_PARTITION_VERSION: Final = 3


class IsrChange(NamedTuple):
    """The ISR that a leader proposes. ``broker_epochs`` are the members' epochs as the leader knows them;
    NO_EPOCH if unknown, as before version 3. When decoded, the topic has no name from version 2 on, and no
    id before.
    """

    topic_partition: TopicPartition
    topic_id: uuid.UUID | None
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_recovery_state: int = 0

    def fields(self) -> Fields:
        return {
            "partition_index": self.topic_partition.partition,
            "leader_epoch": self.leader_epoch,
            "new_isr_with_epochs": [
                {"broker_id": broker_id, "broker_epoch": epoch}
                for broker_id, epoch in zip(self.isr, self.broker_epochs, strict=True)
            ],
            "leader_recovery_state": self.leader_recovery_state,
            "partition_epoch": self.partition_epoch,
        }

    @classmethod
    def of(cls, topic: str, topic_id: uuid.UUID | None, row: Any) -> IsrChange:
        members = get(row, "new_isr_with_epochs")
        if members is None:
            isr, epochs = tuple(row.new_isr), (NO_EPOCH,) * len(row.new_isr)
        else:
            isr = tuple([member.broker_id for member in members])
            epochs = tuple([member.broker_epoch for member in members])
        return cls(
            TopicPartition(topic, row.partition_index),
            topic_id,
            row.leader_epoch,
            row.partition_epoch,
            isr,
            epochs,
            get(row, "leader_recovery_state", 0),
        )


class IsrChangesOfTopic(NamedTuple):
    """The changes of one topic, which is given by its name or its id."""

    topic: str
    topic_id: uuid.UUID | None
    changes: Sequence[IsrChange]


class AlterPartitionRequest(NamedTuple):
    """A leader's proposed changes. With ``by_id`` topics are given by their ids, as from version 2 on."""

    broker_id: int
    broker_epoch: int
    topics: Sequence[IsrChangesOfTopic]
    by_id: bool = True

    def fields(self) -> Fields:
        return {
            "broker_id": self.broker_id,
            "broker_epoch": self.broker_epoch,
            "topics": [
                {"topic_id": topic_id, "partitions": [change.fields() for change in changes]}
                for _, topic_id, changes in self.topics
            ],
        }

    @classmethod
    def of(cls, message: Any) -> AlterPartitionRequest:
        topics = []
        for topic in message.topics:
            name, topic_id = get(topic, "topic_name", ""), get(topic, "topic_id")
            changes = [IsrChange.of(name, topic_id, row) for row in topic.partitions]
            topics.append(IsrChangesOfTopic(name, topic_id, changes))
        by_id = any(hasattr(topic, "topic_id") for topic in message.topics)
        return cls(message.broker_id, message.broker_epoch, topics, by_id)


class AlteredPartition(NamedTuple):
    """The answer for one partition. On an error only the index is meaningful."""

    partition_index: int
    error: Errors
    leader: int = 0
    leader_epoch: int = 0
    isr: tuple[int, ...] = ()
    leader_recovery_state: int = 0
    partition_epoch: int = 0

    def fields(self) -> Fields:
        return {
            "partition_index": self.partition_index,
            "error_code": self.error,
            "leader_id": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
            "leader_recovery_state": self.leader_recovery_state,
            "partition_epoch": self.partition_epoch,
        }

    @classmethod
    def of(cls, row: Any) -> AlteredPartition:
        return cls(
            row.partition_index,
            error_of(row.error_code),
            row.leader_id,
            row.leader_epoch,
            tuple(row.isr),
            get(row, "leader_recovery_state", 0),
            row.partition_epoch,
        )


class AlteredTopic(NamedTuple):
    """The answers for one topic, identified as in the request."""

    topic: str
    topic_id: uuid.UUID | None
    partitions: Sequence[AlteredPartition]


class AlterPartitionResponse(NamedTuple):
    """The controller's answer. ``error`` refuses the whole request."""

    error: Errors
    topics: Sequence[AlteredTopic] = ()

    def fields(self) -> Fields:
        return {
            "error_code": self.error,
            "topics": [
                {
                    "topic_name": topic,
                    "topic_id": topic_id,
                    "partitions": [row.fields() for row in partitions],
                }
                for topic, topic_id, partitions in self.topics
            ],
        }

    @classmethod
    def of(cls, message: Any) -> AlterPartitionResponse:
        topics = [
            AlteredTopic(
                get(topic, "topic_name", ""),
                get(topic, "topic_id"),
                [AlteredPartition.of(row) for row in topic.partitions],
            )
            for topic in message.topics
        ]
        return cls(error_of(message.error_code), topics)
