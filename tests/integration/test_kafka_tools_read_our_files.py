"""Kafka's own tools find nothing wrong in our files, and our znodes are of the same kind as Kafka's.

The tests of files run against Apache Kafka as well, so that they are known to pass where all is well; that
they fail where something is wrong is shown on damaged copies.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from rig.brokers import Cluster
from rig.kafka_broker import KafkaBroker
from rig.landline_broker import LandlineBroker
from rig.topics import create_topic
from rig.zookeeper import ZooKeeperServer
from tests.support import log_dump, workloads
from tests.support.clients.driver import Workload
from tests.support.peers import Peer, PeerKind
from tests.support.znode_tree import Znode, differences, read_tree

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "dumped"
PARTITIONS = 2
RECORDS = 3_000
BYTES_PER_RECORD = 400
BROKER_CONFIG: dict[str, object] = {"log.segment.bytes": 150_000}  # topics may be set to as little then
SMALL_SEGMENTS = {"segment.bytes": "150000", "min.insync.replicas": "1"}
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def write_records(bootstrap: str) -> None:
    """Fills the topic by producers of every codec, one of them idempotent, in several segments."""
    for number, codec in enumerate(CODECS):
        settings = {"bootstrap.servers": bootstrap, "acks": "all", "compression.codec": codec, "linger.ms": 2}
        producer = Producer({**settings, "enable.idempotence": number % 2 == 0, "batch.size": 20_000})
        for sequence in range(RECORDS // len(CODECS)):
            value = random.Random(sequence).randbytes(BYTES_PER_RECORD)
            producer.produce(
                TOPIC, value, partition=sequence // 50 % PARTITIONS, headers={"n": str(sequence)}
            )
        assert producer.flush(60) == 0


def write_and_read(cluster: Cluster, replication_factor: int) -> None:
    """Records of every kind, group membership and committed offsets."""
    create_topic(cluster.bootstrap, TOPIC, PARTITIONS, replication_factor, SMALL_SEGMENTS)
    create_topic(cluster.bootstrap, "grouped", PARTITIONS, replication_factor)
    write_records(cluster.bootstrap)
    workloads.run(Workload("kafka-python", cluster.bootstrap, "grouped", PARTITIONS, 3_000))


def assert_sound(*log_dirs: Path) -> None:
    found = log_dump.problems(*log_dirs)
    assert not found, "\n".join(found[:20])
    for log_dir in log_dirs:
        assert log_dump.record_count(log_dir, TOPIC) == RECORDS


def test_dump_log_segments_finds_no_fault_after_a_clean_stop(peer: Peer) -> None:
    with peer.cluster(config=BROKER_CONFIG) as cluster:
        write_and_read(cluster, 1)
        broker = cluster.brokers[1]
        broker.stop()
        assert len(list(broker.log_dir.glob(f"{TOPIC}-0/*.log"))) > 1
        assert_sound(broker.log_dir)
        decoded = log_dump.decoded_offsets(broker.log_dir)
        assert '"group":"grouped-kafka-python","topic":"grouped","partition":0' in decoded
        assert '"protocolType":"consumer"' in decoded


def test_dump_log_segments_finds_no_fault_after_a_kill_and_recovery(peer: Peer) -> None:
    with peer.cluster(config=BROKER_CONFIG) as cluster:
        write_and_read(cluster, 1)
        broker = cluster.brokers[1]
        broker.kill()
        for index in [*broker.log_dir.glob(f"{TOPIC}-0/*index")]:
            index.unlink()
        broker.start()
        broker.stop()
        assert_sound(broker.log_dir)


def test_dump_log_segments_finds_no_fault_in_followers_files(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """Ours only: Kafka indexes a follower's append of several batches under its last offset, which the tool shows."""
    with Peer(PeerKind.LANDLINE, zookeeper, tmp_path).cluster((1, 2, 3), BROKER_CONFIG) as cluster:
        write_and_read(cluster, 3)
        for broker in cluster.brokers.values():
            broker.stop()
        assert_sound(*(broker.log_dir for broker in cluster.brokers.values()))


def test_the_dump_tells_damaged_files_from_sound_ones(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    with Peer(PeerKind.KAFKA, zookeeper, tmp_path).cluster(config=BROKER_CONFIG) as cluster:
        write_and_read(cluster, 1)
        broker = cluster.brokers[1]
        broker.stop()
    partition = f"{TOPIC}-0"
    for number, (suffix, at) in enumerate([("log", 70), ("index", 3), ("timeindex", 2), ("snapshot", 20)]):
        copy = tmp_path / f"damaged-{number}"
        shutil.copytree(broker.log_dir, copy)
        victim = max((copy / partition).glob(f"*.{suffix}"), key=lambda path: path.stat().st_size)
        data = bytearray(victim.read_bytes())
        data[at] ^= 0x55
        victim.write_bytes(data)
        assert any(log_dump.each_problem(copy)), f"damage in byte {at} of a .{suffix} was not found"


def tree_after_the_same_deeds(broker: KafkaBroker | LandlineBroker, zk_connect: str) -> dict[str, Znode]:
    """The znodes after a topic with a config, an idempotent producer and a group."""
    with broker:
        create_topic(broker.bootstrap, "t1", PARTITIONS, 1, {"retention.ms": "86400000"})
        workloads.run(Workload("confluent", broker.bootstrap, "t1", PARTITIONS, 100))
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        assert consumer.get_watermark_offsets(TopicPartition("t1", 0), timeout=30)
        consumer.close()
        return read_tree(zk_connect)


def test_our_znodes_have_kafkas_paths_keys_types_and_versions(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    ours, theirs = zookeeper.chroot("ours"), zookeeper.chroot("theirs")
    our_tree = tree_after_the_same_deeds(LandlineBroker(1, ours, tmp_path / "ours"), ours)
    their_tree = tree_after_the_same_deeds(KafkaBroker(1, theirs, tmp_path / "theirs"), theirs)
    found = differences(our_tree, their_tree)
    assert not found, "\n".join(found)


def test_two_kafka_brokers_znodes_do_not_differ(zookeeper: ZooKeeperServer, tmp_path: Path) -> None:
    """The comparison ignores what two clusters rightly differ in."""
    one, two = zookeeper.chroot("one"), zookeeper.chroot("two")
    trees = [
        tree_after_the_same_deeds(KafkaBroker(1, chroot, tmp_path / f"k{number}"), chroot)
        for number, chroot in enumerate((one, two))
    ]
    assert differences(*trees) == []
    assert len(trees[0]) > 40
