"""The first record of a new topic is acknowledged by all replicas when they have it, not when they ask next.

A follower may hear of a new topic before its leader does. The leader then refuses it the new partition, and
it must not sit in its wait for the other topics' records meanwhile, as Kafka's followers do for up to half
a second.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.protocol.errors import Errors
from broker.record.batch import build_batch
from broker.record.records import Record
from rig.brokers import HOST, BrokerProcess, Cluster
from rig.landline_broker import LandlineBroker
from rig.raw_client import RawClient
from rig.topics import await_full_isr, create_topic, partition_leaders
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import CLUSTER_CONFIG
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

# So long does a follower wait at a leader that has nothing for it.
FOLLOWERS_WAIT_S = 20.0
# Seen: 0.06 s at most, on an idle machine.
ACKED_S = 5.0
TOPICS = 10
CONFIG = {
    **CLUSTER_CONFIG,
    "replica.fetch.wait.max.ms": int(FOLLOWERS_WAIT_S * 1000),
    "replica.lag.time.max.ms": 120_000,
}


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    """Brokers that all follow each other, in a topic without traffic."""
    zk_connect = zookeeper.chroot()
    brokers = {n: LandlineBroker(n, zk_connect, tmp_path / f"broker-{n}", dict(CONFIG)) for n in (1, 2, 3)}
    with Cluster(brokers, zk_connect) as running:
        create_topic(running.bootstrap, "idle", 3, 3)
        await_full_isr(running.bootstrap, "idle", 3)
        yield running


def test_the_first_record_of_a_new_topic_waits_for_no_other_topics_fetch(cluster: Cluster) -> None:
    took_s = [first_acknowledgement_s(cluster, f"new-{number}") for number in range(TOPICS)]
    assert max(took_s) < ACKED_S, took_s


def first_acknowledgement_s(cluster: Cluster, topic: str) -> float:
    create_topic(cluster.bootstrap, topic, 1, 3)
    leader_id = wait_until(lambda: max(0, partition_leaders(cluster.bootstrap, topic).get(0, 0)), timeout=60)
    began = time.monotonic()
    wait_until(lambda: is_acknowledged(cluster.brokers[leader_id], topic), timeout=60)
    return time.monotonic() - began


def is_acknowledged(leader: BrokerProcess, topic: str) -> bool:
    """False from a leader that has not heard of it yet."""
    with RawClient(HOST, leader.port) as client:
        answer = client.produce(topic, 0, build_batch([Record(None, b"v", (), NOW_MS)]))
    if answer.error_code in {Errors.NOT_LEADER_OR_FOLLOWER, Errors.UNKNOWN_TOPIC_OR_PARTITION}:
        return False
    assert answer.error_code == 0
    return True
