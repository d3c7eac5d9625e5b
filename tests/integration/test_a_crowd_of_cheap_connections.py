"""A client that asks for little beside a thousand connections that each ask for what is not dear, all of one address.

Judged by how much longer it waits than alone, on the same machine a moment before. The bound is for a busy machine,
and far below the third of a second of turns that serve each of them.
"""

from __future__ import annotations

import statistics
import time

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.record.batch import Record, build_batch
from tests.support.brokers import HOST
from tests.support.closed_loop import closed_loop
from tests.support.landline_broker import LandlineStandalone
from tests.support.raw_client import RawClient, request_frame
from tests.support.wait import last_for, wait_until

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC = "victims"
PEERS = 1_000
TRIPS = 60
MOST_TIMES = 15
FIND = {"key_type": 0, "coordinator_keys": [f"group-{number}" for number in range(30)]}


def trips_ms(client: RawClient) -> list[float]:
    """How long it takes to write a small record, one in ten milliseconds."""
    batch = build_batch([Record(None, b"small", (), 1_700_000_000_000)])
    taken = []
    for _ in range(TRIPS):
        began = time.monotonic()
        assert client.produce(TOPIC, 0, batch, acks=1).error_code == 0
        taken.append((time.monotonic() - began) * 1000)
        last_for(0.01)
    return taken


def test_a_thousand_cheap_connections_do_not_make_one_that_asks_for_little_wait_for_all_of_them(
    broker: LandlineStandalone,
) -> None:
    frame = request_frame(
        ApiKey.FIND_COORDINATOR, 4, codec.encode(ApiKey.FIND_COORDINATOR, 4, "request", FIND)
    )
    with RawClient(HOST, broker.port) as client:
        client.create_topic(TOPIC)
        wait_until(lambda: client.end_offset(TOPIC) >= 0)
        alone = trips_ms(client)
        with closed_loop(HOST, broker.port, PEERS, frame):
            beside = trips_ms(client)
    most = MOST_TIMES * max(statistics.median(alone), 2.0)
    assert statistics.median(beside) < most, (alone, beside)
    assert statistics.quantiles(beside, n=10)[-1] < 5 * most, (alone, beside)
    assert broker.is_ready()
