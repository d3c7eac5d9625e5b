"""Each client writes and reads back through a broker, and through brokers that are bounced: the checker is content.

Against Apache Kafka this tests the drivers, against Landline the broker.
"""

from __future__ import annotations

import pytest

from tests.support import workloads
from tests.support.brokers import BrokerProcess
from tests.support.checker import check, summary
from tests.support.clients.driver import Workload
from tests.support.history import Acked, Committed, Failed
from tests.support.peers import Peer
from tests.support.workloads import DRIVERS, WorkloadProcess, audit, create_topic, new_gate

pytestmark = [pytest.mark.integration, pytest.mark.timeout(400)]

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


@pytest.mark.slow
def test_each_client_survives_a_stop_and_a_kill_of_every_broker_in_turn(peer: Peer) -> None:
    with peer.cluster((1, 2, 3)) as cluster:
        gate = new_gate()
        running = []
        for client in DRIVERS:
            create_topic(cluster.bootstrap, client, PARTITIONS, 3, {"min.insync.replicas": "2"})
            workload = Workload(
                client, cluster.bootstrap, client, PARTITIONS, RECORDS, records_per_s=150, held_back=500
            )
            running.append(WorkloadProcess(workload, gate))
        for broker in cluster.brokers.values():
            _bounce(broker)
        gate.set()
        for process in running:
            history = process.result(200)
            client = process.workload.client
            assert not (found := check(history)), f"{client}: {summary(found)}"
            failed = [event.reason for event in history.of_type(Failed)]
            assert not failed, f"{client}: {len(failed)} failed: {failed[0]}"


def _bounce(broker: BrokerProcess) -> None:
    broker.stop()
    broker.start()
    broker.kill()
    broker.start()
