"""Real consumer groups: two members share a topic, the coordinator dies, and what was committed stays committed."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from kafka import KafkaConsumer

from rig.landline_broker import LandlineStandalone
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import Peer, PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]
TOPIC = "orders"
RECORDS = 300
GROUP = "readers"


def fill(bootstrap: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for made in admin.create_topics([NewTopic(TOPIC, 4, replicas)]).values():
        made.result(60)
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(TOPIC, str(number).encode())
    assert producer.flush(60) == 0


def member(bootstrap: str) -> Consumer:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6_000,
        }
    )
    consumer.subscribe([TOPIC])
    return consumer


def committed(bootstrap: str) -> int:
    """By a consumer that joins nothing; admin clients that come and go by the dozen crash librdkafka 2.16."""
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        found = reader.committed([TopicPartition(TOPIC, partition) for partition in range(4)], timeout=10)
        return sum(max(partition.offset, 0) for partition in found)
    finally:
        reader.close()


def share_and_commit(bootstrap: str) -> None:
    """Two members read everything; each commits the ends of what it has at last."""
    members = [member(bootstrap), member(bootstrap)]
    ends: dict[int, int] = {}

    def all_is_read_and_shared() -> bool:
        for one in members:
            # All that is there: one record at a time would wait once for each record that the other has.
            for message in one.consume(RECORDS, 0.1):
                if message.error() is None:
                    ends[message.partition()] = max(ends.get(message.partition(), 0), message.offset() + 1)
        return sum(ends.values()) == RECORDS and all(len(one.assignment()) == 2 for one in members)

    wait_until(all_is_read_and_shared, 120, interval=0)
    for one in members:
        mine = [TopicPartition(TOPIC, own.partition, ends.get(own.partition, 0)) for own in one.assignment()]
        one.commit(offsets=mine, asynchronous=False)
    for one in members:
        one.close()


def test_group_shares_a_topic_and_finds_its_offsets_after_the_broker_was_killed(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "data") as broker:
        fill(broker.bootstrap, 1)
        share_and_commit(broker.bootstrap)
        assert committed(broker.bootstrap) == RECORDS
        broker.kill()
        broker.start()
        assert wait_until(lambda: committed(broker.bootstrap) == RECORDS)


class Polling:
    """A member that polls on a thread of its own, as applications do; leaves the group at the block's end."""

    def __init__(self, bootstrap: str) -> None:
        self._consumer = KafkaConsumer(
            TOPIC, bootstrap_servers=bootstrap, group_id=GROUP, session_timeout_ms=10_000
        )
        self._left = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._left.is_set():
            self._consumer.poll(100)
        self._consumer.close()

    def partitions(self) -> int:
        return len(self._consumer.assignment())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._left.set()
        self._thread.join(60)


def test_kafka_pythons_group_hands_partitions_over_when_a_member_leaves(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "data") as broker:
        fill(broker.bootstrap, 1)
        with Polling(broker.bootstrap) as first:
            with Polling(broker.bootstrap) as second:
                wait_until(lambda: [first.partitions(), second.partitions()] == [2, 2], 120)
            wait_until(lambda: first.partitions() == 4, 120)


@pytest.mark.slow
def test_group_goes_on_when_its_coordinator_is_killed(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with Peer(PeerKind.LANDLINE, zookeeper, tmp_path).cluster((1, 2, 3)) as cluster:
        fill(cluster.bootstrap, 3)
        share_and_commit(cluster.bootstrap)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        coordinator = admin.describe_consumer_groups([GROUP])[GROUP].result(30).coordinator.id
        cluster.brokers[coordinator].kill()
        rest = ",".join(b.bootstrap for n, b in cluster.brokers.items() if n != coordinator)
        assert wait_until(lambda: committed(rest) == RECORDS, 90)
        again = member(rest)
        assert wait_until(lambda: again.poll(0.1) is None and len(again.assignment()) == 4, 90)
        again.close()
