"""What transactional producers are answered, with Kafka's error codes."""

from __future__ import annotations

import pytest

from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.protocol.errors import Errors
from tests.support.group_fakes import APPEND_ERRORS
from tests.support.transaction_fakes import T0, T1, T2, Harness

LAST_EPOCH = 0x7FFE


@pytest.fixture
def h() -> Harness:
    return Harness()


def with_epoch(h: Harness, epoch: int) -> ProducerIdAndEpoch:
    """A producer whose transactional id has reached this epoch."""
    producer = h.producer()
    h.metadata().producer_epoch = epoch
    return producer._replace(epoch=epoch)


# -- InitProducerId


def test_a_new_transactional_id_gets_a_producer_id_with_epoch_0(h: Harness) -> None:
    assert h.producer() == ProducerIdAndEpoch(1000, 0)
    assert h.producer(name="other") == ProducerIdAndEpoch(1001, 0)
    assert (h.stored()["tx"].producer_id, h.stored()["tx"].producer_epoch) == (1000, 0)


def test_each_new_producer_gets_the_next_epoch_and_fences_the_one_before(h: Harness) -> None:
    first, second = h.producer(), h.producer()
    assert second == ProducerIdAndEpoch(1000, 1)
    assert h.add(first) is Errors.PRODUCER_FENCED
    assert h.end(first) is Errors.PRODUCER_FENCED
    assert h.add(second) is Errors.NONE


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_time_out_that_is_not_allowed_is_refused(h: Harness, timeout_ms: int) -> None:
    assert h.init(timeout_ms=timeout_ms).error is Errors.INVALID_TRANSACTION_TIMEOUT
    assert h.init(timeout_ms=900_000).error is Errors.NONE


def test_an_empty_transactional_id_is_refused_everywhere(h: Harness) -> None:
    producer = ProducerIdAndEpoch(1, 0)
    assert h.init(name="").error is Errors.INVALID_REQUEST
    assert h.add(producer, name="") is Errors.INVALID_REQUEST
    assert h.end(producer, name="") is Errors.INVALID_REQUEST
    assert h.verify(producer, T0, name="") == [Errors.INVALID_REQUEST]
    assert h.coordinator.describe("").error is Errors.INVALID_REQUEST


def test_without_producer_ids_the_client_is_to_retry_and_nothing_is_kept(h: Harness) -> None:
    h.no_producer_ids = True
    assert h.init().error is Errors.COORDINATOR_LOAD_IN_PROGRESS
    assert h.state() == "TRANSACTIONAL_ID_NOT_FOUND"


def test_a_producer_goes_on_after_an_error_with_the_next_epoch(h: Harness) -> None:
    producer = h.producer()
    assert h.init(producer).producer == ProducerIdAndEpoch(1000, 1)


def test_a_retry_whose_answer_was_lost_gets_the_same_epoch_again(h: Harness) -> None:
    producer = h.producer()
    bumped = h.init(producer)
    assert h.init(producer) == bumped


def test_a_retry_is_fenced_once_a_new_producer_has_come(h: Harness) -> None:
    producer = h.producer()
    h.init(producer)
    h.producer()
    assert h.init(producer).error is Errors.PRODUCER_FENCED


def test_a_producer_with_another_producer_id_is_fenced(h: Harness) -> None:
    h.producer()
    assert h.init(ProducerIdAndEpoch(999, 0)).error is Errors.PRODUCER_FENCED


def test_a_producer_whose_transactional_id_expired_gets_a_new_producer_id(h: Harness) -> None:
    assert h.init(ProducerIdAndEpoch(5, 17)).producer == ProducerIdAndEpoch(1000, 0)


def test_used_up_epochs_lead_to_a_new_producer_id(h: Harness) -> None:
    with_epoch(h, LAST_EPOCH)
    assert h.producer() == ProducerIdAndEpoch(1001, 0)


def test_the_retry_of_a_request_that_led_to_a_new_producer_id_gets_it_again(h: Harness) -> None:
    producer = with_epoch(h, LAST_EPOCH)
    rotated = h.init(producer)
    assert rotated.producer == ProducerIdAndEpoch(1001, 0)
    assert h.init(producer) == rotated


def test_a_new_producer_aborts_what_the_one_before_left_open(h: Harness) -> None:
    old = h.producer()
    h.add(old, T0, T1)
    h.cluster.hold = True
    assert h.init().error is Errors.CONCURRENT_TRANSACTIONS
    assert h.state() == "PrepareAbort"
    assert h.init().error is Errors.CONCURRENT_TRANSACTIONS, "the markers are not written yet"
    h.cluster.release()
    assert h.state() == "CompleteAbort"
    assert h.cluster.written == {T0: [(1000, 1, False)], T1: [(1000, 1, False)]}
    assert h.producer() == ProducerIdAndEpoch(1000, 2)
    assert h.end(old) is Errors.PRODUCER_FENCED


