"""A broker with one handler thread that is its own controller asks itself, and does not wait for itself."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from rig.landline_broker import LandlineStandalone

pytestmark = [pytest.mark.integration, pytest.mark.timeout(120)]
# The request would time out after 30 s.
SOON_S = 15.0


def test_topics_and_producer_ids_are_had_at_once_with_one_io_thread(tmp_path: Path) -> None:
    config: dict[str, object] = {"num.io.threads": 1, "auto.create.topics.enable": "true"}
    with LandlineStandalone(tmp_path / "data", config) as broker:
        producer = Producer({"bootstrap.servers": broker.bootstrap, "enable.idempotence": True})
        errors: list[object] = []
        started = time.monotonic()
        producer.produce("made-by-asking", b"v", on_delivery=lambda error, _: error and errors.append(error))
        assert producer.flush(60) == 0
        assert not errors
        assert time.monotonic() - started < SOON_S
