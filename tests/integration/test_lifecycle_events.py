"""A broker with ``landline.lifecycle.enable`` tells its starts and stops in its file and in its topic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition

from broker.server.lifecycle.lifecycle_file import FILE_NAME
from rig.landline_broker import LandlineBroker, LandlineStandalone
from rig.wait import wait_until
from rig.zookeeper import ZooKeeperServer
from tests.support import lifecycle_schema

pytestmark = pytest.mark.integration
TOPIC = "landline.lifecycle"
ENABLED: dict[str, object] = {"landline.lifecycle.enable": "true"}
STEPS = [
    "Process", "Scheduler", "Bind", "ZooKeeper", "LogManager", "ReplicaManager", "KafkaController",
    "GroupCoordinator", "KafkaApis", "DynamicConfigManager", "SocketServer", "Deposition",
    "Healthcheck", "FirstMetadata", "Ready",
]  # fmt: skip


def events_file(broker: LandlineStandalone | LandlineBroker) -> Path:
    directory = broker.log_dir / "logs" if isinstance(broker, LandlineStandalone) else broker.log_dir
    return directory / FILE_NAME


def kept(broker: LandlineStandalone | LandlineBroker) -> list[dict[str, Any]]:
    return [json.loads(line) for line in events_file(broker).read_text().splitlines()]


def kept_after(broker: LandlineStandalone | LandlineBroker, starts: int) -> list[dict[str, Any]]:
    """A broker tells of its start once it has started."""

    def all_told() -> list[dict[str, Any]]:
        told = kept(broker) if events_file(broker).exists() else []
        return told if [event["step"] for event in told].count("Ready") == starts else []

    return wait_until(all_told, what=f"{starts} starts are told")


class Published:
    """What an unmodified client reads of the topic, so far."""

    def __init__(self, bootstrap: str) -> None:
        self.events: list[dict[str, Any]] = []
        self._consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "nobody"})
        self._consumer.assign([TopicPartition(TOPIC, 0, 0)])

    def read(self) -> list[dict[str, Any]]:
        while (message := self._consumer.poll(0.2)) is not None:
            if message.error() is None:
                self.events.append({**json.loads(message.value()), "key": message.key().decode()})
        return self.events

    def close(self) -> None:
        self._consumer.close()


def test_starts_and_stops_reach_the_topic_each_once(tmp_path: Path) -> None:
    broker = LandlineStandalone(tmp_path / "data", ENABLED)
    with broker:
        first = Published(broker.bootstrap)
        wait_until(lambda: len(first.read()) == len(STEPS), what="the start is published")
        first.close()
        broker.stop()
        broker.start()
        second = Published(broker.bootstrap)
        told = kept_after(broker, starts=2)
        wait_until(
            lambda: len(second.read()) >= len(told), what="the stop and the second start are published"
        )
        second.close()
    assert [event["step"] for event in second.events[: len(STEPS)]] == STEPS
    assert [{**event, "key": event["host"]} for event in told] == second.events
    assert lifecycle_schema.faults(told) == []
    stop = [event["step"] for event in told if event["kind"] == "stop"]
    assert stop[0] == "ControlledShutdown"
    assert stop[-1] == "Stopped"
    assert stop.index("Healthcheck") < stop.index("SocketServer") < stop.index("LogManager")


def test_a_start_counts_what_it_told_zookeeper(tmp_path: Path) -> None:
    with (
        ZooKeeperServer(tmp_path / "zk") as zk,
        LandlineBroker(1, zk.connect_string, tmp_path / "b1", ENABLED) as broker,
    ):
        steps = {event["step"]: event for event in kept_after(broker, starts=1)}
    assert steps["ZooKeeper"]["connections"] == 1
    assert steps["ZooKeeper"]["bytes"] > 50
    assert steps["Ready"]["connections"] >= 1
    assert steps["Ready"]["bytes"] >= steps["ZooKeeper"]["bytes"]
    assert steps["Ready"]["instance"] == "1"


def test_a_start_that_fails_is_told_with_its_reason(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "one", ENABLED) as running:
        other = LandlineStandalone(tmp_path / "two", ENABLED, port=running.port)
        other.start_nowait()
        wait_until(lambda: not other.process.running, what="the second broker gives up")
        bind, ready = kept(other)[-2:]
    assert lifecycle_schema.faults([bind, ready]) == []
    assert (bind["step"], bind["outcome"]) == ("Bind", "failed")
    assert (ready["step"], ready["outcome"]) == ("Ready", "failed")
    assert str(running.port) in ready["detail"]


def test_what_a_killed_broker_had_not_published_follows_with_the_next_start(tmp_path: Path) -> None:
    broker = LandlineStandalone(tmp_path / "data", ENABLED)
    with broker:
        kept_after(broker, starts=1)
        broker.kill()
        events_file(broker).with_suffix(".published").unlink(missing_ok=True)
        broker.start()
        told = {event["id"] for event in kept_after(broker, starts=2)}
        published = Published(broker.bootstrap)
        wait_until(
            lambda: {event["id"] for event in published.read()} == told, what="both starts are published"
        )
        published.close()
    assert len(told) == 2 * len(STEPS)


def test_a_broker_that_was_not_asked_to_tells_nothing(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "data") as broker:
        assert not events_file(broker).exists()
