"""Reads a cluster's topics and dynamic configs, and changes them, by the brokers' own requests.

It speaks on the inter-broker listener, with the TLS and the login of the broker's properties file, like `may-stop`. So
it needs no user of its own, and works on a secured cluster. `plan` says what is to be done.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, Self, TypeVar

from broker.config.alter import Operation
from broker.config.broker_config import BrokerConfig
from broker.config.describe import Source
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.fields import Fields
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.server.assembly import make_channel_maker
from broker.server.desired.document import CLUSTER, Wanted
from broker.server.desired.plan import AlterEntity, CreateTopic, DeleteTopic, Existing, GrowTopic, Step, Topic
from broker.server.tls import make_tls

_METADATA: Final = 8
_CREATE_TOPICS: Final = 4
_CREATE_PARTITIONS: Final = 1
_DELETE_TOPICS: Final = 3
_DESCRIBE: Final = 2
_ALTER: Final = 1
_TOPIC, _BROKER = 2, 4
_AT_ONCE: Final = 50
_TIMEOUT_MS: Final = 20_000
_CONTROLLER_S: Final = 30.0
_PAUSE_S: Final = 0.5
_OWN_SOURCES: Final = frozenset({Source.DYNAMIC_TOPIC, Source.DYNAMIC_BROKER})

_Each = TypeVar("_Each")
Channels = Callable[[BrokerAddress], BrokerChannel]


class AdminError(Exception):
    """A request that failed: what, and why."""


class Admin:
    """The cluster, seen from one of its brokers. Owns the connections: use it as a context manager."""

    def __init__(self, first: BrokerAddress, channels: Channels) -> None:
        self._first = first
        self._make = channels
        self._channels: dict[tuple[str, int], BrokerChannel] = {}
        self._closing = ExitStack()

    @classmethod
    def of(cls, config: BrokerConfig) -> Admin:
        """By the broker with this configuration. Raises ConfigError for key stores that cannot be used."""
        name = config.inter_broker_listener_name
        own = next(each for each in config.advertised_listeners if each.listener_name == name)
        make = make_channel_maker(config, make_tls(config).between_brokers)
        return cls(
            BrokerAddress(config.broker_id, own.host, own.port), lambda at: make(at, "landline-topics")
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    # -- what there is

    def read(self, wanted: Wanted) -> Existing:
        """Raises AdminError, ChannelError or ProtocolError."""
        metadata = self._metadata(topics=True)
        topics = {row.name: _topic(row) for row in metadata.topics}
        listed = [topic.name for topic in wanted.topics if topic.name in topics and not topic.is_absent]
        for names in _batches(listed):
            for name, configs in self._configs(self._first, _TOPIC, names):
                found = {key: value or "" for key, value in configs.items()}
                topics[name] = _topic(_by_name(metadata, name), found)
        brokers: dict[str, Mapping[str, str | None]] = dict(self._configs(self._first, _BROKER, [CLUSTER]))
        for row in metadata.brokers:
            address = BrokerAddress(row.node_id, row.host, row.port)
            brokers |= dict(self._configs(address, _BROKER, [str(row.node_id)]))
        return Existing(topics, brokers)

    def _configs(
        self, address: BrokerAddress, kind: int, names: Iterable[str]
    ) -> Iterator[tuple[str, dict[str, str | None]]]:
        """The dynamic configs of these topics, of this broker, or of the whole cluster."""
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None} for name in names
        ]
        fields = {"resources": resources, "include_synonyms": False}
        for row in self._ask(address, ApiKey.DESCRIBE_CONFIGS, _DESCRIBE, fields).results:
            _check(row, f"the configs of {row.resource_name or 'all brokers'}")
            sources = {Source.DYNAMIC_DEFAULT_BROKER} if row.resource_name == CLUSTER else _OWN_SOURCES
            yield (
                row.resource_name,
                {each.name: each.value for each in row.configs if each.config_source in sources},
            )

    def _metadata(self, *, topics: bool) -> Any:
        fields: Fields = {
            "topics": None if topics else [],
            "allow_auto_topic_creation": False,
            "include_cluster_authorized_operations": False,
            "include_topic_authorized_operations": False,
        }
        return self._ask(self._first, ApiKey.METADATA, _METADATA, fields)

    # -- the steps

    def take(self, steps: Sequence[Step], *, validate_only: bool) -> None:
        """Takes the steps, or only has the brokers look whether they could. Raises AdminError for the first one that
        is refused, ChannelError or ProtocolError.
        """
        for names in _batches([step for step in steps if isinstance(step, CreateTopic)]):
            self._by_controller(
                ApiKey.CREATE_TOPICS,
                _CREATE_TOPICS,
                {"topics": [_created(step) for step in names], "validate_only": validate_only},
            )
        for grown in _batches([step for step in steps if isinstance(step, GrowTopic)]):
            rows = [{"name": step.name, "count": step.after, "assignments": None} for step in grown]
            self._by_controller(
                ApiKey.CREATE_PARTITIONS, _CREATE_PARTITIONS, {"topics": rows, "validate_only": validate_only}
            )
        for step in steps:
            if isinstance(step, AlterEntity):
                self._alter(step, validate_only=validate_only)
            elif isinstance(step, DeleteTopic) and not validate_only:
                self._by_controller(ApiKey.DELETE_TOPICS, _DELETE_TOPICS, {"topic_names": [step.topic.name]})

    def _alter(self, step: AlterEntity, *, validate_only: bool) -> None:
        configs = [
            {
                "name": key,
                "config_operation": Operation.DELETE if after is None else Operation.SET,
                "value": after,
            }
            for key, (_, after) in step.changes.items()
        ]
        kind = _TOPIC if step.kind == "topic" else _BROKER
        resource = {"resource_type": kind, "resource_name": step.name, "configs": configs}
        address = self._first
        if kind == _BROKER and step.name != CLUSTER:
            rows = [row for row in self._metadata(topics=False).brokers if str(row.node_id) == step.name]
            if not rows:
                raise AdminError(f"broker {step.name} has left the cluster: its configs stay as they are")
            address = BrokerAddress(rows[0].node_id, rows[0].host, rows[0].port)
        fields = {"resources": [resource], "validate_only": validate_only}
        for row in self._ask(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, _ALTER, fields).responses:
            _check(row, f"{step.kind} {step.name or 'defaults'}")

    def _by_controller(self, api_key: ApiKey, version: int, fields: Fields) -> None:
        """Has the controller do it, whichever broker that is by then."""
        deadline = time.monotonic() + _CONTROLLER_S
        while True:
            metadata = self._metadata(topics=False)
            rows = [row for row in metadata.brokers if row.node_id == metadata.controller_id]
            if rows:
                address = BrokerAddress(rows[0].node_id, rows[0].host, rows[0].port)
                answer = self._ask(address, api_key, version, {**fields, "timeout": _TIMEOUT_MS})
                results = _results(answer)
                if not any(int(row.error_code) == Errors.NOT_CONTROLLER for row in results):
                    for row in results:
                        _check(row, f"topic {row.name}")
                    return
            if time.monotonic() >= deadline:
                raise AdminError(f"the cluster has no controller since {_CONTROLLER_S:g} s")
            time.sleep(_PAUSE_S)

    def _ask(self, address: BrokerAddress, api_key: ApiKey, version: int, fields: Fields) -> Any:
        at = address.host, address.port
        if at not in self._channels:
            self._channels[at] = self._make(address)
            self._closing.callback(self._channels[at].close)
        return self._channels[at].request(api_key, version, fields)


FAILURES: Final = (AdminError, ChannelError, ProtocolError)


def _batches(items: Sequence[_Each]) -> Iterator[Sequence[_Each]]:
    """A request about thousands of topics would be refused."""
    return (items[at : at + _AT_ONCE] for at in range(0, len(items), _AT_ONCE))


def _topic(row: Any, configs: Mapping[str, str] | None = None) -> Topic:
    factors = frozenset(len(partition.replica_nodes) for partition in row.partitions)
    return Topic(row.name, len(row.partitions), factors, configs or {}, bool(row.is_internal))


def _by_name(metadata: Any, name: str) -> Any:
    return next(row for row in metadata.topics if row.name == name)


def _created(step: CreateTopic) -> Fields:
    topic = step.topic
    return {
        "name": topic.name,
        "num_partitions": topic.partitions or -1,
        "replication_factor": topic.replication_factor or -1,
        "assignments": [],
        "configs": [
            {"name": name, "value": value} for name, value in topic.configs.items() if value is not None
        ],
    }


def _results(answer: Any) -> Sequence[Any]:
    for name in ("topics", "results", "responses"):
        found: Sequence[Any] | None = getattr(answer, name, None)
        if found is not None:
            return found
    return ()


def _check(row: Any, whose: str) -> None:
    error = Errors(int(row.error_code))
    if error is not Errors.NONE:
        raise AdminError(f"{whose}: {getattr(row, 'error_message', None) or error.name}")
