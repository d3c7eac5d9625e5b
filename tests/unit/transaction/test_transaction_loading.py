"""A coordinator takes over what is in the log, and one that gave up a partition writes nothing more to it."""

from __future__ import annotations

import math

import pytest

from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.coordinator.transaction.records import encode_key
from broker.protocol.errors import Errors
from tests.support.transaction_fakes import T0, T1, Harness


@pytest.fixture
def h() -> Harness:
    return Harness()


def test_a_later_coordinator_knows_every_transaction(h: Harness) -> None:
    producer = h.producer(timeout_ms=7_000)
    h.add(producer, T0, T1)
    before = h.coordinator.describe("tx")
    h.crash()
    assert h.coordinator.describe("tx") == before
    assert h.end(producer) is Errors.NONE
    assert h.state() == "CompleteCommit"


@pytest.mark.parametrize("commit", [True, False])
def test_a_later_coordinator_ends_what_was_decided(h: Harness, commit: bool) -> None:
    producer = h.producer()
    h.add(producer, T0, T1)
    h.cluster.hold = True
    h.end(producer, commit=commit)
    h.cluster.hold = False
    h.crash()
    assert h.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert h.cluster.written == {T0: [(1000, 0, commit)], T1: [(1000, 0, commit)]}
    assert h.cluster.requests[-1][0].coordinator_epoch == 2


def test_a_broker_that_does_not_lead_the_partition_says_so(h: Harness) -> None:
    producer = h.producer()
    h.coordinator.on_resignation(0, 1)
    assert h.init().error is Errors.NOT_COORDINATOR
    assert h.add(producer) is Errors.NOT_COORDINATOR
    assert h.end(producer) is Errors.NOT_COORDINATOR
    assert h.verify(producer, T0) == [Errors.NOT_COORDINATOR]
    assert h.coordinator.describe("tx").error is Errors.NOT_COORDINATOR
    assert not list(h.coordinator.list_transactions([], [], -1).transactions)
    assert h.memory.held == 0


def test_while_a_partition_is_loaded_its_clients_are_to_wait() -> None:
    h = Harness(elect=False)
    h.elect(0, load=False)
    assert h.init().error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert h.add(ProducerIdAndEpoch(1, 0)) is Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert h.verify(ProducerIdAndEpoch(1, 0), T0) == [Errors.COORDINATOR_LOAD_IN_PROGRESS]
    assert h.coordinator.list_transactions([], [], -1).error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert h.scheduler.run() == ["load-transactions-0"]
    assert h.init().error is Errors.NONE


def test_a_log_that_cannot_be_read_is_read_again(h: Harness) -> None:
    h.producer()
    h.appender.log(0).broken = True
    h.elect(5)
    assert h.init().error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    h.appender.log(0).broken = False
    h.scheduler.run()
    assert h.producer() == ProducerIdAndEpoch(1000, 1)


def test_a_change_that_is_acknowledged_after_the_partition_was_given_up_is_not_answered_as_done(
    h: Harness,
) -> None:
    producer = h.producer()
    h.add(producer)
    h.appender.hold = True
    ending = h.ending(producer)
    h.coordinator.on_resignation(0, 1)
    h.appender.release()
    assert ending.result is Errors.NOT_COORDINATOR
    assert h.cluster.requests == []


def test_markers_that_are_written_after_the_partition_was_given_up_end_nothing(h: Harness) -> None:
    producer = h.producer()
    h.add(producer)
    h.cluster.hold = True
    h.end(producer)
    h.coordinator.on_resignation(0, 1)
    h.cluster.release()
    assert h.stored()["tx"].state.name == "PrepareCommit"
    h.cluster.hold = False
    h.elect(2)
    assert h.state() == "CompleteCommit"


def test_an_election_without_another_leader_in_between_changes_nothing(h: Harness) -> None:
    producer = h.producer()
    h.add(producer)
    h.cluster.hold = True
    h.end(producer)
    h.elect(1)
    h.cluster.release()
    assert h.state() == "CompleteCommit"


def test_a_stale_election_and_a_stale_resignation_change_nothing() -> None:
    h = Harness(elect=False)
    h.elect(5)
    h.producer()
    h.coordinator.on_election(0, 3)
    h.coordinator.on_resignation(0, 4)
    assert h.state() == "Empty"


def test_a_tombstone_and_a_record_that_nobody_understands_do_not_hinder_the_load(h: Harness) -> None:
    h.producer(name="a")
    h.producer(name="b")
    log = h.appender.log(0)
    log.append_records((encode_key("a"), None))
    log.append_records((b"\x00\x09strange", b"x"), (encode_key("b"), b"\x00\x7f"), (None, b"x"))
    h.crash()
    assert h.state("a") == "TRANSACTIONAL_ID_NOT_FOUND"
    assert h.state("b") == "Empty"


def test_a_broker_that_stops_answers_as_one_that_is_no_coordinator(h: Harness) -> None:
    producer = h.producer()
    h.coordinator.shutdown()
    assert h.add(producer) is Errors.COORDINATOR_NOT_AVAILABLE
    assert h.coordinator.list_transactions([], [], -1).error is Errors.COORDINATOR_NOT_AVAILABLE


def load_times(h: Harness) -> tuple[float, float]:
    """The longest and the average load, as the metrics have them."""
    return h.states.load_times.longest(), h.states.load_times.average()


def test_the_time_of_a_load_has_the_wait_for_a_thread_and_the_attempts_that_failed() -> None:
    h = Harness(elect=False)
    log = h.appender.log(0)
    log.append_records((encode_key("t"), None))
    log.broken = True
    h.elect(0, load=False)
    h.advance(30)
    h.scheduler.run()
    assert h.states.is_loading
    log.broken = False
    h.advance(500)
    h.scheduler.run()
    assert load_times(h) == (530, 530)


def test_loads_count_for_a_minute_and_those_that_came_to_nothing_not_at_all() -> None:
    h = Harness(elect=False)
    h.elect(0, load=False)
    h.coordinator.on_resignation(0, 1)
    h.scheduler.run()
    assert all(map(math.isnan, load_times(h)))
    for leader_epoch, waited_ms in ((2, 10), (4, 40)):
        h.elect(leader_epoch, load=False)
        h.advance(waited_ms)
        h.scheduler.run()
    assert load_times(h) == (40, 25)
    h.advance(60_000)
    assert load_times(h) == (40, 40)
    h.advance(1)
    assert all(map(math.isnan, load_times(h)))
