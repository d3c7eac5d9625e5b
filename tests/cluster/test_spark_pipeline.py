"""Spark on three real hosts, launched by Fabric, over the live journals of the same hosts.

The cluster is the one that ``make cluster-up`` made (``LANDLINE_LAB``): brokers, Spark placed, journals
flowing to ``landline.journal``. ``LANDLINE_BOOTSTRAP`` names other brokers to read from.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import urllib.request
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from lab import Lab
from rig.processes import ManagedProcess
from rig.topics import all_records, create_topic, held_offsets
from rig.wait import wait_until
from tests.support import parquet_sink
from tests.support.fabric import fab, fab_ok, submitted, to_its_end
from tests.support.lab_cluster import LAB_ENV, running_cluster

pytestmark = [pytest.mark.cluster, pytest.mark.slow, pytest.mark.timeout(1200)]

TOPIC = "landline.journal"
WORKER = "org.apache.spark.deploy.worker.Worker"
HOSTS = ("h1", "h2", "h3")
ORDERS = (
    "id STRING NOT NULL, customer STRING NOT NULL, placed_ms BIGINT NOT NULL, "
    "lines ARRAY<STRUCT<item: STRING NOT NULL, count: INT NOT NULL>> NOT NULL, total DECIMAL(12,2)"
)
"""The schema in docs/lake.md."""
Place = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class Site:
    """The lab, its brokers, and a directory that all hosts and this machine share, of this test alone."""

    lab: Lab
    bootstrap: str
    shared: Path

    def on(self, host: str, command: str) -> str:
        return str(self.lab.run(host, command).stdout)


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_cluster() as target:
        lab = Lab(os.environ[LAB_ENV])
        shared = [bind.target for bind in lab.state.binds if bind.writable and bind.source == bind.target]
        assert shared, (
            "the lab shares no writable directory: make it by `make cluster-up`, or with --bind DIR:DIR"
        )
        directory = Path(shared[0]) / f"test-{os.getpid()}"
        yield Site(lab, os.environ.get("LANDLINE_BOOTSTRAP") or target.bootstrap, directory)
        fab("stop")
        shutil.rmtree(directory, ignore_errors=True)


def test_start_and_stop_are_idempotent_and_true(site: Site) -> None:
    fab("stop")
    assert "not running" in fab_ok("stop")
    assert fab("status").returncode == 1
    assert "3 workers ALIVE" in fab_ok("start")
    assert "already running" in fab_ok("start")
    assert fab_ok("status").count("ALIVE") == 4
    fab_ok("stop")
    for host in HOSTS:
        assert site.on(host, "pgrep --count --uid spark java || true").strip() == "0"


def test_start_brings_back_only_the_worker_that_died(site: Site) -> None:
    fab_ok("start")
    before = {host: site.on(host, f"pgrep --full {WORKER}").split() for host in HOSTS}
    site.on("h2", f"kill -KILL {before['h2'][0]}")
    status = fab("status")
    assert status.returncode in {0, 1}
    assert "died" in status.stdout
    fab_ok("start")
    after = {host: site.on(host, f"pgrep --full {WORKER}").split() for host in HOSTS}
    assert after["h2"] != before["h2"]
    assert {host: after[host] for host in ("h1", "h3")} == {host: before[host] for host in ("h1", "h3")}


def test_start_names_the_host_that_the_master_cannot_reach(site: Site) -> None:
    fab("stop")
    keys = "/var/lib/spark/.ssh/authorized_keys"
    site.on("h3", f"mv {keys} {keys}.away")
    try:
        refused = fab("start")
    finally:
        site.on("h3", f"mv {keys}.away {keys}")
    assert refused.returncode == 1
    assert "h3 (exit 255)" in refused.stderr
    assert "h2 (exit" not in refused.stderr
    fab_ok("start")


class Job:
    """The journal job on the cluster, on one checkpoint."""

    def __init__(self, site: Site, log: Path) -> None:
        self._site = site
        self._log = log
        self.output = site.shared / "records"
        self.windows = f"test.windows.{os.getpid()}"

    def process(self, *extra: str) -> ManagedProcess:
        arguments = [
            *("--bootstrap-servers", self._site.bootstrap, "--topics", TOPIC),
            *("--output", f"file://{self.output}", "--checkpoint", f"file://{self._site.shared}/checkpoint"),
            *("--windows-topic", self.windows, "--dead-letter-topic", f"test.dead.{os.getpid()}"),
            *("--window", "10 seconds", "--watermark", "10 seconds", *extra),
        ]
        return submitted("journal_stream", arguments, self._log)

    def rows(self) -> list[dict[str, Any]]:
        """The output's rows, of the files that the sink's own log lists, as Spark reads them."""
        return parquet_sink.rows(self.output, "topic", "partition", "offset", "host", "message")

    def places(self) -> Counter[Place]:
        return Counter((row["topic"], row["partition"], row["offset"]) for row in self.rows())


def topic_range(bootstrap: str) -> set[Place]:
    """Every offset that the journal's topic holds now."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": f"test-{os.getpid()}"})
    try:
        held = held_offsets(consumer, TOPIC)
    finally:
        consumer.close()
    return {(TOPIC, partition, offset) for partition, offsets in held.items() for offset in offsets}


