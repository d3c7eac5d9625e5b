"""Messages of magic 0 and 1 on the disk of Kafka's broker: Landline's replicates them, and leads later."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition
from confluent_kafka.cimpl import NewTopic
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.record.batch import read_records
from broker.record.message_set import each_message
from rig.brokers import HOST
from rig.raw_client import RawClient
from rig.topics import await_leaders
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.mixed.cluster import CALL_TIMEOUT_S, KAFKA, LANDLINE, RECOVERY_TIMEOUT_S, MixedCluster
from tests.support.times import NOW_MS
from tests.support.valid_requests import some_records

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(180)]
TOPIC = "from-an-old-cluster"
OLD = 600
GZIP = 1
THEIRS, OURS = 1, 2
Row = tuple[int, int, bytes]
"""Offset, time and value."""


@pytest.fixture
def cluster(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[MixedCluster]:
    kinds = {THEIRS: KAFKA, OURS: LANDLINE}
    config = {"min.insync.replicas": 1, "offsets.topic.replication.factor": 1}
    with MixedCluster(zookeeper, tmp_path, kinds, config) as made:
        yield made


def old_messages() -> tuple[bytes, list[Row]]:
    """A segment of plain messages of magic 0, plain ones of magic 1, and wrappers of magic 1; and its records."""
    data = bytearray()
    rows: list[Row] = []
    for magic, codec_id, count in ((0, 0, 100), (1, 0, 300), (1, GZIP, 100), (1, GZIP, 100)):
        builder = LegacyRecordBatchBuilder(magic, codec_id, 1 << 20)
        first = len(rows)
        for number in range(count):
            value = b"%d" % (first + number)
            builder.append(number if codec_id else first + number, NOW_MS + first + number, b"key", value)
            rows.append((first + number, NOW_MS + first + number if magic else -1, value))
        built = builder.build()
        if codec_id:  # a wrapper has the offset of its last message
            built[:8] = (first + count - 1).to_bytes(8, "big")
        data += built
    return bytes(data), rows


def in_place_of(folder: Path, data: bytes) -> None:
    """The partition's only segment, as an old cluster left it."""
    (log,) = folder.glob("*.log")
    for path in folder.iterdir():
        if path.suffix in {".index", ".timeindex", ".snapshot"} or path.name == "leader-epoch-checkpoint":
            path.unlink()
    log.write_bytes(data)
    (folder.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)


def read_by_new(cluster: MixedCluster, count: int) -> list[Row]:
    """What librdkafka reads."""
    reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g", "enable.auto.commit": False})
    reader.assign([TopicPartition(TOPIC, 0, 0)])
    rows: list[Row] = []
    while len(rows) < count:
        message = reader.poll(CALL_TIMEOUT_S)
        assert message is not None, f"{len(rows)} of {count} came"
        assert message.error() is None, message.error()
        offset, value = message.offset(), message.value()
        kind, time = message.timestamp()
        assert offset is not None
        assert value is not None
        rows.append((offset, -1 if kind == TIMESTAMP_NOT_AVAILABLE else time, value))
    reader.close()
    return rows


def read_by_old(client: RawClient, count: int) -> dict[int, bytes]:
    """Offsets and values of plain messages, and the last offset and nothing of wrappers, as Fetch 2 gives them."""
    found: dict[int, bytes] = {}
    offset = 0
    while offset < count:
        row = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
        wanted = {"topic": TOPIC, "partitions": [row]}
        asked = {"replica_id": -1, "max_wait": 0, "min_bytes": 1, "topics": [wanted]}
        answer = client.ask(ApiKey.FETCH, 2, asked).responses[0].partitions[0]
        assert answer.error_code == Errors.NONE
        messages = list(each_message(memoryview(answer.records)))
        assert messages, f"nothing at {offset}"
        for message in messages:
            assert message.magic == 1
            found[message.offset] = b"" if message.codec_id else bytes(message.value or b"")
        offset = messages[-1].offset + 1
    return found


def await_isr(cluster: MixedCluster, *isr: int) -> None:
    wait_until(
        lambda: set(cluster.state(TOPIC, 0).isr) == set(isr),
        RECOVERY_TIMEOUT_S,
        0.1,
        lambda: f"{isr} in sync: {cluster.state(TOPIC, 0)}",
    )


def test_old_messages_of_kafkas_disk_are_replicated_and_served_by_landline(cluster: MixedCluster) -> None:
    theirs, ours = cluster.brokers[THEIRS], cluster.brokers[OURS]
    new = NewTopic(TOPIC, 1, replica_assignment=[[THEIRS, OURS]])
    admin = cluster.admin()
    admin.create_topics([new])[TOPIC].result(CALL_TIMEOUT_S)
    await_leaders(cluster.bootstrap, TOPIC, 1)
    ours.stop()
    await_isr(cluster, THEIRS)
    theirs.stop()
    data, rows = old_messages()
    in_place_of(cluster.log_dir(THEIRS) / f"{TOPIC}-0", data)
    theirs.start()
    ours.start()
    await_isr(cluster, THEIRS, OURS)
    assert cluster.state(TOPIC, 0).leader == THEIRS
    assert read_by_new(cluster, OLD) == rows

    theirs.stop()
    await_isr(cluster, OURS)
    await_leaders(ours.bootstrap, TOPIC, 1)
    assert read_by_new(cluster, OLD) == rows
    with RawClient(HOST, ours.port) as client:
        stored = read_records(client.fetch(TOPIC, 0, 0).records)
        assert [(record.offset, record.timestamp, record.value) for record in stored] == rows[: len(stored)]
        plain = {offset: value for offset, _, value in rows[:400]}
        assert read_by_old(client, OLD) == {**plain, 499: b"", 599: b""}
        assert client.produce(TOPIC, 0, some_records(b"new")).base_offset == OLD

    theirs.start()
    await_isr(cluster, OURS, THEIRS)
    cluster.elect_preferred(TOPIC)
    wait_until(lambda: cluster.state(TOPIC, 0).leader == THEIRS, RECOVERY_TIMEOUT_S, what="Kafka leads")
    found = read_by_new(cluster, OLD + 1)
    assert found[:OLD] == rows
    assert found[OLD][2] == b"new"
    assert "traceback=" not in ours.log_text()
