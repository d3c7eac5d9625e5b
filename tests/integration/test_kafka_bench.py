"""The benchmark's raw client writes what librdkafka reads, and every load runs against both brokers."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Consumer, TopicPartition

from bench import loads, raw
from bench.loads import LOADS, PARTITIONS
from tests.support.brokers import HOST
from tests.support.peers import Peer
from tests.support.processes import MIB
from tests.support.topics import create_topic, record_count

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]


def test_raw_batches_are_records_to_other_clients(peer: Peer) -> None:
    batch = raw.encode_batch(16 * 1024)
    with peer.cluster() as cluster:
        create_topic(cluster.bootstrap, "raw", PARTITIONS)
        written = raw.produce(HOST, cluster.brokers[1].port, "raw", PARTITIONS, batch, MIB, in_flight=5)
        assert record_count(cluster.bootstrap, "raw") == written // len(batch.data) * batch.records
        consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "check.crcs": True})
        consumer.assign([TopicPartition("raw", 1, 0)])
        (message,) = consumer.consume(1, 30)
        consumer.close()
        assert message.error() is None
        assert message.offset() == 0
        assert message.value() == bytes(range(256)) * 4


def test_every_load_moves_its_bytes(peer: Peer, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    loads.write_lines(lines, 4)
    with peer.cluster() as cluster:
        for load in LOADS:
            if load.fills:
                create_topic(cluster.bootstrap, load.topic, PARTITIONS)
            moved = load.run(cluster.brokers[1].port, 4, lines)
            assert 3.9 * MIB <= moved <= 8 * MIB, load.key
        assert record_count(cluster.bootstrap, "lines") == 4 * 1024


def test_an_error_code_ends_a_load(peer: Peer) -> None:
    with peer.cluster() as cluster:
        port = cluster.brokers[1].port
        with pytest.raises(raw.RawClientError, match="error code 3"):
            raw.produce(HOST, port, "absent", 1, raw.encode_batch(2048), MIB, in_flight=1)
        with pytest.raises(raw.RawClientError, match="error codes 0 and 3"):
            raw.fetch(HOST, port, "absent", 1, raw.encode_batch(2048), MIB, MIB)
