"""ZooKeeper away at the start or later, sessions that expire: what can be served is, and brokers come back."""

from __future__ import annotations

import json
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from rig.brokers import HOST, BrokerProcess, Cluster
from rig.landline_broker import LandlineBroker
from rig.ports import free_port
from rig.topics import await_leaders, create_topic, isr_sizes
from rig.wait import last_for, wait_until
from rig.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

SESSION_MS = 3_000
CONFIG: dict[str, object] = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "replica.lag.time.max.ms": 3_000,
    "offsets.topic.num.partitions": 2,
}
TOPIC = "events"


class SystemdStub:
    """The socket that systemd gives a Type=notify service, and what was said on it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(str(path))
        self._socket.setblocking(False)
        self._said: list[str] = []

    def said(self) -> list[str]:
        """All lines so far."""
        while True:
            try:
                self._said += self._socket.recv(4096).decode().splitlines()
            except BlockingIOError:
                return self._said

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def systemd(tmp_path: Path) -> Iterator[SystemdStub]:
    stub = SystemdStub(tmp_path / "notify")
    yield stub
    stub.close()


def status(broker: LandlineBroker) -> dict:
    with urllib.request.urlopen(f"{broker.http_url}/status", timeout=10) as answer:
        return json.load(answer)


def produce(bootstrap: str, values: list[bytes], acks: str = "1", timeout_s: float = 60) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": acks, "linger.ms": 0})
    errors: list[object] = []
    for value in values:
        producer.produce(
            TOPIC, value, partition=0, on_delivery=lambda error, _: error and errors.append(error)
        )
    assert producer.flush(timeout_s) == 0
    assert not errors


def consume(bootstrap: str, number: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    values: list[bytes] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])

        def read() -> bool:
            values.extend(m.value() for m in consumer.consume(1000, 0.2) if m.error() is None)
            return len(values) >= number

        wait_until(read, timeout=60, what=lambda: f"{number} records, {len(values)} came")
    finally:
        consumer.close()
    return values


@contextmanager
def three_brokers(
    zookeeper: ZooKeeperServer, directory: Path
) -> Iterator[tuple[Cluster, dict[int, LandlineBroker]]]:
    """A cluster whose topic has a replica on each broker, and one record."""
    zk_connect = zookeeper.chroot()
    brokers = {
        broker_id: LandlineBroker(broker_id, zk_connect, directory / f"broker-{broker_id}", CONFIG)
        for broker_id in (1, 2, 3)
    }
    with Cluster(brokers, zk_connect) as cluster:
        create_topic(cluster.bootstrap, TOPIC, 1, 3, {"min.insync.replicas": "2"})
        produce(cluster.bootstrap, [b"before"], acks="all")
        yield cluster, brokers


def leader_of(bootstrap: str, topic: str = TOPIC) -> int:
    metadata = AdminClient({"bootstrap.servers": bootstrap}).list_topics(topic, timeout=10)
    return int(metadata.topics[topic].partitions[0].leader)


def test_broker_waits_for_zookeeper_says_so_and_starts_when_it_appears(
    systemd: SystemdStub, tmp_path: Path
) -> None:
    port = free_port()
    broker = LandlineBroker(1, f"{HOST}:{port}/late", tmp_path / "data", CONFIG)
    broker.process._env["NOTIFY_SOCKET"] = str(systemd.path)
    broker.start_nowait()
    try:
        waiting = f"waiting for ZooKeeper at {HOST}:{port}"
        wait_until(lambda: any(waiting in line for line in systemd.said()), what=lambda: str(systemd.said()))
        (line, *_) = [line for line in systemd.said() if waiting in line]
        assert line.startswith("STATUS=")
        # systemd must not give the start up meanwhile.
        assert any(line.startswith("EXTEND_TIMEOUT_USEC=") for line in systemd.said())
        assert "READY=1" not in systemd.said()
        with ZooKeeperServer(tmp_path / "zookeeper", port=port):
            broker.wait_ready()
            wait_until(lambda: "READY=1" in systemd.said())
            create_topic(broker.bootstrap, TOPIC, 1)
            produce(broker.bootstrap, [b"one"])
            assert broker.stop() == 0
        assert "STOPPING=1" in systemd.said()
    finally:
        broker.kill()


def test_led_partitions_are_served_while_zookeeper_is_away(
    own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with LandlineBroker(1, own_zookeeper.chroot(), tmp_path / "data", CONFIG) as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        produce(broker.bootstrap, [b"before"])
        own_zookeeper.kill()
        wait_until(lambda: "zookeeper_connection_lost" in broker.log_text())
        produce(broker.bootstrap, [b"during"])
        assert consume(broker.bootstrap, 2) == [b"before", b"during"]
        last_for(1.5 * SESSION_MS / 1000)
        produce(broker.bootstrap, [b"during, past the session"], acks="all")
        assert broker.process.running
        assert status(broker)["state"].startswith("RunningAs")
        own_zookeeper.start()
        wait_until(lambda: _topic_can_be_made(broker, "made-after"), timeout=90, what="the broker is back")
        produce(broker.bootstrap, [b"after"])
        assert len(consume(broker.bootstrap, 4)) == 4
        assert set(broker.view().ports) == {1}
        assert "Traceback" not in broker.log_text()
        assert "traceback=" not in broker.log_text()


def _topic_can_be_made(broker: BrokerProcess, topic: str) -> bool:
    try:
        create_topic(broker.bootstrap, topic, 1)
    except Exception as error:
        return "TOPIC_ALREADY_EXISTS" in str(error)
    return True


def test_stop_while_zookeeper_is_away_is_heeded(own_zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with LandlineBroker(1, own_zookeeper.chroot(), tmp_path / "data", CONFIG) as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        produce(broker.bootstrap, [b"one"])
        own_zookeeper.kill()
        assert broker.stop(40) == 0
        assert "traceback=" not in broker.log_text()
        own_zookeeper.start()
        broker.start()
        await_leaders(broker.bootstrap, TOPIC)
        assert consume(broker.bootstrap, 1) == [b"one"]


def test_broker_whose_session_expired_registers_anew_and_serves(
    own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with LandlineBroker(1, own_zookeeper.chroot(), tmp_path / "data", CONFIG) as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        produce(broker.bootstrap, [b"before"])
        before = status(broker)
        broker.freeze()
        last_for(2.5 * SESSION_MS / 1000)
        broker.thaw()
        wait_until(lambda: status(broker)["broker_epoch"] > before["broker_epoch"], timeout=60)
        wait_until(lambda: status(broker)["is_controller"], timeout=60, what="it controls again")
        wait_until(lambda: leader_of(broker.bootstrap) == 1, timeout=60, what="it leads again")
        produce(broker.bootstrap, [b"after"], acks="all")
        assert consume(broker.bootstrap, 2) == [b"before", b"after"]
        create_topic(broker.bootstrap, "made-after", 2)
        text = broker.log_text()
        assert "zookeeper_session_expired" in text
        assert "traceback=" not in text


def test_frozen_controller_is_replaced_and_comes_back_as_a_follower(
    own_zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with three_brokers(own_zookeeper, tmp_path) as (cluster, brokers):
        frozen = cluster.controller()
        assert isinstance(frozen, LandlineBroker)
        epoch = status(frozen)["broker_epoch"]
        others = [broker for broker in brokers.values() if broker is not frozen]
        frozen.freeze()

        def replaced() -> bool:
            named = {broker.view().controller_id for broker in others}
            return len(named) == 1 and named <= {broker.broker_id for broker in others}

        wait_until(replaced, timeout=60, what="another broker controls")
        bootstrap = ",".join(broker.bootstrap for broker in others)
        wait_until(
            lambda: leader_of(bootstrap) in {broker.broker_id for broker in others},
            timeout=60,
            what="a live broker leads",
        )
        produce(bootstrap, [b"during"], acks="all")
        frozen.thaw()
        wait_until(lambda: status(frozen)["broker_epoch"] > epoch, timeout=60, what="it registers anew")
        wait_until(cluster.is_complete, timeout=60, what="all brokers know all")
        wait_until(lambda: isr_sizes(bootstrap, TOPIC) == {0: 3}, timeout=60, what="it is in sync again")
        # /status may be as it was a second ago.
        wait_until(
            lambda: not status(frozen)["is_controller"], timeout=10, what="it knows that it does not control"
        )
        assert cluster.controller() is not frozen
        produce(cluster.bootstrap, [b"after"], acks="all")
        assert consume(cluster.bootstrap, 3) == [b"before", b"during", b"after"]
        for broker in brokers.values():
            assert "traceback=" not in broker.log_text()


def test_cluster_outlives_a_restart_of_zookeeper(own_zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with three_brokers(own_zookeeper, tmp_path) as (cluster, brokers):
        own_zookeeper.kill()
        # Replication needs no ZooKeeper.
        produce(cluster.bootstrap, [b"during"], acks="all")
        last_for(1.5 * SESSION_MS / 1000)
        own_zookeeper.start()
        wait_until(lambda: _topic_can_be_made(brokers[1], "made-after"), timeout=90, what="topics are made")
        wait_until(cluster.is_complete, timeout=60, what="all brokers know all")
        wait_until(lambda: isr_sizes(cluster.bootstrap, TOPIC) == {0: 3}, timeout=60, what="all in sync")
        produce(cluster.bootstrap, [b"after"], acks="all")
        assert consume(cluster.bootstrap, 3) == [b"before", b"during", b"after"]
        for broker in brokers.values():
            assert "traceback=" not in broker.log_text()
