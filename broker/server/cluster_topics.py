"""The cluster's topics as the group coordinator sees them: ids and numbers of partitions."""

from __future__ import annotations

from collections.abc import Mapping

from broker.coordinator.group.consumer.messages import ClusterTopics
from broker.coordinator.group.consumer.records import TopicRecord
from broker.server.metadata_cache import MetadataCache


class TopicsOfCluster:
    """Calling it returns the topics. They are computed only when asked for after an update of the metadata, and have a
    new version only if one has changed. Any thread may call it: at worst two compute the same.
    """

    def __init__(self, cache: MetadataCache) -> None:
        self._cache = cache
        self._known: tuple[int, ClusterTopics] = (-1, ClusterTopics(0, {}))

    def __call__(self) -> ClusterTopics:
        snapshot = self._cache.snapshot
        version, topics = self._known
        if snapshot.version == version:
            return topics
        by_name: Mapping[str, TopicRecord] = {
            name: TopicRecord(snapshot.topic_ids[name], name, len(partitions))
            for name, partitions in snapshot.topics.items()
            if name in snapshot.topic_ids
        }
        if by_name != topics.by_name:
            topics = ClusterTopics(snapshot.version, by_name)
        self._known = (snapshot.version, topics)
        return topics
