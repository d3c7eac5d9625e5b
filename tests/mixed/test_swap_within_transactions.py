"""A cluster of Apache Kafka becomes one of Landline and Kafka's again while a job writes exactly once."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from rig.zookeeper import ZooKeeperServer
from tests.mixed.cluster import KAFKA, LANDLINE, OFFSETS_TOPIC, MixedCluster
from tests.support import log_dump
from tests.support.exactly_once import TIMEOUT_S, Copier, read_committed

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(600)]
STATE_TOPIC = "__transaction_state"
SOURCE, TARGET, SLOW = "source", "target", "slow"
CONFIG = {"transaction.state.log.num.partitions": 3, "transaction.state.log.min.isr": 2}


class SlowProducer:
    """Its transactions last as long as a broker's replacement; every other one is aborted."""

    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": SLOW, "linger.ms": 0})
        self._producer.init_transactions(TIMEOUT_S)
        self._turn = 0
        self.committed: list[bytes] = []

    def begin(self) -> None:
        """Begins a transaction and writes a record in it."""
        self._turn += 1
        self._producer.begin_transaction()
        self._write("before")

    def end(self) -> None:
        """Writes another record and ends the transaction."""
        self._write("after")
        if self._turn % 2:
            self._producer.commit_transaction(TIMEOUT_S)
            self.committed += [b"%d before" % self._turn, b"%d after" % self._turn]
        else:
            self._producer.abort_transaction(TIMEOUT_S)

    def _write(self, when: str) -> None:
        self._producer.produce(SLOW, f"{self._turn} {when}", partition=0)
        assert self._producer.flush(TIMEOUT_S) == 0


def test_all_brokers_are_replaced_and_back_within_transactions_and_each_record_is_copied_once(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    with MixedCluster(zookeeper, tmp_path, {1: KAFKA, 2: KAFKA, 3: KAFKA}, CONFIG) as cluster:
        cluster.create_offsets_topic()
        topics = [SOURCE, TARGET, SLOW]
        for topic in topics:
            cluster.create_topic(topic)
        slow = SlowProducer(cluster.bootstrap)
        with Copier(cluster.bootstrap, SOURCE, TARGET) as copier:
            for kind in (LANDLINE, KAFKA):
                for broker_id in sorted(cluster.brokers):
                    copier.await_progress(20)
                    cluster.await_in_sync([*topics, OFFSETS_TOPIC, STATE_TOPIC])
                    slow.begin()
                    cluster.replace(broker_id, kind)
                    slow.end()
            copier.await_progress(20)
        assert read_committed(cluster.bootstrap, TARGET) == [b"%d" % n for n in range(copier.written)]
        assert read_committed(cluster.bootstrap, SLOW) == slow.committed
        cluster.await_in_sync([*topics, OFFSETS_TOPIC, STATE_TOPIC])
        cluster.stop_all()
        wrong = log_dump.problems(*cluster.log_dirs().values())
        assert not wrong, "\n".join(wrong[:20])
