"""Partitions move between real brokers: under load with the controller killed meanwhile, and by Kafka's own tools."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from broker.protocol.errors import Errors
from broker.utils.topic_partition import GROUP_METADATA_TOPIC, TopicPartition
from chaos.anomalies import summary
from chaos.load import Load, LoadPlan, findings
from rig.brokers import BrokerProcess, Cluster
from rig.kafka_dist import run_tool
from rig.landline_broker import LandlineBroker
from rig.topics import create_topic, isr_sizes, record_count
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import Peer
from tests.support.reassign import ask_to_move, leaders, moving, replicas

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

BROKERS = (1, 2, 3, 4)
MOVED_BYTES = 4_000_000
PLAN = LoadPlan(topics=2, partitions=2, records_per_s=300, seed=4)
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"


def targets(controller: BrokerProcess, topics: Iterable[str]) -> dict[TopicPartition, tuple[int, ...]]:
    """Every partition gets the broker that has none of it, in place of one that does not control.

    (What is taken from a broker while it is down stays on its disk, as with Kafka.)
    """
    wishes = {}
    for topic in topics:
        for number, present in replicas(controller, topic).items():
            (spare,) = set(BROKERS) - set(present)
            left = next(broker_id for broker_id in present if broker_id != controller.broker_id)
            target = tuple(spare if broker_id == left else broker_id for broker_id in present)
            wishes[TopicPartition(topic, number)] = target
    return wishes


def have_moved(cluster: Cluster, wishes: Mapping[TopicPartition, tuple[int, ...]]) -> bool:
    controller = cluster.controller()
    seen = {topic: replicas(controller, topic) for topic in {partition.topic for partition in wishes}}
    return not moving(controller) and all(seen[p.topic][p.partition] == ids for p, ids in wishes.items())


def test_partitions_move_under_load_though_the_controller_is_killed_in_the_middle(
    peer: Peer, tmp_path: Path
) -> None:
    with peer.cluster(BROKERS) as cluster:
        directories = {number: broker.log_dir for number, broker in cluster.brokers.items()}
        with Load(cluster.bootstrap, PLAN, tmp_path / "load", run="moved") as load:
            load.await_progress(200, timeout_s=60)
            controller = cluster.controller()
            wishes = targets(controller, load.topics)
            present = {p: replicas(controller, p.topic)[p.partition] for p in wishes}
            added = {b for p, target in wishes.items() for b in target if b not in present[p]}
            frozen = cluster.brokers[min(added - {controller.broker_id})]
            # What a frozen broker is to have cannot come into sync: so the controller dies before the end.
            frozen.freeze()
            assert set(ask_to_move(controller, wishes).values()) == {Errors.NONE}
            controller.kill()
            frozen.thaw()
            wait_until(lambda: cluster.controller() is not controller, 60, what="another controller")
            controller.start()
            wait_until(lambda: have_moved(cluster, wishes), 120, what="all has moved")
            wait_until(
                lambda: {n for t in load.topics for n in isr_sizes(cluster.bootstrap, t).values()} == {3},
                120,
                what="the killed broker is in sync again",
            )
            load.await_progress(200, timeout_s=60)
            history = load.finish(timeout_s=120)
        assert not (found := findings(history, directories)), summary(found)
        for partition, target in wishes.items():
            holders = {
                number for number, directory in directories.items() if (directory / str(partition)).is_dir()
            }
            assert holders == set(target), f"{partition} is on {holders}"


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_throttled_move_takes_its_time_and_only_the_move(
    zookeeper: ZooKeeperServer, tmp_path: Path, side: str
) -> None:
    """Either side's throttle alone; producers that wait for the whole ISR do not notice."""
    zk_connect = zookeeper.chroot()
    config = {"replica.fetch.max.bytes": 200_000}
    brokers = {n: LandlineBroker(n, zk_connect, tmp_path / f"broker-{n}", dict(config)) for n in (1, 2, 3)}
    with Cluster(brokers, zk_connect) as cluster:
        create_topic(cluster.bootstrap, "t", 1, 2)
        present = wait_until(
            lambda: replicas(cluster.brokers[1], "t").get(0), 30, what="the broker has heard of the topic"
        )
        assert present is not None
        (spare,) = {1, 2, 3} - {*present}
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all"})
        for _ in range(MOVED_BYTES // 10_000):
            producer.produce("t", bytes(10_000), partition=0)
        assert producer.flush(60) == 0
        set_configs(
            cluster.bootstrap, ResourceType.TOPIC, "t", {f"{side}.replication.throttled.replicas": "*"}
        )
        rate = {f"{side}.replication.throttled.rate": str(MOVED_BYTES // 5)}
        for number in brokers:
            set_configs(cluster.bootstrap, ResourceType.BROKER, str(number), rate)
        throttled = brokers[present[0] if side == "leader" else spare]
        wait_until(lambda: "throttled.rate" in throttled.log_text(), 30, what="the broker knows the rate")
        began = time.monotonic()
        wish = {TopicPartition("t", 0): (*present, spare)}
        assert ask_to_move(cluster.controller(), wish) == {TopicPartition("t", 0): Errors.NONE}
        acknowledged = 0
        while moving(cluster.controller()):
            producer.produce("t", b"meanwhile", partition=0)
            assert producer.flush(10) == 0
            acknowledged += 1
        took_s = time.monotonic() - began
        assert took_s > 3, "unthrottled it takes a fraction of a second"
        assert acknowledged > 20
        wait_until(lambda: isr_sizes(cluster.bootstrap, "t") == {0: 3}, 30, what="clients see three in sync")
        assert record_count(cluster.bootstrap, "t") == MOVED_BYTES // 10_000 + acknowledged


def set_configs(bootstrap: str, kind: ResourceType, name: str, configs: Mapping[str, str]) -> None:
    entries = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET) for key, value in configs.items()
    ]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    (future,) = admin.incremental_alter_configs(
        [ConfigResource(kind, name, incremental_configs=entries)]
    ).values()
    future.result(30)


def write_wish(path: Path, wishes: Mapping[TopicPartition, tuple[int, ...]]) -> str:
    rows = [
        {"topic": partition.topic, "partition": partition.partition, "replicas": list(target)}
        for partition, target in wishes.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def tool(main_class: str, bootstrap: str, *arguments: str) -> str:
    done = run_tool(main_class, "--bootstrap-server", bootstrap, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_kafkas_tools_generate_execute_verify_and_cancel_moves_and_elect_leaders(
    peer: Peer, tmp_path: Path
) -> None:
    # A frozen broker must stay registered while a JVM starts; leaders must not come back by themselves.
    config = {"zookeeper.session.timeout.ms": 60_000, "auto.leader.rebalance.enable": "false"}
    with peer.cluster((1, 2, 3), config) as cluster:
        create_topic(cluster.bootstrap, "t", 2, 2)
        producer = Producer({"bootstrap.servers": cluster.bootstrap})
        for number in range(200):
            producer.produce("t", str(number), partition=number % 2)
        assert producer.flush(60) == 0

        topics = tmp_path / "topics.json"
        topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
        asked = ("--topics-to-move-json-file", str(topics), "--broker-list", "2,3", "--generate")
        generated = tool(REASSIGN, cluster.bootstrap, *asked)
        plan = tmp_path / "plan.json"
        plan.write_text(generated.splitlines()[-1])
        target = {
            row["partition"]: tuple(row["replicas"]) for row in json.loads(plan.read_text())["partitions"]
        }
        assert {frozenset(ids) for ids in target.values()} == {frozenset({2, 3})}

        executed = tool(
            REASSIGN,
            cluster.bootstrap,
            "--reassignment-json-file",
            str(plan),
            "--execute",
            "--throttle",
            "50000000",
        )
        assert "Successfully started partition reassignments for t-0,t-1" in executed
        wait_until(lambda: replicas(cluster.brokers[2], "t") == target, 60, what="both partitions have moved")
        verified = tool(REASSIGN, cluster.bootstrap, "--reassignment-json-file", str(plan), "--verify")
        assert verified.count("is completed") == 2, verified
        assert "Clearing topic-level throttles" in verified
        assert record_count(cluster.bootstrap, "t") == 200

        stuck = {TopicPartition("t", 0): (1, 2)}
        path = write_wish(tmp_path / "stuck.json", stuck)
        victim = cluster.brokers[1]
        if cluster.controller() is victim:
            victim.stop()
            victim.start()
        controller = cluster.controller()
        victim.freeze()
        try:
            assert ask_to_move(controller, stuck) == {TopicPartition("t", 0): Errors.NONE}
            assert set(moving(controller)) == {TopicPartition("t", 0)}
            cancelled = tool(
                REASSIGN,
                controller.bootstrap,
                "--reassignment-json-file",
                path,
                "--cancel",
                "--preserve-throttles",
            )
        finally:
            victim.thaw()
        assert "Successfully cancelled" in cancelled, cancelled
        assert moving(controller) == {}
        # The znode of a move keeps which replicas were there before, not their order: Kafka's format.
        assert [set(ids) for ids in replicas(controller, "t").values()] == [{2, 3}, {2, 3}]

        led = leaders(controller, "t")
        preferred = {number: 5 - leader for number, leader in led.items()}  # 2 for 3, and 3 for 2
        wish = {TopicPartition("t", number): (preferred[number], led[number]) for number in led}
        assert set(ask_to_move(controller, wish).values()) == {Errors.NONE}
        wait_until(lambda: have_moved(cluster, wish), 60, what="the order has changed")
        assert leaders(controller, "t") == led, "a new order alone moves no leader"
        elected = tool(ELECT, cluster.bootstrap, "--election-type", "preferred", "--all-topic-partitions")
        assert "Successfully completed leader election (PREFERRED) for partitions" in elected, elected
        assert leaders(controller, "t") == preferred


def test_an_offline_partition_is_led_again_once_its_topic_allows_an_unclean_election(peer: Peer) -> None:
    with peer.cluster((1, 2)) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        create_topic(cluster.bootstrap, "t", 1, 2)
        first, second = cluster.brokers[1], cluster.brokers[2]
        second.stop()
        wait_until(lambda: isr_sizes(first.bootstrap, "t") == {0: 1}, 60, what="1 is alone in sync")
        first.stop()
        second.start()
        wait_until(lambda: leaders(cluster.controller(), "t") == {0: -1}, 60, what="nobody leads")
        entry = ConfigEntry(
            "unclean.leader.election.enable", "true", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(60)
        wait_until(lambda: leaders(cluster.controller(), "t") == {0: 2}, 60, what="2 leads")


def test_committed_offsets_get_more_replicas_when_brokers_join(zookeeper, tmp_path: Path) -> None:
    connect = zookeeper.chroot()
    config: dict[str, object] = {"offsets.topic.replication.factor": 3}
    brokers = {
        number: LandlineBroker(number, connect, tmp_path / f"broker-{number}", config) for number in (1, 2, 3)
    }
    cluster = Cluster(brokers, connect)
    try:
        brokers[1].start()
        create_topic(brokers[1].bootstrap, "t", 1)
        settings = {"bootstrap.servers": cluster.bootstrap, "group.id": "g"}
        consumer = Consumer(settings)
        wait_until(lambda: _commit(consumer), 60, what="the group's coordinator serves")
        consumer.close()
        assert {len(ids) for ids in replicas(brokers[1], GROUP_METADATA_TOPIC).values()} == {1}
        brokers[2].start_nowait()
        brokers[3].start()
        brokers[2].wait_ready()
        wait_until(
            lambda: set(isr_sizes(cluster.bootstrap, GROUP_METADATA_TOPIC).values()) == {3},
            90,
            what="three replicas of each partition are in sync",
        )
        assert {ids[0] for ids in replicas(brokers[1], GROUP_METADATA_TOPIC).values()} == {1}, "leaders stay"
        assert "internal_topic_replication_raised" in brokers[1].log_text()
        brokers[1].stop()
        consumer = Consumer(settings)
        found = wait_until(lambda: consumer.committed([At("t", 0)], timeout=10), 60)
        assert found[0].offset == 7
        consumer.close()
    finally:
        cluster.close()


def _commit(consumer: Consumer) -> bool:
    consumer.commit(offsets=[At("t", 0, 7)], asynchronous=False)
    return True
