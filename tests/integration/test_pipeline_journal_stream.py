"""The journal job against real brokers: every input once, through a kill of the driver in mid-stream."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from rig.brokers import Cluster
from rig.jvm import SHORT_LIVED_JVM
from rig.processes import ManagedProcess
from rig.topics import all_records
from rig.wait import wait_until
from tests.support import parquet_sink
from tests.support.peers import Peer

pytestmark = [pytest.mark.integration, pytest.mark.slow, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[2]
TOPIC, WINDOWS, DEAD = "journal", "journal.windows", "journal.dead"
PARTITIONS = 3
START_MICROS = int(time.time() - 3600) * 1_000_000
Place = tuple[str, int, int]


class Job:
    """The job as its own process, restarted on the same checkpoint."""

    def __init__(self, directory: Path, bootstrap: str, *extra: str) -> None:
        self.output = directory / "records"
        self._log = directory / "job.log"
        self._command = [
            *(sys.executable, "-m", "pipeline.journal_stream", "--master", "local[2]"),
            *("--driver-host", "127.0.0.1", "--bootstrap-servers", bootstrap, "--topics", TOPIC),
            *("--output", str(self.output), "--checkpoint", str(directory / "checkpoint")),
            *("--windows-topic", WINDOWS, "--dead-letter-topic", DEAD, "--shuffle-partitions", "2"),
            *("--window", "1 minute", "--watermark", "1 minute", *extra),
        ]

    def process(self, *extra: str) -> ManagedProcess:
        options = f"--driver-memory 512m --driver-java-options '{' '.join(SHORT_LIVED_JVM)}'"
        env = {"PYSPARK_SUBMIT_ARGS": f"{options} --conf spark.ui.enabled=false pyspark-shell"}
        return ManagedProcess(
            "journal_stream", lambda: [*self._command, *extra], self._log, env=env, cwd=ROOT
        )

    def places(self) -> Counter[Place]:
        """Every (topic, partition, offset) of the Parquet output, by the sink's own log, as Spark reads."""
        found = parquet_sink.rows(self.output, "topic", "partition", "offset")
        return Counter((row["topic"], row["partition"], row["offset"]) for row in found)


@pytest.fixture
def cluster(peer: Peer) -> Iterator[Cluster]:
    with peer.cluster() as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        # A broker answers before the controller has told it of itself, and librdkafka does not ask again
        # soon.
        wait_until(lambda: admin.list_topics(timeout=5).controller_id >= 0, timeout=60, what="a controller")
        topics = [
            NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in (TOPIC, WINDOWS, DEAD)
        ]
        for future in admin.create_topics(topics).values():
            future.result(timeout=60)
        yield cluster


def produce(cluster: Cluster, numbers: Sequence[int]) -> None:
    """Journal entries of three hosts, a second apart; each tenth is not JSON."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "enable.idempotence": True})
    for number in numbers:
        host = f"h{number % 3 + 1}"
        entry = {
            "__REALTIME_TIMESTAMP": str(START_MICROS + number * 1_000_000),
            "__CURSOR": f"s=cursor;i={number}",
            "_HOSTNAME": host,
            "_SYSTEMD_UNIT": "demo.service",
            "PRIORITY": "6",
            "MESSAGE": f"message {number}",
        }
        value = json.dumps(entry).encode() if number % 10 else f"plain text {number}".encode()
        producer.produce(TOPIC, value, key=host.encode())
    assert producer.flush(60) == 0


def dead_places(cluster: Cluster) -> set[Place]:
    """What the dead letters' headers name; a second copy of a letter has the key of the first."""
    letters = {message.key(): dict(message.headers()) for message in all_records(cluster.bootstrap, DEAD)}
    prefix = "landline.dead-letter."
    return {
        (
            headers[prefix + "topic"].decode(),
            int(headers[prefix + "partition"]),
            int(headers[prefix + "offset"]),
        )
        for headers in letters.values()
    }


def kill_driver(process: ManagedProcess) -> None:
    """SIGKILL to the driver and its JVM at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.kill()


def test_killed_and_restarted_job_has_every_input_once(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(tmp_path, cluster.bootstrap)
    produce(cluster, range(3000))
    process = job.process("--max-offsets-per-trigger", "500", "--trigger", "100 milliseconds")
    process.start()
    wait_until(lambda: not process.running or len(job.places()) > 300, timeout=300, what=process.log_tail)
    assert process.running, process.log_tail()
    kill_driver(process)
    seen_at_kill = len(job.places())
    assert seen_at_kill < 2700, "the job was already done: nothing was killed in mid-stream"

    produce(cluster, range(3000, 3600))
    again = job.process("--available-now")
    again.start()
    wait_until(lambda: not again.running, timeout=300, what=again.log_tail)
    assert again.exit_code == 0, again.log_tail()

    inputs = {
        (TOPIC, message.partition(), message.offset()) for message in all_records(cluster.bootstrap, TOPIC)
    }
    places, dead = job.places(), dead_places(cluster)
    assert len(inputs) == 3600
    assert set(places.values()) == {1}
    assert len(dead) == 360
    assert set(places) | dead == inputs
    assert not set(places) & dead
    check_windows(cluster)


def check_windows(cluster: Cluster) -> None:
    """Each closed window holds its hosts' entries: 60 a minute less 6 bad ones; copies of a window agree."""
    counts: dict[bytes, int] = {}
    for message in all_records(cluster.bootstrap, WINDOWS):
        count = json.loads(message.value())["count"]
        assert counts.setdefault(message.key(), count) == count
    per_window: Counter[str] = Counter()
    for key, count in counts.items():
        per_window[json.loads(key)["window_start"]] += count
    first, *full = sorted(per_window)[:-1]
    assert len(full) >= 50
    assert {per_window[start] for start in full} == {54}
    assert per_window[first] <= 54


def test_job_stops_cleanly_on_sigterm_and_ends_well(cluster: Cluster, tmp_path: Path) -> None:
    job = Job(tmp_path, cluster.bootstrap)
    produce(cluster, range(50))
    process = job.process("--trigger", "100 milliseconds")
    process.start()
    wait_until(lambda: not process.running or job.places(), timeout=300, what=process.log_tail)
    assert process.stop() == 0, process.log_tail()
    assert set(job.places().values()) == {1}
