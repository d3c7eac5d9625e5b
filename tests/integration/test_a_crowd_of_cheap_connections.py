"""A client that asks for little beside a thousand connections that each ask for what is not dear, all of one address.

Judged by how many of them are answered while it waits, not by a clock: on a machine that is busy or stands
still, everybody waits longer. Served in turn with all the others, it would see the answers of all thousand.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from pathlib import Path

import pytest

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.record.batch import Record, build_batch
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient, request_frame
from rig.wait import last_for, wait_until
from tests.support.closed_loop import closed_loop
from tests.support.times import NOW_MS

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

TOPIC = "victims"
PEERS = 1_000
TRIPS = 60
# Several times as much as a small record takes; where the machine is slow, it counts as dear, and waits as such.
FIND = {"key_type": 0, "coordinator_keys": [f"group-{number}" for number in range(30)]}


def answered_to_others(client: RawClient, answers: Callable[[], int]) -> list[int]:
    """How many of the others' requests are answered while a small record is written, one in ten milliseconds."""
    batch = build_batch([Record(None, b"small", (), NOW_MS)])
    others = []
    for _ in range(TRIPS):
        before = answers()
        assert client.produce(TOPIC, 0, batch, acks=1).error_code == 0
        others.append(answers() - before)
        last_for(0.01)
    return others


def test_a_thousand_cheap_connections_do_not_make_one_that_asks_for_little_wait_for_all_of_them(
    broker: LandlineStandalone, tmp_path: Path
) -> None:
    frame = request_frame(
        ApiKey.FIND_COORDINATOR, 4, codec.encode(ApiKey.FIND_COORDINATOR, 4, "request", FIND)
    )
    with RawClient(HOST, broker.port) as creator:
        creator.create_topic(TOPIC)
        wait_until(lambda: creator.end_offset(TOPIC) >= 0)
    # A connection of its own, whose cost is known: creating a topic is dear, and what follows waits for a while.
    with RawClient(HOST, broker.port) as client:
        answered_to_others(client, lambda: 0)
        with closed_loop(HOST, broker.port, PEERS, frame, tmp_path) as answers:
            others = answered_to_others(client, answers)
            wait_until(lambda: answers() > sum(others) + PEERS)
    assert statistics.median(others) < PEERS / 8, others
    assert statistics.quantiles(others, n=10)[-1] < PEERS / 2, others
    wait_until(broker.is_ready)  # a new connection waits its turn behind what the crowd still asked for