def test_the_highest_epoch_is_for_fencing_alone(h: Harness) -> None:
    producer = with_epoch(h, LAST_EPOCH)
    h.add(producer)
    assert h.init().error is Errors.CONCURRENT_TRANSACTIONS
    assert h.cluster.written == {T0: [(1000, 0x7FFF, False)]}
    assert h.producer() == ProducerIdAndEpoch(1001, 0)


def test_a_fencing_that_the_log_refused_takes_the_same_epoch_the_next_time(h: Harness) -> None:
    producer = h.producer()
    h.add(producer)
    h.appender.error = Errors.NOT_ENOUGH_REPLICAS
    for _ in range(3):
        assert h.init().error is Errors.COORDINATOR_NOT_AVAILABLE
        assert h.metadata().producer_epoch == 1
    h.appender.error = Errors.NONE
    assert h.init().error is Errors.CONCURRENT_TRANSACTIONS
    assert h.cluster.written == {T0: [(1000, 1, False)]}
    assert h.producer().epoch == 2


# -- AddPartitionsToTxn


def test_partitions_are_added_and_the_transaction_begins(h: Harness) -> None:
    producer = h.producer()
    assert h.add(producer, T0) is Errors.NONE
    begun_ms = h.clock.wall_ms()
    h.advance(10)
    assert h.add(producer, T1) is Errors.NONE
    stored = h.stored()["tx"]
    assert stored.state.name == "Ongoing"
    assert stored.partitions == {"t": frozenset({0, 1})}
    assert (stored.start_ms, stored.last_update_ms) == (begun_ms, begun_ms + 10)


def test_partitions_that_are_in_the_transaction_are_not_written_again(h: Harness) -> None:
    producer = h.producer()
    h.add(producer, T0, T1)
    before = h.appender.log(0).log_end_offset
    assert h.add(producer, T1) is Errors.NONE
    assert h.appender.log(0).log_end_offset == before


def test_unknown_producers_add_nothing(h: Harness) -> None:
    assert h.add(ProducerIdAndEpoch(1, 0)) is Errors.INVALID_PRODUCER_ID_MAPPING
    producer = h.producer()
    assert h.add(producer._replace(producer_id=1)) is Errors.INVALID_PRODUCER_ID_MAPPING
    assert h.add(producer._replace(epoch=1)) is Errors.PRODUCER_FENCED


def test_everything_waits_while_a_change_is_being_stored(h: Harness) -> None:
    producer = h.producer()
    h.appender.hold = True
    adding = h.adding(producer)
    assert adding.waiting
    assert h.add(producer, T1) is Errors.CONCURRENT_TRANSACTIONS
    assert h.end(producer) is Errors.CONCURRENT_TRANSACTIONS
    assert h.init().error is Errors.CONCURRENT_TRANSACTIONS
    h.appender.release()
    assert adding.result is Errors.NONE


def test_the_next_transaction_waits_for_the_markers_of_the_last_one(h: Harness) -> None:
    producer = h.producer()
    h.add(producer)
    h.cluster.hold = True
    assert h.end(producer) is Errors.NONE
    assert h.add(producer) is Errors.CONCURRENT_TRANSACTIONS
    h.cluster.release()
    assert h.add(producer) is Errors.NONE
    assert h.state() == "Ongoing"


# -- the verification by leaders


def test_a_leader_learns_which_partitions_are_in_the_transaction(h: Harness) -> None:
    producer = h.producer()
    assert h.verify(producer, T0) == [Errors.TRANSACTION_ABORTABLE]
    h.add(producer, T0, T2)
    assert h.verify(producer, T0, T1, T2) == [Errors.NONE, Errors.TRANSACTION_ABORTABLE, Errors.NONE]


def test_a_leader_is_told_which_producers_may_not_write(h: Harness) -> None:
    assert h.verify(ProducerIdAndEpoch(1, 0), T0) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    producer = h.producer()
    h.add(producer, T0)
    assert h.verify(producer._replace(producer_id=1), T0) == [Errors.INVALID_PRODUCER_ID_MAPPING]
    assert h.verify(producer._replace(epoch=7), T0) == [Errors.PRODUCER_FENCED]
    h.cluster.hold = True
    h.end(producer)
    assert h.verify(producer, T0) == [Errors.CONCURRENT_TRANSACTIONS]
    h.cluster.release()
    assert h.verify(producer, T0) == [Errors.TRANSACTION_ABORTABLE], "the transaction is over"


# -- EndTxn


@pytest.mark.parametrize("commit", [True, False])
def test_a_transaction_ends_as_its_producer_says(h: Harness, commit: bool) -> None:
    producer = h.producer()
    h.add(producer, T0, T1)
    assert h.end(producer, commit=commit) is Errors.NONE
    assert h.state() == ("CompleteCommit" if commit else "CompleteAbort")
    assert h.cluster.written == {T0: [(1000, 0, commit)], T1: [(1000, 0, commit)]}
    assert h.stored()["tx"].partitions == {}
    assert h.stored()["tx"].state.name == h.state()


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_that_is_repeated_gets_the_same_answer_and_the_other_one_is_refused(
    h: Harness, commit: bool
) -> None:
    producer = h.producer()
    h.add(producer)
    h.cluster.hold = True
    h.end(producer, commit=commit)
    assert h.end(producer, commit=commit) is Errors.CONCURRENT_TRANSACTIONS
    h.cluster.release()
    assert h.end(producer, commit=commit) is Errors.NONE
    assert h.end(producer, commit=not commit) is Errors.INVALID_TXN_STATE
    assert h.cluster.written == {T0: [(1000, 0, commit)]}


