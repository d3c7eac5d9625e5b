"""Each client writes and reads back through a single broker, and the checker is content.

Against Apache Kafka this tests the drivers, against Landline the broker.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.checker import check, summary
from chaos.history import Acked, Committed
from rig.landline_broker import LandlineStandalone
from rig.topics import create_topic
from tests.support import workloads
from tests.support.clients.driver import Workload
from tests.support.peers import Peer
from tests.support.workloads import DRIVERS, audit

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

RECORDS = 5_000
PARTITIONS = 3


def test_each_client_reads_back_what_it_wrote_in_a_group(peer: Peer) -> None:
    with peer.cluster() as cluster:
        for client in DRIVERS:
            create_topic(cluster.bootstrap, client, PARTITIONS)
            history = workloads.run(Workload(client, cluster.bootstrap, client, PARTITIONS, RECORDS))
            assert not (found := check(history)), f"{client}: {summary(found)}"
            assert sum(1 for _ in history.of_type(Acked)) == RECORDS, client
            again = check(audit(cluster.bootstrap, client, history))
            assert not again, f"{client}, audit: {summary(again)}"
            if client != "kcat":
                assert any(True for _ in history.of_type(Committed)), client


def test_landline_standalone_serves_each_client_and_keeps_their_data(tmp_path: Path) -> None:
    config = {"offsets.topic.num.partitions": 4, "group.initial.rebalance.delay.ms": 0}
    with LandlineStandalone(tmp_path / "data", config) as broker:
        histories = {}
        for client in DRIVERS:
            create_topic(broker.bootstrap, client, PARTITIONS)
            workload = Workload(client, broker.bootstrap, client, PARTITIONS, 1_000, consumers=1)
            histories[client] = workloads.run(workload)
        broker.stop()
        broker.start()
        for client, history in histories.items():
            for found in (check(history), check(audit(broker.bootstrap, client, history))):
                assert not found, f"{client}: {summary(found)}"
