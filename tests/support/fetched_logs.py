"""Finds the producer of each batch by asking the brokers: for clusters whose files a test cannot read."""

from __future__ import annotations

from confluent_kafka.admin import AdminClient

from broker.record.batch import iter_batches
from chaos.resent import Incarnation
from rig.raw_client import RawClient


class FetchedLogs:
    """The :class:`chaos.resent.Incarnations` of a running cluster: fetches each batch from its leader."""

    def __init__(self, bootstrap: str) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap})

    def incarnation(self, topic: str, partition: int, offset: int) -> Incarnation | None:
        cluster = self._admin.list_topics(topic, timeout=30)
        leader = cluster.brokers[cluster.topics[topic].partitions[partition].leader]
        with RawClient(leader.host, leader.port) as client:
            records = client.fetch(topic, partition, offset).records or b""
        for header in iter_batches(memoryview(records)):
            if header.base_offset <= offset <= header.last_offset:
                return header.producer_id, header.producer_epoch
        return None
