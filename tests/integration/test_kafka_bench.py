"""The benchmark: its raw client writes what librdkafka reads, and every suite runs against every target."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench.client import transfer
from bench.client.batches import encode_batch
from bench.client.connection import leaders
from bench.client.requests import RawClientError
from bench.hostilities import ROWS
from bench.session import Session
from bench.suites import SUITES, kept, throughput
from bench.targets import Target
from bench.visit import Visit
from bench.workload import Stage, Suite, Values, Workload
from rig import kfake_broker
from rig.brokers import unused_port
from rig.kraft_broker import KraftBroker, new_cluster_id
from rig.processes import MIB
from rig.topics import create_topic, record_count
from rig.zookeeper import ZooKeeperServer
from tests.conftest import PEERS
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(300)]

PARTITIONS = 3
TINY = 0.01
# Of the rows of hostile peers, which are the same code, one of each kind of peer.
HOSTILE = {
    "FindCoordinator keys, 500",
    "empty Fetch of a session of 50,000 ids",
    "508 waiting Fetches on 4 connections",
    "connections with one ApiVersions each",
    "Metadata of all, answers not read",
    "Produce of 32 MiB in 3 KiB to a compacted topic",
    "HTTP /metrics",
    "JoinGroup with 900 KiB of metadata to 128 groups",
    "DescribeGroups of 100 members, 100 times",
    "1,000 connections with 30 FindCoordinator keys each",
    "Produce of one record to the smallest segments there are",
}
# Of what is held, connections and what is made by requests.
KEPT = {"10,000 idle connections", "10,000 idle TLS connections", "100,000 groups"}
CHOSEN = {"neighbour": HOSTILE, "kept": KEPT}
WARM = {Stage.ONE, Stage.TLS}
# The others start brokers again and again, which takes minutes; what they call is in these too.
SHORT_SUITES = [
    replace(
        suite, workloads=tuple(w for w in suite.workloads if w.title in CHOSEN.get(suite.name, {w.title}))
    )
    for suite in SUITES
    if suite.stage in WARM or suite.name in {"kept", "security"}
]
# Workloads of one suite differ by a number: of many every third, and all with PEERS=all.
MANY = 4


def some(suite: Suite) -> Suite:
    step = 1 if len(PEERS) > 1 or suite.name in CHOSEN or len(suite.workloads) < MANY else 3
    return replace(suite, workloads=suite.workloads[::step])


# A load is the same code whoever bears it, and a JVM bears the tiny ones slowly: of each suite one.
SUITES_OF = {
    Target.LANDLINE: [some(suite) for suite in SHORT_SUITES],
    Target.KAFKA: [
        replace(suite, workloads=suite.workloads[:1])
        for suite in SHORT_SUITES
        if Target.KAFKA in suite.workloads[0].targets
    ],
}


def test_raw_batches_are_records_to_other_clients(peer: Peer) -> None:
    batch = encode_batch(16 * 1024)
    with peer.cluster() as cluster:
        create_topic(cluster.bootstrap, "raw", PARTITIONS)
        ports = leaders(cluster.brokers[1].port, "raw")
        written = transfer.produce(ports, "raw", batch, MIB, in_flight=5)
        assert record_count(cluster.bootstrap, "raw") == written // len(batch.data) * batch.records
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "check.crcs": True})
        consumer.assign([TopicPartition("raw", 1, 0)])
        (message,) = consumer.consume(1, 30)
        consumer.close()
        assert message.error() is None
        assert message.offset() == 0
        assert message.value() == bytes(range(256)) * 4


def test_an_error_code_ends_a_load(peer: Peer) -> None:
    with peer.cluster() as cluster:
        ports = {0: cluster.brokers[1].port}
        with pytest.raises(RawClientError, match="error code 3"):
            transfer.produce(ports, "absent", encode_batch(2048), MIB, in_flight=1)
        with pytest.raises(RawClientError, match="error codes 0 and 3"):
            transfer.fetch(ports, "absent", encode_batch(2048), MIB, MIB)


@pytest.mark.parametrize(
    "target", [Target[kind.name] for kind in PEERS], ids=lambda target: target.name.lower()
)
def test_workloads_on_one_broker_give_all_their_figures(
    target: Target, zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    steps: list[str] = []
    suites = SUITES_OF[target]
    session = Session(zookeeper, tmp_path, suites, TINY, steps.append, repeats=0)
    session.run([target], rounds=1)
    assert session.failures == []
    wanted = {metric.key for suite in suites for workload in suite.workloads for metric in workload.metrics}
    assert {sample.metric for sample in session.samples} == wanted
    assert len(steps) == len(WARM) + sum(len(suite.workloads) for suite in suites)


@pytest.mark.skipif(shutil.which("go") is None, reason="kfake is a Go module")
def test_kfake_writes_and_serves_what_the_suite_of_throughput_asks(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    session = Session(zookeeper, tmp_path, [throughput.SUITE], TINY, print, repeats=0)
    session.run([Target.KFAKE], rounds=1)
    assert session.failures == []
    wanted = {metric.key for workload in throughput.SUITE.workloads for metric in workload.metrics}
    assert {sample.metric for sample in session.samples} == wanted


def test_kfake_without_go_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(kfake_broker, "PROGRAM", tmp_path / "kfake")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(kfake_broker.KfakeUnavailableError, match="needs the Go compiler"):
        kfake_broker.build()


def test_what_is_tried_is_in_the_suites() -> None:
    assert {row.title for row in ROWS} >= HOSTILE
    assert {workload.title for workload in kept.SUITE.workloads} >= KEPT


def test_a_broker_that_answers_nobody_any_more_is_replaced(
    zookeeper: ZooKeeperServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bench.session.RECOVERY_S", 3.0)
    seen: list[int | None] = []

    def stop_it(visit: Visit) -> Values:
        process = visit.broker.process
        seen.append(process.pid)
        process.freeze()
        return {}

    stuck = Workload("a broker that stands still", (), stop_it, repeats=False)
    suite = Suite("stuck", "Stuck brokers", Stage.ONE, (stuck, stuck))
    session = Session(zookeeper, tmp_path, [suite], TINY, print, repeats=0)
    session.run([Target.LANDLINE], rounds=1)
    assert len(set(seen)) == 2


def test_of_all_workloads_those_are_done_that_are_named() -> None:
    for suite in SUITES:
        assert [each.title for each in suite.only(["10,000"]).workloads] == [
            each.title for each in suite.workloads if "10,000" in each.title
        ]
    command = [sys.executable, "-m", "bench", "--workload", "no such thing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "no workload's title has no such thing in it" in done.stderr


def test_a_kraft_node_keeps_its_data_over_a_kill(tmp_path: Path) -> None:
    with KraftBroker(1, {1: unused_port()}, new_cluster_id(), tmp_path / "node") as broker:
        create_topic(broker.bootstrap, "kept", 2)
        broker.kill()
        broker.start()
        assert sorted(leaders(broker.port, "kept")) == [0, 1]


def test_an_interrupted_run_reports_the_rounds_that_it_measured(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "bench", "--rounds", "50", "--scale", "0.01", "--out", str(tmp_path)]
    command += ["--target", "landline", "--suite", "memory"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert any(line.startswith("round 2") for line in process.stdout)
        process.send_signal(signal.SIGINT)
        process.stdout.read()
    assert process.returncode == 0
    result = json.loads((tmp_path / "report.json").read_text())
    assert result["facts"]["duration"].endswith("stopped before its end")
    assert [sample["metric"] for sample in result["samples"] if sample["round_number"] == 0] == [
        "rss_idle",
        "rss_loaded",
    ]
