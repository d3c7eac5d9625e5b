"""Publishing a broker's lifecycle events: what waits, and that a stop does not wait for it."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from broker.protocol.control_messages import BrokerInfo, MetadataUpdate, PartitionInfo
from broker.replication.broker_channel import BrokerChannel
from broker.replication.cluster_view import BrokerAddress
from broker.server.lifecycle.lifecycle_file import Lifecycle, LifecycleFile
from broker.server.lifecycle.lifecycle_publisher import TOPIC, LifecyclePublisher
from broker.server.metadata_cache import MetadataCache
from broker.utils.scheduler import KafkaScheduler


@pytest.fixture
def file(tmp_path: Path) -> LifecycleFile:
    file = LifecycleFile(tmp_path)
    Lifecycle(file, lambda: 7, {}).end("start")
    return file


@pytest.fixture
def silent_leader() -> Iterator[socket.socket]:
    """Takes connections and requests, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(30)
        yield server


def channel_to(address: BrokerAddress, client_id: str) -> BrokerChannel:
    return BrokerChannel(address.host, address.port, client_id=client_id)


def never_called(topics: Iterable[str]) -> None:
    raise AssertionError(f"{topics} are there")


def led_by(leader: socket.socket) -> MetadataCache:
    """A cache that knows the topic, led by who listens there."""
    cache = MetadataCache("PLAINTEXT")
    broker = BrokerInfo(2, {"PLAINTEXT": leader.getsockname()})
    cache.update(MetadataUpdate(2, [broker], {}, [(TOPIC, PartitionInfo(0, 2, 0, (2,), (2,)))]))
    return cache


def test_the_topic_is_asked_for_when_it_is_not_there(file: LifecycleFile) -> None:
    asked: list[str] = []
    publisher = LifecyclePublisher(file, MetadataCache("PLAINTEXT"), asked.extend, channel_to)
    publisher.publish()
    assert asked == [TOPIC]
    assert len(file.unpublished()) == 2


def test_a_stop_does_not_wait_for_a_leader_that_does_not_answer(
    file: LifecycleFile, silent_leader: socket.socket, scheduler: KafkaScheduler
) -> None:
    publisher = LifecyclePublisher(file, led_by(silent_leader), never_called, channel_to)
    publisher.startup(scheduler)
    with silent_leader.accept()[0] as connection:
        assert connection.recv(1, socket.MSG_PEEK)
        began_s = time.monotonic()
        publisher.shutdown()
        scheduler.shutdown()
    assert time.monotonic() - began_s < 5
    assert len(file.unpublished()) == 2
