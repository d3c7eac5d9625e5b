"""Brokers of a cluster stop: unnoticed by producers while others can take over, and at once when nobody can."""

from __future__ import annotations

import os
import signal
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
from rig.topics import (
    await_full_isr,
    create_topic,
    isr_sizes,
    partition_leaders,
    partition_replicas,
)
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.ack_meter import AckMeter
from tests.support.peers import CLUSTER_CONFIG
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "kept"
# Kafka's default back-off, three times of which a broker waits that has nobody to hand over to.
BACKOFF_MS = 5000
CONFIG = {**CLUSTER_CONFIG, "min.insync.replicas": 2, "controlled.shutdown.retry.backoff.ms": BACKOFF_MS}
# Seen: 0.3 s each, on an idle machine.
STOP_S = 10.0
ACK_GAP_S = 5.0


def three_brokers(zookeeper: ZooKeeperServer, directory: Path, **config: object) -> Cluster:
    zk_connect = zookeeper.chroot()
    return Cluster(
        {n: LandlineBroker(n, zk_connect, directory / f"broker-{n}", CONFIG | config) for n in (1, 2, 3)},
        zk_connect,
    )


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[Cluster]:
    with three_brokers(zookeeper, tmp_path) as running:
        create_topic(running.bootstrap, TOPIC, 3, 3)
        await_full_isr(running.bootstrap, TOPIC, 3)
        yield running


def produce(broker: BrokerProcess, partition: int, acks: int = -1):
    batch = build_batch([Record(None, b"v", (), NOW_MS)])
    with RawClient(HOST, broker.port) as client:
        return client.produce(TOPIC, partition, batch, acks=acks)


def test_a_stopping_leader_and_controller_is_hardly_felt(cluster: Cluster, capsys) -> None:
    victim = cluster.controller()
    leaders = partition_leaders(cluster.bootstrap, TOPIC)
    partition = next(number for number, leader in leaders.items() if leader == victim.broker_id)
    with AckMeter(cluster.bootstrap, TOPIC, partition) as meter:
        meter.await_acks(200)
        assert victim.stop() == 0
        meter.await_acks(200)
        gap_s = meter.longest_gap_s()
    with capsys.disabled():
        print(f"\nSIGTERM of leader and controller: {gap_s:.2f} s without an acknowledgement")
    assert gap_s < ACK_GAP_S


def test_all_brokers_stop_at_once_when_all_are_told_to(cluster: Cluster, capsys) -> None:
    brokers = list(cluster.brokers.values())
    began = time.monotonic()
    for broker in brokers:
        os.kill(broker.process.pid, signal.SIGTERM)
    wait_until(lambda: not any(broker.process.running for broker in brokers), timeout=120)
    took_s = time.monotonic() - began
    with capsys.disabled():
        print(f"\nthree brokers told to stop at once had stopped after {took_s:.2f} s")
    assert [broker.process.exit_code for broker in brokers] == [0, 0, 0]
    assert took_s < STOP_S
    cluster.start()
    await_full_isr(cluster.bootstrap, TOPIC, 3)
    assert produce(cluster.brokers[partition_leaders(cluster.bootstrap, TOPIC)[0]], 0).error_code == 0


@pytest.mark.parametrize("order", ["controller first", "controller last"])
def test_brokers_stop_one_after_the_other_and_the_last_at_once(order: str, cluster: Cluster, capsys) -> None:
    controller = cluster.controller()
    others = [broker for broker in cluster.brokers.values() if broker is not controller]
    brokers = [controller, *others] if order == "controller first" else [*others, controller]
    took = []
    for number, broker in enumerate(brokers):
        if number == 2:
            # Alone it leads everything, and says to acks=all why that is not enough.
            wait_until(lambda last=broker: set(leaders(last)) == {last.broker_id}, timeout=60)
            refused = produce(broker, 0)
            assert refused.error_code == Errors.NOT_ENOUGH_REPLICAS
            assert "1 of 3 replicas are in sync" in refused.error_message
            assert f"ISR [{broker.broker_id}]" in refused.error_message
        began = time.monotonic()
        assert broker.stop() == 0
        took.append(time.monotonic() - began)
    with capsys.disabled():
        print(f"\nstopped one after the other, {order}: {[round(seconds, 2) for seconds in took]} s")
    assert max(took) < BACKOFF_MS / 1000


def test_a_leader_waits_with_its_stop_for_a_replica_that_comes_into_sync(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """Also Kafka's controller refuses a stopping leader any change of its ISR: there, its patience has to end."""
    patience = {
        "controlled.shutdown.max.retries": 60,
        "controlled.shutdown.retry.backoff.ms": 500,
        "replica.lag.time.max.ms": 1000,
        "zookeeper.session.timeout.ms": 30_000,  # the frozen one lives on
    }
    with three_brokers(zookeeper, tmp_path, **patience) as cluster:
        controller = cluster.controller()
        create_topic(cluster.bootstrap, TOPIC, 3, 2)
        all_replicas = partition_replicas(cluster.bootstrap, TOPIC)
        partition = next(n for n, replicas in all_replicas.items() if controller.broker_id not in replicas)
        stopping, late = (cluster.brokers[broker_id] for broker_id in all_replicas[partition])
        late.freeze()
        assert produce(stopping, partition, acks=1).error_code == 0  # only a record makes a replica late
        wait_until(lambda: isr_sizes(controller.bootstrap, TOPIC)[partition] == 1, timeout=60)
        os.kill(stopping.process.pid, signal.SIGTERM)
        wait_until(lambda: "controlled_shutdown_incomplete" in stopping.log_text(), timeout=60)
        late.thaw()
        wait_until(lambda: not stopping.process.running, timeout=120)
        assert stopping.process.exit_code == 0
        assert "attempt=61" not in stopping.log_text()
        assert partition_leaders(controller.bootstrap, TOPIC)[partition] == late.broker_id


def leaders(broker: BrokerProcess) -> list[int]:
    return list(partition_leaders(broker.bootstrap, TOPIC).values())
