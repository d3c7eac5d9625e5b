"""`landline may-stop` and `await-return` on a cluster that runs: one permit, the right words, no stop too many."""

from __future__ import annotations

import json
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.server.http.status import NOT_RUNNING
from rig.brokers import BrokerProcess, Cluster
from rig.kafka_broker import KafkaBroker
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker
from rig.topics import create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.peers import CLUSTER_CONFIG

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

TOPIC = "orders"
CONFIG = {**CLUSTER_CONFIG, "min.insync.replicas": 2, "zookeeper.session.timeout.ms": 20_000}
GRANTED, NO_ZOOKEEPER, NOT_NOW, WRONG_CONFIG = 0, 69, 75, 78


def landline(verb: str, broker: BrokerProcess, *options: str) -> tuple[int, str]:
    """The exit code, and all that was said."""
    properties = broker.log_dir.with_name(broker.log_dir.name + ".properties")
    argv = [*COMMAND, verb, str(properties), *options]
    done = subprocess.run(argv, cwd=REPOSITORY, capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    """One of this module's own, to be frozen."""
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(ensemble: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    zk_connect = ensemble.chroot()
    root = tmp_path_factory.mktemp("brokers")
    brokers = {n: LandlineBroker(n, zk_connect, root / f"broker-{n}", dict(CONFIG)) for n in (1, 2, 3)}
    with Cluster(brokers, zk_connect) as cluster:
        create_topic(cluster.bootstrap, TOPIC, 6, 3)
        create_topic(cluster.bootstrap, "single", 3, 1)
        yield cluster


def a_follower(cluster: Cluster) -> tuple[BrokerProcess, BrokerProcess]:
    """A broker that is not the controller, and another such one."""
    controller = cluster.controller().broker_id
    one, other = (broker for number, broker in cluster.brokers.items() if number != controller)
    return one, other


def test_one_broker_at_a_time_until_it_is_back_in_its_isrs(cluster: Cluster) -> None:
    one, other = a_follower(cluster)
    assert landline("may-stop", one, "--holder", "deploy-1") == (
        GRANTED,
        f"broker {one.broker_id} may stop for 180 s\n",
    )
    code, words = landline("may-stop", other, "--holder", "deploy-2")
    assert code == NOT_NOW
    assert f"held by deploy-1 for broker {one.broker_id} since 20" in words
    code, words = landline("may-stop", other, "--who")
    assert (code, json.loads(words)["holder"], json.loads(words)["broker"]) == (0, "deploy-1", one.broker_id)
    one.stop()
    code, words = landline("await-return", one, "--holder", "deploy-1", "--within", "2")
    assert code == NOT_NOW
    assert f"broker {one.broker_id} has not registered anew in ZooKeeper yet" in words
    # Its turn has ended in failure: now it is the state of the cluster that forbids the next.
    code, words = landline("may-stop", other, "--holder", "deploy-2")
    assert code == NOT_NOW
    assert f"{TOPIC}-0 would have 1 in sync without broker {other.broker_id}" in words
    assert f"replica {one.broker_id} (not registered)" in words
    assert landline("may-stop", one, "--holder", "deploy-1")[0] == GRANTED, "who is down may be restarted"
    one.start()
    assert landline("await-return", one, "--holder", "deploy-1")[0] == GRANTED
    code, words = landline("may-stop", other, "--holder", "deploy-2", "--within", "60")
    assert code == GRANTED, words
    assert landline("await-return", other, "--holder", "deploy-2", "--within", "0")[0] == NOT_NOW
    assert landline("may-stop", other, "--who") == (GRANTED, "null\n")


def test_a_replica_that_hangs_is_not_counted_on(cluster: Cluster) -> None:
    one, other = a_follower(cluster)
    other.freeze()
    try:
        code, words = landline("may-stop", one)
    finally:
        other.thaw()
    assert code == NOT_NOW
    assert f"replica {other.broker_id} (does not answer" in words
    wait_until(lambda: landline("may-stop", one, "--dry-run")[0] == GRANTED, 60)


def test_status_has_the_same_fields_before_a_broker_runs(cluster: Cluster) -> None:
    with urllib.request.urlopen(f"{cluster.brokers[1].http_url}/status", timeout=10) as answer:
        running = json.load(answer)
    assert set(running) == {"broker_id", "version", "state", "loading", *NOT_RUNNING}


def test_a_broker_of_another_cluster_is_refused(cluster: Cluster, ensemble: ZooKeeperServer) -> None:
    one, _ = a_follower(cluster)
    wrong = f"zookeeper.connect={ensemble.chroot('elsewhere')}"
    code, words = landline("may-stop", one, "--override", wrong)
    assert code == WRONG_CONFIG
    assert "leads to no cluster" in words


def test_where_apache_kafka_controls_the_judgement_is_the_same(
    cluster: Cluster, ensemble: ZooKeeperServer, tmp_path: Path
) -> None:
    zk_connect = ensemble.chroot()
    with KafkaBroker(1, zk_connect, tmp_path / "kafka") as kafka:
        config = {"min.insync.replicas": 2}
        with LandlineBroker(2, zk_connect, tmp_path / "ours", config) as ours:
            create_topic(kafka.bootstrap, TOPIC, 2, 2)
            wait_until(lambda: ours.view().controller_id == 1, 30)
            # Two replicas of two: the topic asks for all it has.
            assert landline("may-stop", ours)[0] == GRANTED
            kafka.freeze()
            code, words = landline("may-stop", ours)
            kafka.thaw()
            assert code == NOT_NOW
            assert "does not answer" in words


def test_who_would_speak_by_a_listener_that_others_do_not_have_may_not_stop(cluster: Cluster) -> None:
    one, _ = a_follower(cluster)
    code, words = landline(
        "may-stop", one, "--override", "inter.broker.listener.name=BROKER", "--within", "600"
    )
    assert code == WRONG_CONFIG
    others = sorted(set(cluster.brokers) - {one.broker_id})
    assert "by BROKER (inter.broker.listener.name), which they do not advertise" in words
    assert all(f"{other} (" in words for other in others)
    assert landline("may-stop", one, "--dry-run")[0] == GRANTED


def test_without_zookeeper_nobody_may_stop_and_that_is_said_soon(
    cluster: Cluster, ensemble: ZooKeeperServer
) -> None:
    one, _ = a_follower(cluster)
    ensemble.process.freeze()
    began = time.monotonic()
    try:
        code, words = landline("may-stop", one, "--within", "600")
    finally:
        ensemble.process.thaw()
    assert code == NO_ZOOKEEPER
    assert time.monotonic() - began < 25
    assert "no broker is to be stopped: no ZooKeeper at" in words
