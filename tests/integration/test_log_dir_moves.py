"""Replicas move between a broker's log directories under load, also through a crash: nothing is lost or doubled."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka import TopicPartition as At

from broker.protocol.errors import Errors
from rig.brokers import HOST
from rig.landline_broker import LandlineStandalone
from rig.raw_client import RawClient
from rig.wait import wait_until
from tests.support.log_dir_moves import ask_to_move, places, throttle

pytestmark = [pytest.mark.integration, pytest.mark.timeout(300)]

MOVES = 8
VALUE_BYTES = 2_000


@pytest.fixture
def dirs(tmp_path: Path) -> list[str]:
    return [str(tmp_path / "a"), str(tmp_path / "b")]


@pytest.fixture
def broker(tmp_path: Path, dirs: list[str]) -> Iterator[LandlineStandalone]:
    config: dict[str, object] = {"log.dirs": ",".join(dirs), "log.segment.bytes": 1_000_000}
    with LandlineStandalone(tmp_path / "data", config) as running:
        with RawClient(HOST, running.port) as client:
            assert client.create_topic("t").error_code == Errors.NONE
        yield running


@contextmanager
def load(broker: LandlineStandalone, read: list[int]) -> Iterator[list[int]]:
    """Produces numbers and consumes them into ``read``; gives those that were acknowledged."""
    acknowledged: list[int] = []
    ended = threading.Event()

    def produce() -> None:
        producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 2}
        )
        number = 0
        while not ended.is_set():
            value = b"%d" % number + b" " * VALUE_BYTES
            producer.produce(
                "t",
                value,
                partition=0,
                on_delivery=lambda error, _, n=number: error or acknowledged.append(n),
            )
            number += 1
            producer.poll(0.001)
        assert producer.flush(60) == 0

    def consume() -> None:
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
        consumer.assign([At("t", 0, 0)])
        while not ended.is_set() or len(read) < len(acknowledged):
            for message in consumer.consume(1_000, timeout=0.2):
                assert message.error() is None, message.error()
                read.append(int(message.value()))
        consumer.close()

    threads = [threading.Thread(target=each, daemon=True) for each in (produce, consume)]
    for thread in threads:
        thread.start()
    try:
        wait_until(lambda: len(acknowledged) > 100)
        yield acknowledged
    finally:
        ended.set()
        for thread in threads:
            thread.join(60)


def test_a_replica_moves_to_and_fro_under_load(broker: LandlineStandalone, dirs: list[str]) -> None:
    read: list[int] = []
    with RawClient(HOST, broker.port) as client, load(broker, read) as acknowledged:
        for _ in range(MOVES):
            (here,) = places(client)
            (there,) = {*dirs} - {here}
            before = len(acknowledged)
            ask_to_move(client, there)
            wait_until(lambda there=there: places(client) == {there: (False, 0)}, 60)
            wait_until(lambda before=before: len(acknowledged) > before + 100)
    assert read == acknowledged == list(range(len(acknowledged)))


def test_a_move_goes_on_after_a_crash(broker: LandlineStandalone, dirs: list[str]) -> None:
    read: list[int] = []
    with RawClient(HOST, broker.port) as client:
        with load(broker, read) as acknowledged:
            wait_until(lambda: len(acknowledged) > 2_000)
        (here,) = places(client)
        (there,) = {*dirs} - {here}
        throttle(client, broker.broker_id, 1_500_000)
        ask_to_move(client, there)
        wait_until(lambda: places(client)[there][0] and places(client)[there][1] < len(acknowledged), 60)
    broker.kill()
    broker.start()
    with RawClient(HOST, broker.port) as client:
        wait_until(lambda: places(client) == {there: (False, 0)}, 60)
        wait_until(lambda: client.end_offset("t") == len(acknowledged), what="it leads all of the log again")
    again = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g2"})
    again.assign([At("t", 0, 0)])
    found: list[int] = []
    while len(found) < len(acknowledged):
        found += [int(message.value()) for message in again.consume(1_000, timeout=1)]
    again.close()
    assert found == acknowledged
