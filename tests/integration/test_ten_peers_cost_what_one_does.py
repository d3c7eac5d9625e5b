"""A client's small requests beside one peer, and ten, that ask for the dearest that is admitted.

Judged by how much longer ten make a small request wait than one does, on the same machine a moment before.
The bound is for a busy machine, and below the ten times of turns that are as long as there are such peers.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.record.batch import Record, build_batch
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame, stranger
from rig.wait import wait_until
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC = "victims"
TRIPS = 40
MOST_TIMES = 6
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


@contextmanager
def hostile(broker: LandlineStandalone, frame: bytes, peers: int) -> Iterator[None]:
    """So many peers, each at an address of its own, that ask again as soon as they are answered."""
    over = threading.Event()
    answered = [0] * peers

    def ask(client: RawClient, number: int) -> None:
        while not over.is_set():
            client.send(frame)
            client.receive_frame()
            answered[number] += 1

    with ExitStack() as stack:
        threads = []
        for number in range(peers):
            client = stack.enter_context(RawClient("127.0.0.1", broker.port, from_host=stranger()))
            threads.append(threading.Thread(target=ask, args=(client, number), daemon=True))
        for thread in threads:
            thread.start()
        try:
            wait_until(lambda: all(answered), 120, what="each peer answered once")
            yield
        finally:
            over.set()
            for thread in threads:
                thread.join(60)
    assert all(answered), "nobody is left out, the dear ones neither"


def trips_ms(client: RawClient) -> list[float]:
    """How long it takes to write a small record and to read the first one, again and again."""
    batch = build_batch([Record(None, b"small", (), NOW_MS)])
    taken = []
    for _ in range(TRIPS):
        began = time.monotonic()
        assert client.produce(TOPIC, 0, batch, acks=1).error_code == 0
        assert client.fetch(TOPIC, 0, 0).error_code == 0
        taken.append((time.monotonic() - began) * 1000)
    return taken


@pytest.mark.parametrize("what", DEAR)
def test_ten_peers_make_a_small_request_wait_about_as_long_as_one_does(
    broker: LandlineStandalone, client: RawClient, what: str
) -> None:
    key, version, fields = DEAR[what]
    frame = request_frame(key, version, codec.encode(key, version, "request", fields))
    client.create_topic(TOPIC)
    wait_until(lambda: client.end_offset(TOPIC) >= 0)
    medians = {}
    for peers in (1, 10):
        with hostile(broker, frame, peers):
            medians[peers] = statistics.median(trips_ms(client))
    assert medians[10] < MOST_TIMES * max(medians[1], 2.0), medians
    assert broker.is_ready()
