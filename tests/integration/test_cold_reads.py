"""Reading what has left the page cache, from a real disk."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from broker.log.look_ups import is_cached
from broker.protocol.errors import Errors, KafkaError
from broker.record.batch import Record, build_batch
from rig.brokers import HOST, Cluster
from rig.disks import SmallDisk, needs_slow_disks, needs_small_disks
from rig.landline_broker import LandlineBroker, LandlineStandalone
from rig.page_cache import drop_from_cache
from rig.raw_client import RawClient
from rig.topics import await_leaders, create_topic
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support.logs import batch, open_log
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120), needs_small_disks()]

TOPIC, RECORDS, RECORD_BYTES = "cold", 6000, 2048
STORAGE_ERROR, NOT_LEADER = 56, 6


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with SmallDisk(tmp_path / "small", 128) as made:
        yield made


def write(bootstrap: str) -> list[bytes]:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 20})
    values = [os.urandom(RECORD_BYTES) for _ in range(RECORDS)]
    for value in values:
        producer.produce(TOPIC, value, partition=0)
        producer.poll(0)
    assert producer.flush(60) == 0
    return values


def read(bootstrap: str, fetch_bytes: int) -> list[bytes]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "cold",
            "enable.auto.commit": False,
            "max.partition.fetch.bytes": fetch_bytes,
        }
    )
    values: list[bytes] = []

    def take() -> bool:
        values.extend(message.value() for message in consumer.consume(1000, 0.2) if message.error() is None)
        return len(values) >= RECORDS

    try:
        consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])
        wait_until(take, timeout=60, what=lambda: f"{RECORDS} records, {len(values)} came")
        return values
    finally:
        consumer.close()


def test_records_that_left_the_page_cache_are_read_back_as_they_were_written(disk: SmallDisk) -> None:
    """Segments and fetches of many sizes: the readers come and go between the cold and the warm."""
    with LandlineStandalone(disk.path / "data", {"log.segment.bytes": 2 << 20}) as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        written = write(broker.bootstrap)
        for fetch_bytes in (1 << 20, 64 << 10, 8 << 20):
            drop_from_cache(disk.path.rglob("*.log"))
            assert read(broker.bootstrap, fetch_bytes) == written
        assert read(broker.bootstrap, 1 << 20) == written
        assert "request_failed" not in broker.log_text()


def test_a_disk_that_cannot_be_read_fails_the_directory_and_not_the_processor(disk: SmallDisk) -> None:
    """Whether a region is cached is asked on the Processor's thread, to bring it in is a handler's."""
    log = open_log(disk.path)
    log.append_as_leader(batch(b"a"), 0)
    region = log.reader.read(0, 9999, end_offset=1, min_one_batch=True).region
    assert region is not None
    disk.stop_reading()
    assert not is_cached(region)
    with pytest.raises(KafkaError, match="cannot read") as caught:
        log.reader.bring_in(region)
    assert caught.value.error_code is Errors.KAFKA_STORAGE_ERROR
    assert log.health.failure is not None


def test_a_reader_of_a_disk_that_cannot_be_read_is_told_at_once(tmp_path: Path, disk: SmallDisk) -> None:
    """By an error or the end of the connection, never by silence; the other directory is served on."""
    good = tmp_path / "good"
    dirs = f"{good},{disk.path}/bad"
    with LandlineStandalone(tmp_path / "data", {"log.dirs": dirs, "log.segment.bytes": 2 << 20}) as broker:
        create_topic(broker.bootstrap, TOPIC, 2)  # one in each directory
        on_bad = next(n for n in (0, 1) if (disk.path / "bad" / f"{TOPIC}-{n}").is_dir())
        for number in (0, 1):
            for _ in range(4):
                produce(broker.port, number)
        drop_from_cache(disk.path.rglob("*.log"))
        disk.stop_reading()

        def fetched(number: int) -> int | None:
            with suppress(ConnectionError), RawClient(HOST, broker.port) as client:
                return int(client.fetch(TOPIC, number, 0).error_code)
            return None

        assert fetched(on_bad) in (None, STORAGE_ERROR)
        wait_until(lambda: fetched(on_bad) in (STORAGE_ERROR, NOT_LEADER), timeout=30)
        assert fetched(1 - on_bad) == 0
        wait_until(lambda: "log_dir_failed" in broker.log_text(), timeout=30)


@needs_slow_disks()
@pytest.mark.parametrize("at", [0, 3], ids=["a segment's begin", "another place"])
def test_who_reads_from_a_slow_disk_holds_up_nobody_else(tmp_path: Path, disk: SmallDisk, at: int) -> None:
    """Not before the records' place is found either: that reads headers and indexes."""
    configs = {
        "log.dirs": f"{tmp_path / 'good'},{disk.path}/slow",
        "log.segment.bytes": 4 << 20,
        "num.network.threads": 1,
    }
    with LandlineStandalone(tmp_path / "data", configs) as broker, ThreadPoolExecutor(1) as beside:
        create_topic(broker.bootstrap, TOPIC, 2)  # one in each directory
        slow = next(n for n in (0, 1) if (disk.path / "slow" / f"{TOPIC}-{n}").is_dir())
        for number in (0, 1):
            for _ in range(8):
                produce(broker.port, number)
        drop_from_cache(path for path in disk.path.rglob("*.*") if path.suffix in {".log", ".index"})
        with RawClient(HOST, broker.port) as reader, RawClient(HOST, broker.port) as other:
            reader.fetch(TOPIC, 1 - slow, 0)  # both are known by now
            with disk.stalled_for(broker.process.pid):
                waiting = beside.submit(lambda: reader.fetch(TOPIC, slow, at))
                for _ in range(200):
                    assert other.fetch(TOPIC, 1 - slow, at).error_code == 0
                assert not waiting.done()
            assert waiting.result(60).error_code == 0


