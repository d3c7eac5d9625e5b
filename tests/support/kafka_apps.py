"""Kafka Streams and Kafka Connect 3.9.1: their jars, an application that counts, and a worker."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from pipeline.jars import Jar, present_jars
from rig.brokers import HOST, unused_port, write_properties
from rig.kafka_dist import KAFKA_VERSION, TOOL_JVM, cache_dir, java_command
from rig.processes import ManagedProcess
from rig.wait import wait_until
from tests.support.kafka_jvm import KafkaJvm, kafka_jvm

STREAMS: Final = (
    Jar(
        "org.apache.kafka",
        "kafka-streams",
        KAFKA_VERSION,
        "295dd382b461984577d585955a05cb808893700b00af275eda457782ae434d9c",
    ),
    Jar(
        "org.rocksdb",
        "rocksdbjni",
        "7.9.2",
        "0e0e886c44ef1a04104116a05c7e03e9b24069d7fbc6a0fb2cde2032fa92cb20",
    ),
)
FILE_CONNECTORS: Final = (
    Jar(
        "org.apache.kafka",
        "connect-file",
        KAFKA_VERSION,
        "971bf984d140a55440ec966d0feaaa260a20eb3de368f897cbed7a373fbfd66f",
    ),
)
SESSION_MS: Final = 6_000
"""The shortest that a broker allows: a member that was killed is waited for as long."""
REST_TIMEOUT_S: Final = 120.0
START_TIMEOUT_S: Final = 120.0


def streams_jars() -> list[Path]:
    """The jars of Kafka Streams that are not among the broker's."""
    return present_jars(STREAMS, cache_dir() / "kafka-streams")


def plugin_path() -> Path:
    """The directory of the file connectors' jar."""
    (jar,) = present_jars(FILE_CONNECTORS, cache_dir() / "kafka-connectors")
    return jar.parent


class Counter:
    """A Kafka Streams application with exactly_once_v2: it counts the records of each key, in a state store, behind
    a repartition topic, and writes every count.
    """

    def __init__(self, jvm: KafkaJvm, settings: Mapping[str, object], source: str, target: str) -> None:
        streams = jvm.java.org.apache.kafka.streams
        builder = streams.StreamsBuilder()
        store = getattr(streams.kstream.Materialized, "as")("store")
        builder.stream(source).repartition().groupByKey().count(store).toStream().to(target)
        self._running = streams.KafkaStreams(builder.build(), jvm.properties(settings))
        self.jvm = jvm

    def start(self) -> None:
        self._running.start()

    @property
    def state(self) -> str:
        return str(self._running.state().toString())

    def close(self) -> None:
        self._running.close()


@contextmanager
def counter(bootstrap: str, name: str, source: str, target: str, root: Path) -> Iterator[Counter]:
    """The application, started in a JVM of its own. Its store is below ``root``."""
    serde = "org.apache.kafka.common.serialization.Serdes$StringSerde"
    settings = {
        "application.id": name,
        "bootstrap.servers": bootstrap,
        "processing.guarantee": "exactly_once_v2",
        "replication.factor": 3,
        "state.dir": root / "state",
        "num.stream.threads": 2,
        "statestore.cache.max.bytes": 0,  # so that every count is written
        "repartition.purge.interval.ms": 500,
        "default.key.serde": serde,
        "default.value.serde": serde,
        "consumer.session.timeout.ms": SESSION_MS,
        "consumer.auto.offset.reset": "earliest",
    }
    with kafka_jvm(root / "streams.log", more=streams_jars()) as jvm:
        made = Counter(jvm, settings, source, target)
        made.start()
        yield made


class ConnectWorker:
    """A distributed worker with exactly-once sources. Its connectors are made by its REST API."""

    def __init__(self, bootstrap: str, root: Path) -> None:
        self._port = unused_port()
        converter = "org.apache.kafka.connect.storage.StringConverter"
        settings: dict[str, object] = {
            "bootstrap.servers": bootstrap,
            "group.id": "connect",
            "exactly.once.source.support": "enabled",
            "key.converter": converter,
            "value.converter": converter,
            "offset.flush.interval.ms": 500,
            "listeners": f"http://{HOST}:{self._port}",
            "plugin.path": plugin_path(),
            "plugin.discovery": "service_load",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": SESSION_MS // 3,
            "scheduled.rebalance.max.delay.ms": 0,
            "consumer.isolation.level": "read_committed",
            "consumer.session.timeout.ms": SESSION_MS,
        }
        for kind in ("config", "offset", "status"):
            settings |= {
                f"{kind}.storage.topic": f"connect-{kind}",
                f"{kind}.storage.replication.factor": 3,
            }
        settings |= {"offset.storage.partitions": 2, "status.storage.partitions": 2}
        file = write_properties(root / "connect.properties", settings)
        command = java_command("org.apache.kafka.connect.cli.ConnectDistributed", str(file), jvm=TOOL_JVM)
        self.process = ManagedProcess("Kafka Connect", lambda: command, root / "connect.log")

    def start(self) -> None:
        self.process.start()
        self.process.wait_ready(lambda: self._ask("GET", "/connectors") is not None, START_TIMEOUT_S)

    def make(self, name: str, **config: object) -> None:
        """Makes a connector with one task."""
        settings = {key.replace("_", "."): str(value) for key, value in config.items()}
        wait_until(
            lambda: self._ask("PUT", f"/connectors/{name}/config", {"tasks.max": "1", **settings}),
            REST_TIMEOUT_S,
            what=self.process.log_tail,
        )

    def is_running(self, name: str) -> bool:
        """Whether the connector and its task run."""
        told = self._ask("GET", f"/connectors/{name}/status")
        return [told["connector"]["state"], *(task["state"] for task in told["tasks"])] == ["RUNNING"] * 2

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        """What it answers; None where it refuses, as it does while its group rebalances."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"http://{HOST}:{self._port}{path}", data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as refused:
            with refused:
                return None


def await_more(count: Callable[[], int], goal: int, what: str, timeout_s: float = 120.0) -> None:
    """Waits until ``count`` is at least ``goal``."""
    wait_until(lambda: count() >= goal, timeout_s, interval=0.2, what=lambda: f"{what}: {count()} of {goal}")
