"""Controllers over one store, with brokers that only record and answer: the environment of the
controller's tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from broker.config.broker_config import BrokerConfig
from broker.config.endpoint import Endpoint
from broker.controller.controller import KafkaController
from broker.controller.settings import ControllerSettings
from broker.metrics.registry import Metrics
from broker.protocol import codec
from broker.protocol.alter_partition_messages import AlterPartitionRequest
from broker.protocol.api_keys import ApiKey
from broker.utils.clock import SYSTEM_CLOCK
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import Store
from broker.zookeeper.znodes import BrokerRegistration, LeaderAndIsr
from rig.wait import wait_until
from tests.support.fake_brokers import FakeBrokers

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SETTINGS = ControllerSettings(0, "PLAINTEXT", rejoin_delay_ms=50, first_imbalance_check_ms=3_600_000)


def registration(broker_id: int) -> BrokerRegistration:
    return BrokerRegistration(
        broker_id, (Endpoint("h", 9000 + broker_id, "PLAINTEXT"),), f"rack{broker_id}", 1
    )


class Node:
    """One broker's own session, registration and controller."""

    def __init__(self, store, broker_id: int, brokers: FakeBrokers, settings: ControllerSettings) -> None:
        self.broker_id = broker_id
        self.store = store
        self.cluster = ClusterStore(store)
        self.metrics = Metrics()
        self.active: list[bool] = []
        config = BrokerConfig.from_properties({"broker.id": str(broker_id), "zookeeper.connect": "unused"})
        self.controller = KafkaController(
            config,
            broker_id,
            self.cluster,
            brokers.make_channel,
            clock=SYSTEM_CLOCK,
            on_state=self.active.append,
            metrics=self.metrics,
            settings=settings,
        )
        self.epoch = -1

    def start(self) -> Node:
        self.cluster.create_top_level_paths()
        self.controller.startup()
        self.register()
        return self

    def register(self) -> None:
        self.epoch = self.cluster.register_broker(registration(self.broker_id))
        self.controller.broker_epoch = self.epoch

    def stop(self) -> None:
        self.controller.shutdown()
        self.store.close()

    def gauge(self, name: str) -> float:
        found = [m for m in self.metrics.registered() if m.name == f"kafka_controller_kafkacontroller_{name}"]
        return found[0].instrument.function()


class World:
    """The nodes of one test, and another session that observes and acts as the other brokers."""

    def __init__(self, make_store, settings: ControllerSettings = SETTINGS) -> None:
        self.make_store = make_store
        self.settings = settings
        self.brokers = FakeBrokers()
        self.observer = ClusterStore(make_store())
        self.nodes: list[Node] = []

    def node(self, broker_id: int) -> Node:
        store = self.make_store()
        node = Node(store, broker_id, self.brokers, replace(self.settings, broker_id=broker_id))
        self.nodes.append(node)
        return node.start()

    def join(self, *broker_ids: int) -> None:
        """Registers brokers that have no controller."""
        for broker_id in broker_ids:
            self.observer.register_broker(registration(broker_id))

    def leave(self, *broker_ids: int) -> None:
        for broker_id in broker_ids:
            self.observer.unregister_broker(broker_id)

    def create(
        self, topic: str, partitions: dict[int, tuple[int, ...]], config: dict[str, str] | None = None
    ) -> None:
        self.observer.create_topic(topic, partitions, config or {})

    def state(self, tp: TopicPartition) -> LeaderAndIsr | None:
        return self.observer.partition_states([tp]).get(tp)

    def wait_leader(self, tp: TopicPartition, leader: int) -> LeaderAndIsr:
        return wait_until(
            lambda: (state := self.state(tp)) is not None and state.leader == leader and state,
            30,
            what=lambda: f"leader {leader} of {tp} (now {self.state(tp)})",
        )

    def close(self) -> None:
        for node in self.nodes:
            node.stop()
        self.observer.store.close()


def active(node: Node) -> Node:
    wait_until(lambda: node.active[-1:] == [True], 30)
    return node


def ask(call, *args):
    """Calls the controller and waits for its answer."""
    answered = threading.Event()
    answers = []

    def callback(fields):
        answers.append(fields)
        answered.set()

    call(*args, callback)
    assert answered.wait(30)
    return answers[0]


def alter(node, tp, state, isr, *, version=3, broker_epoch=None, **changes):
    """Requests a change of the ISR in the wire format of the version."""
    values = {
        "partition_index": tp.partition,
        "leader_epoch": state.leader_epoch,
        "partition_epoch": state.partition_epoch,
        "new_isr": list(isr),
        "new_isr_with_epochs": [{"broker_id": member, "broker_epoch": -1} for member in isr],
        **changes,
    }
    topic = {
        "topic_name": tp.topic,
        "topic_id": node.cluster.topic_assignment(tp.topic).topic_id,
        "partitions": [values],
    }
    broker_id = state.leader
    epoch = node.cluster.broker(broker_id).epoch if broker_epoch is None else broker_epoch
    fields = {"broker_id": broker_id, "broker_epoch": epoch, "topics": [topic]}
    wire = codec.encode(ApiKey.ALTER_PARTITION, version, "request", fields)
    message = codec.decode(ApiKey.ALTER_PARTITION, version, "request", wire)
    answer = ask(node.controller.alter_partition, AlterPartitionRequest.of(message))
    response = codec.encode(ApiKey.ALTER_PARTITION, version, "response", answer.fields())
    return codec.decode(ApiKey.ALTER_PARTITION, version, "response", response)


@contextmanager
def zookeeper_world(connect: str) -> Iterator[World]:
    """Each node has its own ZooKeeper session, as brokers have; ``connect`` names an empty chroot."""

    def make_store() -> Store:
        store = ZooKeeperStore(connect, 6000)
        store.connect(60_000, threading.Event())
        return store

    yield from _world(make_store)


@contextmanager
def embedded_world(path: Path) -> Iterator[World]:
    """All in one session, as in the standalone broker; ``path`` is the store's file."""
    shared = EmbeddedStore(path)
    shared.connect(0, threading.Event())
    yield from _world(lambda: shared)


def _world(make_store: Callable[[], Store]) -> Iterator[World]:
    world = World(make_store)
    world.observer.create_top_level_paths()
    try:
        yield world
    finally:
        world.close()
