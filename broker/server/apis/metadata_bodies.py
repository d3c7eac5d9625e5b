"""Cache of encoded Metadata responses: whole bodies by what was asked for and by the bytes that asked, and
topics one by one.

Encoding a topic of thousands of partitions takes milliseconds. A whole body is cached only if all
requested topics exist. A body with an unknown name is assembled from cached topics, so only the unknown
name is encoded.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import Final, Generic, NamedTuple, TypeVar

from broker.protocol.control_messages import BrokerInfo, PartitionInfo
from broker.server.metadata_cache import Snapshot

_MAX_BODIES: Final = 64
_MAX_TOPIC_BYTES: Final = 32 << 20
# Names or ids of topics.
Wanted = tuple[str | uuid.UUID, ...]
# Version, listener, topics (None: all), and what the principal may do with the cluster.
BodyKey = tuple[int, str, Wanted | None, int]
# Version, listener, and the body of the request.
BytesKey = tuple[int, str, bytes]
Key = TypeVar("Key", bound=tuple[object, ...])
# Version, listener, name, and what the principal may do with the topic.
TopicKey = tuple[int, str, str, int]


class MetadataBodies(Generic[Key]):
    """The encoded bodies of one snapshot. The key has all that a body depends on, so principals that see the same
    topics share one, and others never do. Several threads may use it: a lost entry is only encoded again.
    """

    def __init__(self) -> None:
        # Snapshot and bodies are one object, so no thread reads or adds bodies of another snapshot.
        self._kept: tuple[Snapshot | None, dict[Key, bytes]] = (None, {})

    def get(self, snapshot: Snapshot, key: Key) -> bytes | None:
        kept, bodies = self._kept
        return bodies.get(key) if kept is snapshot else None

    def put(self, snapshot: Snapshot, key: Key, body: bytes) -> None:
        kept, bodies = self._kept
        if kept is not snapshot or len(bodies) >= _MAX_BODIES:
            bodies = {}
            self._kept = (snapshot, bodies)
        bodies[key] = body


class _KeptTopic(NamedTuple):
    """An encoded topic, and the data that it was encoded from."""

    partitions: Mapping[int, PartitionInfo]
    topic_id: uuid.UUID | None
    body: bytes


class MetadataTopics:
    """Encoded topics, while the set of brokers does not change. An unchanged
    topic is also found with the next snapshot, which shares its partitions. Threads as
    in :class:`MetadataBodies`.
    """

    def __init__(self) -> None:
        self._kept: tuple[Mapping[int, BrokerInfo], dict[TopicKey, _KeptTopic]] = ({}, {})
        self._bytes = 0

    def get(self, snapshot: Snapshot, key: TopicKey, encode: Callable[[], bytes]) -> bytes:
        """The encoded topic of ``key``, which the snapshot contains; created with ``encode`` if it is
        not cached.
        """
        brokers, topics = self._kept
        if brokers is not snapshot.brokers:
            if brokers == snapshot.brokers:  # compared once: for the next topic it is the same object
                self._kept = (snapshot.brokers, topics)
            else:
                topics = self._begin_anew(snapshot)
        partitions, topic_id = snapshot.topics[key[2]], snapshot.topic_ids.get(key[2])
        kept = topics.get(key)
        if kept is not None and kept.partitions is partitions and kept.topic_id == topic_id:
            return kept.body
        body = encode()
        self._bytes += len(body)
        if self._bytes > _MAX_TOPIC_BYTES:
            topics = self._begin_anew(snapshot)
            self._bytes = len(body)
        topics[key] = _KeptTopic(partitions, topic_id, body)
        return body

    def _begin_anew(self, snapshot: Snapshot) -> dict[TopicKey, _KeptTopic]:
        topics: dict[TopicKey, _KeptTopic] = {}
        self._kept = (snapshot.brokers, topics)
        self._bytes = 0
        return topics
