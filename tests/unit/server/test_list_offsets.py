"""Who is told which end of a log: consumers, and Kafka's debugging consumer, which reads every replica. And who is told
none.
"""

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


def latest(
    broker: Broker, replica_id: int, *, known_epoch: int = -1, isolation_level: int = 0
) -> tuple[Errors, int]:
    """The error and the offset."""
    wanted = {"partition_index": 0, "timestamp": LATEST, "current_leader_epoch": known_epoch}
    topics = [{"name": "orders", "partitions": [wanted]}]
    fields = {"replica_id": replica_id, "isolation_level": isolation_level, "topics": topics}
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


@pytest.mark.parametrize("level", [-1, 2, 127])
def test_an_unknown_isolation_level_is_refused(broker, level: int) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    assert latest(broker, CONSUMER, isolation_level=1) == (Errors.NONE, 0)
    assert latest(broker, CONSUMER, isolation_level=level) == (Errors.INVALID_REQUEST, -1)


def test_no_leader_has_an_epoch_below_minus_one(broker) -> None:
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    for known_epoch, error in (
        (-1, Errors.NONE),
        (1, Errors.NONE),
        (2, Errors.UNKNOWN_LEADER_EPOCH),
        (0, Errors.FENCED_LEADER_EPOCH),
        (-2, Errors.FENCED_LEADER_EPOCH),
    ):
        assert latest(broker, CONSUMER, known_epoch=known_epoch)[0] is error
