"""Asks transaction coordinators whether partitions are part of a transaction (KIP-890, part 1).

One thread for each coordinator sends everything that waits for it in one AddPartitionsToTxn. The thread ends
when it had nothing to do for a while. :mod:`.transaction_verification` decides what to ask.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Final, NamedTuple

import structlog

from broker.metrics.registry import Metrics
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import Errors, ProtocolError
from broker.protocol.fields import Fields
from broker.protocol.responses import AddPartitionsToTxnResponse
from broker.replication.broker_channel import BrokerChannel, ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.replication.transaction_verification import Question, Unverified, VerifiedCallback
from broker.utils.refusal_log import log_refusal
from broker.utils.topic_partition import TopicPartition

_log = structlog.get_logger(__name__)
_VERSION: Final = 5
# The most transactions in one request; the rest goes into the next one.
_MOST_AT_ONCE: Final = 1_000
# And the most partitions, unless one transaction has more: a coordinator refuses 100,000.
_MOST_PARTITIONS: Final = 10_000
# The most that wait for one coordinator: as many as there may be requests in the broker, many times over.
_MOST_WAITING: Final = 10_000
_IDLE_S: Final = 60.0


class _Unanswered(NamedTuple):
    """A question, and who waits for the answer."""

    question: Question
    then: VerifiedCallback

    def answer(self, error: Errors) -> None:
        self.tell(dict.fromkeys(self.question.partitions, error))

    def tell(self, unverified: Unverified) -> None:
        try:
            self.then(unverified)
        except Exception:
            _log.exception("verified_append_failed", transactional_id=self.question.producer.transactional_id)


class _Coordinator:
    """One coordinator: what waits for it, by transactional id, and whether its thread runs."""

    __slots__ = ("due", "is_running")

    def __init__(self) -> None:
        self.due: dict[str, _Unanswered] = {}
        self.is_running = False


class AddPartitionsToTxnManager:
    """Sends verifications to coordinators; Kafka's AddPartitionsToTxnManager. Thread-safe.

    ``coordinator_of`` returns the address of a transactional id's coordinator, None if none is known.
    ``own_coordinator`` answers what this broker coordinates with the partitions' errors, without those that are NONE;
    None for what others coordinate.
    """

    def __init__(
        self,
        broker_id: int,
        coordinator_of: Callable[[str], BrokerAddress | None],
        make_channel: Callable[[BrokerAddress, str], BrokerChannel],
        own_coordinator: Callable[[Question], Unverified | None],
        metrics: Metrics,
    ) -> None:
        self._client_id = f"broker-{broker_id}-txn-verifier"
        self._coordinator_of = coordinator_of
        self._make_channel = make_channel
        self._own_coordinator = own_coordinator
        self._failures = metrics.counter(
            "kafka_server_addpartitionstotxnmanager_verificationfailurerate",
            "Transactions that could not be verified before an append",
        )
        self._times = metrics.histogram(
            "kafka_server_addpartitionstotxnmanager_verificationtimems",
            "Time from a question to a transaction's coordinator to its answer, in milliseconds",
        )
        self._changed = threading.Condition()  # lock order 55
        self._nodes: dict[BrokerAddress, _Coordinator] = {}
        self._channels: set[BrokerChannel] = set()
        self._threads: set[threading.Thread] = set()
        self._stopped = False

    def verify_here(self, question: Question) -> Unverified | None:
        """As :meth:`VerificationSender.verify_here`. Kafka asks itself by a connection, too; here that would be
        most of what a short transaction costs.
        """
        began_ns = time.monotonic_ns()
        errors = self._own_coordinator(question)
        if errors is None:
            return None
        self._times.observe((time.monotonic_ns() - began_ns) / 1e6)
        if not errors:
            return errors
        self._failures.inc()
        return {
            partition: _client_error(error, knows_abortable=question.knows_abortable)
            for partition, error in errors.items()
        }

    def verify(self, question: Question, then: VerifiedCallback) -> None:
        """As :meth:`VerificationSender.verify`."""
        waiting = _Unanswered(question, then)
        address = self._coordinator_of(question.producer.transactional_id)
        if address is None:
            self._failures.inc()
            waiting.answer(Errors.COORDINATOR_NOT_AVAILABLE)
            return
        displaced, error = self._add(address, waiting)
        if displaced is not None:
            self._failures.inc()
            displaced.answer(error)

    def _add(self, address: BrokerAddress, waiting: _Unanswered) -> tuple[_Unanswered | None, Errors]:
        """Queues a question. Returns one that gets ``error`` instead of an answer: the same transactional id's
        earlier question, or this one, by Kafka's rules.
        """
        producer = waiting.question.producer
        with self._changed:
            node = self._nodes.setdefault(address, _Coordinator())
            known = node.due.get(producer.transactional_id)
            if self._stopped or (known is None and len(node.due) >= _MOST_WAITING):
                return waiting, Errors.NETWORK_EXCEPTION
            if known is not None and known.question.producer.producer_epoch > producer.producer_epoch:
                return waiting, Errors.INVALID_PRODUCER_EPOCH
            node.due[producer.transactional_id] = waiting
            if not node.is_running and not self._start(address, node):
                node.due.clear()
                return waiting, Errors.NETWORK_EXCEPTION
            self._changed.notify_all()
        is_same = known is not None and known.question.producer.producer_epoch == producer.producer_epoch
        return known, Errors.NETWORK_EXCEPTION if is_same else Errors.INVALID_PRODUCER_EPOCH

    def _start(self, address: BrokerAddress, node: _Coordinator) -> bool:
        """Starts the coordinator's thread. False if this process may have no more of them."""
        thread = threading.Thread(
            target=self._run, args=(address, node), name=f"txn-verifier-{address.broker_id}", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            log_refusal("transactions_not_verified", str(address), str(error))
            return False
        node.is_running = True
        self._threads.add(thread)
        return True

    def shutdown(self) -> None:
        """Answers what waits with NETWORK_EXCEPTION, and returns when the threads have ended."""
        with self._changed:
            self._stopped = True
            threads, channels = set(self._threads), set(self._channels)
            self._changed.notify_all()
        for channel in channels:
            channel.close()
        for thread in threads:
            thread.join()

    # -- the thread of one coordinator

    def _run(self, address: BrokerAddress, node: _Coordinator) -> None:
        try:
            with closing(self._make_channel(address, self._client_id)) as channel:
                with self._changed:
                    self._channels.add(channel)
                try:
                    while group := self._take(address, node):
                        self._ask(address, channel, group)
                finally:
                    with self._changed:
                        self._channels.discard(channel)
        except Exception:
            _log.exception("transaction_verifier_failed", coordinator=str(address))
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())
                left, node.due = list(node.due.values()), {}
                if node.is_running:  # it failed: the next question starts another thread
                    node.is_running = False
                    self._nodes.pop(address, None)
            _answer_all(left, Errors.NETWORK_EXCEPTION)

    def _take(self, address: BrokerAddress, node: _Coordinator) -> list[_Unanswered]:
        """The next questions; empty when the thread must end."""
        with self._changed:
            if not node.due and not self._stopped:
                self._changed.wait_for(lambda: node.due or self._stopped, _IDLE_S)
            if not node.due:
                node.is_running = False
                self._nodes.pop(address, None)
                return []
            group = [node.due.pop(key) for key in _first_of(node.due)]
            stopped = self._stopped
        if stopped:
            _answer_all(group, Errors.NETWORK_EXCEPTION)
            return self._take(address, node)
        return group

    def _ask(self, address: BrokerAddress, channel: BrokerChannel, group: Sequence[_Unanswered]) -> None:
        began_ns = time.monotonic_ns()
        try:
            response: AddPartitionsToTxnResponse = channel.request(
                ApiKey.ADD_PARTITIONS_TO_TXN, _VERSION, _fields(group)
            )
        except (ChannelError, ProtocolError) as error:
            log_refusal("transactions_not_verified", str(address), str(error), transactions=len(group))
            self._failures.inc(len(group))
            _answer_all(group, Errors.NETWORK_EXCEPTION)
            return
        except Exception:  # waiting producers need an answer, whatever failed
            _log.exception("transactions_not_verified", transactions=len(group))
            self._failures.inc(len(group))
            _answer_all(group, Errors.NETWORK_EXCEPTION)
            return
        self._times.observe((time.monotonic_ns() - began_ns) / 1e6)
        for waiting, unverified in verdicts(group, response):
            if unverified:
                self._failures.inc()
            waiting.tell(unverified)


