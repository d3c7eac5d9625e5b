"""Brokers on disks of their own that become full, or fail: what clients see, and that nothing acknowledged is lost."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from broker.protocol.api_keys import ApiKey
from broker.record.batch import Record, build_batch
from rig.brokers import HOST, Cluster
from rig.disks import SmallDisk, needs_small_disks
from rig.landline_broker import LandlineBroker, LandlineStandalone
from rig.raw_client import RawClient
from rig.topics import create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240), needs_small_disks()]

TOPIC = "kept"
STORAGE_ERROR = KafkaError.KAFKA_STORAGE_ERROR
WAIT_S = 90
OWN_PARTITION = 1


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "small") as made:
        yield made


class Writer:
    """Sends numbered records of a KiB to partition 0 while it is entered, or until told to stop; what was
    acknowledged, in order.
    """

    def __init__(self, bootstrap: str, acks: str = "all") -> None:
        self.acked: list[bytes] = []
        self.errors: list[KafkaError] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": acks,
                "linger.ms": 5,
                "enable.idempotence": True,
                "message.timeout.ms": 120_000,
                "retry.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 1000,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._producer.purge()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = (b"%08d" % number).ljust(1024, b".")
            try:
                self._producer.produce(TOPIC, value, partition=0, on_delivery=self._delivered)
                number += 1
            except BufferError:
                pass
            self._producer.poll(0.002)

    def _delivered(self, error: KafkaError | None, message) -> None:
        if error is None:
            self.acked.append(message.value())
        else:
            self.errors.append(error)

    def await_more(self, count: int = 50) -> None:
        goal = len(self.acked) + count
        wait_until(lambda: len(self.acked) >= goal, timeout=WAIT_S, what=lambda: f"{self.errors[:3]}")

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(WAIT_S) == 0


def read_all(bootstrap: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "audit", "enable.auto.commit": False})
    values: list[bytes] = []

    def read() -> bool:
        values.extend(m.value() for m in consumer.consume(1000, 0.2) if m.error() is None)
        return len(values) >= count

    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        wait_until(read, timeout=WAIT_S, what=lambda: f"{count} records, {len(values)} came")
        return values
    finally:
        consumer.close()


def produce_once(broker) -> tuple[int, str | None]:
    """Error and message of one record to a partition where the writer does not write."""
    with RawClient(HOST, broker.port) as client:
        records = build_batch([Record(None, b"x" * 2000, (), NOW_MS)])
        answer = client.produce(TOPIC, OWN_PARTITION, records)
    return int(answer.error_code), answer.error_message


def status(broker) -> dict:
    with urllib.request.urlopen(f"{broker.http_url}/status", timeout=10) as answer:
        return json.load(answer)


def metric(broker, name: str) -> float:
    with urllib.request.urlopen(f"{broker.http_url}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


@pytest.mark.slow
@pytest.mark.parametrize(("percent", "leave_bytes"), [(25, 8 << 20), (0, 0)], ids=["floor", "last byte"])
def test_a_full_disk_refuses_produce_and_serves_the_rest_until_there_is_space(
    disk: SmallDisk, tmp_path: Path, percent: int, leave_bytes: int
) -> None:
    """With a floor of free space, and without one, where the disk itself refuses."""
    broker = LandlineStandalone(
        disk.path / "data",
        {"landline.log.dir.min.free.percent": percent, "log.segment.bytes": 1 << 20},
    )
    broker.process.log_path = tmp_path / "broker.log"
    with broker, ExitStack() as stack:
        create_topic(broker.bootstrap, TOPIC, 2)
        writer = stack.enter_context(Writer(broker.bootstrap))
        writer.await_more()
        disk.fill(leave_bytes=leave_bytes)
        wait_until(lambda: produce_once(broker)[0] == STORAGE_ERROR, timeout=WAIT_S)
        wait_until(lambda: status(broker)["refusing_log_dirs"], timeout=WAIT_S)
        error, message = produce_once(broker)
        assert error == STORAGE_ERROR
        assert str(disk.path) in message
        assert "produce is refused" in message
        assert metric(broker, "landline_log_dir_refuses_produce{") == 1
        assert metric(broker, "kafka_log_logmanager_offlinelogdirectorycount") == 0
        acked = len(writer.acked)
        assert read_all(broker.bootstrap, acked)[0].startswith(b"00000000")  # fetch goes on
        AdminClient({"bootstrap.servers": broker.bootstrap}).list_topics(TOPIC, timeout=30)
        disk.empty()
        writer.await_more()
        writer.stop()
        assert not writer.errors
        assert read_all(broker.bootstrap, len(writer.acked)) == writer.acked
        text = broker.log_text()
        assert text.count("log_dir_space_is_back") == 1
        assert text.count("log_dir_below_floor") + text.count("log_dir_full") == 1
        assert broker.stop() == 0


@pytest.mark.slow
def test_a_broker_killed_on_a_full_disk_starts_there_and_retention_frees_it(
    disk: SmallDisk, tmp_path: Path
) -> None:
    with ZooKeeperServer(tmp_path / "zk") as zookeeper, ExitStack() as stack:
        broker = LandlineBroker(
            1,
            zookeeper.chroot(),
            tmp_path / "broker",
            {
                "log.dirs": disk.path / "logs",
                "landline.log.dir.min.free.percent": 0,
                "log.segment.bytes": 1 << 20,
                "log.retention.check.interval.ms": 500,
                "log.initial.task.delay.ms": 500,
                "log.segment.delete.delay.ms": 0,
            },
        )
        stack.enter_context(broker)
        create_topic(broker.bootstrap, TOPIC, 2)
        writer = stack.enter_context(Writer(broker.bootstrap))
        writer.await_more(3000)
        disk.fill()
        wait_until(lambda: produce_once(broker)[0] == STORAGE_ERROR, timeout=WAIT_S)
        broker.kill()
        broker.start()
        acked = len(writer.acked)
        assert len(read_all(broker.bootstrap, acked)) >= acked
        entry = ConfigEntry("retention.bytes", str(1 << 20), incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(30)
        writer.await_more()
        writer.stop()
        assert not writer.errors


@pytest.mark.slow
def test_a_broken_disk_hands_its_partitions_over_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """One of broker 1's two directories fails: the broker lives, others lead. Then its last one: it ends."""
    with ExitStack() as stack:
        zookeeper = stack.enter_context(ZooKeeperServer(tmp_path / "zk"))
        connect = zookeeper.chroot()
        disk = stack.enter_context(SmallDisk(tmp_path / "small"))
        other = stack.enter_context(SmallDisk(tmp_path / "other"))
        settings = {"min.insync.replicas": 2, "replica.lag.time.max.ms": 4000}
        brokers = {}
        for number in (1, 2, 3):
            own = dict(settings)
            directory = tmp_path / f"b{number}"
            if number == 1:
                own["log.dirs"] = f"{disk.path}/logs,{other.path}/logs"
            brokers[number] = LandlineBroker(number, connect, directory, own)
        cluster = stack.enter_context(Cluster(brokers, connect))
        create_topic(cluster.bootstrap, TOPIC, 6, 3)
        writer = stack.enter_context(Writer(cluster.bootstrap))
        writer.await_more()
        disk.break_down()
        first = brokers[1]
        wait_until(lambda: list(status(first)["offline_log_dirs"]) == [f"{disk.path}/logs"], timeout=WAIT_S)
        assert metric(first, "kafka_log_logmanager_offlinelogdirectorycount") == 1
        assert metric(first, "kafka_server_replicamanager_offlinereplicacount") == 3
        with RawClient(HOST, first.port) as client:
            rows = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": None}).results
        assert {row.log_dir: int(row.error_code) for row in rows} == {
            f"{disk.path}/logs": STORAGE_ERROR,
            f"{other.path}/logs": 0,
        }
        wait_until(lambda: _leaderless_or_led_by_offline(cluster) == [], timeout=WAIT_S)
        writer.await_more()
        other.break_down()
        wait_until(lambda: not first.process.running, timeout=WAIT_S)
        assert first.process.exit_code == 1
        assert first.log_text().count("last_log_dir_failed") == 1
        writer.await_more()
        first.start_nowait()  # its supervisor would: as long as the disks are broken that ends at once, saying why
        wait_until(lambda: not first.process.running, timeout=WAIT_S)
        assert first.process.exit_code == 1
        assert "no log directory can be used" in first.log_text()
        disk.mend()
        other.mend()
        first.start()
        wait_until(lambda: status(first)["partition_count"] == 6, timeout=WAIT_S)
        wait_until(lambda: _in_sync(cluster) == {3}, timeout=WAIT_S)
        writer.await_more()
        writer.stop()
        assert not writer.errors
        assert read_all(cluster.bootstrap, len(writer.acked)) == writer.acked


def _partitions(cluster: Cluster):
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    return admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions.values()


def _leaderless_or_led_by_offline(cluster: Cluster) -> list[int]:
    try:
        found = list(_partitions(cluster))
    except KafkaException:
        return [-1]
    return [p.id for p in found if p.leader < 0 or len(p.isrs) < (2 if p.leader != 1 else 3)]


def _in_sync(cluster: Cluster) -> set[int]:
    return {len(partition.isrs) for partition in _partitions(cluster)}
