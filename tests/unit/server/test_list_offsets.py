"""Who is told which end of a log: consumers, and Kafka's debugging consumer, which reads every replica."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors
from broker.record.batch import Record, build_batch
from broker.server.apis import list_offsets
from tests.support.replica_world import ME, OTHER, Broker, state, tp

CONSUMER, DEBUGGING = -1, -2
LATEST = -1


@pytest.fixture
def broker(tmp_path: Path):
    made = Broker(tmp_path)
    yield made
    made.close()


def latest(broker: Broker, replica_id: int) -> tuple[Errors, int]:
    """The error and the offset."""
    wanted = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": -1}
    topics = [{"name": "orders", "partitions": [wanted]}]
    fields = {"replica_id": replica_id, "isolation_level": 0, "topics": topics}
    body = memoryview(codec.encode(ApiKey.LIST_OFFSETS, 7, "request", fields))
    connection = ConnectionInfo("c", "10.0.0.9", "PLAINTEXT")
    request = Request(ApiKey.LIST_OFFSETS, 7, 1, "tester", body, connection, 0, lambda *_: None)
    ctx = SimpleNamespace(
        access=None,
        replica_manager=broker.replicas,
        metadata_cache=SimpleNamespace(contains_partition=lambda _: True),
    )
    message = codec.decode(ApiKey.LIST_OFFSETS, 7, "request", body)
    (row,) = list_offsets.handle(request, message, ctx)["topics"][0]["partitions"]
    return row["error_code"], row["offset"]


def test_a_leader_tells_consumers_of_what_is_committed_and_the_debugging_consumer_of_all(broker) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    broker.produce(0)
    assert latest(broker, CONSUMER) == (Errors.NONE, 0)
    assert latest(broker, DEBUGGING) == (Errors.NONE, 1)


def test_a_follower_answers_the_debugging_consumer_alone(broker) -> None:
    broker.leadership.apply(1, [state(0, OTHER, 1, (ME, OTHER))])
    batch = memoryview(bytearray(build_batch([Record(None, b"v")], leader_epoch=1)))
    broker.replicas.partition(tp(0)).append_as_follower(batch, 1, 0, 0)
    assert latest(broker, CONSUMER) == (Errors.NOT_LEADER_OR_FOLLOWER, -1)
    assert latest(broker, DEBUGGING) == (Errors.NONE, 1)
