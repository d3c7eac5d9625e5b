"""A controller's term without threads: events run when the test says so, brokers answer at once, the store
may fail.

For tests that replace the controller at any step: terms come and go, the store and the brokers' state stay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from broker.config.endpoint import Endpoint
from broker.controller.isr_changes import alter_partitions
from broker.controller.settings import ControllerSettings
from broker.controller.term import Term
from broker.protocol import codec
from broker.protocol.alter_partition_messages import AlterPartitionRequest
from broker.protocol.api_keys import ApiKey
from broker.protocol.one_body import OneBody
from broker.replication.cluster_view import BrokerAddress
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import claim_controller
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import NoNodeError, Op, OpResult, SessionExpiredError, StoreError
from broker.zookeeper.znodes import CONTROLLER, BrokerRegistration, LeaderAndIsr, LiveBroker, TopicAssignment
from tests.support.fake_brokers import FakeBrokers

SETTINGS = ControllerSettings(0, "PLAINTEXT")


class MortalStore:
    """A Store whose session ends at the ``deadly``-th guarded write, before or after it was done."""

    def __init__(self, store: EmbeddedStore, deadly: int | None, *, after: bool) -> None:
        self._store = store
        self._deadly = deadly
        self._after = after
        self.writes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def multi_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        if not batches:
            return []
        self.writes += 1
        if self.writes == self._deadly and not self._after:
            raise SessionExpiredError("the controller died before the write")
        results = self._store.multi_many(batches)
        if self.writes == self._deadly:
            raise SessionExpiredError("the controller died after the write")
        return results


class Events:
    """A queue with EventQueue's interface; delayed events are due when the test says so."""

    def __init__(self) -> None:
        self._events: deque[tuple[Hashable, Callable[[], None]]] = deque()
        self._later: list[tuple[Hashable, Callable[[], None]]] = []

    def __len__(self) -> int:
        return len(self._events)

    def put(self, key: Hashable, action: Callable[[], None], *, coalesce: bool = False) -> bool:
        if not (coalesce and any(known == key for known, _ in self._events)):
            self._events.append((key, action))
        return True

    def put_later(self, delay_ms: int, key: Hashable, action: Callable[[], None]) -> None:
        self._later.append((key, action))

    def run(self) -> None:
        while self._events:
            self.run_one(*self._events.popleft())

    def run_one(self, key: Hashable, action: Callable[[], None]) -> None:
        action()

    def run_later(self, key: Hashable) -> None:
        """Runs the waiting delayed events of one kind, and those that follow."""
        due = [action for known, action in self._later if known == key]
        self._later = [row for row in self._later if row[0] != key]
        for action in due:
            action()
        self.run()


class Channels:
    """A manager with ChannelManager's interface; a request is answered before ``send`` returns."""

    def __init__(self, brokers: FakeBrokers) -> None:
        self._brokers = brokers
        self._epochs: dict[int, int] = {}

    def add(self, live: LiveBroker) -> None:
        self._epochs[live.broker_id] = live.epoch

    def remove(self, broker_id: int) -> None:
        self._epochs.pop(broker_id, None)

    def send(
        self,
        broker_id: int,
        api: ApiKey,
        version: int,
        fields: OneBody,
        on_response: Callable[[Any], None],
    ) -> None:
        if broker_id in self._epochs:
            channel = self._brokers.make_channel(BrokerAddress(broker_id, "h", 1), "controller")
            on_response(channel.request(api, version, fields.to(self._epochs[broker_id])))

    def shutdown(self) -> None:
        self._epochs.clear()


