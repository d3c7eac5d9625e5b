"""Starting and stopping: data kept, a stop heeded at any moment, torn logs mended."""

from __future__ import annotations

import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time
from pathlib import Path

import psutil
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from broker.config.log_config import LogConfig
from broker.log.log_manager import LogManager
from broker.record.batch import build_batch, iter_batches
from broker.record.records import Record
from broker.utils.topic_partition import TopicPartition as PartitionName
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from rig.brokers import HOST, BrokerProcess
from rig.landline_broker import COMMAND, REPOSITORY, LandlineBroker, LandlineStandalone
from rig.ports import free_port
from rig.processes import MIB
from rig.raw_client import RawClient
from rig.topics import create_topic, record_count
from rig.wait import last_for, wait_until
from rig.wire import answers_api_versions
from rig.zookeeper import ZooKeeperServer
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC = "kept"
RSS_LIMIT_MB = 40
STOP_WITHIN_S = 20.0
# Of a start that takes some 0.3 s on an idle machine and several times that on a busy one.
MOMENTS_MS = [10, 30, 50, 80, 110, 140, 170, 200, 240, 280, 330, 380, 440, 500, 600, 800, 1200]


def produce(bootstrap: str, topic: str, values: list[bytes]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "acks": "all", "linger.ms": 0})
    errors: list[object] = []
    for value in values:
        producer.produce(
            topic, value, partition=0, on_delivery=lambda error, _: error and errors.append(error)
        )
    assert producer.flush(60) == 0
    assert not errors


def stops_cleanly_amid_start(broker: LandlineBroker | LandlineStandalone, delay_ms: int) -> bool:
    """Whether SIGTERM so long after its start ends the broker with 0.

    Before Python has come to our first line it ends the process as it does any other, however long that takes
    on a busy machine: such a process has printed nothing.
    """
    printed = len(broker.log_text())
    broker.start_nowait()
    last_for(delay_ms / 1000)
    ended = broker.stop(STOP_WITHIN_S)
    return ended == 0 or (ended == -signal.SIGTERM and len(broker.log_text()) == printed)


def consume(bootstrap: str, topic: str, number: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        values: list[bytes] = []

        def read() -> bool:
            values.extend(m.value() for m in consumer.consume(1000, 0.2) if m.error() is None)
            return len(values) >= number

        wait_until(read, timeout=60, what=lambda: f"{number} records, {len(values)} came")
        return values
    finally:
        consumer.close()


# --- standalone


def test_standalone_serves_on_an_empty_directory_soon(tmp_path: Path, capsys) -> None:
    broker = LandlineStandalone(tmp_path / "data")
    began = time.monotonic()
    broker.start_nowait()
    try:
        wait_until(lambda: answers_api_versions(HOST, broker.port), timeout=30, interval=0.005)
        took = time.monotonic() - began
    finally:
        broker.kill()
    with capsys.disabled():
        print(f"\nstandalone answered ApiVersions {took * 1000:.0f} ms after its start")
    assert took < 15


def test_standalone_prints_the_port_it_took(tmp_path: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "standalone", "--port", "0", "--data-dir", str(tmp_path / "data")],
        cwd=REPOSITORY,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r"ready on 127\.0\.0\.1:(\d+)", process.stdout.readline())
            assert found
            assert answers_api_versions(HOST, int(found[1]))
        finally:
            process.terminate()
            assert process.wait(STOP_WITHIN_S) == 0


class FromAShell(LandlineStandalone):
    """With few open files allowed, until the process itself asks for more."""

    def _command(self) -> list[str]:
        return ["prlimit", "--nofile=100:5000", *super()._command()]


def test_standalone_has_as_many_files_open_as_the_system_allows(tmp_path: Path) -> None:
    """A shell's limit is spent on as many partitions; the JVM raises it likewise."""
    with FromAShell(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, TOPIC, 100)
        with RawClient(HOST, broker.port) as client:
            records = build_batch([Record(None, b"x")])
            assert {client.produce(TOPIC, number, records).error_code for number in range(100)} == {0}
        assert "log_dir_failed" not in broker.log_text()


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_standalone_keeps_everything_over_a_restart(end: str, tmp_path: Path) -> None:
    values = [b"record %d" % number for number in range(500)]
    broker = LandlineStandalone(tmp_path / "data")
    with broker:
        create_topic(broker.bootstrap, TOPIC, 2, config={"retention.ms": "123456789"})
        produce(broker.bootstrap, TOPIC, values)
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "keeper"})
        consumer.commit(offsets=[TopicPartition(TOPIC, 0, 321)], asynchronous=False)
        consumer.close()
        if end == "stop":
            assert broker.stop() == 0
        else:
            broker.kill()
        broker.start()
        assert consume(broker.bootstrap, TOPIC, len(values)) == values
        again = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "keeper"})
        (committed,) = again.committed([TopicPartition(TOPIC, 0)], timeout=30)
        again.close()
        assert committed.offset == 321
        resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        configs = admin.describe_configs([resource])[resource].result(30)
        assert configs["retention.ms"].value == "123456789"
        assert len(admin.list_topics(TOPIC, timeout=30).topics[TOPIC].partitions) == 2
        produce(broker.bootstrap, TOPIC, [b"after"])
        assert record_count(broker.bootstrap, TOPIC) == len(values) + 1