def _first_of(due: Mapping[str, _Unanswered]) -> list[str]:
    """The transactional ids of the next request."""
    keys: list[str] = []
    partitions = 0
    for key, waiting in due.items():
        partitions += len(waiting.question.partitions)
        if keys and (len(keys) == _MOST_AT_ONCE or partitions > _MOST_PARTITIONS):
            break
        keys.append(key)
    return keys


def _answer_all(group: Sequence[_Unanswered], error: Errors) -> None:
    for waiting in group:
        waiting.answer(error)


def _fields(group: Sequence[_Unanswered]) -> Fields:
    return {
        "transactions": [
            {
                **waiting.question.producer._asdict(),
                "verify_only": True,
                "topics": [
                    {"name": topic, "partitions": indexes}
                    for topic, indexes in _by_topic(waiting.question.partitions).items()
                ],
            }
            for waiting in group
        ]
    }


def _by_topic(partitions: Sequence[TopicPartition]) -> dict[str, list[int]]:
    topics: dict[str, list[int]] = {}
    for topic, index in partitions:
        topics.setdefault(topic, []).append(index)
    return topics


def verdicts(
    group: Sequence[_Unanswered], response: AddPartitionsToTxnResponse
) -> list[tuple[_Unanswered, Unverified]]:
    """What the response says about each question. A partition that it does not name is not verified."""
    if response.error_code:
        # Clients must not see that this broker may not ask: the transaction is not verified.
        error = _known(response.error_code)
        error = Errors.INVALID_TXN_STATE if error is Errors.CLUSTER_AUTHORIZATION_FAILED else error
        return [(waiting, dict.fromkeys(waiting.question.partitions, error)) for waiting in group]
    answers = {
        (result.transactional_id, TopicPartition(topic.name, row.partition_index)): row.partition_error_code
        for result in response.results_by_transaction
        for topic in result.topic_results
        for row in topic.results_by_partition
    }
    told: list[tuple[_Unanswered, Unverified]] = []
    for waiting in group:
        unverified: dict[TopicPartition, Errors] = {}
        for partition in waiting.question.partitions:
            code = answers.get((waiting.question.producer.transactional_id, partition))
            if code != Errors.NONE:
                unverified[partition] = _client_error(code, knows_abortable=waiting.question.knows_abortable)
        told.append((waiting, unverified))
    return told


def _client_error(code: int | None, *, knows_abortable: bool) -> Errors:
    """A coordinator's error as the client's version of Produce or TxnOffsetCommit knows it."""
    error = Errors.NETWORK_EXCEPTION if code is None else _known(code)
    if error is Errors.PRODUCER_FENCED:
        return Errors.INVALID_PRODUCER_EPOCH
    if error is Errors.TRANSACTION_ABORTABLE and not knows_abortable:
        return Errors.INVALID_TXN_STATE
    return error


def _known(code: int) -> Errors:
    try:
        return Errors(int(code))
    except ValueError:
        return Errors.UNKNOWN_SERVER_ERROR
