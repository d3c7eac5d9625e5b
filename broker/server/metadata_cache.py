"""The cluster's metadata as last sent by the controller: brokers, topics, leaders. Kafka's ZkMetadataCache.

Readers take one immutable :class:`Snapshot`; UpdateMetadata creates the next. Nothing here reads ZooKeeper.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from broker.protocol.control_messages import BrokerInfo, MetadataUpdate, PartitionInfo
from broker.protocol.epochs import LEADER_DURING_DELETE, NO_CONTROLLER
from broker.replication.cluster_view import BrokerAddress
from broker.utils.topic_partition import TopicPartition

_EMPTY: Final[Mapping[int, PartitionInfo]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The cluster after one UpdateMetadata; Kafka's MetadataSnapshot. Immutable. Each has a higher
    ``version`` than the one before, which serves as the key for derived data.
    """

    version: int = 0
    controller_id: int = NO_CONTROLLER
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    topics: Mapping[str, Mapping[int, PartitionInfo]] = field(default_factory=dict)
    topic_ids: Mapping[str, uuid.UUID] = field(default_factory=dict)
    topic_names: Mapping[uuid.UUID, str] = field(default_factory=dict)


class MetadataCache:
    """The cluster as this broker knows it; Kafka's ZkMetadataCache. Any thread may read; updates come one at
    a time. Listeners are called after each update, without any lock held.
    """

    def __init__(self, inter_broker_listener: str) -> None:
        self._inter_broker_listener = inter_broker_listener
        self._lock = threading.Lock()  # lock order 65
        self._listeners: list[Callable[[], None]] = []
        self.snapshot = Snapshot()

    def add_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.append(listener)

    def remove_listener(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)

    # -- questions

    def contains(self, topic: str) -> bool:
        return topic in self.snapshot.topics

    def contains_partition(self, topic_partition: TopicPartition) -> bool:
        return topic_partition.partition in self.snapshot.topics.get(topic_partition.topic, _EMPTY)

    def partition_info(self, topic_partition: TopicPartition) -> PartitionInfo | None:
        return self.snapshot.topics.get(topic_partition.topic, _EMPTY).get(topic_partition.partition)

    def partition_count(self, topic: str) -> int | None:
        partitions = self.snapshot.topics.get(topic)
        return None if partitions is None else len(partitions)

    def topic_names(self) -> list[str]:
        return list(self.snapshot.topics)

    def topic_id(self, topic: str) -> uuid.UUID | None:
        return self.snapshot.topic_ids.get(topic)

    def topic_name(self, topic_id: uuid.UUID) -> str | None:
        return self.snapshot.topic_names.get(topic_id)

    def alive_broker_ids(self) -> list[int]:
        return list(self.snapshot.brokers)

    def alive(self, broker_id: int) -> bool:
        return broker_id in self.snapshot.brokers

    def endpoint(self, broker_id: int, listener: str) -> tuple[str, int] | None:
        """Host and port of a live broker on a listener; None if it is not alive or has no such listener."""
        broker = self.snapshot.brokers.get(broker_id)
        return None if broker is None else broker.endpoints.get(listener)

    def rack_of(self, broker_id: int, listener: str) -> str | None:
        """The rack of a live broker that has the listener; None if it has no rack, too."""
        broker = self.snapshot.brokers.get(broker_id)
        return broker.rack if broker is not None and listener in broker.endpoints else None

    def broker_address(self, broker_id: int) -> BrokerAddress | None:
        endpoint = self.endpoint(broker_id, self._inter_broker_listener)
        return None if endpoint is None else BrokerAddress(broker_id, *endpoint)

    @property
    def controller_id(self) -> int:
        """The live controller's id, -1 if none is known."""
        snapshot = self.snapshot
        return snapshot.controller_id if snapshot.controller_id in snapshot.brokers else NO_CONTROLLER

    def controller_address(self) -> BrokerAddress | None:
        return self.broker_address(self.snapshot.controller_id)

    # -- updates

    def update(self, update: MetadataUpdate) -> list[TopicPartition]:
        """Applies an UpdateMetadata; returns the partitions that are being deleted, or were without this broker's
        hearing of it.
        """
        with self._lock:
            before = self.snapshot
            topics = dict(before.topics)
            deleted = [
                TopicPartition(topic, number)
                for topic in _gone_meanwhile(before, update)
                for number in topics.pop(topic)
            ]
            deleted += _apply_partitions(topics, update.partitions)
            topic_ids = {
                topic: topic_id
                for topic, topic_id in (*before.topic_ids.items(), *update.topic_ids.items())
                if topic in topics
            }
            self.snapshot = Snapshot(
                before.version + 1,
                update.controller_id,
                {broker.broker_id: broker for broker in update.brokers},
                topics,
                topic_ids,
                {topic_id: topic for topic, topic_id in topic_ids.items()},
            )
        for listener in list(self._listeners):
            listener()
        return deleted


def _gone_meanwhile(before: Snapshot, update: MetadataUpdate) -> list[str]:
    """The known topics that are no more: another has the name now, or the update names all there are."""
    gone = [
        topic
        for topic, topic_id in update.topic_ids.items()
        if topic in before.topics and before.topic_ids.get(topic, topic_id) != topic_id
    ]
    if update.is_full:
        gone += before.topics.keys() - {topic for topic, _ in update.partitions}
    return gone


def _apply_partitions(
    topics: dict[str, Mapping[int, PartitionInfo]], partitions: Sequence[tuple[str, PartitionInfo]]
) -> list[TopicPartition]:
    changed: dict[str, dict[int, PartitionInfo]] = {}
    deleted = []
    for topic, info in partitions:
        own = changed.get(topic)
        if own is None:
            own = changed[topic] = dict(topics.get(topic, _EMPTY))
        if info.leader == LEADER_DURING_DELETE:
            own.pop(info.partition_index, None)
            deleted.append(TopicPartition(topic, info.partition_index))
        else:
            own[info.partition_index] = info
    for topic, infos in changed.items():
        if infos:
            topics[topic] = infos
        else:
            topics.pop(topic, None)
    return deleted
