"""The disk space of what was deleted is free soon, also on a broker that nobody asks for anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from broker.record.batch import Record, build_batch
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.open_files import deleted_and_open
from rig.raw_client import RawClient
from rig.topics import create_topic
from rig.wait import wait_until
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

TOPIC, BATCHES, BATCH_BYTES = "large", 30, 256 << 10


@pytest.fixture
def configs() -> dict[str, object]:
    return {
        "log.segment.delete.delay.ms": 100,
        "log.retention.check.interval.ms": 100,
        "log.initial.task.delay.ms": 100,
    }


def fill_and_read(broker: LandlineStandalone) -> None:
    with RawClient(HOST, broker.port) as client:
        for number in range(BATCHES):
            records = build_batch([Record(None, os.urandom(BATCH_BYTES), (), NOW_MS)])
            assert client.produce(TOPIC, 0, records).error_code == 0
            assert client.fetch(TOPIC, 0, number).error_code == 0


def held(broker: LandlineStandalone) -> list[str]:
    """The deleted files that the broker has open."""
    return [name for name in deleted_and_open(broker.process.pid) if TOPIC in name]


def test_of_a_deleted_topic(tmp_path: Path, configs: dict[str, object]) -> None:
    with LandlineStandalone(tmp_path / "data", configs) as broker:
        create_topic(broker.bootstrap, TOPIC, 1)
        fill_and_read(broker)
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.delete_topics([TOPIC])[TOPIC].result(30)
        wait_until(
            lambda: not list((broker.log_dir / "logs").glob(f"{TOPIC}*")), timeout=30, what="no name is left"
        )
        wait_until(lambda: held(broker) == [], timeout=60, what=lambda: f"still open: {held(broker)}")


def test_of_segments_that_are_too_old(tmp_path: Path, configs: dict[str, object]) -> None:
    with LandlineStandalone(tmp_path / "data", {**configs, "log.segment.bytes": 1 << 20}) as broker:
        create_topic(broker.bootstrap, TOPIC, 1, config={"retention.bytes": "1"})
        fill_and_read(broker)
        logs = broker.log_dir / "logs" / f"{TOPIC}-0"
        wait_until(lambda: len(list(logs.glob("*.log*"))) == 1, timeout=30, what="one segment is left")
        wait_until(lambda: held(broker) == [], timeout=60, what=lambda: f"still open: {held(broker)}")
