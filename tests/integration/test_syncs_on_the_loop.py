"""A broker that syncs each record: by Linux AIO where there is one, and what a kill leaves of what it acknowledged."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.replication.sync_ring import load_aio
from rig.brokers import Cluster
from rig.landline_broker import LandlineBroker
from rig.topics import create_topic, end_offsets
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC, PARTITIONS, RECORDS = "synced", 4, 40
# Rolls come in between: a sync of more than one file is made by a thread.
CONFIG = {"log.flush.interval.messages": 1, "log.segment.bytes": 4096, "log.index.interval.bytes": 200}


def way_of_syncs() -> str:
    try:
        load_aio()
    except ImportError:
        return "by=threads"
    return "by=Linux AIO"


@pytest.fixture(params=["as here", "without caio"])
def way(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the brokers that are started will sync: as this machine can, or as where caio has no module of C."""
    if request.param == "as here":
        return way_of_syncs()
    (tmp_path / "libraries" / "caio").mkdir(parents=True)
    (tmp_path / "libraries" / "caio" / "__init__.py").touch()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "libraries"))
    return "by=threads"


def test_records_of_a_broker_that_syncs_each_outlive_its_kill(
    zookeeper: ZooKeeperServer, tmp_path: Path, way: str
) -> None:
    zk_connect = zookeeper.chroot()
    broker = LandlineBroker(1, zk_connect, tmp_path / "broker-1", CONFIG)
    with Cluster({1: broker}, zk_connect) as cluster:
        create_topic(cluster.bootstrap, TOPIC, PARTITIONS, 1)
        failures: list[object] = []
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True}
        )
        for number in range(RECORDS):
            for partition in range(PARTITIONS):
                producer.produce(
                    TOPIC,
                    f"{number}".ljust(200),
                    partition=partition,
                    on_delivery=lambda error, _: failures.append(error) if error else None,
                )
            assert producer.flush(60) == 0
        assert not failures
        lines = [line for line in broker.log_text().replace('"', "").splitlines() if "log_syncs" in line]
        assert len(lines) == 1
        assert way in lines[0]
        assert all(len(list((broker.log_dir / f"{TOPIC}-{n}").glob("*.log"))) > 1 for n in range(PARTITIONS))
        broker.kill()
        broker.start_nowait()
        wait_until(cluster.is_complete, timeout=120, what="the broker is back")
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "synced"})
        ends = end_offsets(consumer, TOPIC)
        assert dict(ends) == dict.fromkeys(range(PARTITIONS), RECORDS)
        consumer.assign([TopicPartition(TOPIC, partition, 0) for partition in range(PARTITIONS)])
        found: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}

        def all_read() -> bool:
            for message in consumer.consume(100, 1.0):
                value, partition = message.value(), message.partition()
                assert value is not None
                assert partition is not None
                found[partition].append(int(value))
            return sum(map(len, found.values())) >= RECORDS * PARTITIONS

        wait_until(all_read, timeout=60, what="all records read")
        assert all(values == list(range(RECORDS)) for values in found.values())
        consumer.close()
