"""Markers reach every partition of an ended transaction, whatever the leaders answer, and then the end is stored."""

from __future__ import annotations

import pytest

from broker.protocol.errors import Errors
from tests.support.transaction_fakes import BROKER, T0, T1, T2, Harness


@pytest.fixture
def h() -> Harness:
    return Harness()


def ended(h: Harness, *, commit: bool = True) -> None:
    producer = h.producer()
    h.add(producer, T0, T1)
    assert h.end(producer, commit=commit) is Errors.NONE


@pytest.mark.parametrize(
    "error",
    [
        Errors.UNKNOWN_TOPIC_OR_PARTITION,
        Errors.NOT_LEADER_OR_FOLLOWER,
        Errors.NOT_ENOUGH_REPLICAS,
        Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        Errors.REQUEST_TIMED_OUT,
        Errors.KAFKA_STORAGE_ERROR,
        Errors.UNKNOWN_SERVER_ERROR,
        Errors.CLUSTER_AUTHORIZATION_FAILED,
    ],
)
def test_a_partition_that_refuses_its_marker_gets_it_later(h: Harness, error: Errors) -> None:
    h.cluster.errors[T1] = error
    ended(h)
    for _ in range(3):
        assert h.state() == "PrepareCommit"
        h.scheduler.run()
    assert h.cluster.written == {T0: [(1000, 0, True)]}, "the others do not get theirs twice"
    del h.cluster.errors[T1]
    h.scheduler.run()
    assert h.cluster.written == {T0: [(1000, 0, True)], T1: [(1000, 0, True)]}
    assert h.state() == "CompleteCommit"


@pytest.mark.parametrize("error", [Errors.UNSUPPORTED_FOR_MESSAGE_FORMAT, Errors.UNSUPPORTED_VERSION])
def test_a_partition_that_can_have_no_records_of_the_transaction_needs_no_marker(
    h: Harness, error: Errors
) -> None:
    h.cluster.errors[T1] = error
    ended(h)
    assert h.state() == "CompleteCommit"


@pytest.mark.parametrize("error", [Errors.INVALID_PRODUCER_EPOCH, Errors.TRANSACTION_COORDINATOR_FENCED])
def test_a_coordinator_that_was_replaced_sends_no_more_markers(h: Harness, error: Errors) -> None:
    h.cluster.errors[T1] = error
    ended(h)
    assert h.scheduler.run() == []
    assert h.state() == "PrepareCommit"


def test_a_partition_that_no_longer_exists_is_dropped(h: Harness) -> None:
    producer = h.producer()
    h.add(producer, T0, T1)
    del h.cluster.leaders[T1]
    h.end(producer)
    assert h.cluster.written == {T0: [(1000, 0, True)]}
    assert h.state() == "CompleteCommit"


def test_a_broker_that_does_not_know_the_cluster_yet_drops_nothing(h: Harness) -> None:
    producer = h.producer()
    h.add(producer, T0, T1)
    leaders, h.cluster.leaders, h.cluster.alive = h.cluster.leaders, {}, False
    h.end(producer)
    h.scheduler.run()
    assert (h.state(), h.cluster.written, h.markers.unknown_destinations) == ("PrepareCommit", {}, 1)
    h.cluster.leaders, h.cluster.alive = leaders, True
    h.scheduler.run()
    assert (h.state(), h.markers.unknown_destinations) == ("CompleteCommit", 0)


def test_a_partition_without_a_live_leader_is_waited_for(h: Harness) -> None:
    producer = h.producer()
    h.add(producer, T0, T2)
    h.cluster.leaders[T2] = -1
    h.end(producer)
    h.scheduler.run()
    assert (h.state(), h.markers.unknown_destinations) == ("PrepareCommit", 1)
    h.cluster.leaders[T2] = BROKER
    h.scheduler.run()
    assert h.state() == "CompleteCommit"
    assert h.cluster.written[T2] == [(1000, 0, True)]


@pytest.mark.parametrize(
    "error", [Errors.NOT_ENOUGH_REPLICAS, Errors.REQUEST_TIMED_OUT, Errors.KAFKA_STORAGE_ERROR]
)
def test_an_end_that_the_log_refused_is_appended_again(h: Harness, error: Errors) -> None:
    h.cluster.hold = True
    ended(h)
    h.appender.error = error
    h.cluster.release()
    for _ in range(3):
        assert (h.state(), h.markers.log_append_retries) == ("PrepareCommit", 1)
        h.scheduler.run()
    h.appender.error = Errors.NONE
    h.scheduler.run()
    assert (h.state(), h.markers.log_append_retries) == ("CompleteCommit", 0)
    assert h.cluster.written == {T0: [(1000, 0, True)], T1: [(1000, 0, True)]}


def test_a_transaction_of_very_many_partitions_is_not_sorted_on_the_thread_that_ends_it(h: Harness) -> None:
    many = [T0._replace(partition=number) for number in range(2_000)]
    h.cluster.leaders.update(dict.fromkeys(many, BROKER))
    producer = h.producer()
    h.add(producer, *many)
    assert h.end(producer) is Errors.NONE
    assert h.cluster.requests == []
    h.scheduler.run()
    assert h.state() == "CompleteCommit"
    assert len(h.cluster.written) == 2_000


def test_markers_name_the_epoch_of_the_coordinator() -> None:
    h = Harness(elect=False)
    h.elect(7)
    ended(h)
    ((marker,),) = h.cluster.requests
    assert (marker.coordinator_epoch, marker.committed) == (7, True)


def test_a_transaction_without_partitions_ends_at_once(h: Harness) -> None:
    producer = h.producer()
    h.coordinator.add_partitions("tx", producer, {}, lambda _error: None)
    assert h.end(producer) is Errors.NONE
    assert h.state() == "CompleteCommit"
    assert h.cluster.requests == []