@needs_slow_disks()
def test_a_follower_that_is_behind_holds_up_no_producer_though_the_leaders_disk_is_slow(
    tmp_path: Path, disk: SmallDisk, zookeeper: ZooKeeperServer
) -> None:
    """Where its records begin is read before the partition's lock is taken, for which a producer waits."""
    configs, zk_connect = {"log.segment.bytes": 4 << 20, "num.network.threads": 1}, zookeeper.chroot()
    leader = LandlineBroker(1, zk_connect, disk.path / "leader", configs)
    follower = LandlineBroker(2, zk_connect, tmp_path / "follower")
    with Cluster({1: leader, 2: follower}, zk_connect) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, replica_assignment=[[1, 2]])])[TOPIC].result(30)
        await_leaders(cluster.bootstrap, TOPIC, 1)
        follower.stop()
        for _ in range(9):
            produce(leader.port, 0, acks=1)
        drop_from_cache(sorted((leader.log_dir / f"{TOPIC}-0").glob("*.log"))[:-1])  # the last is written to
        with disk.stalled_for(leader.process.pid):
            follower.start_nowait()
            wait_until(lambda: waits_for_its_disk(leader.process.pid), timeout=60)
            for _ in range(3):
                produce(leader.port, 0, acks=1)
            assert bytes_of(follower) == 0
        wait_until(lambda: bytes_of(follower) == bytes_of(leader), timeout=60)


def bytes_of(broker: LandlineBroker) -> int:
    return sum(file.stat().st_size for file in (broker.log_dir / f"{TOPIC}-0").glob("*.log"))


def waits_for_its_disk(pid: int) -> bool:
    states = [path.read_text() for path in Path(f"/proc/{pid}/task").glob("*/stat")]
    return any(state.rpartition(") ")[2].startswith("D") for state in states)


def produce(port: int, partition: int, acks: int = -1) -> None:
    with RawClient(HOST, port) as client:
        records = build_batch([Record(None, os.urandom(900_000), (), NOW_MS)])
        assert client.produce(TOPIC, partition, records, acks=acks).error_code == 0
