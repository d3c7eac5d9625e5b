"""`landline metadata backup` and `restore`: a lost tree is back, and brokers accept it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from kazoo.client import KazooClient
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from broker.zookeeper import znodes
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker
from rig.topics import await_leaders, create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]

TOPIC = "orders"
RECORDS = [f"record-{number}".encode() for number in range(50)]
KEPT_ACL = [
    ACL(1, Id("world", "anyone")),
    ACL(31, Id("digest", "keeper:0ZSZ9mZ5Fs7Wz6iGvrE8pdV9Ebk=")),
    ACL(31, Id("ip", "127.0.0.1")),
]


def metadata(verb: str, *arguments: object) -> tuple[int, str]:
    argv = [*COMMAND, "metadata", verb, *map(str, arguments)]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout + done.stderr


def kazoo(connect: str) -> KazooClient:
    client = KazooClient(hosts=connect, timeout=10)
    client.start(10)
    return client


def values(bootstrap: str, number: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    found: list[bytes] = []
    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        wait_until(
            lambda: (
                found.extend(m.value() for m in consumer.consume(100, 0.2) if not m.error())
                or len(found) >= number
            ),
            timeout=30,
            what=lambda: f"{number} records, {len(found)} came",
        )
    finally:
        consumer.close()
    return found


def produce(bootstrap: str, records: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for record in records:
        producer.produce(TOPIC, record, partition=0)
    assert producer.flush(30) == 0


def test_a_broker_starts_on_its_old_data_with_a_restored_tree(tmp_path: Path) -> None:
    zookeeper = ZooKeeperServer(tmp_path / "zookeeper")
    connect = f"{zookeeper.connect_string}/kafka"
    config: dict[str, object] = {"landline.eligible.leader.replicas.enable": "true"}
    broker = LandlineBroker(1, connect, tmp_path / "broker", config)
    properties = tmp_path / "broker.properties"
    file = tmp_path / "tree.backup"
    state = f"/brokers/topics/{TOPIC}/partitions/0/state"
    try:
        zookeeper.start()
        broker.start()
        create_topic(broker.bootstrap, TOPIC, 1, 1, {"retention.ms": "-1"})
        await_leaders(broker.bootstrap, TOPIC)
        produce(broker.bootstrap, RECORDS)
        client = kazoo(connect)
        guarded = (f"/brokers/topics/{TOPIC}", "/cluster", "/cluster/id")
        for path in guarded:
            client.set_acls(path, KEPT_ACL)
        for _ in range(7):
            client.set("/brokers/seqid", b"")
        kept = {path: client.get(path)[0] for path in ("/cluster/id", f"/brokers/topics/{TOPIC}")}
        topic_config = client.get(f"/config/topics/{TOPIC}")[0]
        epoch = znodes.load(state, client.get(state)[0])["leader_epoch"]
        ids = znodes.decode_producer_id_block_end(client.get(znodes.PRODUCER_ID_BLOCK)[0])
        seqid = client.get("/brokers/seqid")[1].version
        client.stop()
        client.close()

        code, words = metadata("backup", file, properties)
        assert (code, "nodes of cluster" in words) == (0, True), words
        assert file.stat().st_mode & 0o777 == 0o600
        code, words = metadata("restore", file, properties)
        assert code == 1
        assert "not empty: it has /admin, /brokers, /cluster" in words

        broker.stop()
        zookeeper.stop()
        code, words = metadata("verify", file, properties)
        assert (code, "whole" in words) == (0, True), words
        damaged = tmp_path / "damaged"
        damaged.write_bytes(file.read_bytes().replace(b'"made_at":"2', b'"made_at":"1'))
        code, words = metadata("verify", damaged, properties)
        assert (code, "it is damaged" in words) == (1, True), words
        shutil.rmtree(zookeeper.data_dir / "data")
        zookeeper.start()
        code, words = metadata("backup", tmp_path / "none", properties)
        assert (code, "there is no cluster" in words) == (66, True), words
        code, words = metadata("restore", file, properties)
        assert (code, words[:9]) == (0, "restored "), words

        client = kazoo(connect)
        assert {path: client.get(path)[0] for path in kept} == kept
        assert client.get(f"/config/topics/{TOPIC}")[0] == topic_config
        for path in guarded:
            assert set(client.get_acls(path)[0]) == set(KEPT_ACL), path
        assert client.get_acls("/brokers")[0] == OPEN_ACL_UNSAFE
        restored_state = znodes.load(state, client.get(state)[0])
        assert restored_state["leader_epoch"] > epoch + 1000
        assert "landline_epochs" not in restored_state
        assert znodes.decode_producer_id_block_end(client.get(znodes.PRODUCER_ID_BLOCK)[0]) > ids + 1_000_000
        assert client.get("/brokers/seqid")[1].version == seqid
        assert client.get_children("/brokers/ids") == []
        assert client.exists("/controller") is None
        client.stop()
        client.close()

        broker.start()
        await_leaders(broker.bootstrap, TOPIC)
        assert values(broker.bootstrap, len(RECORDS)) == RECORDS
        produce(broker.bootstrap, [b"after"])
        assert values(broker.bootstrap, len(RECORDS) + 1) == [*RECORDS, b"after"]
    finally:
        broker.kill()
        zookeeper.kill()
