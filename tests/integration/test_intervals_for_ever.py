"""Who means "never" sets an interval to the largest number there is. Nothing of the broker ends by it."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic, ResourceType

from broker.config import keys
from broker.config.key import Key, Use
from broker.config.types import Type
from rig.landline_broker import LandlineStandalone
from rig.wait import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]

RECORDS = 200
LONG_MAX = (1 << 63) - 1
UNITS = (".ms", ".seconds", ".minutes", ".hours")
# So that there is something to see: the log is compacted, and its tasks run.
SOON = {
    "log.cleaner.backoff.ms": 100,
    "log.initial.task.delay.ms": 100,
    "log.cleaner.min.compaction.lag.ms": 0,
}


def endless() -> dict[str, object]:
    """A broker's configuration with all keys of a time that may be so long."""
    names = [each.name for each in pkgutil.iter_modules(keys.__path__) if each.name != "topic"]
    modules = [importlib.import_module(f"{keys.__name__}.{name}") for name in names]
    found: list[Key] = [key for module in modules for key in getattr(module, "KEYS", ())]
    times = [
        key for key in found if key.type is Type.LONG and key.name.endswith(UNITS) and key.use is Use.USED
    ]
    return {key.name: LONG_MAX for key in times} | SOON | {"log.segment.bytes": 2000}


def test_a_broker_whose_intervals_last_for_ever_serves_and_compacts_and_ends(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "data", endless()) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        for future in admin.create_topics(
            [
                NewTopic(
                    "kept", 2, 1, config={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
                )
            ]
        ).values():
            future.result(30)
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "one"})
        producer.init_transactions(30)
        producer.begin_transaction()
        for number in range(RECORDS):
            producer.produce("kept", None if number % 3 else b"v" * 100, key=str(number % 7))
            producer.flush()
        producer.commit_transaction(30)
        consumer = Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["kept"])
        read: list[object] = []
        wait_until(lambda: read.extend(consumer.consume(500, 1.0)) or len(read) >= 14, 60)  # type: ignore[func-returns-value]
        consumer.commit(asynchronous=False)
        consumer.close()
        wait_until(lambda: "log_compacted" in broker.log_text(), 30)
        (described,) = admin.describe_configs([ConfigResource(ResourceType.TOPIC, "kept")]).values()
        assert described.result(30)
    text = broker.log_text()
    assert "Traceback" not in text, text[-3000:]
    assert "failed" not in text, text[-3000:]
