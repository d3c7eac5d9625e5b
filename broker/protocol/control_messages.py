"""The controller's requests to brokers, and their responses: LeaderAndIsr, StopReplica, UpdateMetadata. They
have one shape for all their versions. Each message's encoder is beside its decoder.

``fields()`` returns what :func:`broker.protocol.codec.encode` takes, without the broker epoch: the controller
sends one message to many brokers and sets the epoch for each (:mod:`broker.protocol.one_body`).
``of(message)`` takes what :func:`broker.protocol.codec.decode` returns.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from broker.protocol.codec import get
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.utils.topic_partition import TopicPartition

LEADER_AND_ISR_VERSION: Final = 7
STOP_REPLICA_VERSION: Final = 4
UPDATE_METADATA_VERSION: Final = 8
TYPE_UNKNOWN: Final = 0
TYPE_INCREMENTAL: Final = 1
TYPE_FULL: Final = 2
_SECURITY_PROTOCOL_IDS: Final = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_NOTHING: Final[Mapping[Any, Any]] = MappingProxyType({})


class PartitionRole(NamedTuple):
    """A partition's state as sent to its replicas; Kafka's ``LeaderAndIsrPartitionState``.

    ``partition_epoch`` is the version of the partition's state znode. ``topic_id`` is None before version 5.
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

    def fields(self) -> Fields:
        return {
            "partition_index": self.topic_partition.partition,
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
            "partition_epoch": self.partition_epoch,
            "replicas": self.replicas,
            "adding_replicas": self.adding_replicas,
            "removing_replicas": self.removing_replicas,
            "is_new": self.is_new,
            "leader_recovery_state": self.leader_recovery_state,
        }

    @classmethod
    def of(cls, topic: str, topic_id: uuid.UUID | None, state: Any) -> PartitionRole:
        return cls(
            TopicPartition(topic, state.partition_index),
            topic_id,
            state.controller_epoch,
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            state.partition_epoch,
            tuple(state.replicas),
            tuple(get(state, "adding_replicas", ())),
            tuple(get(state, "removing_replicas", ())),
            bool(get(state, "is_new", False)),
            get(state, "leader_recovery_state", 0),
        )


class LeaderAndIsrRequest(NamedTuple):
    """The LeaderAndIsr request: which replicas lead and follow. With ``is_full``, the request has all
    partitions of the broker. ``leaders`` maps the leaders to host and port; it is sent for Kafka's brokers,
    and not read here.
    """

    controller_id: int
    controller_epoch: int
    roles: Sequence[PartitionRole]
    is_full: bool = False
    leaders: Mapping[int, tuple[str, int]] = _NOTHING
    broker_epoch: int = NO_EPOCH

    def fields(self) -> Fields:
        topics: dict[str, tuple[uuid.UUID | None, list[Fields]]] = {}
        for role in self.roles:
            topics.setdefault(role.topic_partition.topic, (role.topic_id, []))[1].append(role.fields())
        return {
            **_from_controller(self.controller_id, self.controller_epoch),
            "type_": TYPE_FULL if self.is_full else TYPE_INCREMENTAL,
            "topic_states": [
                {"topic_name": topic, "topic_id": topic_id, "partition_states": rows}
                for topic, (topic_id, rows) in topics.items()
            ],
            "live_leaders": [
                {"broker_id": leader, "host_name": host, "port": port}
                for leader, (host, port) in self.leaders.items()
            ],
        }

    @classmethod
    def of(cls, message: Any) -> LeaderAndIsrRequest:
        return cls(
            message.controller_id,
            message.controller_epoch,
            [PartitionRole.of(topic, topic_id, state) for topic, topic_id, state in _grouped_or_not(message)],
            broker_epoch=get(message, "broker_epoch", NO_EPOCH),
        )


class StopState(NamedTuple):
    """A partition of StopReplica. ``leader_epoch`` is NO_EPOCH in versions without one, and
    EPOCH_DURING_DELETE when the topic is deleted.
    """

    topic_partition: TopicPartition
    leader_epoch: int
    delete: bool


