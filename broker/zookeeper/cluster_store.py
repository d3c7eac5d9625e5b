"""The cluster's state in typed operations on ZooKeeper or the embedded store.

Kafka's KafkaZkClient does the same. :mod:`.config_store` has the part for configs, and :mod:`.controller_store`
the writes that only the active controller may make. Errors are those of the store. An unreadable node raises
:class:`~broker.zookeeper.znodes.BadZnodeError` when it is read alone. When many are read, it is left out, and
the log says so.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from broker.protocol.epochs import NO_CONTROLLER
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import admin_requests, znodes
from broker.zookeeper.config_store import ConfigStore, readable
from broker.zookeeper.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    NodeExistsError,
    NoNodeError,
    Op,
    SessionEvent,
    SetData,
    Stat,
    StoreError,
    TooLargeError,
    Watch,
)
from broker.zookeeper.znodes import (
    BrokerRegistration,
    ControllerClaim,
    LeaderAndIsr,
    LiveBroker,
    TopicAssignment,
)


class ClusterStore(ConfigStore):
    """The cluster's state in the store; Kafka's KafkaZkClient. Thread-safe, without state of its own."""

    @property
    def session_id(self) -> int:
        return self.store.session_id

    @property
    def state_name(self) -> str:
        return self.store.state_name

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> None:
        self.store.add_session_listener(callback)

    # -- the cluster

    def create_top_level_paths(self) -> None:
        """Creates Kafka's persistent paths if they are missing. Takes one round trip if none is."""
        wanted = [Create(path) for path in _with_parents(znodes.PERSISTENT_PATHS)]
        wanted.append(Create(znodes.FEATURE, znodes.NO_FINALIZED_FEATURES))
        found = self.store.get_many([create.path for create in wanted])
        missing = [create for create, node in zip(wanted, found, strict=True) if node is None]
        for result in self.store.multi_many([[create] for create in missing]):
            if isinstance(result, StoreError) and not isinstance(result, NodeExistsError):
                raise result

    def cluster_id(self) -> str | None:
        try:
            return znodes.decode_cluster_id(self.store.get(znodes.CLUSTER_ID)[0])
        except NoNodeError:
            return None

    def get_or_create_cluster_id(self) -> str:
        """The cluster id, 22 characters of base64. The first broker of a cluster generates it."""
        if (found := self.cluster_id()) is not None:
            return found
        self.store.ensure_path("/cluster")
        cluster_id = znodes.encode_uuid(znodes.random_uuid())
        try:
            self.store.create(znodes.CLUSTER_ID, znodes.encode_cluster_id(cluster_id))
        except NodeExistsError:
            return znodes.decode_cluster_id(self.store.get(znodes.CLUSTER_ID)[0])
        return cluster_id

    def get_or_create_scram_secret(self) -> bytes:
        """The secret that a cluster's brokers share, for what unknown SCRAM users see."""
        with suppress(NoNodeError):
            return self.store.get(znodes.SCRAM_SECRET)[0]
        with suppress(NodeExistsError):
            self.store.create(znodes.SCRAM_SECRET, os.urandom(32).hex().encode())
        return self.store.get(znodes.SCRAM_SECRET)[0]

    # -- brokers

    def register_broker(self, registration: BrokerRegistration) -> int:
        """Creates the ephemeral ``/brokers/ids/N`` and returns the broker epoch.

        Raises :class:`NodeExistsError` if the id is already registered, even by an earlier session of
        this broker.
        """
        path = znodes.broker_path(registration.broker_id)
        ops: list[Op] = [Create(path, ephemeral=True), SetData(path, znodes.encode_broker(registration))]
        try:
            _, stat = self.store.multi(ops)
        except NodeExistsError:
            # The node may be from our own first attempt, whose answer was lost with the connection.
            live = self.broker(registration.broker_id)
            if live is None or live.session_id != self.session_id:
                raise
            return live.epoch
        assert isinstance(stat, Stat)
        return stat.czxid

    def unregister_broker(self, broker_id: int) -> None:
        try:
            self.store.delete(znodes.broker_path(broker_id))
        except NoNodeError:
            return

    def update_broker(self, registration: BrokerRegistration) -> None:
        """Changes the advertised listeners of a registered broker. Its epoch stays the same."""
        self.store.set(znodes.broker_path(registration.broker_id), znodes.encode_broker(registration))

    def broker(self, broker_id: int) -> LiveBroker | None:
        (found,) = self.store.get_many([znodes.broker_path(broker_id)])
        return None if found is None else _live_broker(broker_id, *found)

    def broker_ids(self) -> list[int]:
        return sorted(int(name) for name in self._children(znodes.BROKER_IDS))

    def brokers(self) -> dict[int, LiveBroker]:
        """The registered brokers by id."""
        ids = self.broker_ids()
        found = self.store.get_many([znodes.broker_path(broker_id) for broker_id in ids])
        return readable(
            (broker_id, partial(_live_broker, broker_id, *node))
            for broker_id, node in zip(ids, found, strict=True)
            if node is not None
        )

    def next_broker_id(self, reserved_max: int = 1000) -> int:
        """An id above ``reserved.broker.max.id`` that was never assigned before."""
        self.store.ensure_path(znodes.BROKER_SEQUENCE)
        return self.store.set(znodes.BROKER_SEQUENCE, b"").version + reserved_max

    def watch_brokers(self, callback: Callable[[], None]) -> Watch:
        return self.store.watch_children(znodes.BROKER_IDS, callback)

    def watch_broker(self, broker_id: int, callback: Callable[[], None]) -> Watch:
        return self.store.watch_data(znodes.broker_path(broker_id), callback)

    # -- topics and partitions

    def topics(self) -> list[str]:
        return sorted(self._children(znodes.TOPICS))

    def topic_exists(self, topic: str) -> bool:
        return self.store.exists(znodes.topic_path(topic)) is not None

    def topic_assignment(self, topic: str) -> TopicAssignment | None:
        return self.topic_assignments([topic]).get(topic)

    def present_topic_id(self, topic: str) -> uuid.UUID | None:
        """The topic's current id; None if the topic does not exist or has no id.

        A plain read may be answered by a ZooKeeper server that lags behind. This method sends a transaction
        first, which is answered only when that server has applied everything before it.
        """
        try:
            self.store.multi([Check(znodes.topic_path(topic), ANY_VERSION)])
        except NoNodeError:
            return None
        assignment = self.topic_assignment(topic)
        return None if assignment is None else assignment.topic_id

    def topic_assignments(self, topics: Sequence[str]) -> dict[str, TopicAssignment]:
        """The assignments of those topics that exist."""
        found = self.store.get_many([znodes.topic_path(topic) for topic in topics])
        return readable(
            (topic, partial(znodes.decode_topic, topic, node[0], node[1].version))
            for topic, node in zip(topics, found, strict=True)
            if node is not None
        )

    def create_topic(
        self, topic: str, partitions: Mapping[int, tuple[int, ...]], config: Mapping[str, str]
    ) -> uuid.UUID:
        """Writes config and assignment; the controller sees the topic and does the rest. Returns the
        topic id.

        Raises :class:`NodeExistsError` if the topic already exists. Raises :class:`TooLargeError` and leaves nothing if
        ZooKeeper does not take the assignment.
        """
        topic_id = znodes.random_uuid()
        self.set_entity_config("topics", topic, config)
        assignment = TopicAssignment(partitions, topic_id)
        try:
            self.store.create(znodes.topic_path(topic), znodes.encode_topic(assignment))
        except NodeExistsError:
            # The node may be from our own first attempt, whose answer was lost with the connection.
            found = self.topic_assignment(topic)
            if found is None or found.topic_id != topic_id:
                raise
        except TooLargeError:
            self.remove_entity_config("topics", topic)
            raise
        return topic_id

    def set_topic_assignment(self, topic: str, assignment: TopicAssignment) -> None:
        """Replaces the assignment. Raises :class:`BadVersionError` if it has changed
        since ``assignment.version``.
        """
        try:
            self.store.set(znodes.topic_path(topic), znodes.encode_topic(assignment), assignment.version)
        except BadVersionError:
            # A write repeated after a connection loss may find the result of its own first attempt.
            found = self.topic_assignment(topic)
            if found is None or replace(found, version=assignment.version) != assignment:
                raise

    def partition_states(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, LeaderAndIsr]:
        """The states of those partitions that have one."""
        tps = list(partitions)
        found = self.store.get_many([znodes.state_path(tp) for tp in tps], small=True)
        # Most partitions have not changed since their creation: equal bytes are decoded only once.
        known: dict[tuple[bytes, int], LeaderAndIsr] = {}

        def decode(tp: TopicPartition, data: bytes, version: int) -> LeaderAndIsr:
            if (state := known.get((data, version))) is None:
                state = known[data, version] = znodes.decode_state(tp, data, version)
            return state

        return readable(
            (tp, partial(decode, tp, node[0], node[1].version))
            for tp, node in zip(tps, found, strict=True)
            if node is not None
        )

    def mark_topic_for_deletion(self, topic: str) -> None:
        """Marks a topic while it exists: a mark alone would be the next topic's of that name. Raises NoNodeError."""
        try:
            self.store.multi(
                [Check(znodes.topic_path(topic), ANY_VERSION), Create(znodes.delete_topic_path(topic))]
            )
        except NodeExistsError:
            return

    def is_marked_for_deletion(self, topic: str) -> bool:
        return self.store.exists(znodes.delete_topic_path(topic)) is not None

    def topics_to_delete(self) -> list[str]:
        return sorted(self._children(znodes.DELETE_TOPICS))

    def watch_topics(self, callback: Callable[[], None]) -> Watch:
        return self.store.watch_children(znodes.TOPICS, callback)

    def watch_topic(self, topic: str, callback: Callable[[], None]) -> Watch:
        return self.store.watch_data(znodes.topic_path(topic), callback)

    def watch_topic_deletions(self, callback: Callable[[], None]) -> Watch:
        return self.store.watch_children(znodes.DELETE_TOPICS, callback)

    # -- requests of old tools

    def reassignment_request(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """The content of ``/admin/reassign_partitions``; None if it does not exist. Raises BadZnodeError."""
        (found,) = self.store.get_many([admin_requests.REASSIGN_PARTITIONS])
        return None if found is None else admin_requests.decode_reassignment(found[0])

    def preferred_election_request(self) -> list[TopicPartition] | None:
        """The content of ``/admin/preferred_replica_election``; None if it does not exist.
        Raises BadZnodeError.
        """
        (found,) = self.store.get_many([admin_requests.PREFERRED_ELECTION])
        return None if found is None else admin_requests.decode_preferred_election(found[0])

    def watch_reassignment_request(self, callback: Callable[[], None]) -> Watch:
        return self.store.watch_data(admin_requests.REASSIGN_PARTITIONS, callback)

    def watch_preferred_election_request(self, callback: Callable[[], None]) -> Watch:
        return self.store.watch_data(admin_requests.PREFERRED_ELECTION, callback)

    # -- failed log directories

    def create_log_dir_event(self, broker_id: int) -> None:
        """Reports to the controller that a log directory of the broker failed. The controller then asks which
        partitions are offline.
        """
        self.store.create(znodes.LOG_DIR_EVENT_PREFIX, znodes.encode_log_dir_event(broker_id), sequence=True)

    def log_dir_events(self) -> dict[str, int]:
        """The path of each event, and its broker. Unreadable events are left out."""
        paths = [f"{znodes.LOG_DIR_EVENTS}/{name}" for name in sorted(self._children(znodes.LOG_DIR_EVENTS))]
        found = self.store.get_many(paths)
        return readable(
            (path, partial(znodes.decode_log_dir_event, path, node[0]))
            for path, node in zip(paths, found, strict=True)
            if node is not None
        )

    def watch_log_dir_events(self, callback: Callable[[], None]) -> Watch:
        return self.store.watch_children(znodes.LOG_DIR_EVENTS, callback)

    # -- controller and producer ids

    def controller_id(self) -> int:
        """The active controller's broker id, or -1 if there is none."""
        claim = self.controller_claim()
        return NO_CONTROLLER if claim is None else claim.broker_id

    def controller_claim(self) -> ControllerClaim | None:
        (found,) = self.store.get_many([znodes.CONTROLLER])
        if found is None:
            return None
        data, stat = found
        return ControllerClaim(znodes.decode_controller(data), stat.ephemeral_owner)

    def controller_epoch(self) -> tuple[int, int] | None:
        """``(epoch, znode version)``; None before the first controller."""
        (found,) = self.store.get_many([znodes.CONTROLLER_EPOCH])
        return None if found is None else (int(found[0]), found[1].version)

    def watch_controller(self, callback: Callable[[], None]) -> Watch:
        return self.store.watch_data(znodes.CONTROLLER, callback)

    def next_producer_id_block(self, broker_id: int) -> tuple[int, int]:
        """``(first id, count)`` of a block that no other broker gets."""
        while True:
            data, stat = self.store.get(znodes.PRODUCER_ID_BLOCK)
            first = znodes.decode_producer_id_block_end(data) + 1 if data else 0
            last = first + znodes.PRODUCER_ID_BLOCK_SIZE - 1
            if last >= 1 << 63:
                raise StoreError("all producer ids are used up")
            block = znodes.encode_producer_id_block(broker_id, first, last)
            try:
                self.store.set(znodes.PRODUCER_ID_BLOCK, block, stat.version)
            except BadVersionError:
                continue  # another broker was faster; a block of our own lost first attempt is only skipped
            return first, znodes.PRODUCER_ID_BLOCK_SIZE


def _live_broker(broker_id: int, data: bytes, stat: Stat) -> LiveBroker:
    return LiveBroker(znodes.decode_broker(broker_id, data), stat.czxid, stat.ephemeral_owner)


def _with_parents(paths: Iterable[str]) -> list[str]:
    """Every path after its parents, without duplicates."""
    ordered: dict[str, None] = {}
    for path in paths:
        parts = path.split("/")
        for end in range(2, len(parts) + 1):
            ordered["/".join(parts[:end])] = None
    return list(ordered)
