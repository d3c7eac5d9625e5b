"""Time-outs, expiry, and limits: what a producer that never ends, or an endless number of them, may cost."""

from __future__ import annotations

import sys

import pytest
from structlog.testing import capture_logs

from broker.coordinator.transaction.metadata import TransactionMetadata
from broker.coordinator.transaction.partition import TransactionPartition
from broker.coordinator.transaction.partitions import partitions_of
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.transaction_fakes import BROKER, T0, T1, Harness

WEEK_MS = 604_800_000


@pytest.fixture
def h() -> Harness:
    return Harness()


# -- time-outs


def test_a_transaction_that_takes_too_long_is_aborted_and_its_producer_fenced(h: Harness) -> None:
    producer = h.producer(timeout_ms=5_000)
    h.add(producer, T0)
    h.advance(5_000)
    h.coordinator.abort_timed_out()
    assert h.state() == "Ongoing", "at its time-out it may still end"
    h.advance(1)
    h.coordinator.abort_timed_out()
    assert h.state() == "CompleteAbort"
    assert h.cluster.written == {T0: [(1000, 1, False)]}
    assert h.end(producer) is Errors.PRODUCER_FENCED
    assert h.add(producer) is Errors.PRODUCER_FENCED


def test_adding_partitions_does_not_prolong_a_transaction(h: Harness) -> None:
    producer = h.producer(timeout_ms=5_000)
    h.add(producer, T0)
    h.advance(4_000)
    h.add(producer, T1)
    h.advance(1_001)
    h.coordinator.abort_timed_out()
    assert h.state() == "CompleteAbort"


def test_what_does_not_run_does_not_time_out(h: Harness) -> None:
    producer = h.producer(timeout_ms=5_000)
    h.advance(6_000)
    h.coordinator.abort_timed_out()
    assert h.add(producer) is Errors.NONE
    h.end(producer)
    h.advance(6_000)
    h.coordinator.abort_timed_out()
    assert h.state() == "CompleteCommit"


def test_an_abort_that_the_log_refused_is_tried_again(h: Harness) -> None:
    producer = h.producer(timeout_ms=5_000)
    h.add(producer)
    h.advance(6_000)
    h.appender.error = Errors.NOT_ENOUGH_REPLICAS
    h.coordinator.abort_timed_out()
    h.coordinator.abort_timed_out()
    h.appender.error = Errors.NONE
    h.coordinator.abort_timed_out()
    assert h.cluster.written == {T0: [(1000, 1, False)]}, "the epoch is raised once"


def test_a_decision_that_is_being_stored_is_not_overtaken_by_the_time_out(h: Harness) -> None:
    producer = h.producer(timeout_ms=5_000)
    h.add(producer)
    h.appender.hold = True
    ending = h.ending(producer)
    h.advance(6_000)
    h.coordinator.abort_timed_out()
    h.appender.hold = False
    h.appender.release()
    assert ending.result is Errors.NONE
    assert h.cluster.written == {T0: [(1000, 0, True)]}


# -- expiry


@pytest.mark.parametrize("commit", [None, True, False])
def test_an_unused_transactional_id_is_forgotten(h: Harness, commit: bool | None) -> None:
    producer = h.producer()
    if commit is not None:
        h.add(producer)
        h.end(producer, commit=commit)
    h.advance(WEEK_MS - 1)
    h.coordinator.remove_expired()
    assert h.state() != "TRANSACTIONAL_ID_NOT_FOUND"
    h.advance(1)
    h.coordinator.remove_expired()
    assert h.state() == "TRANSACTIONAL_ID_NOT_FOUND"
    assert h.stored() == {}
    assert h.memory.held == 0
    h.crash()
    assert h.state() == "TRANSACTIONAL_ID_NOT_FOUND"


def test_an_open_transaction_does_not_expire(h: Harness) -> None:
    h.add(h.producer())
    h.advance(2 * WEEK_MS)
    h.coordinator.remove_expired()
    assert h.state() == "Ongoing"


def test_tombstones_that_the_log_refused_are_written_later(h: Harness) -> None:
    h.producer()
    h.advance(WEEK_MS)
    h.appender.error = Errors.NOT_ENOUGH_REPLICAS
    h.coordinator.remove_expired()
    assert h.state() == "Empty"
    h.appender.error = Errors.NONE
    h.coordinator.remove_expired()
    assert h.state() == "TRANSACTIONAL_ID_NOT_FOUND"


def test_the_tombstones_of_long_names_come_in_batches_that_a_log_accepts(h: Harness) -> None:
    for number in range(50):
        h.producer(name=f"{number}" + "x" * 10_000)
    before = len(h.appender.log(0).batches)
    h.advance(WEEK_MS)
    h.coordinator.remove_expired()
    batches = [batch for _, batch in h.appender.log(0).batches[before:]]
    assert len(batches) > 1
    assert max(map(len, batches)) < 100_000
    assert h.stored() == {}


# -- limits


def test_a_name_of_ten_kilobytes_is_a_name_and_one_that_no_record_holds_is_refused(h: Harness) -> None:
    name = "n" * 10_240
    assert h.add(h.producer(name=name), name=name) is Errors.NONE
    h.crash()
    assert h.state(name) == "Ongoing"
    assert h.init(name="n" * 0x8000).error is Errors.INVALID_REQUEST
    assert h.init(name="ü" * 0x4000).error is Errors.INVALID_REQUEST
    assert h.init(name="n" * 0x7FFF).error is Errors.NONE