def test_sigterm_at_any_moment_of_a_standalones_start_ends_it_cleanly(tmp_path: Path) -> None:
    broker = LandlineStandalone(tmp_path / "data")
    with broker:
        create_topic(broker.bootstrap, TOPIC, 2)
        produce(broker.bootstrap, TOPIC, [b"one", b"two"])
        assert broker.stop() == 0
    for delay_ms in MOMENTS_MS:
        assert stops_cleanly_amid_start(broker, delay_ms), delay_ms
    with broker:
        assert consume(broker.bootstrap, TOPIC, 2) == [b"one", b"two"]
    text = broker.log_text()
    assert "Traceback" not in text
    assert "stop_step_failed" not in text
    assert " error " not in text


def test_sigterm_before_the_configuration_is_read_ends_it_cleanly(tmp_path: Path) -> None:
    """The properties file is a pipe: the process is caught in its very first step."""
    pipe = tmp_path / "server.properties"
    os.mkfifo(pipe)
    settings = (
        f"broker.id=1\nlisteners=PLAINTEXT://{HOST}:0\nlandline.http.port=0\nlog.dirs={tmp_path}/data\n"
    )
    with subprocess.Popen(
        [*COMMAND, "start", str(pipe), "--override", f"zookeeper.connect={HOST}:{free_port()}"],
        cwd=REPOSITORY,
    ) as process:
        try:
            with pipe.open("w") as file:  # returns when the other side has opened it
                process.send_signal(signal.SIGTERM)
                file.write(settings)
            assert process.wait(STOP_WITHIN_S) == 0
        finally:
            process.kill()


# --- with ZooKeeper


def cluster(zk_connect: str) -> ClusterStore:
    store = ZooKeeperStore(zk_connect, 10_000)
    store.connect(10_000, threading.Event())
    return ClusterStore(store)


def test_sigterm_while_zookeeper_is_absent_ends_it_cleanly(tmp_path: Path) -> None:
    broker = LandlineBroker(1, f"{HOST}:{free_port()}/nobody", tmp_path / "data")
    for delay_ms in (20, 100, 250, 400, 700, 1500):
        assert stops_cleanly_amid_start(broker, delay_ms), delay_ms
    assert not (tmp_path / "data" / "meta.properties").exists()


def test_sigterm_at_any_moment_of_a_brokers_start_leaves_no_registration(
    zookeeper: ZooKeeperServer, tmp_path: Path
) -> None:
    zk_connect = zookeeper.chroot()
    broker = LandlineBroker(1, zk_connect, tmp_path / "data")
    for delay_ms in MOMENTS_MS:
        assert stops_cleanly_amid_start(broker, delay_ms), delay_ms
        store = cluster(zk_connect)
        try:
            registered = store.store.exists("/brokers/ids") and store.brokers()
            assert not registered, delay_ms
            assert store.store.exists("/controller") is None, delay_ms
        finally:
            store.store.close()
    with broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        produce(broker.bootstrap, TOPIC, [b"after all that"])
    text = broker.log_text()
    assert "Traceback" not in text
    assert "stop_step_failed" not in text


def own_mb(broker: BrokerProcess) -> float:
    """Resident memory without the library of the compiled code, which all brokers of a host share. How much
    of it is resident is the kernel's choice.
    """
    library = sum(
        mapping.rss
        for mapping in psutil.Process(broker.process.pid).memory_maps()
        if Path(mapping.path).name.startswith("landline__mypyc.")
    )
    return broker.rss_mb() - library / MIB


def test_idle_brokers_take_little_memory(zookeeper: ZooKeeperServer, tmp_path: Path, capsys) -> None:
    with (
        LandlineStandalone(tmp_path / "alone") as alone,
        LandlineBroker(1, zookeeper.chroot(), tmp_path / "member") as member,
    ):
        sizes = {"standalone": own_mb(alone), "with ZooKeeper": own_mb(member)}
        loaded = [Path(f"/proc/{broker.process.pid}/maps").read_text() for broker in (alone, member)]
    with capsys.disabled():
        print("\nidle, resident:", {name: f"{size:.1f} MiB" for name, size in sizes.items()})
    assert max(sizes.values()) < RSS_LIMIT_MB, sizes
    assert not [library for library in ("libssl", "libcrypto") if any(library in maps for maps in loaded)]


# --- recovery


def partition_log(broker: LandlineStandalone | LandlineBroker, topic: str = TOPIC) -> Path:
    (found,) = broker.log_dir.glob(f"**/{topic}-0/00000000000000000000.log")
    return found


