"""A client's small requests beside one peer, and ten, that ask for the dearest that is admitted.

Judged by how much longer ten make a small request wait than one does, on the same machine a moment before.
The bound is for a busy machine, and below the ten times of turns that are as long as there are such peers.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.record.batch import Record, build_batch
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import wait_until
from tests.support.closed_loop import closed_loop
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC = "victims"
TRIPS = 25
MOST_TIMES = 6
# What a busy machine adds by itself.
LEAST_MS = 3.0
# On the network thread and by a handler.
DEAR: dict[str, tuple[ApiKey, int, dict[str, Any]]] = {
    "coordinators": (
        ApiKey.FIND_COORDINATOR,
        4,
        {"key_type": 0, "coordinator_keys": [f"group-{number}" for number in range(500)]},
    ),
    "topics": (
        ApiKey.METADATA,
        4,
        {
            "topics": [{"name": f"none-{number}"} for number in range(20_000)],
            "allow_auto_topic_creation": False,
        },
    ),
}


def trips_ms(client: RawClient, answers: Callable[[], int]) -> list[float]:
    """How long it takes to write a small record and to read the first one, when a peer is answered meanwhile.

    Other times say nothing: on a busy machine a single peer may wait for the CPU between its requests.
    """
    batch = build_batch([Record(None, b"small", (), NOW_MS)])
    taken = []
    while len(taken) < TRIPS:
        before, began = answers(), time.monotonic()
        assert client.produce(TOPIC, 0, batch, acks=1).error_code == 0
        assert client.fetch(TOPIC, 0, 0).error_code == 0
        took = time.monotonic() - began
        if answers() > before:
            taken.append(took * 1000)
    return taken


@pytest.mark.parametrize("what", DEAR)
def test_ten_peers_make_a_small_request_wait_about_as_long_as_one_does(
    broker: LandlineStandalone, client: RawClient, what: str, tmp_path: Path
) -> None:
    key, version, fields = DEAR[what]
    frame = request_frame(key, version, codec.encode(key, version, "request", fields))
    client.create_topic(TOPIC)
    wait_until(lambda: client.end_offset(TOPIC) >= 0)
    medians = {}
    for peers in (1, 10):
        with closed_loop("127.0.0.1", broker.port, peers, frame, tmp_path, apart=True) as answers:
            medians[peers] = statistics.median(trips_ms(client, answers))
    assert medians[10] < MOST_TIMES * max(medians[1], LEAST_MS), medians
    wait_until(broker.is_ready)
