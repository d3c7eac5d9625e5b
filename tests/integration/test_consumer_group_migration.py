"""Groups that change their protocol while clients read: librdkafka and kafka-python in the classic protocol, librdkafka
in that of KIP-848.

Partitions are owned by one client at a time, by what the clients are told. Offsets are kept: what has been committed is
not read again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count
from threading import Event, Thread

import pytest
from confluent_kafka import Consumer, ConsumerGroupType, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import ConsumerRebalanceListener, KafkaConsumer

from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
PARTITIONS = 6
_numbers = count(1)


class Owners:
    """Which consumer owns each partition, by what the consumers were told. It notes partitions with two owners."""

    def __init__(self) -> None:
        self.of: dict[int, set[str]] = {number: set() for number in range(PARTITIONS)}
        self.twice: list[tuple[int, set[str]]] = []

    def gain(self, name: str, numbers: list[int]) -> None:
        for number in numbers:
            self.of[number].add(name)
            if len(self.of[number]) > 1:
                self.twice.append((number, set(self.of[number])))

    def lose(self, name: str, numbers: list[int]) -> None:
        for number in numbers:
            self.of[number].discard(name)

    def share(self, name: str) -> int:
        return sum(name in names for names in self.of.values())


class RdKafka:
    """A consumer of librdkafka, that commits what it has read before it gives a partition up."""

    def __init__(
        self, broker: LandlineStandalone, group: str, owners: Owners, name: str, **config: object
    ) -> None:
        self.name, self.owners = name, owners
        self.values: list[bytes] = []
        self._topic, self._next = group, dict[int, int]()
        cooperates = config.get("group_protocol") == "consumer" or "cooperative" in str(
            config.get("partition_assignment_strategy")
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": f"{HOST}:{broker.port}",
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **{key.replace("_", "."): value for key, value in config.items()},
            }
        )

        def assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            owners.gain(name, [one.partition for one in partitions])
            (consumer.incremental_assign if cooperates else consumer.assign)(partitions)

        def revoked(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._commit(consumer, [one.partition for one in partitions])
            owners.lose(name, [one.partition for one in partitions])
            if cooperates:
                consumer.incremental_unassign(partitions)
            else:
                consumer.unassign()

        self._consumer.subscribe([group], on_assign=assigned, on_revoke=revoked)

    def poll(self) -> None:
        message = self._consumer.poll(0.02)
        if message is not None:
            assert message.error() is None, message.error()
            self.values.append(message.value())
            self._next[message.partition()] = message.offset() + 1

    def _commit(self, consumer: Consumer, numbers: list[int]) -> None:
        read = [
            TopicPartition(self._topic, number, self._next.pop(number))
            for number in numbers
            if number in self._next
        ]
        if read:
            consumer.commit(offsets=read, asynchronous=False)

    def close(self) -> None:
        """Its partitions are revoked first."""
        self._consumer.close()


class Python(ConsumerRebalanceListener):
    """A consumer of kafka-python, in the classic protocol. It commits by itself before it joins again.

    It polls in a thread of its own, for longer than a rebalance takes: kafka-python 3.0.12 drops the assignment that
    comes while nothing polls (its task has ended, so ``need_rejoin`` is false), and waits without partitions for ever.
    """

    def __init__(self, broker: LandlineStandalone, group: str, owners: Owners, name: str) -> None:
        self.name, self.owners = name, owners
        self.values: list[bytes] = []
        self._consumer = KafkaConsumer(
            bootstrap_servers=f"{HOST}:{broker.port}",
            group_id=group,
            auto_offset_reset="earliest",
            heartbeat_interval_ms=300,
        )
        self._consumer.subscribe([group], listener=self)
        self._ends = Event()
        self._thread = Thread(target=self._run, name=name)
        self._thread.start()

    def on_partitions_assigned(self, assigned: set) -> None:
        self.owners.gain(self.name, [one.partition for one in assigned])

    def on_partitions_revoked(self, revoked: set) -> None:
        self.owners.lose(self.name, [one.partition for one in revoked])

    def poll(self) -> None:
        """Its thread does."""

    def _run(self) -> None:
        while not self._ends.is_set():
            for messages in self._consumer.poll(timeout_ms=1_000).values():
                self.values += [message.value for message in messages]

    def close(self) -> None:
        self._ends.set()
        self._thread.join()
        self._consumer.close()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.consumer.migration.policy": "bidirectional",
        "group.consumer.heartbeat.interval.ms": 300,
        "group.consumer.min.heartbeat.interval.ms": 300,
        "group.consumer.session.timeout.ms": 6_000,
        "group.consumer.min.session.timeout.ms": 6_000,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
    }
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        yield running
        assert "traceback=" not in running.log_text()


class World:
    """A topic, a group of that name, its consumers, and who owns what."""

    def __init__(self, broker: LandlineStandalone, closing: ExitStack) -> None:
        self.broker, self._closing = broker, closing
        self.group = f"migrated-{next(_numbers)}"
        self.owners = Owners()
        self.consumers: list[RdKafka | Python] = []
        self.values: list[bytes] = []
        self._sent = 0
        with RawClient(HOST, broker.port) as client:
            assert client.create_topic(self.group, PARTITIONS).error_code == Errors.NONE
        self.produce()

    def produce(self) -> None:
        producer = Producer({"bootstrap.servers": f"{HOST}:{self.broker.port}"})
        for _ in range(5 * PARTITIONS):
            producer.produce(self.group, b"%d" % self._sent, partition=self._sent % PARTITIONS)
            self._sent += 1
        producer.flush()

    def start(self, kind: type, name: str, **config: object) -> RdKafka | Python:
        consumer = kind(self.broker, self.group, self.owners, name, **config)
        self.consumers.append(consumer)
        return consumer

    def stop(self, consumer: RdKafka | Python) -> None:
        self.consumers.remove(consumer)
        consumer.close()
        self.values += consumer.values
        self.owners.lose(consumer.name, list(range(PARTITIONS)))

    def until(self, condition: Callable[[], bool], what: str) -> None:
        def reached() -> bool:
            for consumer in self.consumers:
                consumer.poll()
            return condition()

        wait_until(reached, what=what, timeout=60)

    def until_shared(self) -> None:
        share = PARTITIONS // len(self.consumers)
        self.until(
            lambda: all(self.owners.share(one.name) == share for one in self.consumers), "an even share"
        )

    def until_read(self) -> None:
        """Everything has been read, and nothing twice."""
        self.until(lambda: len(self.read()) >= self._sent, "everything that was produced")
        assert Counter(self.read()) == Counter(b"%d" % number for number in range(self._sent))

    def read(self) -> list[bytes]:
        return self.values + [value for one in self.consumers for value in one.values]

    def kind(self) -> ConsumerGroupType:
        admin = AdminClient({"bootstrap.servers": f"{HOST}:{self.broker.port}"})
        return {one.group_id: one.type for one in admin.list_consumer_groups().result().valid}[self.group]


@pytest.fixture
def world(broker: LandlineStandalone) -> Iterator[World]:
    with ExitStack() as closing:
        made = World(broker, closing)
        yield made
        for consumer in made.consumers:
            consumer.close()


CLASSIC = [
    pytest.param(RdKafka, {"heartbeat_interval_ms": 300}, id="eager"),
    pytest.param(
        RdKafka,
        {"heartbeat_interval_ms": 300, "partition_assignment_strategy": "cooperative-sticky"},
        id="cooperative",
    ),
    pytest.param(Python, {}, id="kafka-python"),
]


@pytest.mark.parametrize(("kind", "config"), CLASSIC)
def test_a_rolling_upgrade_and_the_way_back_read_everything_once(
    world: World, kind: type, config: dict[str, object]
) -> None:
    old = [world.start(kind, f"classic-{number}", **config) for number in range(2)]
    world.until_shared()
    world.until_read()
    assert world.kind() is ConsumerGroupType.CLASSIC
    for number, one in enumerate(old):
        world.stop(one)
        world.start(RdKafka, f"consumer-{number}", group_protocol="consumer")
        world.produce()
        world.until_shared()
        assert world.kind() is ConsumerGroupType.CONSUMER
        world.until_read()
    for number, one in enumerate(list(world.consumers)):
        world.stop(one)
        world.start(kind, f"again-{number}", **config)
        world.produce()
        world.until_shared()
        world.until_read()
    assert world.kind() is ConsumerGroupType.CLASSIC
    assert world.owners.twice == []


@pytest.mark.parametrize(("kind", "config"), CLASSIC)
def test_consumers_of_both_protocols_share_a_group(
    world: World, kind: type, config: dict[str, object]
) -> None:
    world.start(RdKafka, "consumer", group_protocol="consumer")
    world.until_shared()
    world.start(kind, "classic", **config)
    world.until_shared()
    world.until_read()
    late = world.start(RdKafka, "late", group_protocol="consumer")
    world.until_shared()
    world.produce()
    world.until_read()
    world.stop(late)
    world.until_shared()
    world.produce()
    world.until_read()
    assert world.kind() is ConsumerGroupType.CONSUMER
    assert world.owners.twice == []
