"""What is read of a cluster to judge a stop: this broker's partitions, and a word from those it shares them with."""

import threading
from dataclasses import replace

import pytest

from broker.config.endpoint import Endpoint
from broker.server.stopping.stop_view import read_view
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.znodes import BrokerRegistration, LeaderAndIsr


@pytest.fixture
def cluster(tmp_path):
    store = EmbeddedStore(tmp_path / "metadata.db")
    store.connect(0, threading.Event())
    cluster = ClusterStore(store)
    cluster.create_top_level_paths()
    for n in (1, 2, 3):
        cluster.register_broker(BrokerRegistration(n, (Endpoint(f"h{n}", 9092, "PLAINTEXT", "PLAINTEXT"),)))
    yield cluster
    store.close()


def create(cluster, topic, replicas, isr, config=None, adding=()):
    cluster.create_topic(topic, {0: replicas}, config or {})
    if adding:
        found = cluster.topic_assignment(topic)
        cluster.set_topic_assignment(topic, replace(found, adding_replicas={0: adding}))
    partition = TopicPartition(topic, 0)
    cluster.store.ensure_path(znodes.partition_path(partition))
    cluster.store.create(znodes.state_path(partition), znodes.encode_state(LeaderAndIsr(isr[0], 0, isr, 1)))


def view(cluster, broker_id=3):
    asked = []

    def probe(member, endpoint):
        asked.append((member.broker_id, f"{endpoint.host}:{endpoint.port}"))
        return replace(member, controller_id=1)

    return read_view(cluster, broker_id, 1, ask=probe), sorted(asked)


def test_only_its_own_partitions_are_read_and_everybody_else_is_asked(cluster):
    """Who shares nothing with it may still think that it is the controller."""
    create(cluster, "mine", (2, 3), (2, 3), {"min.insync.replicas": "2"})
    create(cluster, "theirs", (1, 2), (1,))
    found, asked = view(cluster)
    ((one),) = found.partitions
    assert (one.partition, one.replicas, one.isr, one.leader, one.min_isr) == (
        TopicPartition("mine", 0),
        (2, 3),
        (2, 3),
        2,
        2,
    )
    assert asked == [(1, "h1:9092"), (2, "h2:9092")]


def test_in_a_large_cluster_all_that_are_counted_on_are_asked_and_a_sample_of_the_others(cluster):
    for n in range(4, 304):
        cluster.register_broker(BrokerRegistration(n, (Endpoint(f"h{n}", 9092, "PLAINTEXT", "PLAINTEXT"),)))
    create(cluster, "mine", (3, 300, 302), (3, 300, 302))
    _, asked = view(cluster)
    assert {300, 302} <= {broker_id for broker_id, _ in asked}
    assert len(asked) == 202
    assert view(cluster)[1] != asked


def test_replicas_that_are_being_added_are_not_waited_for(cluster):
    create(cluster, "moving", (1, 2, 3), (1, 2), adding=(3,))
    assert view(cluster, 3)[0].partitions == []
    assert view(cluster, 2)[0].partitions[0].replicas == (1, 2)


def test_a_topic_that_is_being_deleted_does_not_count(cluster):
    """Its deletion waits for each of its brokers, one that is off for good too."""
    create(cluster, "going", (3, 5), (3,))
    assert len(view(cluster)[0].partitions) == 1
    cluster.mark_topic_for_deletion("going")
    assert view(cluster)[0].partitions == []


def test_brokers_are_asked_by_the_inter_broker_listener_and_those_without_it_are_not(cluster):
    plain, secure = Endpoint("c4", 9092, "CLIENT", "PLAINTEXT"), Endpoint("b4", 9093, "BROKER", "SSL")
    cluster.register_broker(BrokerRegistration(4, (plain, secure)))
    asked = []

    def ask(member, endpoint):
        asked.append((endpoint.host, endpoint.port))
        return replace(member, controller_id=1)

    found = read_view(cluster, 3, 1, listener="BROKER", ask=ask)
    assert asked == [("b4", 9093)]
    assert found.members[4].address == "b4:9093"
    assert found.members[1].address == "h1:9092"
