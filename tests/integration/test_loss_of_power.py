"""A leader that lost what its disk had not synced does not lead again before the others had their chance.

It is the controller too, and back before anybody else has noticed: nobody has taken the leadership from it.
If it led now, its followers would cut their logs to its shorter one, and acknowledged records were gone.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.server.registration.session_file import FILE_NAME as SESSION_FILE
from rig.brokers import BrokerProcess, Cluster
from rig.landline_broker import LandlineBroker
from rig.raw_client import RawClient
from rig.topics import create_topic, end_offsets
from rig.wait import wait_until
from rig.wire import answers_api_versions
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import CLUSTER_CONFIG

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "kept"
RECORDS = 60
# Longer than the others stand still here, whatever else the machine does.
CONFIG = {**CLUSTER_CONFIG, "zookeeper.session.timeout.ms": 30_000, "min.insync.replicas": 2}


def led_by(broker: BrokerProcess, consumer: Consumer) -> int:
    """A partition that the broker leads. Whom the consumer asks may not have heard of the topic yet."""

    def found() -> list[int]:
        partitions = consumer.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions
        return [number for number, partition in partitions.items() if partition.leader == broker.broker_id]

    return wait_until(found, timeout=60, what=f"{broker} leads a partition")[0]


def write(bootstrap: str, partition: int) -> None:
    """Each record a batch of its own, acknowledged by the whole ISR."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all"})
    for number in range(RECORDS):
        producer.produce(
            TOPIC,
            f"{number}",
            partition=partition,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
        assert producer.flush(60) == 0
    assert not failures


def forget_the_tail(broker: BrokerProcess, partition: int) -> None:
    """What a loss of power does to a log that was not synced; the broker is dead."""
    (segment,) = (broker.log_dir / f"{TOPIC}-{partition}").glob("*.log")
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size // 2)


def readable(consumer: Consumer, partition: int) -> list[str]:
    """Every record of the partition."""
    end = end_offsets(consumer, TOPIC)[partition]
    consumer.assign([TopicPartition(TOPIC, partition, 0)])
    found: list[str] = []

    def all_read() -> bool:
        for message in consumer.consume(100, 1.0):
            value = message.value()
            assert value is not None
            found.append(value.decode())
        return len(found) >= end

    wait_until(all_read, timeout=60, what=f"{end} records read")
    return found


@dataclass
class Site:
    """Three brokers, of which the victim is the controller and leads the partition with the records."""

    cluster: Cluster
    victim: LandlineBroker
    others: list[LandlineBroker]
    partition: int
    consumer: Consumer

    def freeze_others(self) -> None:
        for broker in self.others:
            broker.freeze()

    def thaw_others(self) -> None:
        for broker in self.others:
            broker.thaw()

    def is_victim_alone(self) -> bool:
        """Did the controller take both others from the ISR? They may go one by one."""
        lines = self.victim.log_text().splitlines()
        left = [line for line in lines if f"replicas_left_isr partition={TOPIC}-{self.partition} " in line]
        return any(f"isr=[{self.victim.broker_id}]" in line.replace('"', "") for line in left)

    def lose_power(self) -> None:
        self.victim.kill()
        forget_the_tail(self.victim, self.partition)

    def check_nothing_is_lost(self) -> None:
        wait_until(self.cluster.is_complete, timeout=120, what="all three are back")
        assert readable(self.consumer, self.partition) == [f"{number}" for number in range(RECORDS)]


@contextmanager
def a_site(zk_connect: str, directory: Path, **config: object) -> Iterator[Site]:
    brokers = {
        n: LandlineBroker(n, zk_connect, directory / f"broker-{n}", {**CONFIG, **config}) for n in (1, 2, 3)
    }
    with Cluster(brokers, zk_connect) as cluster:
        create_topic(cluster.bootstrap, TOPIC, 3, 3)
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "kept"})
        victim = brokers[cluster.controller().broker_id]
        partition = led_by(victim, consumer)
        write(cluster.bootstrap, partition)
        others = [broker for broker in brokers.values() if broker is not victim]
        yield Site(cluster, victim, others, partition, consumer)
        consumer.close()


def test_records_survive_a_leader_and_controller_that_comes_back_with_a_shorter_log(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with a_site(zookeeper.chroot(), tmp_path) as site:
        site.lose_power()
        site.freeze_others()
        site.victim.start_nowait()
        wait_until(lambda: came_so_far(site.victim), timeout=60, what="the broker is back, or waits")
        site.thaw_others()
        site.check_nothing_is_lost()


@pytest.mark.parametrize("is_back", ["before the others", "after the others"])
def test_records_survive_the_last_of_an_isr_that_the_others_had_left(
    is_back: str, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    """They left it below min.insync.replicas, so they have all that was acknowledged; it has only what its disk has.

    Their sessions have ended: when it is back before them, nobody is registered who could lead.
    """
    config = {"landline.eligible.leader.replicas.enable": True, "zookeeper.session.timeout.ms": 6000}
    with a_site(zookeeper.chroot(), tmp_path, **config) as site:
        site.freeze_others()
        wait_until(site.is_victim_alone, timeout=60, what="it is alone in the ISR")
        site.lose_power()
        if is_back == "before the others":
            site.victim.start_nowait()
            wait_until(lambda: came_so_far(site.victim), timeout=60, what="the broker is back, or waits")
        site.thaw_others()
        if is_back == "after the others":
            site.victim.start_nowait()
        site.check_nothing_is_lost()
        assert any("in_sync=false" in broker.log_text() for broker in (site.victim, *site.others))


def test_a_broker_that_has_not_registered_yet_obeys_nobody_who_means_its_predecessor(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    broker = LandlineBroker(1, zookeeper.chroot(), tmp_path / "broker-1", dict(CONFIG))
    with broker:
        broker.kill()
        (broker.log_dir / SESSION_FILE).unlink()  # so that it waits for the end of the dead session
        broker.start_nowait()
        wait_until(
            lambda: answers_api_versions("127.0.0.1", broker.port), timeout=60, what="the port is open"
        )
        with RawClient("127.0.0.1", broker.port) as client:
            request = {
                "controller_id": 1,
                "controller_epoch": 1,
                "broker_epoch": 1 << 40,
                "type_": 0,
                "topic_states": [],
                "live_leaders": [],
            }
            answer = client.ask(ApiKey.LEADER_AND_ISR, 4, request)
    assert answer.error_code == Errors.STALE_BROKER_EPOCH


def came_so_far(broker: LandlineBroker) -> bool:
    """Has the broker's second process registered, or said what it waits for?"""
    log = broker.log_text()
    return log.count("broker_started") == 2 or "waits_to_be_deposed" in log
