"""The fault tests' look at who wrote a batch, against a broker."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import Producer

from rig.landline_broker import LandlineStandalone
from rig.topics import create_topic
from tests.support.fetched_logs import FetchedLogs

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]


def test_each_idempotent_producer_is_another_incarnation(tmp_path: Path) -> None:
    with LandlineStandalone(tmp_path / "data") as broker:
        create_topic(broker.bootstrap, "t", 1)
        for _ in range(2):
            producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
            for number in range(3):
                producer.produce("t", str(number), partition=0)
            assert producer.flush(30) == 0
        logs = FetchedLogs(broker.bootstrap)
        wrote = [logs.incarnation("t", 0, offset) for offset in range(7)]
    assert wrote[0] == wrote[1] == wrote[2]
    assert wrote[3] == wrote[4] == wrote[5]
    assert None not in wrote[:6]
    assert wrote[0] != wrote[3]
    assert wrote[6] is None
