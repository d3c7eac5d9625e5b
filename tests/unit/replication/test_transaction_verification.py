"""Leaders ask coordinators whether a partition is part of a transaction (KIP-890, part 1)."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from broker.log.producers.verification import NOT_VERIFIED
from broker.metrics.registry import Metrics
from broker.protocol.errors import Errors
from broker.replication.add_partitions_to_txn import AddPartitionsToTxnManager
from broker.replication.broker_channel import ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.replication.transaction_verification import (
    Producer,
    Question,
    TransactionVerification,
    produce_error,
)
from broker.utils.topic_partition import TopicPartition
from rig.wait import wait_until
from tests.support.logs import TP, open_log, partition_of
from tests.support.transactions import ABORT, end, write

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
HERE, THERE = BrokerAddress(1, "h", 1), BrokerAddress(2, "h", 2)


class Row:
    """A structure of an answer, with what the sender reads of it."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__ |= fields


class Coordinator:
    """A coordinator on the other end of a channel. It answers once ``open``, with ``codes`` by partition."""

    def __init__(self) -> None:
        self.requests: list[Mapping[str, Any]] = []
        self.codes: dict[TopicPartition, int] = {}
        self.error = 0
        self.fails = False
        self.silent_about: set[TopicPartition] = set()
        self.open = threading.Event()
        self.open.set()

    def request(self, _key: int, version: int, fields: Mapping[str, Any]) -> Any:
        assert version == 5
        self.requests.append(fields)
        assert self.open.wait(60)
        if self.fails:
            raise ChannelError("gone")
        return Row(
            error_code=self.error, results_by_transaction=[self._result(t) for t in fields["transactions"]]
        )

    def _result(self, transaction: Mapping[str, Any]) -> Row:
        assert transaction["verify_only"]
        topics = [
            Row(
                name=topic["name"],
                results_by_partition=[
                    Row(partition_index=index, partition_error_code=self.codes.get(name, 0))
                    for index in topic["partitions"]
                    if (name := TopicPartition(topic["name"], index)) not in self.silent_about
                ],
            )
            for topic in transaction["topics"]
        ]
        return Row(transactional_id=transaction["transactional_id"], topic_results=topics)

    def close(self) -> None:
        self.open.set()


class World:
    """A manager, its coordinators by address, and the answers by transactional id."""

    def __init__(self) -> None:
        self.coordinators = {HERE: Coordinator(), THERE: Coordinator()}
        self.addresses: dict[str, BrokerAddress | None] = {}
        self.answers: dict[str, list[Mapping[TopicPartition, Errors]]] = {}
        self.unreachable = False
        self.own_errors: dict[TopicPartition, Errors] | None = None
        self.manager = AddPartitionsToTxnManager(
            7,
            lambda name: self.addresses.get(name, HERE),
            self._channel,
            lambda _question: self.own_errors,
            Metrics(),
        )

    def _channel(self, address: BrokerAddress, _client_id: str) -> Any:
        if self.unreachable:
            raise RuntimeError("can't start new thread")
        return self.coordinators[address]

    def ask(
        self, name: str = "t", *partitions: TopicPartition, epoch: int = 0, abortable: bool = True
    ) -> None:
        answers = self.answers.setdefault(name, [])
        question = Question(Producer(name, 5, epoch), partitions or (A,), abortable)
        self.manager.verify(question, answers.append)

    def answer(self, name: str = "t", number: int = 0) -> Mapping[TopicPartition, Errors]:
        wait_until(lambda: len(self.answers[name]) > number, what="it is answered")
        return self.answers[name][number]


@pytest.fixture
def world() -> Iterator[World]:
    world = World()
    yield world
    world.manager.shutdown()


def test_what_is_part_of_the_transaction_is_verified(world: World) -> None:
    world.coordinators[HERE].codes[B] = Errors.TRANSACTION_ABORTABLE
    world.ask("t", A, B)
    assert world.answer() == {B: Errors.TRANSACTION_ABORTABLE}


