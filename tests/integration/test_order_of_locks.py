"""Whole brokers with their locks traced: no thread of theirs takes two locks against the order of docs/design.md."""

from __future__ import annotations

import http.client
import itertools
import sys
import threading
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from rig.brokers import Cluster
from rig.landline_broker import LandlineBroker
from rig.topics import create_topic, isr_sizes
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.stress.lock_graph import Edge
from tests.support.compiled import only_on_python
from tests.support.numbered_load import NumberedLoad
from tests.support.traced_broker import read_report

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(240), only_on_python]

BROKERS = (1, 2, 3)
CONFIG = {
    "num.network.threads": 2,
    "background.threads": 4,
    "min.insync.replicas": 2,
    "default.replication.factor": 2,
    "auto.create.topics.enable": "true",
    "log.retention.check.interval.ms": 500,
    "log.cleaner.backoff.ms": 200,
    "log.segment.bytes": 100_000,
    "log.flush.interval.messages": 20,
    "replica.lag.time.max.ms": 2000,
}
# Locks of the packages that the stress run does not reach: all of these are taken here.
TAKEN = {
    "TopicAdmin._lock",
    "Leadership._lock",
    "RequestHandlerPool._lock",
    "RequestChannel._changed",
    "ZooKeeperStore._lock",
    "GroupRegistry._lock",
    "GroupCell._lock",
    "AlterPartitionManager._wakeup",
    "EventQueue._lock",
    "_Sender._wake",
    "BrokerChannel._lock",
    "MetadataCache._lock",
    "FetchSessionCache._lock",
    "ProducerIdManager._lock",
    "ConnectionQuotas._lock",
}
# And these while another is held: an inversion among them would be seen.
HELD = {
    "Leadership._lock",
    "ReplicaFetcherManager._lock",
    "GroupCell._lock",
    "SharedPage._rendering",
    "RequestHandlerPool._lock",
    "DelayedOperation._lock",
    "Partition._lock",
}


class Doing:
    """Threads that do each its own thing again and again, until the block ends. What they meet is not judged here."""

    def __init__(self, *steps: Callable[[], None]) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._repeat, args=(step,)) for step in steps]

    def _repeat(self, step: Callable[[], None]) -> None:
        while not self._over.wait(0.05):
            try:
                step()
            # A broker is down, or was killed in the middle of an answer, or a topic is gone.
            except (KafkaException, OSError, http.client.HTTPException):
                continue

    def __enter__(self) -> None:
        for thread in self._threads:
            thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()


def consuming(bootstrap: str, group: str) -> Callable[[], None]:
    """A member that joins, commits and leaves."""

    def step() -> None:
        consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        for _ in range(4):
            consumer.consume(200, timeout=1.0)
        consumer.commit(asynchronous=False)
        consumer.close()

    return step


def administering(bootstrap: str) -> Callable[[], None]:
    """Topics come, grow, are configured, and go; groups are listed and deleted."""
    admin, numbers = AdminClient({"bootstrap.servers": bootstrap}), itertools.count()

    def done(futures: dict[object, object]) -> None:
        for future in futures.values():
            future.result(20)  # type: ignore[attr-defined]

    def step() -> None:
        name = f"passes-{next(numbers) % 3}"
        done(admin.create_topics([NewTopic(name, 2, 2)]))
        done(admin.create_partitions([NewPartitions(name, 4)]))
        entry = ConfigEntry("retention.ms", "1000", incremental_operation=AlterConfigOpType.SET)
        done(
            admin.incremental_alter_configs(
                [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[entry])]
            )
        )
        done(admin.describe_configs([ConfigResource(ResourceType.TOPIC, name)]))
        groups = [group.group_id for group in admin.list_consumer_groups().result(20).valid]
        if groups:
            done(admin.describe_consumer_groups(groups[:2]))
            done(admin.delete_consumer_groups(["never", groups[0]]))
        done(admin.delete_topics([name]))

    return step


def scraping(broker: LandlineBroker) -> Callable[[], None]:
    def step() -> None:
        for page in ("metrics", "status"):
            with urllib.request.urlopen(f"{broker.http_url}/{page}", timeout=5) as answer:
                answer.read()

    return step


def test_no_thread_of_a_cluster_takes_two_locks_against_the_written_order(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    reports = {broker_id: tmp_path / f"{broker_id}.locks" for broker_id in BROKERS}
    connect = zookeeper.chroot("locks")
    brokers = {
        broker_id: LandlineBroker(
            broker_id,
            connect,
            tmp_path / str(broker_id),
            dict(CONFIG),
            command=(sys.executable, "-m", "tests.support.traced_broker", str(report)),
        )
        for broker_id, report in reports.items()
    }
    with Cluster(brokers, connect) as cluster:
        create_topic(cluster.bootstrap, "orders", 4, 3)
        load = NumberedLoad(cluster.bootstrap, "orders", 4, pause_s=0.002)
        work = Doing(
            consuming(cluster.bootstrap, "one"),
            consuming(cluster.bootstrap, "one"),
            consuming(cluster.bootstrap, "two"),
            administering(cluster.bootstrap),
            *(scraping(broker) for broker in brokers.values()),
        )
        with load, work:
            for stopped in (cluster.controller(), brokers[1]):
                before = len(load.acked)
                stopped.kill() if stopped is brokers[1] else stopped.stop()
                wait_until(lambda before=before: len(load.acked) > before + 500, 60, what="acknowledged on")
                stopped.start()
                wait_until(lambda: set(isr_sizes(cluster.bootstrap, "orders").values()) == {3}, 60)
        assert not load.failed
    taken: set[str] = set()
    orders: set[Edge] = set()
    problems: set[str] = set()
    for report in reports.values():
        names, seen, found = read_report(report)
        taken |= names
        orders |= seen
        problems |= found
    assert not problems, "\n".join(problems)
    assert taken >= TAKEN, TAKEN - taken
    held = {edge.held for edge in orders}
    assert held >= HELD, HELD - held