def test_a_transaction_that_did_not_begin_cannot_end(h: Harness) -> None:
    producer = h.producer()
    assert h.end(producer) is Errors.INVALID_TXN_STATE
    assert h.end(producer, commit=False) is Errors.INVALID_TXN_STATE
    assert h.end(ProducerIdAndEpoch(1, 0), name="other") is Errors.INVALID_PRODUCER_ID_MAPPING
    assert h.end(producer._replace(producer_id=1)) is Errors.INVALID_PRODUCER_ID_MAPPING


def test_a_decision_that_is_not_stored_is_none(h: Harness) -> None:
    producer = h.producer()
    h.add(producer)
    h.appender.error = Errors.NOT_ENOUGH_REPLICAS
    assert h.end(producer) is Errors.COORDINATOR_NOT_AVAILABLE
    assert h.state() == "Ongoing"
    assert h.cluster.written == {}
    h.appender.error = Errors.NONE
    assert h.end(producer, commit=False) is Errors.NONE
    assert h.cluster.written == {T0: [(1000, 0, False)]}


@pytest.mark.parametrize(
    ("refused", "answered"),
    [
        *APPEND_ERRORS,
        (Errors.REQUEST_TIMED_OUT, Errors.COORDINATOR_NOT_AVAILABLE),
        (Errors.MESSAGE_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
        (Errors.RECORD_LIST_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
        (Errors.CORRUPT_MESSAGE, Errors.CORRUPT_MESSAGE),
    ],
)
def test_an_append_that_fails_is_answered_as_kafka_does(
    h: Harness, refused: Errors, answered: Errors
) -> None:
    producer = h.producer()
    h.appender.error = refused
    assert h.add(producer) is answered
    assert h.end(producer) is Errors.INVALID_TXN_STATE
    assert h.init().error is answered
    assert h.init(name="new").error is answered
    assert h.state("new") == "TRANSACTIONAL_ID_NOT_FOUND", "what was never stored is not kept"
    assert h.memory.held == h.recounted_bytes()


def test_all_records_need_all_replicas(h: Harness) -> None:
    producer = h.producer()
    h.add(producer)
    h.end(producer)
    assert set(h.appender.required_acks) == {-1}


# -- DescribeTransactions, ListTransactions


def test_a_transaction_is_described(h: Harness) -> None:
    producer = h.producer(timeout_ms=5_000)
    h.add(producer, T0, T2)
    found = h.coordinator.describe("tx")
    assert (found.error, found.state, found.timeout_ms) == (Errors.NONE, "Ongoing", 5_000)
    assert (found.producer_id, found.producer_epoch, found.start_ms) == (*producer, h.clock.wall_ms())
    assert found.partitions == {"t": frozenset({0, 2})}
    assert h.coordinator.describe("no").error is Errors.TRANSACTIONAL_ID_NOT_FOUND


def test_of_a_transaction_that_is_being_ended_the_partitions_without_a_marker_are_described(
    h: Harness,
) -> None:
    producer = h.producer()
    h.add(producer, T0, T1)
    h.cluster.errors[T1] = Errors.NOT_LEADER_OR_FOLLOWER
    h.end(producer)
    assert h.coordinator.describe("tx").partitions == {"t": frozenset({1})}


def test_transactions_are_listed_by_producer_state_and_duration(h: Harness) -> None:
    for name in ("a", "b", "c"):
        h.producer(name=name)
    h.add(ProducerIdAndEpoch(1000, 0), name="a")
    h.advance(1_000)
    h.add(ProducerIdAndEpoch(1001, 0), name="b")

    def names(producer_ids: list[int], states: list[str], duration_ms: int = -1) -> list[str]:
        listed = h.coordinator.list_transactions(producer_ids, states, duration_ms)
        assert listed.error is Errors.NONE
        return sorted(each.transactional_id for each in listed.transactions)

    assert names([], []) == ["a", "b", "c"]
    assert names([1001, 1002], []) == ["b", "c"]
    assert names([], ["Ongoing"]) == ["a", "b"]
    assert names([], ["Ongoing"], 500) == ["a"]
    assert names([], ["Ongoing"], 1_000) == []
    assert names([1002], ["Ongoing"]) == []
    listed = h.coordinator.list_transactions([], ["Ongoing", "Cooking"], -1)
    assert listed.unknown_states == ("Cooking",)
    assert not list(h.coordinator.list_transactions([], ["Cooking"], -1).transactions)