class TermWorld:
    """The brokers by id with their racks, a store that all terms share, and the current term."""

    def __init__(
        self,
        racks: Mapping[int, str | None],
        brokers: FakeBrokers | None = None,
        settings: ControllerSettings = SETTINGS,
    ) -> None:
        self.brokers = brokers or FakeBrokers()
        self.settings = settings
        self.store = EmbeddedStore()
        self.store.connect()
        self.cluster = ClusterStore(self.store)
        self.cluster.create_top_level_paths()
        self.events = Events()
        self.mortal: MortalStore | None = None
        self.term: Term | None = None
        for broker_id, rack in racks.items():
            self.join(broker_id, rack)

    def join(self, broker_id: int, rack: str | None = None, first_epoch: int | None = None) -> int:
        """Registers a broker; returns its broker epoch. ``first_epoch``: the same process has
        registered before.
        """
        endpoint = Endpoint("h", 9000 + broker_id, "PLAINTEXT")
        registration = BrokerRegistration(broker_id, (endpoint,), rack, 1, first_epoch=first_epoch)
        epoch = self.cluster.register_broker(registration)
        self.run()
        return epoch

    def leave(self, broker_id: int) -> None:
        self.cluster.unregister_broker(broker_id)
        self.run()

    def run(self) -> None:
        if self.term is not None:
            self.events.run()

    def elect(self, deadly: int | None = None, *, after: bool = False) -> Term:
        """A new controller replaces the current one; its session may be one that will
        end (``MortalStore``).
        """
        self.depose()
        self.mortal = MortalStore(self.store, deadly, after=after)
        mortal_cluster = ClusterStore(self.mortal)
        store = claim_controller(mortal_cluster, min(self.cluster.brokers()))
        self.events = Events()
        settings = replace(self.settings, broker_id=min(self.cluster.brokers()))
        self.term = Term(
            settings,
            mortal_cluster,
            store,
            Channels(self.brokers),
            events=self.events,
            on_elected=lambda _clean: None,
        )
        self.term.begin()
        self.events.run()
        return self.term

    def depose(self) -> None:
        if self.term is not None:
            self.term.end()
            self.term = None
        try:
            self.store.delete(CONTROLLER)
        except NoNodeError:
            return

    def create(self, topic: str, partitions: Mapping[int, tuple[int, ...]], **config: str) -> None:
        self.cluster.create_topic(topic, partitions, config)
        self.run()

    def state(self, partition: TopicPartition) -> LeaderAndIsr:
        return self.cluster.partition_states([partition])[partition]

    def assignment(self, topic: str) -> TopicAssignment:
        found = self.cluster.topic_assignment(topic)
        assert found is not None
        return found

    def ask_to_move(self, wishes: Mapping[TopicPartition, Sequence[int] | None]) -> dict[TopicPartition, Any]:
        """Sends AlterPartitionReassignments in its wire format; returns the error code of each partition."""
        assert self.term is not None
        topics = [
            {"name": tp.topic, "partitions": [{"partition_index": tp.partition, "replicas": replicas}]}
            for tp, replicas in wishes.items()
        ]
        key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
        request = codec.encode(key, 0, "request", {"topics": topics, "timeout": 1000})
        fields = self.term.reassignment_requests.alter(codec.decode(key, 0, "request", request))
        response = codec.decode(key, 0, "response", codec.encode(key, 0, "response", fields))
        self.run()
        return {
            TopicPartition(topic.name, row.partition_index): row.error_code
            for topic in response.responses
            for row in topic.partitions
        }

    def moving(self) -> dict[TopicPartition, tuple[tuple[int, ...], ...]]:
        """Sends ListPartitionReassignments in its wire format; returns replicas, adding and removing
        of each.
        """
        assert self.term is not None
        key = ApiKey.LIST_PARTITION_REASSIGNMENTS
        request = codec.encode(key, 0, "request", {"topics": None, "timeout": 1000})
        fields = self.term.reassignment_requests.list(codec.decode(key, 0, "request", request))
        response = codec.decode(key, 0, "response", codec.encode(key, 0, "response", fields))
        return {
            TopicPartition(topic.name, row.partition_index): (
                row.replicas,
                row.adding_replicas,
                row.removing_replicas,
            )
            for topic in response.topics
            for row in topic.partitions
        }

    def alter_isr(self, partition: TopicPartition, isr: Sequence[int], *, run: bool = True) -> int:
        """Sends the leader's AlterPartition v3; returns the partition's error code. ``run`` also runs
        what follows.
        """
        assert self.term is not None
        state = self.state(partition)
        row = {
            "partition_index": partition.partition,
            "leader_epoch": state.leader_epoch,
            "partition_epoch": state.partition_epoch,
            "new_isr_with_epochs": [{"broker_id": member, "broker_epoch": -1} for member in isr],
        }
        topic = {"topic_id": self.assignment(partition.topic).topic_id, "partitions": [row]}
        live = self.cluster.broker(state.leader)
        fields = {"broker_id": state.leader, "broker_epoch": live.epoch if live else -1, "topics": [topic]}
        request = codec.encode(ApiKey.ALTER_PARTITION, 3, "request", fields)
        message = codec.decode(ApiKey.ALTER_PARTITION, 3, "request", request)
        answer = alter_partitions(self.term, AlterPartitionRequest.of(message))
        if run:
            self.run()
        return int(answer.topics[0].partitions[0].error)

    def grow_isrs(self) -> None:
        """Adds every live replica of every partition to its ISR, as its leader would."""
        assert self.term is not None
        for partition in list(self.term.context.partitions()):
            state = self.state(partition)
            live = self.term.context.online_replicas(partition)
            if state.leader >= 0 and not set(live) <= set(state.isr):
                self.alter_isr(partition, [*state.isr, *(b for b in live if b not in state.isr)])