class StopReplicaRequest(NamedTuple):
    """The StopReplica request: which replicas to stop, and which of them to delete."""

    controller_id: int
    controller_epoch: int
    states: Sequence[StopState]
    broker_epoch: int = NO_EPOCH

    @property
    def deletes(self) -> bool:
        return any(state.delete for state in self.states)

    def fields(self) -> Fields:
        topics: dict[str, list[Fields]] = {}
        for (topic, index), epoch, delete in self.states:
            row = {"partition_index": index, "leader_epoch": epoch, "delete_partition": delete}
            topics.setdefault(topic, []).append(row)
        return {
            **_from_controller(self.controller_id, self.controller_epoch),
            "topic_states": [
                {"topic_name": topic, "partition_states": rows} for topic, rows in topics.items()
            ],
        }

    @classmethod
    def of(cls, message: Any) -> StopReplicaRequest:
        return cls(
            message.controller_id,
            message.controller_epoch,
            list(_stop_states(message)),
            get(message, "broker_epoch", NO_EPOCH),
        )


def _stop_states(message: Any) -> Iterator[StopState]:
    """Before version 3 one flag, which says whether to delete, applies to all partitions."""
    for topic in get(message, "topic_states", ()):
        for state in topic.partition_states:
            topic_partition = TopicPartition(topic.topic_name, state.partition_index)
            yield StopState(topic_partition, state.leader_epoch, state.delete_partition)
    delete = bool(get(message, "delete_partitions", False))
    for topic in get(message, "topics", ()):
        for index in topic.partition_indexes:
            yield StopState(TopicPartition(topic.name, index), NO_EPOCH, delete)
    for partition in get(message, "ungrouped_partitions", ()):
        topic_partition = TopicPartition(partition.topic_name, partition.partition_index)
        yield StopState(topic_partition, NO_EPOCH, delete)


class BrokerInfo(NamedTuple):
    """A live broker. ``endpoints`` maps a listener's name to (host, port). ``protocols`` maps it to its
    security protocol if that is not PLAINTEXT; it is sent, and not read.
    """

    broker_id: int
    endpoints: Mapping[str, tuple[str, int]]
    rack: str | None = None
    protocols: Mapping[str, str] = _NOTHING

    def fields(self) -> Fields:
        return {
            "id_": self.broker_id,
            "endpoints": [
                {
                    "port": port,
                    "host": host,
                    "listener": listener,
                    "security_protocol": _SECURITY_PROTOCOL_IDS.get(self.protocols.get(listener, ""), 0),
                }
                for listener, (host, port) in self.endpoints.items()
            ],
            "rack": self.rack,
        }

    @classmethod
    def of(cls, broker: Any, listener: str) -> BrokerInfo:
        """``listener`` is where the message was received: version 0 has a single address."""
        endpoints = get(broker, "endpoints")
        if endpoints is None:
            return cls(broker.id_, {listener: (broker.v0_host, broker.v0_port)})
        by_listener = {
            get(endpoint, "listener") or "PLAINTEXT": (endpoint.host, endpoint.port) for endpoint in endpoints
        }
        return cls(broker.id_, by_listener, get(broker, "rack"))


class PartitionInfo(NamedTuple):
    """A partition's state as sent to every broker; Kafka's ``UpdateMetadataPartitionState``."""

    partition_index: int
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    offline_replicas: tuple[int, ...] = ()
    controller_epoch: int = NO_EPOCH
    partition_epoch: int = NO_EPOCH

    def fields(self) -> Fields:
        return {
            "partition_index": self.partition_index,
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": self.isr,
            "zk_version": self.partition_epoch,
            "replicas": self.replicas,
            "offline_replicas": self.offline_replicas,
        }

    @classmethod
    def of(cls, state: Any) -> PartitionInfo:
        return cls(
            state.partition_index,
            state.leader,
            state.leader_epoch,
            tuple(state.isr),
            tuple(state.replicas),
            tuple(get(state, "offline_replicas", ())),
            state.controller_epoch,
            state.zk_version,
        )


