"""Transactions in a cluster whose leaders die: nothing aborted is read, nothing committed is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rig.brokers import Cluster
from rig.topics import await_full_isr, create_topic, partition_leaders
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import CLUSTER_CONFIG
from tests.support.traced_cluster import traced_cluster

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

CONFIG = {
    **CLUSTER_CONFIG,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 3,
    "min.insync.replicas": 2,
}
TOPIC = "records"
TIMEOUT_S = 100


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers whose locks are traced: none is taken against the order of docs/design.md."""
    with traced_cluster(zookeeper, tmp_path, CONFIG, {"AddPartitionsToTxnManager._changed"}) as running:
        create_topic(running.bootstrap, TOPIC, 1, 3)
        write_at_all_brokers(running)
        yield running


def write_at_all_brokers(cluster: Cluster) -> None:
    """Commits a transaction with a partition of each broker, so that two of them ask another one's coordinator."""
    create_topic(cluster.bootstrap, "everywhere", 3, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "everywhere"})
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    for number in range(3):
        producer.produce("everywhere", b"v", partition=number)
    producer.commit_transaction(TIMEOUT_S)


def read_committed(cluster: Cluster, count: int) -> list[bytes]:
    """The first ``count`` records, and whatever comes at once after them."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[bytes] = []
    try:
        while (message := consumer.poll(TIMEOUT_S if len(found) < count else 2)) is not None:
            if message.error() is None:
                found.append(message.value())
    finally:
        consumer.close()
    return found


def test_an_open_transaction_goes_on_at_the_next_leader(cluster: Cluster) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "moving"})
    producer.init_transactions(TIMEOUT_S)
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "moving"})
    for number in range(4):
        producer.begin_transaction()
        producer.produce(TOPIC, b"%d" % number)
        producer.commit_transaction(TIMEOUT_S) if number % 2 else producer.abort_transaction(TIMEOUT_S)
    producer.begin_transaction()
    producer.produce(TOPIC, b"before")
    producer.flush(TIMEOUT_S)
    producer.send_offsets_to_transaction(
        [TopicPartition(TOPIC, 0, 7)], group.consumer_group_metadata(), TIMEOUT_S
    )
    for topic in (TOPIC, "__consumer_offsets", "__transaction_state"):
        await_full_isr(cluster.bootstrap, topic, 3)
    first = partition_leaders(cluster.bootstrap, TOPIC)[0]
    cluster.brokers[first].kill()
    producer.produce(TOPIC, b"after")
    producer.commit_transaction(TIMEOUT_S)
    expected = [b"1", b"3", b"before", b"after"]
    assert read_committed(cluster, len(expected)) == expected
    (committed,) = group.committed([TopicPartition(TOPIC, 0)], TIMEOUT_S)
    assert committed.offset == 7
    group.close()
    cluster.brokers[first].start()
    await_full_isr(cluster.bootstrap, TOPIC, 3)
    second = partition_leaders(cluster.bootstrap, TOPIC)[0]
    cluster.brokers[second].kill()
    wait_until(
        lambda: partition_leaders(cluster.bootstrap, TOPIC)[0] not in {-1, second},
        timeout=60,
        what="another broker leads",
    )
    assert read_committed(cluster, len(expected)) == expected
    cluster.brokers[second].start()
    await_full_isr(cluster.bootstrap, TOPIC, 3)
