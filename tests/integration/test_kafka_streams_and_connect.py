"""Kafka Streams with exactly_once_v2, and Kafka Connect with exactly-once sources, killed in the middle."""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Message, Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient

from rig.brokers import Cluster
from rig.topics import create_topic, record_count
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.conftest import PEERS
from tests.support.exactly_once import committed_records, read_committed
from tests.support.kafka_apps import ConnectWorker, await_more, counter
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(400)]

TIMEOUT_S = 60
PARTITIONS = 2
KEYS = 20
RECORDS = 2_000
LINES = 3_000
PER_TRANSACTION = 20
RESETTER = "org.apache.kafka.tools.StreamsResetter"


@pytest.fixture(scope="module", params=PEERS, ids=lambda kind: kind.value)
def cluster(
    request: pytest.FixtureRequest, zookeeper: ZooKeeperServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    peer = Peer(request.param, zookeeper, tmp_path_factory.mktemp("brokers"))
    with peer.cluster((1, 2, 3)) as running:
        yield running
        for broker in running.brokers.values():
            assert "traceback=" not in broker.log_text()


def write(cluster: Cluster, topic: str, numbers: range) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "enable.idempotence": True})
    for number in numbers:
        producer.produce(topic, b"v", b"key-%d" % (number % KEYS))
    assert producer.flush(TIMEOUT_S) == 0


def test_a_streams_application_that_was_killed_counts_each_record_once(
    cluster: Cluster, tmp_path: Path
) -> None:
    for topic in ("words", "counts"):
        create_topic(cluster.bootstrap, topic, PARTITIONS, 3)
    write(cluster, "words", range(RECORDS // 2))

    def counts() -> list[Message]:
        return committed_records(cluster.bootstrap, "counts", PARTITIONS)

    with counter(cluster.bootstrap, "counter", "words", "counts", tmp_path) as first:
        await_more(lambda: len(counts()), RECORDS // 10, "counts before the kill")
        first.jvm.kill()
    write(cluster, "words", range(RECORDS // 2, RECORDS))
    with counter(cluster.bootstrap, "counter", "words", "counts", tmp_path) as second:
        await_more(lambda: len(counts()), RECORDS, "counts")
        assert second.state == "RUNNING"
        second.close()
        found: defaultdict[bytes, list[int]] = defaultdict(list)
        for message in counts():
            found[message.key() or b""] += struct.unpack(">q", message.value() or b"")
        assert len(found) == KEYS
        for key, numbers in found.items():
            assert numbers == [*range(1, RECORDS // KEYS + 1)], key
        options = ("--application-id", "counter", "--input-topics", "words", "--force")
        reset = second.jvm.run(RESETTER, "--bootstrap-server", cluster.bootstrap, *options)
    assert reset.code == 0, reset
    assert "Topic: words Partition: 1 Offset: 0" in reset.printed
    group = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "counter"})
    partitions = [At("words", number) for number in range(PARTITIONS)]
    assert [each.offset for each in group.committed(partitions, TIMEOUT_S)] == [0] * PARTITIONS
    group.close()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    wait_until(
        lambda: not any(topic.startswith("counter-") for topic in admin.list_topics(timeout=30).topics),
        what="the internal topics are deleted",
    )


def test_a_connect_worker_that_was_killed_moves_each_line_once(cluster: Cluster, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap, "lines", 1, 3)
    source, sink = tmp_path / "in.txt", tmp_path / "out.txt"
    lines = [f"line {number}" for number in range(LINES)]
    source.write_text("".join(f"{line}\n" for line in lines))

    def grown() -> bool:
        """Adds a line: the source has lines of its buffer wait until the file grows."""
        lines.append(f"line {len(lines)}")
        with source.open("a") as file:
            file.write(f"{lines[-1]}\n")
        return lines[LINES] in sunk()

    worker = ConnectWorker(cluster.bootstrap, tmp_path)

    def sunk() -> list[str]:
        return sink.read_text().splitlines() if sink.exists() else []

    try:
        worker.start()
        worker.make("sink", connector_class="FileStreamSink", topics="lines", file=sink)
        worker.make(
            "source",
            connector_class="FileStreamSource",
            topic="lines",
            file=source,
            batch_size=PER_TRANSACTION,
            exactly_once_support="required",
            transaction_boundary="poll",
        )
        await_more(lambda: record_count(cluster.bootstrap, "lines"), LINES // 10, "before the kill")
        worker.process.kill()
        assert record_count(cluster.bootstrap, "lines") < LINES, "killed in the middle"
        worker.start()
        wait_until(grown, 2 * TIMEOUT_S, interval=0.2, what=worker.process.log_tail)
        assert worker.is_running("source")
        assert worker.is_running("sink")
    finally:
        worker.process.kill()
    moved = [value.decode() for value in read_committed(cluster.bootstrap, "lines")]
    assert moved == lines[: len(moved)]
    # A sink's offsets are committed after its writes: it may repeat lines, and has none out of committed ones.
    once = list(dict.fromkeys(sunk()))
    assert len(once) > LINES
    assert once == lines[: len(once)]
