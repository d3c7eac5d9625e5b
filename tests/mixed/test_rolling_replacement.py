"""A cluster of Apache Kafka becomes one of Landline, broker by broker on the same data, and Kafka's again."""

from __future__ import annotations

import subprocess
from functools import partial
from pathlib import Path

import pytest

from chaos.anomalies import summary
from chaos.coordination import TRANSACTION_TOPIC
from chaos.load import Load, LoadPlan, findings
from rig.landline_broker import COMMAND
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.mixed.cluster import KAFKA, LANDLINE, OFFSETS_TOPIC, MixedCluster
from tests.mixed.compacted import BROKER_CONFIG, TOPIC_CONFIG, Table, table_on_disk
from tests.support import log_dump
from tests.support.peers import PeerKind

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
PLAN = LoadPlan(records_per_s=300, value_size=200)
LOAD_TIMEOUT_S = 120.0
TABLE = "table"
COMPACTED = {KAFKA: f"cleaned log {TABLE}-0", LANDLINE: f"log_compacted partition={TABLE}-0"}
"""What a broker of each kind prints when its cleaner has done its work."""


def hand_over(cluster: MixedCluster, broker_id: int, kind: PeerKind) -> None:
    """One broker's steps of the runbook (docs/operations.md)."""
    check = subprocess.run([*COMMAND, "check-config", str(cluster.properties(broker_id))], check=False)
    assert check.returncode == 0
    cluster.brokers[broker_id].stop()
    assert (cluster.log_dir(broker_id) / ".kafka_cleanshutdown").exists()
    cluster.start_as(broker_id, kind)


def compacted_by(cluster: MixedCluster, kind: PeerKind) -> bool:
    return any(COMPACTED[kind] in broker.log_text() for broker in cluster.brokers.values())


def test_all_brokers_are_replaced_by_landline_and_back_under_load_and_nothing_is_lost(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    kinds = {1: KAFKA, 2: KAFKA, 3: KAFKA}
    with MixedCluster(zookeeper, tmp_path / "cluster", kinds, BROKER_CONFIG) as cluster:
        cluster.create_offsets_topic()
        cluster.create_topic(TABLE, TOPIC_CONFIG)
        table = Table(cluster.bootstrap, TABLE)
        small_segments = {"segment.bytes": "100000"}
        with Load(cluster.bootstrap, PLAN, tmp_path, run="load", topic_config=small_segments) as load:
            load.await_transactions(LOAD_TIMEOUT_S)
            topics = [*load.topics, TABLE, OFFSETS_TOPIC, TRANSACTION_TOPIC]
            for kind in (LANDLINE, KAFKA):
                for broker_id in sorted(cluster.brokers):
                    table.write(rounds=3)
                    load.await_progress(100, LOAD_TIMEOUT_S)
                    cluster.await_in_sync(topics)
                    hand_over(cluster, broker_id, kind)
                load.rebalance()
                wait_until(
                    partial(compacted_by, cluster, kind), LOAD_TIMEOUT_S, 0.2, f"{kind.value} compacts"
                )
            load.await_progress(300, LOAD_TIMEOUT_S)
            load.await_transactions(LOAD_TIMEOUT_S)
            cluster.await_in_sync(topics)
            history = load.finish(LOAD_TIMEOUT_S)
        cluster.stop_all()
        found = findings(history, cluster.log_dirs())
        assert not found, summary(found)
        assert load.failed() == 0
        for broker_id, log_dir in cluster.log_dirs().items():
            on_disk, records = table_on_disk(log_dir, TABLE)
            assert on_disk == table.expected, f"broker {broker_id}"
            assert records < table.written, f"broker {broker_id} never compacted"
        for broker in cluster.brokers.values():
            assert "no clean shutdown file was found" not in broker.log_text()
            assert "clean=false" not in broker.log_text()
        wrong = log_dump.problems(*cluster.log_dirs().values())
        assert not wrong, "\n".join(wrong[:20])
