"""Groups load on a scheduler of their own: neither waits the other's work out."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from broker.config.broker_config import BrokerConfig
from broker.server.broker_server import BrokerServer
from broker.zookeeper.embedded import EmbeddedStore
from rig.brokers import HOST, unused_port
from rig.topics import create_topic
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_a_group_is_served_while_every_background_thread_is_held_up(tmp_path: Path) -> None:
    """Its partition of __consumer_offsets is first led, and so loaded, meanwhile."""
    port, http_port = unused_port(), unused_port()
    config = BrokerConfig.from_properties(
        {
            "broker.id": "0",
            "zookeeper.connect": "unused",
            "listeners": f"PLAINTEXT://{HOST}:{port}",
            "log.dirs": str(tmp_path / "data"),
            "background.threads": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "landline.http.host": HOST,
            "landline.http.port": str(http_port),
            "landline.log.dir.min.free.bytes": str(64 << 20),
        }
    )
    server = BrokerServer(config, store=EmbeddedStore(tmp_path / "metadata.db"))
    server.startup(threading.Event())
    held, go_on = threading.Event(), threading.Event()

    def hold() -> None:
        held.set()
        go_on.wait()

    try:
        create_topic(f"{HOST}:{port}", "orders", 1)
        server.scheduler.schedule("hold", hold)
        wait_until(held.is_set)
        consumer = Consumer({"bootstrap.servers": f"{HOST}:{port}", "group.id": "g"})
        consumer.commit(offsets=[TopicPartition("orders", 0, 0)], asynchronous=False)
        (found,) = consumer.committed([TopicPartition("orders", 0)], timeout=30)
        assert found.offset == 0
        consumer.close()
        assert not go_on.is_set()
    finally:
        go_on.set()
        server.shutdown()
