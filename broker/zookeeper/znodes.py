"""The cluster's znodes: their paths and their JSON, exactly as in Kafka 3.9 (``ZkData``). Pure.

Decoding accepts what other brokers write, including Apache Kafka, with keys in any order and keys of later
versions. Content that cannot be understood raises :class:`BadZnodeError` with the path.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final
from urllib.parse import quote, unquote

from broker.config.endpoint import Endpoint
from broker.protocol.epochs import NO_EPOCH
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.store import StoreError

CLUSTER_ID = "/cluster/id"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
DELETE_TOPICS = "/admin/delete_topics"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE_PREFIX = f"{CONFIG_CHANGES}/config_change_"
ISR_CHANGES = "/isr_change_notification"
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT_PREFIX = f"{LOG_DIR_EVENTS}/log_dir_event_"
PRODUCER_ID_BLOCK = "/latest_producer_id_block"
# Landline's. Its name begins with that of the users, so Kafka's tools too let its creator alone read it.
SCRAM_SECRET = "/config/users_landline_scram_secret"  # noqa: S105 - a path
FEATURE = "/feature"
NO_FINALIZED_FEATURES = b'{"features":{},"version":2,"status":1}'
"""What Kafka 3.9 stores in ``/feature`` in ZooKeeper mode: feature versioning is enabled, no feature
is finalized.
"""
CONFIG_KINDS = ("topics", "clients", "users", "brokers", "ips")
PERSISTENT_PATHS = (
    "/consumers",
    BROKER_IDS,
    TOPICS,
    CONFIG_CHANGES,
    DELETE_TOPICS,
    BROKER_SEQUENCE,
    ISR_CHANGES,
    PRODUCER_ID_BLOCK,
    LOG_DIR_EVENTS,
    *(f"/config/{kind}" for kind in CONFIG_KINDS),
)

_FIRST_EPOCH, _SPEAKS_BY = "landline_first_epoch", "landline_inter_broker_listener"
EPOCHS = "landline_epochs"  # Kafka ignores unknown keys
DEFAULT_ENTITY = "<default>"
PRODUCER_ID_BLOCK_SIZE = 1000


class BadZnodeError(StoreError):
    """A znode has content that Kafka would not write there."""


# The exceptions when a value of the wrong kind is decoded. OverflowError is for JSON's Infinity as a number.
STRANGE: Final = (ValueError, TypeError, KeyError, AttributeError, OverflowError)


class LeaderRecoveryState(IntEnum):
    """The recovery state of a leader (KIP-704). RECOVERING lasts from an unclean election until the leader
    reports otherwise.
    """

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A live broker, as in the znode ``/brokers/ids/N``; Kafka's BrokerIdZNode. ``timestamp_ms`` is when
    the broker registered, by its own clock. ``first_epoch`` and ``speaks_by`` are Landline's additions.
    ``first_epoch`` is the first broker epoch of the same process, if it has registered before.
    ``speaks_by`` is the listener from which it connects to other brokers, if it has several. The broker's
    session owns the znode.
    """

    broker_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None
    timestamp_ms: int = 0
    jmx_port: int = -1
    features: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    first_epoch: int | None = None
    speaks_by: str | None = None

    def endpoint(self, listener_name: str) -> Endpoint | None:
        return next((e for e in self.endpoints if e.listener_name == listener_name), None)


@dataclass(frozen=True, slots=True)
class LiveBroker:
    """A registration with its broker epoch (the znode's czxid) and the session that owns it."""

    registration: BrokerRegistration
    epoch: int
    session_id: int = 0

    @property
    def broker_id(self) -> int:
        return self.registration.broker_id

    @property
    def whole_since(self) -> int:
        """The broker epoch since which this broker's logs have lost nothing, because the same process has
        been running.
        """
        first = self.registration.first_epoch
        return self.epoch if first is None else first


@dataclass(frozen=True, slots=True)
class TopicAssignment:
    """A topic's replicas, as in the znode ``/brokers/topics/T``; Kafka's TopicZNode. The preferred leader of
    each partition comes first. ``version`` is the znode's.
    """

    partitions: Mapping[int, tuple[int, ...]]
    topic_id: uuid.UUID | None
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    version: int = -1


