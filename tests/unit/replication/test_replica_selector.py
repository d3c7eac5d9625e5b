"""Consumers that read from followers (KIP-392): which replica is preferred, and what a follower answers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition
from broker.record.batch import Record, build_batch
from broker.replication.delayed_fetch import FetchEntry, FetchParams
from broker.replication.replica_selector import Client, ReplicaView, rack_aware
from tests.support.replica_world import LONG_MS, ME, OTHER, THIRD, TOPIC_ID, Broker, state, tp

LEADER = ReplicaView(1, "a", 10, 0)
NO_EPOCH = -1


def follower(broker_id: int, rack: str | None, end: int = 10, behind_ms: int = 0) -> ReplicaView:
    return ReplicaView(broker_id, rack, end, behind_ms)


@pytest.mark.parametrize(
    ("rack", "followers", "preferred"),
    [
        ("b", [follower(2, "b"), follower(3, "c")], 2),
        ("a", [follower(2, "a")], None),
        ("", [follower(2, "")], None),
        ("d", [follower(2, "b"), follower(3, None)], None),
        ("b", [follower(2, "b", 9), follower(3, "b", 10)], 3),
        ("b", [follower(2, "b", behind_ms=1), follower(3, "b", behind_ms=5)], 2),
        ("b", [follower(2, "b"), follower(3, "b")], 3),
    ],
    ids=[
        "of its rack",
        "the leader is",
        "no rack",
        "none is",
        "has more",
        "was caught up later",
        "highest id",
    ],
)
def test_a_consumer_reads_from_the_most_caught_up_replica_of_its_rack(rack, followers, preferred) -> None:
    assert rack_aware(rack, LEADER, followers) == preferred


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Broker]:
    """In rack a, with another broker in rack b."""
    made = Broker(tmp_path)
    made.cluster.racks = {ME: "a", OTHER: "b", THIRD: "b"}
    yield made
    made.close()


def leads(broker: Broker) -> None:
    """It leads a partition with two records, which the other broker has too."""
    broker.leadership.apply(1, [state(0, ME, 1, (ME, OTHER))])
    for _ in range(2):
        broker.produce(0)
    broker.fetched_by(OTHER, 0, 2, 1)


def follows(broker: Broker, records: int, mark: int) -> None:
    """It has so many records, and knows that of these ``mark`` are committed."""
    broker.leadership.apply(1, [state(0, OTHER, 1, (ME, OTHER))])
    partition = broker.replicas.partition(tp(0))
    for offset in range(records):
        batch = bytearray(build_batch([Record(None, b"v")], base_offset=offset, leader_epoch=1))
        partition.append_as_follower(memoryview(batch), 1, mark, 0)
    partition.append_as_follower(memoryview(b""), 1, mark, 0)


def read(
    broker: Broker,
    offset: int = 0,
    rack: str = "b",
    *,
    epoch: int = NO_EPOCH,
    or_follower: bool = True,
    wait_ms: int = 0,
) -> list[FetchedPartition]:
    """The list gets the answer when there is one."""
    answers: list[FetchedPartition] = []
    client = Client(rack, "PLAINTEXT") if rack else None
    params = FetchParams(-1, -1, wait_ms, 1, 1 << 20, or_follower=or_follower, client=client)
    entry = FetchEntry(tp(0), TOPIC_ID, offset, 1 << 20, epoch)
    broker.replicas.fetch(params, [entry], lambda found: answers.append(found[0][1]))
    return answers


def test_a_leader_sends_a_consumer_to_the_replica_of_its_rack_at_once(broker: Broker) -> None:
    leads(broker)
    (answer,) = read(broker, 2, wait_ms=LONG_MS)
    assert (answer.error, answer.preferred, answer.records) == (Errors.NONE, OTHER, None)
    assert (answer.high_watermark, answer.log_start_offset) == (2, 0)


@pytest.mark.parametrize("rack", ["a", "c", ""])
def test_a_leader_serves_a_consumer_for_whom_no_other_replica_is_nearer(broker: Broker, rack: str) -> None:
    leads(broker)
    (answer,) = read(broker, rack=rack)
    assert (answer.preferred, answer.records is not None) == (-1, True)


def test_a_replica_that_lacks_the_offset_or_is_not_in_sync_or_dead_is_not_preferred(broker: Broker) -> None:
    leads(broker)
    broker.produce(0)
    assert read(broker, 3)[0].preferred == -1
    broker.cluster.dead.add(OTHER)
    assert read(broker, 2)[0].preferred == -1
    broker.cluster.dead.clear()
    assert read(broker, 2)[0].preferred == OTHER
    broker.leadership.apply(1, [state(0, ME, 2, (ME,))])
    assert read(broker, 2)[0].preferred == -1


def test_a_follower_serves_what_it_knows_to_be_committed(broker: Broker) -> None:
    follows(broker, records=3, mark=2)
    (answer,) = read(broker)
    assert (answer.error, answer.high_watermark, answer.preferred) == (Errors.NONE, 2, -1)
    assert answer.records is not None
    (none_yet,) = read(broker, 3)
    assert (none_yet.error, none_yet.records) == (Errors.NONE, None)


def test_a_follower_answers_those_that_wait_when_the_mark_moves(broker: Broker) -> None:
    follows(broker, records=2, mark=1)
    answers = read(broker, 1, wait_ms=LONG_MS)
    assert answers == []
    broker.replicas.partition(tp(0)).append_as_follower(memoryview(b""), 1, 2, 0)
    broker.replicas.wake(tp(0))
    assert [answer.high_watermark for answer in answers] == [2]


def test_a_follower_refuses_an_offset_that_it_does_not_have(broker: Broker) -> None:
    follows(broker, records=2, mark=2)
    assert read(broker, 3)[0].error is Errors.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "error"), [(0, Errors.FENCED_LEADER_EPOCH), (1, Errors.NONE), (2, Errors.UNKNOWN_LEADER_EPOCH)]
)
def test_a_follower_checks_the_epoch(broker: Broker, epoch: int, error: Errors) -> None:
    follows(broker, records=2, mark=2)
    assert read(broker, epoch=epoch)[0].error is error


def test_a_follower_refuses_those_that_do_not_know_that_they_may_read_from_it(broker: Broker) -> None:
    follows(broker, records=2, mark=2)
    assert read(broker, or_follower=False)[0].error is Errors.NOT_LEADER_OR_FOLLOWER