def test_a_broker_that_coordinates_the_transaction_answers_itself_without_a_request(world: World) -> None:
    question = Question(Producer("t", 5, 0), [A, B], knows_abortable=True)
    assert world.manager.verify_here(question) is None  # another one coordinates it
    world.own_errors = {}
    assert world.manager.verify_here(question) == {}
    world.own_errors = {B: Errors.TRANSACTION_ABORTABLE}
    assert world.manager.verify_here(question) == {B: Errors.TRANSACTION_ABORTABLE}
    old = question._replace(knows_abortable=False)
    assert world.manager.verify_here(old) == {B: Errors.INVALID_TXN_STATE}
    world.own_errors = {A: Errors.PRODUCER_FENCED}
    assert world.manager.verify_here(question) == {A: Errors.INVALID_PRODUCER_EPOCH}
    assert not world.coordinators[HERE].requests


@pytest.mark.parametrize(
    ("code", "abortable", "error"),
    [
        (Errors.TRANSACTION_ABORTABLE, False, Errors.INVALID_TXN_STATE),
        (Errors.PRODUCER_FENCED, True, Errors.INVALID_PRODUCER_EPOCH),
        (Errors.INVALID_PRODUCER_ID_MAPPING, True, Errors.INVALID_PRODUCER_ID_MAPPING),
        (9_999, True, Errors.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_coordinators_error_is_told_as_the_client_knows_it(
    code: int, abortable: bool, error: Errors, world: World
) -> None:
    world.coordinators[HERE].codes[A] = code
    world.ask(abortable=abortable)
    assert world.answer() == {A: error}


def test_a_broker_that_may_not_ask_has_verified_nothing(world: World) -> None:
    world.coordinators[HERE].error = Errors.CLUSTER_AUTHORIZATION_FAILED
    world.ask()
    assert world.answer() == {A: Errors.INVALID_TXN_STATE}


def test_a_partition_that_the_answer_leaves_out_is_not_verified(world: World) -> None:
    world.coordinators[HERE].silent_about.add(B)
    world.ask("t", A, B)
    assert world.answer() == {B: Errors.NETWORK_EXCEPTION}


def test_an_unknown_coordinator_is_answered_at_once(world: World) -> None:
    world.addresses["t"] = None
    world.ask()
    assert world.answers["t"] == [{A: Errors.COORDINATOR_NOT_AVAILABLE}]


def test_a_lost_connection_is_an_error_that_producers_retry(world: World) -> None:
    world.coordinators[HERE].fails = True
    world.ask()
    assert world.answer() == {A: Errors.NETWORK_EXCEPTION}
    world.coordinators[HERE].fails = False
    world.ask()
    assert world.answer(number=1) == {}


def test_what_waits_for_a_coordinator_goes_into_its_next_request_and_others_do_not_wait(world: World) -> None:
    world.addresses["other"] = THERE
    coordinator = world.coordinators[HERE]
    coordinator.open.clear()
    world.ask("first")
    wait_until(lambda: bool(coordinator.requests), what="the first question is sent")
    for name in ("second", "third", "other"):
        world.ask(name)
    assert world.answer("other") == {}
    coordinator.open.set()
    assert (world.answer("second"), world.answer("third")) == ({}, {})
    sent = [[t["transactional_id"] for t in request["transactions"]] for request in coordinator.requests]
    assert sent == [["first"], ["second", "third"]]


def test_one_request_has_only_so_many_partitions(world: World) -> None:
    coordinator = world.coordinators[HERE]
    coordinator.open.clear()
    world.ask("first")
    wait_until(lambda: bool(coordinator.requests), what="the first question is sent")
    for name in ("second", "third"):
        world.ask(name, *(TopicPartition("t", number) for number in range(6_000)))
    coordinator.open.set()
    assert (world.answer("second"), world.answer("third")) == ({}, {})
    sent = [[t["transactional_id"] for t in request["transactions"]] for request in coordinator.requests]
    assert sent == [["first"], ["second"], ["third"]]


def test_after_a_thread_that_failed_the_next_question_is_asked_by_another(world: World) -> None:
    world.unreachable = True
    world.ask()
    assert world.answer() == {A: Errors.NETWORK_EXCEPTION}
    world.unreachable = False

    def answered() -> bool:
        world.ask("again")
        return {} in world.answers["again"]

    wait_until(answered, what="a question is answered")


@pytest.mark.parametrize(
    ("epoch", "displaced", "answered"),
    [
        (0, Errors.NETWORK_EXCEPTION, 0),
        (1, Errors.INVALID_PRODUCER_EPOCH, 0),
        (-1, Errors.INVALID_PRODUCER_EPOCH, 1),
    ],
)
def test_of_two_questions_about_a_producer_the_older_epoch_or_else_the_earlier_one_is_given_up(
    epoch: int, displaced: Errors, answered: int, world: World
) -> None:
    coordinator = world.coordinators[HERE]
    coordinator.open.clear()
    world.ask("first")
    wait_until(lambda: bool(coordinator.requests), what="the first question is sent")
    world.ask("twice", epoch=5)
    world.ask("twice", epoch=5 + epoch)
    assert world.answers["twice"] == [{A: displaced}]
    coordinator.open.set()
    assert world.answer("twice", 1) == {}
    asked = coordinator.requests[1]["transactions"][0]
    assert asked["producer_epoch"] == (5 if answered else 5 + epoch)


def test_a_stop_answers_what_waits(world: World) -> None:
    coordinator = world.coordinators[HERE]
    coordinator.open.clear()
    world.ask("first")
    wait_until(lambda: bool(coordinator.requests), what="the first question is sent")
    world.ask("second")
    world.manager.shutdown()
    assert world.answers["second"] == [{A: Errors.NETWORK_EXCEPTION}]
    world.ask("third")
    assert world.answers["third"] == [{A: Errors.NETWORK_EXCEPTION}]


def test_only_the_begin_of_a_transaction_is_verified(tmp_path) -> None:
    partition = partition_of(open_log(tmp_path), leads=True)
    asked: list[Question] = []

    class Sender:
        def verify_here(self, question: Question) -> None:
            asked.append(question)

        def verify(self, question: Question, then: Any) -> None:
            asked.append(question)
            then({})

    enabled = True
    verification = TransactionVerification({TP: partition}.get, Sender(), lambda: enabled)
    producer = Producer("t", 5, 0)
    guards = verification.begin(producer, {TP: 0, B: 0})  # B is led elsewhere
    assert verification.verify_here(producer, guards, knows_abortable=True) is None
    verification.verify(producer, guards, lambda _unverified: None, knows_abortable=True)
    assert [question.partitions for question in asked] == [[TP], [TP]]
    write(partition.log, b"v", pid=5, guard=guards[TP])
    again = verification.begin(producer, {TP: 1})
    assert again == {TP: NOT_VERIFIED}
    assert verification.verify_here(producer, again, knows_abortable=True) == {}
    assert len(asked) == 2
    end(partition.log, ABORT, 5)
    assert verification.begin(producer, {TP: 1})[TP] is not NOT_VERIFIED
    enabled = False
    assert verification.begin(producer, {TP: 1}) == {}


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (Errors.NETWORK_EXCEPTION, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.CONCURRENT_TRANSACTIONS, Errors.NOT_ENOUGH_REPLICAS),
        (Errors.INVALID_TXN_STATE, Errors.INVALID_TXN_STATE),
        (Errors.TRANSACTION_ABORTABLE, Errors.TRANSACTION_ABORTABLE),
    ],
)
def test_a_producer_retries_what_could_not_be_verified_in_time(error: Errors, told: Errors) -> None:
    assert produce_error(error).error_code is told
