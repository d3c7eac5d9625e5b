"""Looks at a cluster whose partitions move, and takes the steps, by the brokers' own requests.

`judge` says which steps, and `server.cluster_requests` reaches the brokers.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from broker.config.alter import Operation
from broker.config.describe import Source
from broker.controller.elections import ElectionType
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.protocol.fields import Fields
from broker.replication.broker_channel import ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.server.cluster_requests import (
    AdminError,
    ClusterRequests,
    address_of,
    batches,
    check,
    with_timeout,
)
from broker.server.moves.judge import Step, View
from broker.server.moves.layout import Ids, Layout, PlacedPartition
from broker.server.moves.throttles import (
    FOLLOWER_RATE,
    FOLLOWERS,
    LEADER_RATE,
    LEADERS,
    ThrottledPairs,
    Throttles,
)
from broker.utils.topic_partition import TopicPartition

_LIST: Final = 0
_ALTER: Final = 0
_ELECT: Final = 2
_LOG_DIRS: Final = 2
_DESCRIBE: Final = 2
_CONFIGS: Final = 1
_TOPIC, _BROKER = 2, 4
_CLUSTER: Final = ""
_SIZES_S: Final = 5.0
_UNCHANGED: Final = frozenset(
    {Errors.NONE, Errors.ELECTION_NOT_NEEDED, Errors.PREFERRED_LEADER_NOT_AVAILABLE}
)

Held = dict[tuple[TopicPartition, int], int]


class MoveAdmin:
    """A cluster whose partitions move. Remembers the replicas of the look before, and for a moment the sizes."""

    def __init__(self, brokers: ClusterRequests) -> None:
        self._brokers = brokers
        self._seen: dict[TopicPartition, Ids] = {}
        self._held: Held = {}
        self._held_at = -_SIZES_S

    # -- what there is

    def look(self) -> View:
        """Raises AdminError, ChannelError or ProtocolError."""
        moving = self._moving()
        metadata = self._brokers.metadata(topics=True)
        if time.monotonic() - self._held_at >= _SIZES_S:
            self._held = self._sizes(metadata.brokers)
            self._held_at = time.monotonic()
        largest: dict[TopicPartition, int] = {}
        for (partition, _), size in self._held.items():
            largest[partition] = max(size, largest.get(partition, 0))
        partitions: dict[TopicPartition, PlacedPartition] = {}
        for topic in metadata.topics:
            check(topic, f"topic {topic.name}")
            for row in topic.partitions:
                partition = TopicPartition(topic.name, int(row.partition_index))
                partitions[partition] = _partition(row, moving.get(partition), largest.get(partition, 0))
        racks = {int(row.node_id): row.rack for row in metadata.brokers}
        now = {partition: found.replicas for partition, found in partitions.items()}
        unsettled = {
            partition for partition, replicas in now.items() if self._seen.get(partition) != replicas
        }
        self._seen = now
        throttles = self._throttles(metadata)
        return View(Layout(racks, partitions), throttles, frozenset(unsettled), self._held)

    def _moving(self) -> dict[TopicPartition, tuple[Ids, Ids, Ids]]:
        """The replicas, the added and the removed ones of each partition that is being moved."""
        answer = self._brokers.ask_controller(
            ApiKey.LIST_PARTITION_REASSIGNMENTS, _LIST, with_timeout({"topics": None}), _own_error
        )
        check(answer, "the reassignments")
        return {
            TopicPartition(topic.name, int(row.partition_index)): (
                tuple(map(int, row.replicas)),
                tuple(map(int, row.adding_replicas)),
                tuple(map(int, row.removing_replicas)),
            )
            for topic in answer.topics
            for row in topic.partitions
        }

    def _sizes(self, brokers: Iterable[Any]) -> Held:
        found: Held = {}
        for broker in brokers:
            try:
                answer = self._brokers.ask(
                    address_of(broker), ApiKey.DESCRIBE_LOG_DIRS, _LOG_DIRS, {"topics": None}
                )
            except ChannelError:
                continue  # it dies now; other replicas are as large
            for log_dir in answer.results:
                for topic in log_dir.topics:
                    for row in topic.partitions:
                        partition = TopicPartition(topic.name, int(row.partition_index))
                        found[partition, int(broker.node_id)] = int(row.partition_size)
        return found

    def holds(self, broker_id: int) -> list[TopicPartition]:
        """The partitions of which this live broker has files. Raises AdminError if it does not run."""
        rows = [row for row in self._brokers.metadata(topics=False).brokers if row.node_id == broker_id]
        if not rows:
            raise AdminError(f"broker {broker_id} does not run")
        return sorted(partition for partition, _ in self._sizes(rows))

    def _throttles(self, metadata: Any) -> Throttles:
        lists: dict[str, ThrottledPairs] = {}
        for names in batches([topic.name for topic in metadata.topics]):
            for name, configs in self._configs(_TOPIC, names, (LEADERS, FOLLOWERS)).items():
                throttled = ThrottledPairs(_pairs(configs.get(LEADERS)), _pairs(configs.get(FOLLOWERS)))
                if throttled != ThrottledPairs():
                    lists[name] = throttled
        rates = self._configs(_BROKER, [_CLUSTER], (LEADER_RATE, FOLLOWER_RATE))[_CLUSTER]
        own = self._with_own_rates(metadata.brokers) if lists else frozenset()
        return Throttles(lists, _rate(rates.get(LEADER_RATE)), _rate(rates.get(FOLLOWER_RATE)), own)

    def _with_own_rates(self, brokers: Iterable[Any]) -> frozenset[int]:
        found: set[int] = set()
        for broker in brokers:
            with suppress(ChannelError):  # it dies now
                name, address = str(broker.node_id), address_of(broker)
                if self._configs(_BROKER, [name], (FOLLOWER_RATE,), address).get(name):
                    found.add(int(broker.node_id))
        return frozenset(found)

    def _configs(
        self, kind: int, names: Sequence[str], keys: Sequence[str], at: BrokerAddress | None = None
    ) -> dict[str, dict[str, str | None]]:
        """The values that these topics, the cluster, or the broker at this address have themselves."""
        resources = [
            {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)} for name in names
        ]
        fields = {"resources": resources, "include_synonyms": False}
        of_broker = Source.DYNAMIC_DEFAULT_BROKER if at is None else Source.DYNAMIC_BROKER
        own = Source.DYNAMIC_TOPIC if kind == _TOPIC else of_broker
        asked = ApiKey.DESCRIBE_CONFIGS, _DESCRIBE, fields
        answer = self._brokers.ask_any(*asked) if at is None else self._brokers.ask(at, *asked)
        found: dict[str, dict[str, str | None]] = {}
        for row in answer.results:
            if int(row.error_code) == Errors.UNKNOWN_TOPIC_OR_PARTITION:
                continue  # deleted since
            check(row, f"the configs of {row.resource_name or 'all brokers'}")
            found[row.resource_name] = {
                each.name: each.value for each in row.configs if each.config_source == own
            }
        return found

    # -- the steps

    def take(self, step: Step) -> list[str]:
        """Takes a step, its parts in the order that `judge` says. Returns what was refused for now, and why. Raises
        AdminError, ChannelError or ProtocolError.
        """
        refused = self._reassign(dict.fromkeys(step.cancelled)) if step.cancelled else []
        for topics in batches(sorted(step.lists.items())):
            self._alter(
                [
                    _alteration(
                        _TOPIC, name, {LEADERS: _text(each.leaders), FOLLOWERS: _text(each.followers)}
                    )
                    for name, each in topics
                ]
            )
        if step.rate is not None:
            value = str(step.rate) if step.rate else None
            self._alter([_alteration(_BROKER, _CLUSTER, {LEADER_RATE: value, FOLLOWER_RATE: value})])
        refused += self._reassign(step.moves) if step.moves else []
        if step.elected:
            self._elect(step.elected)
        return refused

    def _alter(self, resources: list[Fields]) -> None:
        fields = {"resources": resources, "validate_only": False}
        for row in self._brokers.ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, _CONFIGS, fields).responses:
            if int(row.error_code) != Errors.UNKNOWN_TOPIC_OR_PARTITION:
                check(row, f"the throttle of {row.resource_name or 'all brokers'}")

    def _reassign(self, wishes: Mapping[TopicPartition, Ids | None]) -> list[str]:
        rows = _by_topic(wishes, lambda each: {"partition_index": each.partition, "replicas": wishes[each]})
        fields = with_timeout({"topics": [{"name": name, "partitions": each} for name, each in rows.items()]})
        answer = self._brokers.ask_controller(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS, _ALTER, fields, _own_error
        )
        check(answer, "the moves")
        refused: list[str] = []
        for topic in answer.responses:
            for row in topic.partitions:
                name, error = f"{topic.name}-{row.partition_index}", Errors(int(row.error_code))
                if error is Errors.INVALID_REPLICA_ASSIGNMENT:  # a broker died since the look
                    refused.append(f"{name}: {row.error_message}")
                elif error not in _PASSING:
                    check(row, name)
        return refused

    def _elect(self, partitions: Iterable[TopicPartition]) -> None:
        rows = _by_topic(partitions, lambda each: each.partition)
        topics = [{"topic": name, "partitions": numbers} for name, numbers in rows.items()]
        fields = with_timeout({"election_type": ElectionType.PREFERRED, "topic_partitions": topics})
        answer = self._brokers.ask_controller(ApiKey.ELECT_LEADERS, _ELECT, fields, _own_error)
        check(answer, "the elections")
        for topic in answer.replica_election_results:
            for row in topic.partition_result:
                if Errors(int(row.error_code)) not in _UNCHANGED | _PASSING:
                    check(row, f"the leader of {topic.topic}-{row.partition_id}")


# What is over or deleted by now. The next look shows it.
_PASSING: Final = frozenset(
    {
        Errors.NONE,
        Errors.NO_REASSIGNMENT_IN_PROGRESS,
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.REQUEST_TIMED_OUT,
    }
)


def _partition(row: Any, move: tuple[Ids, Ids, Ids] | None, size: int) -> PlacedPartition:
    replicas, adding, removing = move or (tuple(map(int, row.replica_nodes)), (), ())
    kept = tuple(broker for broker in replicas if broker not in removing)
    return PlacedPartition(
        kept, int(row.leader_id), frozenset(map(int, row.isr_nodes)), size, adding, removing
    )


def _by_topic(partitions: Iterable[TopicPartition], row: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for partition in partitions:
        found.setdefault(partition.topic, []).append(row(partition))
    return found


def _own_error(answer: Any) -> Sequence[int]:
    return [int(answer.error_code)]


def _pairs(text: str | None) -> frozenset[str]:
    return frozenset(each for each in (text or "").split(",") if each)


def _text(pairs: Iterable[str]) -> str | None:
    return ",".join(sorted(pairs)) or None


def _rate(text: str | None) -> int | None:
    return None if text is None else int(text)


def _alteration(kind: int, name: str, values: Mapping[str, str | None]) -> Fields:
    configs = [
        {
            "name": key,
            "config_operation": Operation.DELETE if value is None else Operation.SET,
            "value": value,
        }
        for key, value in values.items()
    ]
    return {"resource_type": kind, "resource_name": name, "configs": configs}
