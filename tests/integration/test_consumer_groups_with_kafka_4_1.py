"""Consumer groups (KIP-848) and Kafka 4.1's own code: its Java consumer, its admin client, and its group coordinator's
reading of our records in ``__consumer_offsets``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from broker.protocol.errors import Errors
from broker.record.batch import Record, read_records
from rig.brokers import HOST
from rig.kafka_dist import KRAFT_VERSION, KafkaDistUnavailableError
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.support.kafka_jvm import KafkaJvm, kafka_jvm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]
PARTITIONS = 4
TOPIC = "read-by-java"
WAIT_S = 60


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {
        "group.coordinator.rebalance.protocols": "classic,consumer",
        "group.consumer.migration.policy": "bidirectional",
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.min.heartbeat.interval.ms": 500,
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 1,
    }
    with LandlineStandalone(tmp_path_factory.mktemp("standalone") / "data", config) as running:
        with RawClient(HOST, running.port) as client:
            assert client.create_topic(TOPIC, PARTITIONS).error_code == Errors.NONE
        producer = Producer({"bootstrap.servers": running.bootstrap})
        for number in range(10 * PARTITIONS):
            producer.produce(TOPIC, str(number).encode(), partition=number % PARTITIONS)
        assert producer.flush(WAIT_S) == 0
        yield running
        assert "traceback=" not in running.log_text()


@pytest.fixture(scope="module")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaJvm]:
    try:
        with kafka_jvm(tmp_path_factory.mktemp("jvm") / "log", KRAFT_VERSION) as running:
            yield running
    except KafkaDistUnavailableError as error:
        pytest.skip(str(error))


class Java:
    """Kafka 4.1's consumer with ``group.protocol=consumer``."""

    def __init__(self, broker: LandlineStandalone, jvm: KafkaJvm, group: str, **more: object) -> None:
        self._jvm = jvm
        kafka = jvm.java.org.apache.kafka
        text = kafka.common.serialization.StringDeserializer
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": group,
            "group.protocol": "consumer",
            "auto.offset.reset": "earliest",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        self.consumer = kafka.clients.consumer.KafkaConsumer(jvm.properties(settings), text(), text())
        self.values: list[str] = []

    def subscribe(self, topic: str) -> None:
        self.consumer.subscribe(self._jvm.java.java.util.Collections.singletonList(topic))

    def subscribe_by_expression(self, regex: str) -> None:
        clients = self._jvm.java.org.apache.kafka.clients
        self.consumer.subscribe(clients.consumer.SubscriptionPattern(regex))

    def poll(self) -> None:
        records = self.consumer.poll(self._jvm.java.java.time.Duration.ofMillis(50))
        found = records.iterator()
        while found.hasNext():
            self.values.append(found.next().value())

    def assigned(self) -> set[int]:
        return {one.partition() for one in self.consumer.assignment()}


def records_of(broker: LandlineStandalone) -> list[Record]:
    """The records in the log of ``__consumer_offsets``."""
    (log,) = broker.log_dir.rglob("__consumer_offsets-0/*.log")
    return [record for record in read_records(log.read_bytes()) if record.key is not None]


def test_java_consumers_share_read_commit_and_are_described_with_a_classic_member(
    broker: LandlineStandalone, jvm: KafkaJvm
) -> None:
    group = "java"
    one, two = Java(broker, jvm, group), Java(broker, jvm, group, group_instance_id="two")
    classic = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": group})
    try:
        one.subscribe(TOPIC)
        two.subscribe_by_expression(f"{TOPIC[:4]}.*")

        def shared() -> bool:
            one.poll()
            two.poll()
            return len(one.assigned()) == len(two.assigned()) == PARTITIONS // 2 and done()

        def done() -> bool:
            return len(one.values) + len(two.values) >= 10 * PARTITIONS

        wait_until(shared, WAIT_S, what="an even share, and all records")
        assert not one.assigned() & two.assigned()
        assert set(one.values) | set(two.values) == {str(number) for number in range(10 * PARTITIONS)}
        one.consumer.commitSync()
        two.consumer.commitSync()
        classic.subscribe([TOPIC])

        def joined() -> bool:
            one.poll()
            two.poll()
            classic.poll(0.05)
            return len(classic.assignment()) == 1

        wait_until(joined, WAIT_S, what="the classic member's share")
        assert types_of(broker, jvm, group) == Counter({True: 2, False: 1})
        assert committed(broker, jvm, group) == dict.fromkeys(range(PARTITIONS), 10)
    finally:
        classic.close()
        one.consumer.close()
        two.consumer.close()
    check_records(broker, jvm)


def types_of(broker: LandlineStandalone, jvm: KafkaJvm, group: str) -> Counter[bool]:
    """How many members Kafka's admin client shows as upgraded to the consumer protocol, and how many as not."""
    admin = admin_of(broker, jvm)
    try:
        groups = jvm.java.java.util.Collections.singletonList(group)
        described = admin.describeConsumerGroups(groups).all().get().get(group)
        return Counter(member.upgraded().get() for member in described.members())
    finally:
        admin.close()


def committed(broker: LandlineStandalone, jvm: KafkaJvm, group: str) -> dict[int, int]:
    admin = admin_of(broker, jvm)
    try:
        offsets = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get()
        return {at.partition(): offset.offset() for at, offset in offsets.items()}
    finally:
        admin.close()


def admin_of(broker: LandlineStandalone, jvm: KafkaJvm) -> Any:
    clients = jvm.java.org.apache.kafka.clients
    return clients.admin.Admin.create(jvm.properties({"bootstrap.servers": broker.bootstrap}))


def check_records(broker: LandlineStandalone, jvm: KafkaJvm) -> None:
    """Kafka's coordinator reads all records, would write the same bytes, and takes members for what they are."""
    coordinator = jvm.java.org.apache.kafka.coordinator.group
    wrap = jvm.java.java.nio.ByteBuffer.wrap
    serde = coordinator.GroupCoordinatorRecordSerde()
    read: Counter[str] = Counter()
    classic: dict[str, bool] = {}
    for record in records_of(broker):
        assert record.key is not None
        value = record.value
        found = serde.deserialize(wrap(record.key), None if value is None else wrap(value))
        assert bytes(serde.serializeKey(found)) == record.key
        read[kind := found.key().getClass().getSimpleName()] += 1
        if value is None:
            continue
        assert bytes(serde.serializeValue(found)) == value, kind
        if kind == "ConsumerGroupMemberMetadataKey":
            member_id = found.key().memberId()
            assert found.value().message().subscribedTopicRegex() is not None, "Kafka writes an empty text"
            builder = getattr(coordinator.modern.consumer, "ConsumerGroupMember$Builder")(member_id)
            member = builder.updateWith(found.value().message()).build()
            classic[member_id] = member.useClassicProtocol()
    assert Counter(classic.values()) == Counter({False: 2, True: 1}), classic
    assert read.keys() >= {
        "ConsumerGroupMetadataKey",
        "ConsumerGroupPartitionMetadataKey",
        "ConsumerGroupMemberMetadataKey",
        "ConsumerGroupTargetAssignmentMetadataKey",
        "ConsumerGroupTargetAssignmentMemberKey",
        "ConsumerGroupCurrentMemberAssignmentKey",
        "ConsumerGroupRegularExpressionKey",
        "OffsetCommitKey",
    }