@dataclass(frozen=True, slots=True)
class MemberEpochs:
    """Landline's addition to a partition's state (KIP-966): broker epochs. ``in_sync`` has each ISR member's
    epoch from when it joined. ``eligible`` has those of the eligible replicas, which left an ISR below
    min.insync.replicas and so still have all committed records. ``configs`` is the version of the configs for
    which they are eligible.
    """

    in_sync: tuple[tuple[int, int], ...]
    eligible: tuple[tuple[int, int], ...] = ()
    configs: str = ""


@dataclass(frozen=True, slots=True)
class LeaderAndIsr:
    """A partition's leader and ISR, as in the znode ``…/partitions/P/state``; Kafka's LeaderAndIsr.
    ``partition_epoch`` is the znode's version, -1 before it is written. ``epochs`` is None in states that
    Apache Kafka wrote. The controller writes it.
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    recovery_state: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    partition_epoch: int = NO_EPOCH
    epochs: MemberEpochs | None = None


@dataclass(frozen=True, slots=True)
class ControllerClaim:
    """The controller and the session that claims it, as in the znode ``/controller``; Kafka's
    ControllerZNode. There is at most one; the session owns it.
    """

    broker_id: int
    session_id: int


# -- paths


def broker_path(broker_id: int) -> str:
    return f"{BROKER_IDS}/{broker_id}"


def topic_path(topic: str) -> str:
    return f"{TOPICS}/{topic}"


def partitions_path(topic: str) -> str:
    return f"{TOPICS}/{topic}/partitions"


def partition_path(tp: TopicPartition) -> str:
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}"


def state_path(tp: TopicPartition) -> str:
    return f"{partition_path(tp)}/state"


def delete_topic_path(topic: str) -> str:
    return f"{DELETE_TOPICS}/{topic}"


def entity_config_path(entity_path: str) -> str:
    """The znode of an entity's config. ``entity_path`` is ``topics/t1``, ``brokers/<default>``,
    ``users/U/clients/C``, with sanitized names.
    """
    return f"/config/{entity_path}"


def entity_path(kind: str, name: str) -> str:
    return f"{kind}/{sanitize(name)}"


def sanitize(name: str) -> str:
    """Kafka's Sanitizer: URL encoding, except for the literal ``<default>``."""
    return name if name == DEFAULT_ENTITY else quote(name, safe="")


def desanitize(name: str) -> str:
    return unquote(name)


# -- JSON