class MetadataUpdate(NamedTuple):
    """The UpdateMetadata request: the live brokers, and the state of ``partitions``, each with its topic's
    name. ``topic_ids`` is empty before version 7. With ``is_full``, there are no other topics; Kafka's controller
    says so in KRaft mode only, and Kafka's brokers in ZooKeeper mode heed it from no other.
    """

    controller_id: int
    brokers: Sequence[BrokerInfo]
    topic_ids: Mapping[str, uuid.UUID]
    partitions: Sequence[tuple[str, PartitionInfo]]
    controller_epoch: int = NO_EPOCH
    broker_epoch: int = NO_EPOCH
    is_full: bool = False

    def fields(self) -> Fields:
        topics: dict[str, list[Fields]] = {}
        for topic, info in self.partitions:
            topics.setdefault(topic, []).append(info.fields())
        return {
            **_from_controller(self.controller_id, self.controller_epoch),
            "type_": TYPE_FULL if self.is_full else TYPE_UNKNOWN,
            "topic_states": [
                {"topic_name": topic, "topic_id": self.topic_ids.get(topic), "partition_states": rows}
                for topic, rows in topics.items()
            ],
            "live_brokers": [broker.fields() for broker in self.brokers],
        }

    @classmethod
    def of(cls, message: Any, listener: str) -> MetadataUpdate:
        """``listener`` is where the message was received."""
        return cls(
            message.controller_id,
            [BrokerInfo.of(broker, listener) for broker in message.live_brokers],
            {
                topic.topic_name: topic_id
                for topic in get(message, "topic_states", ())
                if (topic_id := get(topic, "topic_id"))
            },
            [(topic, PartitionInfo.of(state)) for topic, _, state in _grouped_or_not(message)],
            message.controller_epoch,
            get(message, "broker_epoch", NO_EPOCH),
            get(message, "type_", TYPE_UNKNOWN) == TYPE_FULL,
        )


ControlRequest = LeaderAndIsrRequest | StopReplicaRequest | MetadataUpdate


class ReplicaError(NamedTuple):
    """The result for one partition of LeaderAndIsr or StopReplica. Its topic may have no name (""), or
    no id.
    """

    topic: str
    topic_id: uuid.UUID | None
    partition_index: int
    error: Errors


class ControlResponse(NamedTuple):
    """A broker's response. ``error`` refuses the whole request."""

    error: Errors
    partitions: Sequence[ReplicaError] = ()

    def leader_and_isr_fields(self) -> Fields:
        """The fields of a LeaderAndIsr response, with topic ids from version 5 on."""
        rows = self._rows()
        topics: dict[uuid.UUID | None, list[Fields]] = {}
        for partition, row in zip(self.partitions, rows, strict=True):
            topics.setdefault(partition.topic_id, []).append(row)
        by_topic = [{"topic_id": topic_id, "partition_errors": errors} for topic_id, errors in topics.items()]
        return {"error_code": self.error, "partition_errors": rows, "topics": by_topic}

    def stop_replica_fields(self) -> Fields:
        return {"error_code": self.error, "partition_errors": self._rows()}

    def update_metadata_fields(self) -> Fields:
        return {"error_code": self.error}

    def _rows(self) -> list[Fields]:
        return [
            {"topic_name": topic, "partition_index": index, "error_code": error}
            for topic, _, index, error in self.partitions
        ]

    @classmethod
    def of(cls, message: Any) -> ControlResponse:
        """Takes a response to any of the three requests."""
        by_name = [
            ReplicaError(get(row, "topic_name", ""), None, row.partition_index, error_of(row.error_code))
            for row in get(message, "partition_errors", ())
        ]
        by_id = [
            ReplicaError("", topic.topic_id, row.partition_index, error_of(row.error_code))
            for topic in get(message, "topics", ())
            for row in topic.partition_errors
        ]
        return cls(error_of(message.error_code), by_name + by_id)


def error_of(code: int) -> Errors:
    """The error for a peer's error code; UNKNOWN_SERVER_ERROR for an unknown code."""
    try:
        return Errors(int(code))
    except ValueError:
        return Errors.UNKNOWN_SERVER_ERROR


def _from_controller(controller_id: int, controller_epoch: int) -> dict[str, Any]:
    return {
        "controller_id": controller_id,
        "is_k_raft_controller": False,
        "controller_epoch": controller_epoch,
    }


def _grouped_or_not(message: Any) -> Iterable[tuple[str, uuid.UUID | None, Any]]:
    """The partitions of LeaderAndIsr or UpdateMetadata with topic and topic id, whether grouped by topic
    or not.
    """
    for topic in get(message, "topic_states", ()):
        topic_id = get(topic, "topic_id")
        for state in topic.partition_states:
            yield topic.topic_name, topic_id, state
    for state in get(message, "ungrouped_partition_states", ()):
        yield state.topic_name, None, state
