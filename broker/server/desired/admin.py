"""Reads a cluster's topics and dynamic configs, and changes them, by the brokers' own requests.

`plan` says what is to be done, and `server.cluster_requests` reaches the brokers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Self

from broker.config.alter import Operation
from broker.config.broker_config import BrokerConfig
from broker.config.describe import Source
from broker.protocol.api_keys import ApiKey
from broker.protocol.fields import Fields
from broker.replication.cluster_view import BrokerAddress
from broker.server.cluster_requests import (
    AdminError,
    ClusterRequests,
    address_of,
    batches,
    check,
    with_timeout,
)
from broker.server.desired.document import CLUSTER, Wanted
from broker.server.desired.plan import AlterEntity, CreateTopic, DeleteTopic, Existing, GrowTopic, Step, Topic

_CREATE_TOPICS: Final = 4
_CREATE_PARTITIONS: Final = 1
_DELETE_TOPICS: Final = 3
_DESCRIBE: Final = 2
_ALTER: Final = 1
_TOPIC, _BROKER = 2, 4
_OWN_SOURCES: Final = frozenset({Source.DYNAMIC_TOPIC, Source.DYNAMIC_BROKER})


class Admin:
    """The cluster, seen from one of its brokers. Owns the connections: use it as a context manager."""

    def __init__(self, brokers: ClusterRequests) -> None:
        self._brokers = brokers

    @classmethod
    def of(cls, config: BrokerConfig) -> Admin:
        """By the broker with this configuration. Raises ConfigError for key stores that cannot be used."""
        return cls(ClusterRequests.of(config, "landline-topics"))

    def __enter__(self) -> Self:
        self._brokers.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._brokers.__exit__()

    # -- what there is

    def read(self, wanted: Wanted) -> Existing:
        """Raises AdminError, ChannelError or ProtocolError."""
        metadata = self._brokers.metadata(topics=True)
        topics = {row.name: _topic(row) for row in metadata.topics}
        listed = [topic.name for topic in wanted.topics if topic.name in topics and not topic.is_absent]
        for names in batches(listed):
            for name, configs in self._configs(None, _TOPIC, names):
                found = {key: value or "" for key, value in configs.items()}
                topics[name] = _topic(_by_name(metadata, name), found)
        brokers: dict[str, Mapping[str, str | None]] = dict(self._configs(None, _BROKER, [CLUSTER]))
        for row in metadata.brokers:
            brokers |= dict(self._configs(address_of(row), _BROKER, [str(row.node_id)]))
        return Existing(topics, brokers)

    def _configs(
        self, address: BrokerAddress | None, kind: int, names: Iterable[str]
    ) -> Iterator[tuple[str, dict[str, str | None]]]:
        """The dynamic configs of these topics, of this broker, or of the whole cluster."""
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": None} for name in names
        ]
        fields = {"resources": resources, "include_synonyms": False}
        for row in self._brokers.ask(
            address or self._brokers.first, ApiKey.DESCRIBE_CONFIGS, _DESCRIBE, fields
        ).results:
            check(row, f"the configs of {row.resource_name or 'all brokers'}")
            sources = {Source.DYNAMIC_DEFAULT_BROKER} if row.resource_name == CLUSTER else _OWN_SOURCES
            yield (
                row.resource_name,
                {each.name: each.value for each in row.configs if each.config_source in sources},
            )

    # -- the steps

    def take(self, steps: Sequence[Step], *, validate_only: bool) -> None:
        """Takes the steps, or only has the brokers look whether they could. Raises AdminError for the first one that
        is refused, ChannelError or ProtocolError.
        """
        for names in batches([step for step in steps if isinstance(step, CreateTopic)]):
            self._by_controller(
                ApiKey.CREATE_TOPICS,
                _CREATE_TOPICS,
                {"topics": [_created(step) for step in names], "validate_only": validate_only},
            )
        for grown in batches([step for step in steps if isinstance(step, GrowTopic)]):
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
        address = self._brokers.first
        if kind == _BROKER and step.name != CLUSTER:
            rows = [
                row for row in self._brokers.metadata(topics=False).brokers if str(row.node_id) == step.name
            ]
            if not rows:
                raise AdminError(f"broker {step.name} has left the cluster: its configs stay as they are")
            address = address_of(rows[0])
        fields = {"resources": [resource], "validate_only": validate_only}
        for row in self._brokers.ask(address, ApiKey.INCREMENTAL_ALTER_CONFIGS, _ALTER, fields).responses:
            check(row, f"{step.kind} {step.name or 'defaults'}")

    def _by_controller(self, api_key: ApiKey, version: int, fields: Fields) -> None:
        answer = self._brokers.ask_controller(
            api_key,
            version,
            with_timeout(fields),
            lambda told: [int(row.error_code) for row in _results(told)],
        )
        for row in _results(answer):
            check(row, f"topic {row.name}")


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