def active_applications(site: Site) -> int:
    with urllib.request.urlopen(f"http://{site.lab.host('h1').address}:8080/json/", timeout=10) as answer:
        return len(json.load(answer)["activeapps"])


def write_journals(site: Site, text: str, lines: int) -> None:
    for host in HOSTS:
        site.on(
            host, f"for n in $(seq {lines}); do echo {text} {host} $n; done | systemd-cat --identifier=demo"
        )


def test_killed_and_restarted_job_has_every_journal_entry_once(site: Site, tmp_path: Path) -> None:
    fab_ok("start")
    write_journals(site, "before", 300)
    job = Job(site, tmp_path / "job.log")
    first = job.process("--max-offsets-per-trigger", "100", "--trigger", "500 milliseconds")
    first.start()
    wait_until(
        lambda: not first.running or len(job.places()) >= 200, timeout=300, interval=0.5, what=first.log_tail
    )
    assert first.running, first.log_tail()
    os.killpg(first.pid, signal.SIGKILL)
    first.kill()
    assert set(job.places()) < topic_range(site.bootstrap), "nothing was left to do: not killed in mid-stream"

    write_journals(site, "after", 100)
    wait_until(lambda: active_applications(site) == 0, timeout=60, what="the master let the dead driver go")

    def shipped() -> bool:
        return len(entries_of(site, "after")) >= 300

    wait_until(shipped, timeout=120, interval=1, what="the journals reached the topic")
    inputs = topic_range(site.bootstrap)
    to_its_end(job.process("--available-now"))

    places = job.places()
    assert set(places.values()) == {1}
    assert inputs <= set(places), f"missing: {sorted(inputs - set(places))[:10]}"
    rows = job.rows()
    assert {row["host"] for row in rows} == set(HOSTS)
    for text, lines in (("before", 300), ("after", 100)):
        messages = {row["message"] for row in rows}
        assert {f"{text} {host} {n}" for host in HOSTS for n in range(1, lines + 1)} <= messages
    assert {window["host"] for window in values_of(site, job.windows)} == set(HOSTS)


def test_the_lake_job_writes_the_topic_of_the_documentation_and_tells_what_does_not_fit(
    site: Site, tmp_path: Path
) -> None:
    fab_ok("start")
    topic, lake = f"orders.{os.getpid()}", site.shared / "orders"
    for name, partitions in ((topic, 6), (f"{topic}.dead-letters", 1)):
        create_topic(site.bootstrap, name, partitions, 3)
    producer = Producer({"bootstrap.servers": site.bootstrap, "acks": "all"})
    for number in range(60):
        lines = [{"item": "tea", "count": 2}] if number else "none"
        order = {
            "id": f"o-{number}",
            "customer": "c-3",
            "placed_ms": 1795348800000,
            "lines": lines,
            "total": 12.5,
        }
        producer.produce(topic, json.dumps(order))
    assert producer.flush(60) == 0

    arguments = [
        *("--bootstrap-servers", site.bootstrap, "--topics", topic, "--available-now"),
        *("--output", f"file://{lake}", "--checkpoint", f"file://{site.shared}/orders.checkpoint"),
        *("--schema", ORDERS, "--event-time", "placed_ms", "--time-unit", "ms", "--watermark", "2 hours"),
        *("--partition-by", "event_date", "--deduplicate-by", "id", "--copies-within", "1 day"),
        *("--unknown", "rest", "--check", "total >= 0"),
    ]
    to_its_end(submitted("lake", arguments, tmp_path / "lake.log"))

    assert Counter(row["id"] for row in parquet_sink.rows(lake, "id")) == Counter(
        f"o-{number}" for number in range(1, 60)
    )
    (dead,) = values_of(site, f"{topic}.dead-letters")
    assert "lines" in json.dumps(dead)


def entries_of(site: Site, text: str) -> set[str]:
    return {
        str(value["MESSAGE"])
        for value in values_of(site, TOPIC)
        if str(value.get("MESSAGE")).startswith(f"{text} h")
    }


def values_of(site: Site, topic: str) -> list[dict[str, Any]]:
    """The JSON values of all records that the topic holds now."""
    return [json.loads(message.value()) for message in all_records(site.bootstrap, topic)]
