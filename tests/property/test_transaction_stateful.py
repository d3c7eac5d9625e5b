"""Transactions under random producers, zombies, lost answers, failing logs, silent leaders and new coordinators.

The model is what the leaders of the partitions have in their logs: records and markers. The invariants are those
that a read_committed consumer relies on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from broker.coordinator.transaction.decisions import ProducerIdAndEpoch
from broker.coordinator.transaction.markers import TxnMarker
from broker.coordinator.transaction.states import EXPIRABLE
from broker.protocol.errors import Errors
from broker.utils.topic_partition import TopicPartition
from tests.support.transaction_fakes import T0, T1, T2, Answers, Cluster, Harness

PARTITIONS = (T0, T1, T2)
FATAL = {Errors.PRODUCER_FENCED, Errors.INVALID_PRODUCER_ID_MAPPING, Errors.INVALID_TXN_STATE}
TIMEOUT_MS = 5_000
UNKNOWN = Errors.TRANSACTIONAL_ID_NOT_FOUND.name
LOG_ERRORS = (Errors.NOT_ENOUGH_REPLICAS, Errors.NOT_LEADER_OR_FOLLOWER, Errors.REQUEST_TIMED_OUT)
MARKER_ERRORS = (
    Errors.NOT_LEADER_OR_FOLLOWER,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    Errors.UNKNOWN_SERVER_ERROR,
)
slots = st.sampled_from((-1, -1, -1, -2, -3))
partitions = st.sampled_from(PARTITIONS)
some_partitions = st.sets(partitions, min_size=1)


@dataclass
class Leaders(Cluster):
    """Leaders that keep the rules of a partition's log. ``logs`` has for each partition a transaction's number, when
    records of it are written, or the marker: (producer id, whether it commits).
    """

    logs: dict[TopicPartition, list[tuple[int, int | bool]]] = field(default_factory=dict)
    epochs: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)
    coordinators: dict[tuple[TopicPartition, int], int] = field(default_factory=dict)

    def append(self, partition: TopicPartition, producer: ProducerIdAndEpoch, transaction: int) -> bool:
        key = (partition, producer.producer_id)
        if producer.epoch < self.epochs.get(key, -1):
            return False
        self.epochs[key] = producer.epoch
        self.logs.setdefault(partition, []).append((producer.producer_id, transaction))
        return True

    def _write(self, partition: TopicPartition, marker: TxnMarker) -> Errors:
        key = (partition, marker.producer_id)
        if marker.coordinator_epoch < self.coordinators.get(key, -1):
            return Errors.TRANSACTION_COORDINATOR_FENCED
        if marker.producer_epoch < self.epochs.get(key, -1):
            return Errors.INVALID_PRODUCER_EPOCH
        error = self.errors.get(partition, Errors.NONE)
        if error in {Errors.NONE, Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND}:
            self.coordinators[key] = marker.coordinator_epoch
            self.epochs[key] = marker.producer_epoch
            self.logs.setdefault(partition, []).append((marker.producer_id, marker.committed))
        return error

    def outcomes(self) -> dict[int, set[bool | None]]:
        """For each transaction with records: how it ended in its partitions; None where it is still open."""
        found: dict[int, set[bool | None]] = {}
        for log in self.logs.values():
            still_open: dict[int, set[int]] = {}
            for producer_id, entry in log:
                if isinstance(entry, bool):
                    for transaction in still_open.pop(producer_id, set()):
                        found.setdefault(transaction, set()).add(entry)
                else:
                    still_open.setdefault(producer_id, set()).add(entry)
            for transactions in still_open.values():
                for transaction in transactions:
                    found.setdefault(transaction, set()).add(None)
        return found


@dataclass
class Producer:
    """One client: what it last learned, and the transaction that it has open."""

    producer: ProducerIdAndEpoch
    transaction: int
    has_begun: bool = False
    must_end: bool = False
    is_dead: bool = False
    ending: tuple[Answers, bool] | None = None
    adding: tuple[Answers, set[TopicPartition]] | None = None
    was_fenced: bool = False

    @property
    def idle(self) -> bool:
        return self.ending is None and self.adding is None and not self.is_dead

    def ended(self, error: Errors) -> None:
        """After an end that may or may not have happened a client asks for nothing but the end."""
        self.is_dead = error in FATAL
        self.must_end = error not in {Errors.NONE, *FATAL}


class TransactionMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.h = Harness()
        self.leaders = Leaders()
        self.h.cluster = self.leaders
        self.h.crash()  # the markers go to these leaders
        self.producers: list[Producer] = []
        self.initialising: list[Answers] = []
        self.transactions = 0
        self.told: dict[int, bool] = {}

    def new_transaction(self) -> int:
        self.transactions += 1
        return self.transactions

    # What producers do

    @rule()
    def init(self) -> None:
        self.initialising.append(self.h.initialising(timeout_ms=TIMEOUT_MS))
        self.collect()

    @rule(slot=slots)
    def init_again(self, slot: int) -> None:
        if (producer := self.chosen(slot)) is not None:
            self.initialising.append(self.h.initialising(producer.producer, timeout_ms=TIMEOUT_MS))
            self.collect()

    @rule(slot=slots, added=some_partitions)
    def add(self, slot: int, added: set[TopicPartition]) -> None:
        if (producer := self.chosen(slot)) is not None and not producer.must_end:
            producer.was_fenced = producer is not self.producers[-1]
            producer.adding = (self.h.adding(producer.producer, *added), added)
            self.collect()

    @rule(slot=slots, partition=partitions)
    def write(self, slot: int, partition: TopicPartition) -> None:
        """Also what a zombie does, or a client that forgot to add the partition."""
        if (producer := self.chosen(slot)) is not None and not producer.must_end:
            self.write_records(producer, partition)

    def write_records(self, producer: Producer, partition: TopicPartition) -> None:
        (verified,) = self.h.verify(producer.producer, partition)
        if verified is Errors.NONE:
            self.leaders.append(partition, producer.producer, producer.transaction)

    @rule(slot=slots, commit=st.booleans())
    def end(self, slot: int, commit: bool) -> None:
        if (producer := self.chosen(slot)) is not None:
            producer.was_fenced = producer is not self.producers[-1]
            producer.ending = (self.h.ending(producer.producer, commit=commit), commit)
            self.collect()

    @rule(added=some_partitions, commit=st.booleans())
    def transact(self, added: set[TopicPartition], commit: bool) -> None:
        """What a client does that meets no fault, or gives up at the first."""
        if not self.producers or self.producers[-1].is_dead:
            self.init()
        self.add(-1, added)
        self.end(-1, commit)

    @rule(added=some_partitions)
    def begin(self, added: set[TopicPartition]) -> None:
        if not self.producers or self.producers[-1].is_dead:
            self.init()
        self.add(-1, added)

    def chosen(self, slot: int) -> Producer | None:
        """The latest producer or a zombie; None if it waits for an answer."""
        if len(self.producers) < -slot:
            return None
        producer = self.producers[slot]
        return producer if producer.idle else None

    def collect(self) -> None:
        """Takes the answers that have come."""
        for answers in list(self.initialising):
            if not answers.waiting:
                self.initialising.remove(answers)
                result = answers.result
                known = [producer.producer for producer in self.producers]
                if result.error is Errors.NONE and result.producer not in known:
                    self.producers.append(Producer(result.producer, self.new_transaction()))
        for producer in self.producers:
            if producer.adding is not None and not producer.adding[0].waiting:
                (answers, added), producer.adding = producer.adding, None
                producer.is_dead = answers.result in FATAL
                if answers.result is Errors.NONE:
                    assert not producer.was_fenced
                    producer.has_begun = True
                    for partition in sorted(added):
                        self.write_records(producer, partition)
            if producer.ending is not None and not producer.ending[0].waiting:
                (answers, commit), producer.ending = producer.ending, None
                producer.ended(answers.result)
                if answers.result is Errors.NONE:
                    assert not producer.was_fenced
                    if producer.has_begun:
                        self.told[producer.transaction] = commit
                    producer.transaction, producer.has_begun = self.new_transaction(), False

    # What happens to them

    @rule(fault=st.sampled_from(("log", "replicas", "leaders", "markers")), data=st.data())
    def fault_begins(self, fault: str, data: st.DataObject) -> None:
        if fault == "log" and not self.h.appender.hold:
            self.h.appender.error = data.draw(st.sampled_from(LOG_ERRORS))
        elif fault == "replicas" and self.h.appender.error is Errors.NONE:
            self.h.appender.hold = True
        elif fault == "leaders":
            self.leaders.hold = True
        elif fault == "markers":
            self.leaders.errors[data.draw(partitions)] = data.draw(st.sampled_from(MARKER_ERRORS))

    @rule(error=st.sampled_from((Errors.NONE, Errors.NONE, *LOG_ERRORS)))
    def faults_end(self, error: Errors) -> None:
        """``error``: what is told of the records that waited for the replicas. They stay in the log."""
        self.h.appender.error = Errors.NONE
        self.h.appender.hold = False
        self.h.appender.release(error)
        self.leaders.errors = {}
        self.leaders.hold = False
        self.leaders.release()
        self.collect()

    @rule()
    def leaders_answer(self) -> None:
        self.leaders.hold = False
        self.leaders.release()
        self.collect()

    @rule()
    def tasks_run(self) -> None:
        self.h.scheduler.run()
        self.collect()

    @rule(duration_ms=st.sampled_from((1_000, TIMEOUT_MS + 1)))
    def time_passes(self, duration_ms: int) -> None:
        self.h.advance(duration_ms)
        self.h.coordinator.abort_timed_out()
        self.collect()

    @rule(loses=st.booleans())
    def crash(self, loses: bool) -> None:
        """Another broker takes over. It may lack what was not acknowledged yet."""
        appender = self.h.appender
        unacknowledged = len(appender.held)
        if loses and unacknowledged:
            log = appender.log(0)
            del log.batches[-unacknowledged:]
            log.log_end_offset = log.batches[-1][0] + 1 if log.batches else 0
        held, appender.held, appender.hold = appender.held, [], False
        self.h.crash()
        for answer in held:
            answer(Errors.NOT_LEADER_OR_FOLLOWER)
        self.collect()

    # What consumers rely on

    @invariant()
    def no_transaction_is_both_committed_and_aborted(self) -> None:
        for transaction, ends in self.leaders.outcomes().items():
            assert not ends >= {True, False}, f"transaction {transaction}"

    @invariant()
    def no_transaction_ends_otherwise_than_its_producer_was_told(self) -> None:
        outcomes = self.leaders.outcomes()
        for transaction, committed in self.told.items():
            assert (not committed) not in outcomes.get(transaction, set()), f"transaction {transaction}"

    @invariant()
    def the_memory_is_what_the_transactions_weigh(self) -> None:
        if not self.h.states.is_loading:
            assert self.h.memory.held == self.h.recounted_bytes()

    def teardown(self) -> None:
        """When all is well again, every transaction ends everywhere."""
        self.faults_end(Errors.NONE)
        for _ in range(4):
            self.tasks_run()
            self.time_passes(TIMEOUT_MS + 1)
        assert self.h.state() in {state.name for state in EXPIRABLE} | {UNKNOWN}
        outcomes = self.leaders.outcomes()
        assert not any(None in ends for ends in outcomes.values()), "records wait for a marker for ever"
        for transaction, committed in self.told.items():
            assert outcomes.get(transaction, {committed}) == {committed}, f"transaction {transaction}"


TransactionMachine.TestCase.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)
TestTransactions = pytest.mark.usefixtures("quiet")(TransactionMachine.TestCase)
