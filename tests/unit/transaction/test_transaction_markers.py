"""Markers reach every partition of an ended transaction, whatever the leaders answer, and then the end is stored."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from broker.coordinator.transaction.markers import Outgoing
from broker.coordinator.transaction.partition import PendingCompletion
from broker.protocol.errors import Errors
from tests.support.transaction_fakes import BROKER, T0, T1, T2, Answers, Harness


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


# -- failures of this broker


def completions(h: Harness) -> list[PendingCompletion]:
    """The transactions that wait for their markers."""
    return [
        PendingCompletion(
            led, txn.transactional_id, txn.completing, txn.state.name == "PrepareCommit", txn.partitions
        )
        for led in h.states.partitions()
        for txn in led.transactions()
        if txn.completing is not None
    ]


class Failing(Harness):
    """A coordinator whose next ends of transactions are stored and then raise, as when the answer to another request
    cannot be sent.
    """

    failures = 0

    @contextmanager
    def putting_off(self) -> Iterator[None]:
        yield
        if self.failures:
            self.failures -= 1
            raise RuntimeError("another request's callback failed")


def test_an_answer_that_fails_halfway_does_not_send_markers_into_the_next_transaction() -> None:
    h = Failing()
    h.cluster.hold = True
    producers = {name: h.producer(name=name) for name in ("a", "b")}
    for name, producer in producers.items():
        h.add(producer, T0, name=name)
        h.end(producer, name=name)
    requests = [Outgoing(c, c.partitions) for c in completions(h)]
    h.failures = 1
    h.cluster.release()
    assert {h.state(name) for name in producers} == {"CompleteCommit"}
    h.add(producers["a"], T0, name="a")
    h.cluster.written.clear()
    h.markers._failed.add(requests)
    h.cluster.hold = False
    h.scheduler.run()
    assert (h.state("a"), h.cluster.written) == ("Ongoing", {})


def test_a_late_marker_does_not_count_for_the_next_transaction_that_ends_alike(h: Harness) -> None:
    h.cluster.hold = True
    producer = h.producer()
    h.add(producer, T0)
    h.end(producer)
    (late,) = completions(h)
    h.cluster.release()
    h.add(producer, T0)
    h.end(producer)
    assert h.markers.log_append_retries == 0
    assert late.led.unmarked(late, late.partitions) == {}
    assert not late.led.marked(late, late.partitions)
    assert h.state() == "PrepareCommit"
    h.cluster.release()
    assert h.state() == "CompleteCommit"


def test_an_end_that_is_stored_twice_counts_once(h: Harness) -> None:
    h.cluster.hold = h.appender.hold = False
    producer = h.producer()
    h.add(producer, T0)
    h.cluster.hold = True
    h.end(producer)
    (completion,) = completions(h)
    h.appender.hold = True
    stored = Answers()
    completion.led.complete(completion, stored)
    h.cluster.release()
    h.appender.release()
    assert (stored.result, h.state(), h.markers.log_append_retries) == (Errors.NONE, "CompleteCommit", 0)


def test_markers_that_cannot_be_placed_are_placed_later(h: Harness) -> None:
    working, h.markers._metadata = h.markers._metadata, None
    ended(h)
    assert h.state() == "PrepareCommit"
    h.markers._metadata = working
    h.scheduler.run()
    assert h.state() == "CompleteCommit"


def test_a_transaction_ends_although_its_producer_cannot_be_answered(h: Harness) -> None:
    producer = h.producer()
    h.add(producer, T0)

    def respond(_error: Errors) -> None:
        raise RuntimeError("the connection is gone")

    with suppress(RuntimeError):
        h.coordinator.end("tx", producer, True, respond)
    assert h.state() == "CompleteCommit"