DAMAGES = {
    "bytes behind the last batch": lambda data: data + os.urandom(777),
    "half a batch more": lambda data: data + data[: len(data) // 60],
    "zeroes behind the last batch": lambda data: data + bytes(4096),
    "last batch cut": lambda data: data[:-7],
    "bit flipped in the last batch": lambda data: data[:-9] + bytes([data[-9] ^ 0x10]) + data[-8:],
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_torn_tail_is_cut_off_with_one_line_of_how_much(damage, tmp_path: Path) -> None:
    values = [b"value %d" % number for number in range(20)]
    broker = LandlineStandalone(tmp_path / "data")
    with broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        for value in values:
            produce_raw(broker.port, value)
        broker.kill()
        path = partition_log(broker)
        whole = path.read_bytes()[: _data_end(path)]
        sizes = [header.size_bytes for header in iter_batches(whole)]
        assert len(sizes) == len(values)
        damaged = damage(whole)
        path.write_bytes(damaged)
        kept = len(values) if damaged.startswith(whole) else len(values) - 1
        broker.start()
        assert consume(broker.bootstrap, TOPIC, kept) == values[:kept]
        assert record_count(broker.bootstrap, TOPIC) == kept
        produce_raw(broker.port, b"after")
        assert consume(broker.bootstrap, TOPIC, kept + 1) == [*values[:kept], b"after"]
    lines = [line for line in broker.log_text().splitlines() if TOPIC in line and "truncated" in line]
    lost = len(damaged) - sum(sizes[:kept])
    assert len(lines) == 1, lines
    assert str(lost) in lines[0]
    assert " warning " in lines[0]


def _data_end(path: Path) -> int:
    data = path.read_bytes()
    return sum(header.size_bytes for header in iter_batches(data) if header.magic == 2)


def produce_raw(port: int, value: bytes) -> None:
    with RawClient(HOST, port) as client:
        record = Record(None, value, (), NOW_MS)
        assert client.produce(TOPIC, 0, build_batch([record])).error_code == 0


def big_unclean_log(directory: Path, megabytes: int) -> None:
    """One partition's segment as a broker leaves it that is killed: no clean-shutdown marker, no checkpoint."""
    batch = build_batch([Record(None, os.urandom(500), (), NOW_MS)] * 4, leader_epoch=0)
    size = len(batch)
    with directory.open("wb") as out:
        chunk = bytearray()
        for index in range(megabytes * (1 << 20) // size):
            struct.pack_into(">q", head := bytearray(batch), 0, index * 4)
            chunk += head
            if len(chunk) > 1 << 20:
                out.write(chunk)
                chunk.clear()
        out.write(chunk)


def many_unclean_segments(log_dir: Path) -> int:
    """Adds a long log to a killed broker's directory; how many segments it has."""
    manager = LogManager([str(log_dir)], LogConfig(segment_bytes=400))
    manager.startup()
    log = manager.get_or_create(PartitionName("long", 0))
    for _ in range(500):
        log.append_as_leader(memoryview(bytearray(build_batch([Record(None, b"x" * 300)]))), 0)
    manager.dirs.unlock()
    return len(log.segments)


def test_systemd_is_told_how_far_a_recovery_is_and_given_a_new_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with LandlineStandalone(tmp_path / "data") as broker:
        broker.kill()
    segments = many_unclean_segments(tmp_path / "data" / "logs")
    name = f"@landline-test-{os.getpid()}"
    told: list[str] = []
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind("\0" + name[1:])
        systemd.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", name)
        with LandlineStandalone(tmp_path / "data") as broker:
            while "READY=1" not in (told[-1] if told else ""):
                told.append(systemd.recv(4096).decode())
            broker.kill()
    recovering = [text for text in told if "Recovering" in text]
    assert recovering
    assert all("EXTEND_TIMEOUT_USEC=" in text for text in recovering)
    assert f"STATUS=Recovering: {segments} of {segments} segments verified" in recovering[-1]


def test_sigterm_during_recovery_ends_it_and_the_next_start_recovers_all(tmp_path: Path) -> None:
    broker = LandlineStandalone(tmp_path / "data")
    with broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        produce_raw(broker.port, b"first")
        broker.kill()
        path = partition_log(broker)
        big_unclean_log(path, 200)
        for index in (".index", ".timeindex"):
            path.with_suffix(index).unlink(missing_ok=True)
        expected = sum(header.record_count for header in iter_batches(path.read_bytes()))

        def recovering() -> bool:
            return "RecoveringFromUncleanShutdown" in broker.log_text()[before:]

        for _ in range(2):
            before = len(broker.log_text())
            broker.start_nowait()
            wait_until(recovering, timeout=30, interval=0.005)
            assert broker.stop(STOP_WITHIN_S) == 0
        assert path.stat().st_size > 199 << 20
        broker.start()
        assert record_count(broker.bootstrap, TOPIC) == expected
    assert "Traceback" not in broker.log_text()
