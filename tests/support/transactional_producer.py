"""A transactional producer by raw requests: everything but the records."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from rig.brokers import HOST, Cluster
from rig.raw_client import RawClient
from rig.wait import wait_until

TOPIC = "t"
UNKNOWN = "unknown"
RETRIED = {Errors.COORDINATOR_NOT_AVAILABLE, Errors.COORDINATOR_LOAD_IN_PROGRESS, Errors.NOT_COORDINATOR}


class Producer:
    """A transactional producer that asks with the newest versions of clients."""

    def __init__(self, client: RawClient, name: str, timeout_ms: int = 60_000) -> None:
        self.client = client
        self.name = name
        self.timeout_ms = timeout_ms
        self.producer_id, self.epoch = -1, -1
        self.coordinator = -1
        self.topic = TOPIC

    @property
    def identity(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    def init(self) -> Errors:
        fields = {"transactional_id": self.name, "transaction_timeout": self.timeout_ms}
        answer = self.client.ask(ApiKey.INIT_PRODUCER_ID, 5, fields)
        if answer.error_code == Errors.NONE:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return Errors(answer.error_code)

    def begin(self) -> None:
        """Asks until it has its first epoch: the topic may have to be created, and its log to be loaded."""
        wait_until(lambda: self.find() == Errors.NONE, what="a coordinator")
        wait_until(lambda: self.until(self.init) is Errors.NONE, what="an epoch")

    def find(self) -> Errors:
        """The error of FindCoordinator. Without one, ``coordinator`` is the broker that it named."""
        asked = {"key_type": 1, "coordinator_keys": [self.name]}
        (found,) = self.client.ask(ApiKey.FIND_COORDINATOR, 6, asked).coordinators
        self.coordinator = found.node_id
        return Errors(found.error_code)

    def until(self, ask: Callable[[], Errors]) -> Errors:
        """The first answer that says more than to ask again."""
        found: list[Errors] = []

        def answered() -> bool:
            found[:] = [ask()]
            return found[0] not in RETRIED

        wait_until(answered, what=lambda: f"an answer, not {found[0].name}")
        return found[0]

    def add(self, *partitions: int) -> list[int]:
        identity = {f"v3_and_below_{name}": value for name, value in self.identity.items()}
        topics = [{"name": self.topic, "partitions": partitions or (0,)}]
        answer = self.client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, {**identity, "v3_and_below_topics": topics})
        return _errors(answer.results_by_topic_v3_and_below)

    def add_offsets(self, group: str) -> int:
        fields = {**self.identity, "group_id": group}
        return int(self.client.ask(ApiKey.ADD_OFFSETS_TO_TXN, 4, fields).error_code)

    def end(self, *, commit: bool = True) -> int:
        fields = {**self.identity, "committed": commit}
        return int(self.client.ask(ApiKey.END_TXN, 4, fields).error_code)

    def verify(self, *partitions: int) -> list[int]:
        topics = [{"name": self.topic, "partitions": partitions}]
        transaction = {**self.identity, "verify_only": True, "topics": topics}
        answer = self.client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, {"transactions": [transaction]})
        (row,) = answer.results_by_transaction
        return _errors(row.topic_results)

    def state(self) -> str:
        """By ListTransactions: the codec of these tests has no word for a transaction that has not begun."""
        asked = {"state_filters": [], "producer_id_filters": [self.producer_id]}
        answer = self.client.ask(ApiKey.LIST_TRANSACTIONS, 0, asked)
        assert answer.error_code == Errors.NONE, "not loaded yet"
        states = {row.transactional_id: row.transaction_state for row in answer.transaction_states}
        return states.get(self.name, UNKNOWN)

    def await_state(self, state: str) -> None:
        wait_until(lambda: self.state() == state, what=lambda: f"{self.name} is {self.state()}, not {state}")


def _errors(topics: Any) -> list[int]:
    """Those of the only topic's partitions, by number: Kafka answers in any order."""
    rows = sorted(topics[0].results_by_partition, key=lambda row: row.partition_index)
    return [row.partition_error_code for row in rows]


class Roaming:
    """A producer that finds its coordinator again when that has moved."""

    def __init__(self, cluster: Cluster, name: str, topic: str = TOPIC) -> None:
        self._cluster = cluster
        self._connections = ExitStack()
        self.producer = Producer(self._connect(min(cluster.brokers)), name)
        self.producer.topic = topic

    def _connect(self, broker_id: int) -> RawClient:
        return self._connections.enter_context(RawClient(HOST, self._cluster.brokers[broker_id].port))

    def go(self, by: int) -> int:
        """To the coordinator, by asking this broker; returns the coordinator."""
        self.producer.client = self._connect(by)
        wait_until(lambda: self.producer.find() is Errors.NONE, timeout=60, what="a coordinator")
        self.producer.client = self._connect(self.producer.coordinator)
        return self.producer.coordinator

    def close(self) -> None:
        self._connections.close()
