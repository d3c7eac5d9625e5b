"""Reads a cluster's state in ZooKeeper from outside: leaders, ISRs, registered brokers, and the controller.

The znodes are Kafka's, so this works for a cluster of Apache Kafka as well as for one of Landline. The fault
suite chooses its victims by this state and waits for it. What brokers report to clients is checked by the
history checker.
"""

from __future__ import annotations

import contextlib
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

ANSWER_TIMEOUT_S = 5.0
GROUP_TOPIC = "__consumer_offsets"
TRANSACTION_TOPIC = "__transaction_state"


class UnknownError(Exception):
    """ZooKeeper does not answer now, or does not have what was asked for."""


@dataclass(frozen=True, slots=True)
class PartitionView:
    """One partition according to its topic's znode and its own; ``leader`` -1 means none."""

    topic: str
    number: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]

    @property
    def in_sync(self) -> bool:
        """Whether it has a leader, and every replica is in its ISR."""
        return self.leader in self.isr and set(self.isr) >= set(self.replicas)

    def __str__(self) -> str:
        return f"{self.topic}-{self.number} leader {self.leader} isr {self.isr} of {self.replicas}"


class Coordination:
    """The suite's own ZooKeeper session. Every read raises ``UnknownError`` while there is no quorum."""

    def __init__(self, connect_string: str) -> None:
        retry = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5)
        self._client = KazooClient(connect_string, timeout=10.0, connection_retry=retry)

    def controller(self) -> int:
        """The active controller's broker id."""
        return int(self._json("/controller")["brokerid"])

    def forget_controller(self) -> None:
        """Deletes the controller's znode, so that the brokers elect a new controller."""
        with contextlib.suppress(UnknownError):
            self._call(self._client.delete_async("/controller"), "/controller")

    def registered(self) -> frozenset[int]:
        """The ids of the registered brokers."""
        children = self._call(self._client.get_children_async("/brokers/ids"), "/brokers/ids")
        return frozenset(int(name) for name in children)

    def registration_epochs(self) -> Mapping[int, int]:
        """By broker id, the transaction that registered it: another number means another registration."""
        return {each: self._stat(f"/brokers/ids/{each}").czxid for each in self.registered()}

    def partitions(self, topics: Iterable[str]) -> list[PartitionView]:
        """Every partition of these topics; one without a state yet counts as having no leader."""
        assigned = [(topic, self._json(f"/brokers/topics/{topic}")["partitions"]) for topic in topics]
        asked = [
            (topic, int(number), replicas, self._client.get_async(_state_path(topic, int(number))))
            for topic, partitions in assigned
            for number, replicas in partitions.items()
        ]
        return [
            _view(topic, number, replicas, self._state(topic, number, answer))
            for topic, number, replicas, answer in sorted(asked, key=lambda each: each[:2])
        ]

    def coordinator(self, group: str) -> int:
        """The leader of the partition that stores the group's offsets."""
        return self._leader_of(GROUP_TOPIC, group)

    def transaction_coordinator(self, transactional_id: str) -> int:
        """The leader of the partition that stores the state of the producer's transactions."""
        return self._leader_of(TRANSACTION_TOPIC, transactional_id)

    def _leader_of(self, topic: str, key: str) -> int:
        partitions = self.partitions([topic])
        return partitions[_java_hash(key) % len(partitions)].leader

    def exists(self, path: str) -> bool:
        """Whether the znode exists."""
        return self._call(self._client.exists_async(path), path) is not None

    def topics(self) -> frozenset[str]:
        """Names of all topics, including those that are being deleted."""
        return frozenset(self._call(self._client.get_children_async("/brokers/topics"), "/brokers/topics"))

    def _state(self, topic: str, number: int, answer: Any) -> Mapping[str, Any]:
        path = _state_path(topic, number)
        try:
            data, _ = answer.get(timeout=ANSWER_TIMEOUT_S)
        except NoNodeError:
            return {"leader": -1, "isr": []}
        except (KazooException, KazooTimeoutError) as error:
            raise UnknownError(f"{path}: {error!r}") from error
        found: Mapping[str, Any] = json.loads(data)
        return found

    def _json(self, path: str) -> Mapping[str, Any]:
        data, _ = self._call(self._client.get_async(path), path)
        found: Mapping[str, Any] = json.loads(data)
        return found

    def _stat(self, path: str) -> Any:
        return self._call(self._client.get_async(path), path)[1]

    def _call(self, answer: Any, path: str) -> Any:
        try:
            return answer.get(timeout=ANSWER_TIMEOUT_S)
        except (KazooException, KazooTimeoutError) as error:
            raise UnknownError(f"{path}: {error!r}") from error

    def __enter__(self) -> Self:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "No chroot path exists")  # The first broker creates it.
            self._client.start(timeout=60)
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()


def _view(topic: str, number: int, replicas: Iterable[int], state: Mapping[str, Any]) -> PartitionView:
    return PartitionView(topic, number, int(state["leader"]), tuple(replicas), tuple(state["isr"]))


def _state_path(topic: str, number: int) -> str:
    return f"/brokers/topics/{topic}/partitions/{number}/state"


def _java_hash(text: str) -> int:
    """Kafka's hash of a group id: the absolute value of ``String.hashCode``."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return abs(value - (1 << 32) if value >= 1 << 31 else value)