def test_new_transactional_ids_are_refused_when_the_memory_is_full_and_known_ones_go_on() -> None:
    h = Harness(landline_transaction_max_bytes=20_000)
    producers = []
    while (result := h.init(name=f"tx-{len(producers)}")).error is Errors.NONE:
        producers.append(result.producer)
    assert result.error is Errors.POLICY_VIOLATION
    assert next(h.producer_ids) == 1000 + len(producers), "none is used up for those that are refused"
    assert 10 < len(producers) < 40
    assert h.memory.held <= 20_000
    assert h.init(name="tx-0").producer.epoch == 1
    assert h.add(producers[1], name="tx-1") is Errors.POLICY_VIOLATION, "a new partition takes memory"
    assert h.end(producers[1], name="tx-1") is Errors.INVALID_TXN_STATE
    h.advance(WEEK_MS)
    h.coordinator.remove_expired()
    assert h.memory.held == 0
    assert h.init(name="new").error is Errors.NONE


def test_an_open_transaction_ends_when_the_memory_is_full() -> None:
    h = Harness(landline_transaction_max_bytes=20_000)
    producer = h.producer()
    h.add(producer)
    while h.init(name=f"tx-{next(h.producer_ids)}").error is Errors.NONE:
        pass
    assert h.end(producer) is Errors.NONE
    assert h.state() == "CompleteCommit"


def test_the_memory_is_what_the_transactions_weigh_whatever_happens(h: Harness) -> None:
    for number in range(20):
        name = f"tx-{number}"
        producer = h.producer(name=name)
        h.add(producer, *[T0._replace(partition=p) for p in range(number)], name=name)
        if number % 2:
            h.end(producer, name=name)
        assert h.memory.held == h.recounted_bytes()
    h.elect(9)
    assert h.memory.held == h.recounted_bytes() > 0


@pytest.mark.parametrize("partitions", [1, 1_000])
def test_a_transaction_takes_no_more_memory_than_it_is_weighed(partitions: int) -> None:
    added = partitions_of(TopicPartition("topic", 10_000 + number) for number in range(partitions))
    txn = TransactionMetadata("transaction", 1 << 40, 60_000, 1_700_000_000_000)
    txn.partitions = added
    txn.reweigh()
    numbers = added["topic"]
    size = sys.getsizeof(txn) + sum(sys.getsizeof(getattr(txn, slot)) for slot in txn.__slots__)
    size += sys.getsizeof(numbers) + sum(map(sys.getsizeof, numbers))
    assert size + 104 <= txn.weight, "104 bytes: its entry in a growing dict"


def test_work_on_a_huge_transaction_is_small(h: Harness) -> None:
    """Each added partition rewrites the record: that must not take a look at each partition in Python."""
    many = [T0._replace(partition=number) for number in range(20_000)]
    h.cluster.leaders.update(dict.fromkeys(many, BROKER))
    producer = h.producer()
    h.add(producer, *many)
    steps = 0

    def count_steps(_frame, event, _arg):
        nonlocal steps
        steps += event == "line"
        return count_steps

    one_more = partitions_of([TopicPartition("u", 0)])
    sys.settrace(count_steps)
    try:
        h.coordinator.add_partitions("tx", producer, one_more, lambda _error: None)
    finally:
        sys.settrace(None)
    assert h.metadata().partitions["u"] == {0}
    assert steps < 2_000


def test_very_many_time_outs_are_aborted_in_parts_so_that_partitions_are_loaded_in_between(
    h: Harness,
) -> None:
    for number in range(2_500):
        name = f"tx-{number}"
        h.add(h.producer(name=name, timeout_ms=10), name=name)
    h.advance(20)
    h.coordinator.abort_timed_out()
    aborted = [len(h.cluster.written[T0])]
    h.coordinator.abort_timed_out()
    while h.scheduler.run():
        aborted.append(len(h.cluster.written[T0]))
    assert aborted == [1_000, 2_000, 2_500]


def test_very_many_time_outs_are_a_few_lines_in_the_log(h: Harness) -> None:
    for number in range(300):
        name = f"tx-{number}"
        h.add(h.producer(name=name, timeout_ms=10), name=name)
    h.advance(20)
    with capture_logs() as logs:
        h.coordinator.abort_timed_out()
    assert {h.state(f"tx-{number}") for number in range(300)} == {"CompleteAbort"}
    assert len([line for line in logs if line["event"] == "transaction_timed_out"]) == 100


def test_an_abort_that_fails_does_not_hold_up_the_others(h: Harness, monkeypatch) -> None:
    for number in range(1_500):
        name = f"tx-{number}"
        h.add(h.producer(name=name, timeout_ms=10), name=name)
    h.advance(20)
    change, failures = TransactionPartition.change, [RuntimeError("out of memory")]

    def failing_once(led: TransactionPartition, *args: object) -> None:
        if failures:
            raise failures.pop()
        change(led, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(TransactionPartition, "change", failing_once)
    h.coordinator.abort_timed_out()
    h.scheduler.run()
    assert len(h.cluster.written[T0]) == 1_499
    h.coordinator.abort_timed_out()
    assert len(h.cluster.written[T0]) == 1_500


def test_the_end_of_a_transaction_has_time_to_be_stored_whatever_time_its_producer_has(h: Harness) -> None:
    producer = h.producer(timeout_ms=1)
    h.add(producer)
    h.end(producer)
    assert h.state() == "CompleteCommit"
    assert h.appender.timeouts_ms == [1, 1, 1, 30_000]
