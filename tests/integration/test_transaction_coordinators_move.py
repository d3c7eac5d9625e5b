"""Transactions of a cluster: markers go to every leader, and another broker coordinates when one dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.protocol.errors import Errors
from rig.brokers import Cluster
from rig.topics import await_full_isr, create_topic, partition_leaders
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import CLUSTER_CONFIG
from tests.support.traced_cluster import traced_cluster
from tests.support.transactional_producer import TOPIC, Roaming

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

CONFIG = {
    **CLUSTER_CONFIG,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
}


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers whose locks are traced: none is taken against the order of docs/design.md."""
    with traced_cluster(
        zookeeper,
        tmp_path,
        CONFIG,
        {"TransactionPartition._lock", "TransactionStateManager._lock", "MarkerSender._changed"},
    ) as running:
        create_topic(running.bootstrap, TOPIC, 3, 1)
        yield running


@pytest.fixture
def roaming(cluster: Cluster) -> Iterator[Roaming]:
    made = Roaming(cluster, "roaming")
    made.go(by=1)
    made.producer.begin()
    await_full_isr(cluster.bootstrap, "__transaction_state", 3)
    yield made
    made.close()


def test_a_transaction_of_partitions_with_three_leaders_is_committed(
    cluster: Cluster, roaming: Roaming
) -> None:
    assert sorted(partition_leaders(cluster.bootstrap, TOPIC).values()) == [1, 2, 3]
    producer = roaming.producer
    assert producer.add(0, 1, 2) == [Errors.NONE] * 3
    assert producer.end() == Errors.NONE
    producer.await_state("CompleteCommit")


def test_another_broker_coordinates_what_a_dead_one_left(cluster: Cluster, roaming: Roaming) -> None:
    producer = roaming.producer
    leaders = partition_leaders(cluster.bootstrap, TOPIC)
    former = producer.coordinator
    alive = [partition for partition, leader in leaders.items() if leader != former]
    assert producer.add(*alive) == [Errors.NONE] * 2
    cluster.brokers[former].kill()
    other = next(n for n in cluster.brokers if n != former)

    def moved() -> bool:
        return roaming.go(by=other) != former and producer.state() == "Ongoing"

    wait_until(moved, timeout=60, what="the next coordinator has loaded the transaction")
    assert producer.verify(*alive) == [Errors.NONE] * 2
    assert producer.until(lambda: Errors(producer.end(commit=False))) is Errors.NONE
    producer.await_state("CompleteAbort")
    assert producer.init() is Errors.NONE
    assert producer.epoch == 1


def test_a_marker_waits_for_a_leader_that_is_down(cluster: Cluster, roaming: Roaming) -> None:
    producer = roaming.producer
    leaders = partition_leaders(cluster.bootstrap, TOPIC)
    partition, down = next((p, n) for p, n in leaders.items() if n != producer.coordinator)
    assert producer.add(partition) == [Errors.NONE]
    cluster.brokers[down].kill()
    assert producer.until(lambda: Errors(producer.end())) is Errors.NONE
    assert producer.add(partition) == [Errors.CONCURRENT_TRANSACTIONS]
    assert producer.state() == "PrepareCommit"
    cluster.brokers[down].start()
    producer.await_state("CompleteCommit")
