"""Kafka's admin tools for records, offsets, log directories and replicas, on three brokers of either kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At

from broker.protocol.api_keys import ApiKey
from rig.brokers import HOST, Cluster
from rig.kafka_dist import TOOL_JVM, java_command, run_tool
from rig.processes import ManagedProcess
from rig.raw_client import RawClient
from rig.topics import create_topic, record_count
from rig.wait import wait_until
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

TOOLS = "org.apache.kafka.tools."
RECORDS = 100


def tool(main_class: str, cluster: Cluster, *arguments: str) -> str:
    done = run_tool(TOOLS + main_class, "--bootstrap-server", cluster.bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def fill(cluster: Cluster, topic: str, replicas: int = 3) -> None:
    create_topic(cluster.bootstrap, topic, 1, replicas)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 0})
    for number in range(RECORDS):
        producer.produce(topic, b"%d" % number, partition=0)
    assert producer.flush(60) == 0


@pytest.fixture
def cluster(peer: Peer, tmp_path: Path) -> Iterator[Cluster]:
    """Three brokers, each with two log directories and a rack of its own."""
    config: dict[str, object] = {
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"
    }
    made = peer.cluster((1, 2, 3), config)
    for number, broker in made.brokers.items():
        broker._settings |= {"broker.rack": f"r{number}", "log.dirs": ",".join(dirs_of(tmp_path, number))}  # type: ignore[attr-defined]
    with made:
        yield made


def dirs_of(tmp_path: Path, broker_id: int) -> list[str]:
    return [str(tmp_path / f"disk-{broker_id}-{name}") for name in "ab"]


def test_records_are_deleted_on_all_replicas_and_the_replicas_are_the_same(
    cluster: Cluster, tmp_path: Path
) -> None:
    fill(cluster, "t")
    wish = tmp_path / "delete.json"
    wish.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "offset": 40}]}))
    out = tool("DeleteRecordsCommand", cluster, "--offset-json-file", str(wish))
    assert "low_watermark: 40" in out, out
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    assert consumer.get_watermark_offsets(At("t", 0), timeout=30) == (40, RECORDS)
    consumer.close()
    command = java_command(
        TOOLS + "ReplicaVerificationTool",
        "--broker-list",
        cluster.bootstrap,
        "--topics-include",
        "t",
        "--report-interval-ms",
        "500",
        jvm=TOOL_JVM,
        log_target="System.err",
    )
    verification = ManagedProcess("replica verification", lambda: command, tmp_path / "verification.log")
    verification.start()
    try:
        wait_until(
            lambda: "max lag is 0 for partition t-0" in verification.log_text(),
            60,
            what=verification.log_text,
        )
    finally:
        verification.kill()


def test_offsets_of_a_group_are_deleted(cluster: Cluster) -> None:
    fill(cluster, "t")
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    consumer.commit(offsets=[At("t", 0, 7)], asynchronous=False)
    consumer.close()
    out = tool(
        "consumer.group.ConsumerGroupCommand", cluster, "--group", "g", "--topic", "t", "--delete-offsets"
    )
    assert "Successful" in out, out
    again = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"})
    assert [each.offset for each in again.committed([At("t", 0)], timeout=30)] == [-1001]
    again.close()


def test_replicas_move_between_log_directories(cluster: Cluster, tmp_path: Path) -> None:
    fill(cluster, "t")

    def place(broker_id: int) -> str:
        told = tool("LogDirsCommand", cluster, "--describe", "--topic-list", "t").splitlines()[-1]
        rows = {row["broker"]: row["logDirs"] for row in json.loads(told)["brokers"]}
        (name,) = [each["logDir"] for each in rows[broker_id] if each["partitions"]]
        return str(name)

    (target,) = {*dirs_of(tmp_path, 1)} - {place(1)}
    plan = tmp_path / "plan.json"
    row = {"topic": "t", "partition": 0, "replicas": [1, 2, 3], "log_dirs": [target, "any", "any"]}
    plan.write_text(json.dumps({"version": 1, "partitions": [row]}))
    file = ("--reassignment-json-file", str(plan))
    tool("reassign.ReassignPartitionsCommand", cluster, *file, "--execute")
    wait_until(
        lambda: (
            "has been moved"
            not in (out := tool("reassign.ReassignPartitionsCommand", cluster, *file, "--verify"))
            or "completed successfully" in out
        ),
        120,
    )
    assert place(1) == target
    assert record_count(cluster.bootstrap, "t") == RECORDS


def preferred(cluster: Cluster, leader: int, rack: str) -> int:
    """The replica that the leader names to a consumer of the rack."""
    wanted = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 16}
    fields = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 1 << 20,
        "topics": [{"topic": "t", "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }
    with RawClient(HOST, cluster.brokers[leader].port) as client:
        (partition,) = client.ask(ApiKey.FETCH, 12, fields).responses[0].partitions
    return int(partition.preferred_read_replica)


def test_a_consumer_reads_from_the_broker_of_its_rack(cluster: Cluster) -> None:
    fill(cluster, "t")
    (leader,) = {
        partition.leader
        for partition in Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "x"})
        .list_topics("t", timeout=30)
        .topics["t"]
        .partitions.values()
    }
    near = next(number for number in cluster.brokers if number != leader)
    wait_until(lambda: preferred(cluster, leader, f"r{near}") == near, 30, what="the follower is in sync")
    assert preferred(cluster, leader, f"r{leader}") == -1
    assert preferred(cluster, leader, "nowhere") == -1
    done = run_tool(
        TOOLS + "consumer.ConsoleConsumer",
        "--bootstrap-server",
        cluster.bootstrap,
        "--topic",
        "t",
        "--from-beginning",
        "--max-messages",
        str(RECORDS),
        "--consumer-property",
        f"client.rack=r{near}",
        "--timeout-ms",
        "60000",
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == [str(number) for number in range(RECORDS)]