def dump(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def load(path: str, data: bytes) -> dict[str, Any]:
    """Raises :class:`BadZnodeError` if the node does not hold a JSON object, or texts that cannot be sent."""
    try:
        text = data.decode()
        value = json.loads(text)
        if "\\u" in text:  # half of a surrogate pair is no character
            json.dumps(value, ensure_ascii=False).encode()
    except (ValueError, RecursionError) as error:  # RecursionError: brackets nested too deeply
        raise BadZnodeError(f"{path} holds no JSON ({error}): {data[:200]!r}") from error
    if not isinstance(value, dict):
        raise BadZnodeError(f"{path} holds no JSON object: {data[:200]!r}")
    return value


def encode_cluster_id(cluster_id: str) -> bytes:
    return dump({"version": "1", "id": cluster_id})


def decode_cluster_id(data: bytes) -> str:
    return str(field_of(CLUSTER_ID, load(CLUSTER_ID, data), "id"))


def encode_broker(broker: BrokerRegistration) -> bytes:
    plaintext = next((e for e in broker.endpoints if e.security_protocol == "PLAINTEXT"), None)
    protocols = {e.listener_name: e.security_protocol for e in broker.endpoints}
    value: dict[str, Any] = {
        "features": broker.features,
        "listener_security_protocol_map": protocols,
        "endpoints": [str(e) for e in broker.endpoints],
    }
    if broker.rack is not None:
        value["rack"] = broker.rack
    value |= {
        "jmx_port": broker.jmx_port,
        "port": plaintext.port if plaintext else -1,
        "host": plaintext.host if plaintext else None,
        "version": 5,
        "timestamp": str(broker.timestamp_ms),
    }
    if broker.first_epoch is not None:
        value[_FIRST_EPOCH] = broker.first_epoch
    if broker.speaks_by is not None:
        value[_SPEAKS_BY] = broker.speaks_by
    return dump(value)


def decode_broker(broker_id: int, data: bytes) -> BrokerRegistration:
    path = broker_path(broker_id)
    value = load(path, data)
    protocols = value.get("listener_security_protocol_map", {})
    try:
        endpoints = tuple(_decode_endpoint(text, protocols) for text in field_of(path, value, "endpoints"))
        return BrokerRegistration(
            broker_id=broker_id,
            endpoints=endpoints,
            rack=None if value.get("rack") is None else str(value["rack"]),
            timestamp_ms=int64(value.get("timestamp", 0)),
            jmx_port=int32(value.get("jmx_port", -1)),
            features={
                str(name): {str(end): int32(version) for end, version in versions.items()}
                for name, versions in (value.get("features") or {}).items()
            },
            first_epoch=None if value.get(_FIRST_EPOCH) is None else int64(value[_FIRST_EPOCH]),
            speaks_by=None if value.get(_SPEAKS_BY) is None else str(value[_SPEAKS_BY]),
        )
    except STRANGE as error:
        raise BadZnodeError(f"{path} holds no broker registration ({error}): {data[:500]!r}") from error


def _decode_endpoint(text: str, protocols: Mapping[str, str]) -> Endpoint:
    listener, _, address = text.partition("://")
    host, _, port = address.rpartition(":")
    return Endpoint(host.strip("[]"), int32(port), listener, str(protocols.get(listener, listener)))


def encode_topic(assignment: TopicAssignment) -> bytes:
    value: dict[str, Any] = {"partitions": _encode_replicas(assignment.partitions)}
    if assignment.topic_id is not None:
        value["topic_id"] = encode_uuid(assignment.topic_id)
    value["adding_replicas"] = _encode_replicas(assignment.adding_replicas)
    value["removing_replicas"] = _encode_replicas(assignment.removing_replicas)
    value["version"] = 3
    return dump(value)


def decode_topic(topic: str, data: bytes, version: int = -1) -> TopicAssignment:
    path = topic_path(topic)
    value = load(path, data)
    topic_id = value.get("topic_id")
    try:
        return TopicAssignment(
            partitions=_decode_replicas(field_of(path, value, "partitions")),
            topic_id=None if topic_id is None else decode_uuid(topic_id),
            adding_replicas=_decode_replicas(value.get("adding_replicas", {})),
            removing_replicas=_decode_replicas(value.get("removing_replicas", {})),
            version=version,
        )
    except STRANGE as error:
        raise BadZnodeError(f"{path} holds no assignment ({error}): {data[:500]!r}") from error


def _encode_replicas(replicas: Mapping[int, tuple[int, ...]]) -> dict[str, list[int]]:
    return {str(partition): list(ids) for partition, ids in sorted(replicas.items())}


def _decode_replicas(value: Mapping[str, list[int]]) -> dict[int, tuple[int, ...]]:
    return {int32(partition): tuple(int32(i) for i in ids) for partition, ids in value.items()}


def encode_state(state: LeaderAndIsr) -> bytes:
    value: dict[str, Any] = {
        "controller_epoch": state.controller_epoch,
        "leader": state.leader,
        "version": 1,
        "leader_epoch": state.leader_epoch,
        "isr": list(state.isr),
    }
    if state.recovery_state is not LeaderRecoveryState.RECOVERED:
        value["leader_recovery_state"] = int(state.recovery_state)
    if state.epochs is not None:
        value[EPOCHS] = {
            "in_sync": _encode_epochs(state.epochs.in_sync),
            "eligible": _encode_epochs(state.epochs.eligible),
            "configs": state.epochs.configs,
        }
    return dump(value)


def decode_state(tp: TopicPartition, data: bytes, version: int) -> LeaderAndIsr:
    path = state_path(tp)
    value = load(path, data)
    try:
        return LeaderAndIsr(
            leader=int32(field_of(path, value, "leader")),
            leader_epoch=int32(field_of(path, value, "leader_epoch")),
            isr=tuple(int32(i) for i in field_of(path, value, "isr")),
            controller_epoch=int32(field_of(path, value, "controller_epoch")),
            recovery_state=LeaderRecoveryState(value.get("leader_recovery_state", 0)),
            partition_epoch=version,
            epochs=_decode_member_epochs(value.get(EPOCHS)),
        )
    except STRANGE as error:
        raise BadZnodeError(f"{path} holds no partition state ({error}): {data[:200]!r}") from error


def _encode_epochs(epochs: tuple[tuple[int, int], ...]) -> dict[str, int]:
    return {str(broker_id): epoch for broker_id, epoch in epochs}


def _decode_member_epochs(value: Mapping[str, Any] | None) -> MemberEpochs | None:
    if value is None:
        return None
    in_sync, eligible = (
        tuple((int32(broker_id), int64(epoch)) for broker_id, epoch in value[name].items())
        for name in ("in_sync", "eligible")
    )
    return MemberEpochs(in_sync, eligible, str(value["configs"]))


def encode_controller(broker_id: int, timestamp_ms: int) -> bytes:
    return dump(
        {"version": 2, "brokerid": broker_id, "timestamp": str(timestamp_ms), "kraftControllerEpoch": -1}
    )


def decode_controller(data: bytes) -> int:
    return _number_of(CONTROLLER, data, "brokerid")


def encode_config(config: Mapping[str, str]) -> bytes:
    return dump({"version": 1, "config": dict(config)})


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """The config; empty for an empty node, which Kafka writes for users and clients."""
    if not data:
        return {}
    config = load(path, data).get("config", {})
    if not isinstance(config, dict):
        raise BadZnodeError(f"{path} holds no config map: {data[:200]!r}")
    return {str(key): str(value) for key, value in config.items()}


def encode_config_change(changed_entity_path: str) -> bytes:
    return dump({"version": 2, "entity_path": changed_entity_path})


def decode_config_change(path: str, data: bytes) -> str:
    """The entity path. Version 1 of the notification has kind and entity in separate fields."""
    value = load(path, data)
    if "entity_path" in value:
        return str(value["entity_path"])
    return f"{field_of(path, value, 'entity_type')}/{field_of(path, value, 'entity_name')}"


def encode_log_dir_event(broker_id: int) -> bytes:
    """Encodes event 1, a failed log directory of the broker. Kafka has no other event."""
    return dump({"version": 1, "broker": broker_id, "event": 1})


def decode_log_dir_event(path: str, data: bytes) -> int:
    """The broker's id."""
    return _number_of(path, data, "broker")


def encode_producer_id_block(broker_id: int, first: int, last: int) -> bytes:
    return dump({"version": 1, "broker": broker_id, "block_start": str(first), "block_end": str(last)})


def decode_producer_id_block_end(data: bytes) -> int:
    return _number_of(PRODUCER_ID_BLOCK, data, "block_end", 64)


def encode_uuid(value: uuid.UUID) -> str:
    """Kafka's Uuid: 22 characters of URL-safe base64 without padding."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def decode_uuid(text: str) -> uuid.UUID:
    return uuid.UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def random_uuid() -> uuid.UUID:
    """A random id whose text does not start with a dash, which command lines would take for an option."""
    while True:
        value = uuid.uuid4()
        if not encode_uuid(value).startswith("-"):
            return value


def int32(value: Any) -> int:
    """Checks that a request can carry the number. A larger one would fail only when it is sent, far from
    its node.
    """
    return _number(value, 32)


def int64(value: Any) -> int:
    """The same for a longer one."""
    return _number(value, 64)


def _number(value: Any, bits: int) -> int:
    number = int(value)
    if not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(f"{str(value)[:40]} is no int{bits}")
    return number


def _number_of(path: str, data: bytes, name: str, bits: int = 32) -> int:
    value = field_of(path, load(path, data), name)
    try:
        return _number(value, bits)
    except STRANGE as error:
        raise BadZnodeError(f"{path} holds no number {name} ({error}): {data[:200]!r}") from error


def field_of(path: str, value: Mapping[str, Any], name: str) -> Any:
    """The field's value. Raises :class:`BadZnodeError` if it is missing."""
    try:
        return value[name]
    except KeyError:
        raise BadZnodeError(f"{path} lacks {name!r}: {str(value)[:500]}") from None
