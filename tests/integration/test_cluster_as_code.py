"""Topics and configs of running brokers by a list, and by their properties files, without a restart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from rig.brokers import Cluster, write_properties
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker
from rig.topics import create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import CLUSTER_CONFIG

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

ORDERS = {"name": "orders", "partitions": 3, "replication_factor": 2, "configs": {"retention.ms": 3600000}}
PLAIN = {"name": "plain"}


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    root, zk_connect = tmp_path_factory.mktemp("brokers"), zookeeper.chroot()
    brokers = {n: LandlineBroker(n, zk_connect, root / f"broker-{n}", dict(CLUSTER_CONFIG)) for n in (1, 2)}
    with Cluster(brokers, zk_connect) as cluster:
        yield cluster


def topics(cluster: Cluster, *options: str, check: bool = True, **document: object) -> tuple[list[str], str]:
    """What changed, and the drift in one text; else the error."""
    broker = cluster.brokers[1]
    properties = broker.log_dir.with_name(broker.log_dir.name + ".properties")
    done = subprocess.run(
        [*COMMAND, "topics", str(properties), "--json", *options],
        input=json.dumps(document),
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode == 0) is check, done.stderr
    if not check:
        return [], done.stderr
    told = json.loads(done.stdout)
    return told["changes"], "\n".join(told["drift"])


def config(cluster: Cluster, kind: ResourceType, name: str, key: str) -> tuple[str | None, int]:
    """A config's value, and where that is set."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    (future,) = admin.describe_configs([ConfigResource(kind, name)]).values()
    entry = future.result(timeout=30)[key]
    return entry.value, entry.source


def partitions(cluster: Cluster, topic: str) -> int | None:
    known = AdminClient({"bootstrap.servers": cluster.bootstrap}).list_topics(timeout=30).topics
    return len(known[topic].partitions) if topic in known else None


def test_listed_topics_come_once_change_and_go_when_that_is_asked_twice(cluster: Cluster) -> None:
    listed = [ORDERS, PLAIN]
    would = ["topic orders: created with 3 partitions, replication factor 2, retention.ms=3600000"]
    assert topics(cluster, "--dry-run", topics=[ORDERS]) == (would, "")
    assert partitions(cluster, "orders") is None
    assert len(topics(cluster, topics=listed)[0]) == 2
    assert partitions(cluster, "orders") == 3
    assert topics(cluster, topics=listed) == ([], "")

    changed = {**ORDERS, "partitions": 4, "configs": {"retention.ms": 7200000}}
    both = ["topic orders: partitions 3 -> 4", "topic orders: retention.ms 3600000 -> 7200000"]
    assert topics(cluster, "--dry-run", topics=[changed, PLAIN])[0] == both
    assert topics(cluster, topics=[changed, PLAIN])[0] == both
    wait_until(lambda: config(cluster, ResourceType.TOPIC, "orders", "retention.ms")[0] == "7200000")
    assert partitions(cluster, "orders") == 4
    assert topics(cluster, topics=[changed, PLAIN]) == ([], "")

    _, error = topics(cluster, topics=[ORDERS, {"name": "new"}], check=False)
    assert "nothing was changed: topic orders has 4 partitions, and 3 are listed" in error
    assert partitions(cluster, "new") is None

    gone = [{**changed, "replication_factor": 1}, {"name": "plain", "state": "absent"}]
    changes, drift = topics(cluster, topics=gone)
    assert changes == []
    assert "topic orders: replication factor" in drift
    assert "-e landline_topics_delete=plain" in drift
    assert topics(cluster, topics=gone, delete=["plain"])[0] == ["topic plain: deleted, with 1 partition"]
    assert partitions(cluster, "plain") is None
    assert topics(cluster, topics=gone, delete=["plain"])[0] == []


def test_what_the_brokers_refuse_is_refused_before_the_first_step(cluster: Cluster) -> None:
    much = {"name": "much", "replication_factor": 3}
    _, error = topics(cluster, topics=[{"name": "little"}, much], check=False)
    assert "topic much: " in error
    assert partitions(cluster, "little") is None


def test_topics_that_nobody_listed_are_shown_and_stay(cluster: Cluster) -> None:
    create_topic(cluster.bootstrap, "by-hand", 1, 1)
    changes, drift = topics(cluster, topics=[PLAIN])
    assert len(changes) == 1
    assert "topic by-hand" in drift
    assert partitions(cluster, "by-hand") == 1


def test_dynamic_configs_come_and_go_for_one_broker_and_for_all(cluster: Cluster) -> None:
    listed = [
        {"configs": {"message.max.bytes": 900000}},
        {"broker": 2, "configs": {"log.cleaner.backoff.ms": 7}},
    ]
    assert topics(cluster, brokers=listed)[0] == [
        "all brokers: message.max.bytes (not set) -> 900000",
        "broker 2: log.cleaner.backoff.ms (not set) -> 7",
    ]
    wait_until(lambda: topics(cluster, brokers=listed) == ([], ""))
    wait_until(lambda: config(cluster, ResourceType.BROKER, "2", "log.cleaner.backoff.ms")[0] == "7")
    _, drift = topics(cluster, brokers=[])
    assert "all brokers: message.max.bytes" in drift
    assert "broker 2: log.cleaner.backoff.ms" in drift
    gone = [
        {"broker": "<default>", "configs": {"message.max.bytes": None}},
        {"broker": "2", "configs": {"log.cleaner.backoff.ms": None}},
    ]
    assert len(topics(cluster, brokers=gone)[0]) == 2
    wait_until(lambda: topics(cluster, brokers=gone) == ([], ""))


def status(broker: LandlineBroker) -> Any:
    with urllib.request.urlopen(f"{broker.http_url}/status", timeout=10) as answer:
        return json.load(answer)["config_file"]


def test_a_changed_file_is_taken_up_by_a_signal_and_no_restart(cluster: Cluster) -> None:
    broker = cluster.brokers[1]
    assert isinstance(broker, LandlineBroker)
    before, pid = status(broker), broker.process.pid
    settings = {**broker._settings, "log.retention.hours": 24, "num.partitions": 7}
    path = write_properties(broker._properties, settings)
    os.kill(pid, signal.SIGHUP)
    wait_until(lambda: status(broker)["version"] != before["version"])
    assert config(cluster, ResourceType.BROKER, "1", "log.retention.hours") == (
        "24",
        4,
    )  # STATIC_BROKER_CONFIG
    assert status(broker)["needs_restart"] == ["num.partitions"]
    assert broker.process.pid == pid

    path.write_text(path.read_text() + "log.retention.bytes=much\n")
    os.kill(pid, signal.SIGHUP)
    wait_until(lambda: status(broker)["refused"])
    assert "log.retention.bytes" in status(broker)["refused"]["reason"]
    assert config(cluster, ResourceType.BROKER, "1", "log.retention.hours")[0] == "24"
