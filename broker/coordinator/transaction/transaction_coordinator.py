"""The transaction coordinator: takes requests of transactional producers and answers by callback. It is Kafka's
TransactionCoordinator of ZooKeeper mode.

It finds the partition that stores the transactional id (:mod:`.state_manager`), has the pure code decide under its
lock (:mod:`.decisions`), and passes what ends to the markers (:mod:`.marker_channel_manager`). No method blocks.
Callbacks run on any thread, with no lock held. The API modules handle the wire format.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import Final, NamedTuple

import structlog

from broker.coordinator.common.partitioning import partition_for
from broker.coordinator.transaction import decisions, describe
from broker.coordinator.transaction.decisions import NEEDS_PRODUCER_ID, NeedsProducerId, ProducerIdAndEpoch
from broker.coordinator.transaction.describe import ListedTransactions, TransactionDescription
from broker.coordinator.transaction.memory import MAX_NAME, TransactionMemory
from broker.coordinator.transaction.metadata import TransactionMetadata, Transit
from broker.coordinator.transaction.partition import Decision, TransactionPartition
from broker.coordinator.transaction.partitions import NO_PARTITIONS, Partitions
from broker.coordinator.transaction.records import MAX_ID_BYTES
from broker.coordinator.transaction.settings import TransactionSettings
from broker.coordinator.transaction.state_manager import TransactionStateManager
from broker.coordinator.transaction.states import TransactionState
from broker.coordinator.transaction.weights import transaction_weight
from broker.protocol.errors import Errors, KafkaError
from broker.record.header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID
from broker.utils.clock import Clock
from broker.utils.line_budget import LineBudget
from broker.utils.scheduler import KafkaScheduler

_log = structlog.get_logger(__name__)
NO_ROOM: Final = Errors.POLICY_VIOLATION
"""The error when ``landline.transaction.max.bytes`` is reached. Clients do not retry it."""
# Limits on the lines about time-outs, of which clients can cause as many as they like.
_LINES_A_SECOND: Final = 10
_LINES_AT_ONCE: Final = 100
# Between such parts of a round the scheduler's thread does its other work. 10,000 are looked at in some milliseconds.
_ABORTS_AT_ONCE: Final = 1_000
_LOOKS_AT_ONCE: Final = 10_000
_NONE: Final = ProducerIdAndEpoch(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)

Respond = Callable[[Errors], None]
TakeProducerId = Callable[[Callable[[int | KafkaError], None]], None]


class InitProducerIdResult(NamedTuple):
    """The answer to an InitProducerId; Kafka's InitProducerIdResult."""

    error: Errors
    producer: ProducerIdAndEpoch = _NONE


class InitProducerId(NamedTuple):
    """An InitProducerId of a transactional producer. ``expected`` is what it has so far; None for a new one.
    ``respond`` is called exactly once.
    """

    transactional_id: str
    timeout_ms: int
    expected: ProducerIdAndEpoch | None
    respond: Callable[[InitProducerIdResult], None]


class TransactionCoordinator:
    """The coordinator of this broker's transactional ids; Kafka's TransactionCoordinator. Thread-safe.
    ``take_producer_id`` is ``ProducerIdManager.take``. ``partition_count`` returns the number of partitions of
    __transaction_state, or None if it does not exist yet.
    """

    def __init__(
        self,
        settings: TransactionSettings,
        states: TransactionStateManager,
        memory: TransactionMemory,
        take_producer_id: TakeProducerId,
        partition_count: Callable[[], int | None],
        *,
        scheduler: KafkaScheduler,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._states = states
        self._memory = memory
        self._take_producer_id = take_producer_id
        self._partition_count = partition_count
        self._scheduler = scheduler
        self._clock = clock
        self._lines = LineBudget(clock.monotonic_ms, per_second=_LINES_A_SECOND, at_once=_LINES_AT_ONCE)
        # What a round of aborts has still to look at; the scheduler's thread owns it.
        self._round: Iterator[tuple[TransactionPartition, TransactionMetadata]] | None = None
        self._active = False
        self.on_election = states.on_election
        self.on_resignation = states.on_resignation

    # -- start and stop

    def startup(self) -> None:
        """Starts to serve requests. Elections may have been reported before."""
        self._active = True
        abort_ms, expire_ms = self._settings.abort_interval_ms, self._settings.expiration_interval_ms
        self._scheduler.schedule("transaction-abort", self.abort_timed_out, abort_ms, abort_ms)
        self._scheduler.schedule("transactionalId-expiration", self.remove_expired, expire_ms, expire_ms)

    def shutdown(self) -> None:
        """Refuses later requests."""
        self._active = False
        self._states.resign_all()

    def partition_for(self, transactional_id: str) -> int:
        """The partition of __transaction_state that stores the transactional id."""
        return partition_for(transactional_id, self._partition_count() or self._settings.log_partitions)

    # -- requests

    def init_producer_id(self, request: InitProducerId) -> None:
        error = Errors.NONE
        if not request.transactional_id:
            error = Errors.INVALID_REQUEST
        elif not 0 < request.timeout_ms <= self._settings.max_timeout_ms:
            error = Errors.INVALID_TRANSACTION_TIMEOUT
        if error is Errors.NONE:
            self._init(request, None)
        else:
            request.respond(InitProducerIdResult(error))

    def _init(self, request: InitProducerId, new_producer_id: int | None) -> None:
        name, timeout_ms = request.transactional_id, request.timeout_ms

        def decide(led: TransactionPartition, txn: TransactionMetadata | None, now_ms: int) -> Decision:
            if txn is None:
                if not self._memory.admits(transaction_weight(name, NO_PARTITIONS)):
                    return NO_ROOM
                if new_producer_id is None:
                    return NEEDS_PRODUCER_ID
                txn = led.add(TransactionMetadata(name, new_producer_id, timeout_ms, now_ms))
            return decisions.init_producer_id(txn, timeout_ms, request.expected, new_producer_id, now_ms)

        def then(error: Errors | NeedsProducerId, target: Transit | None) -> None:
            if isinstance(error, NeedsProducerId):
                self._take_producer_id(partial(self._init_with, request))
            elif target is not None and target.state is TransactionState.Empty:
                producer = ProducerIdAndEpoch(target.producer_id, target.producer_epoch)
                request.respond(InitProducerIdResult(Errors.NONE, producer))
            elif target is not None:  # the ongoing transaction is being aborted
                request.respond(InitProducerIdResult(Errors.CONCURRENT_TRANSACTIONS))
            else:
                self._tell_no_room(error, name)
                request.respond(InitProducerIdResult(error))

        led = self._led(name)
        if isinstance(led, Errors):
            request.respond(InitProducerIdResult(led))
        else:
            led.change(name, partial(decide, led), then)

    def _init_with(self, request: InitProducerId, taken: int | KafkaError) -> None:
        if isinstance(taken, KafkaError):
            request.respond(InitProducerIdResult(taken.error_code))
        else:
            self._init(request, taken)

    def add_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, added: Partitions, respond: Respond
    ) -> None:
        """AddPartitionsToTxn, and AddOffsetsToTxn with the group's partition of __consumer_offsets."""
        more = transaction_weight("", added) - transaction_weight("", NO_PARTITIONS)

        def decide(txn: TransactionMetadata | None, now_ms: int) -> Decision:
            decision = decisions.add_partitions(txn, producer, added, now_ms)
            if isinstance(decision, Transit) and txn is not None and not self._memory.admits(more):
                txn.cancel()
                return NO_ROOM
            return decision

        self._change(transactional_id, decide, respond)

    def verify_partitions(
        self, transactional_id: str, producer: ProducerIdAndEpoch, asked: Partitions
    ) -> Mapping[str, Mapping[int, Errors]]:
        """Each partition's error: NONE if the transaction has it, otherwise TRANSACTION_ABORTABLE (KIP-890)."""
        return describe.verified(self.partitions_of(transactional_id, producer), asked)

    def partitions_of(self, transactional_id: str, producer: ProducerIdAndEpoch) -> Errors | Partitions:
        """The partitions of the producer's transaction, or why there is none."""
        led = self._led(transactional_id)
        if isinstance(led, Errors):
            return led
        return led.ask(transactional_id, lambda txn: decisions.verify_partitions(txn, producer))

    def end(
        self, transactional_id: str, producer: ProducerIdAndEpoch, committed: bool, respond: Respond
    ) -> None:
        """EndTxn. The answer comes when the decision is stored; the markers follow."""
        self._change(
            transactional_id, lambda txn, now_ms: decisions.end(txn, producer, committed, now_ms), respond
        )

    def _change(
        self,
        transactional_id: str,
        decide: Callable[[TransactionMetadata | None, int], Decision],
        respond: Respond,
    ) -> None:
        def then(error: Errors | NeedsProducerId, _target: Transit | None) -> None:
            assert isinstance(error, Errors)
            self._tell_no_room(error, transactional_id)
            respond(error)

        led = self._led(transactional_id)
        if isinstance(led, Errors):
            respond(led)
        else:
            led.change(transactional_id, decide, then)

    def describe(self, transactional_id: str) -> TransactionDescription:
        led = self._led(transactional_id)
        if isinstance(led, Errors):
            return TransactionDescription(led)
        described = led.ask(transactional_id, describe.describe)
        return TransactionDescription(described) if isinstance(described, Errors) else described

    def list_transactions(
        self, producer_ids: Collection[int], states: Collection[str], duration_ms: int
    ) -> ListedTransactions:
        """The transactions of this coordinator, found as they are iterated over. Empty filters and a negative duration
        match everything.
        """
        if not self._active:
            return ListedTransactions(Errors.COORDINATOR_NOT_AVAILABLE)
        if self._states.is_loading:
            return ListedTransactions(Errors.COORDINATOR_LOAD_IN_PROGRESS)
        every = self._each()
        wanted = describe.TransactionFilter(frozenset(producer_ids), frozenset(states), duration_ms)
        return describe.listed(every, wanted, self._clock.wall_ms())

    def _each(self) -> Iterator[TransactionMetadata]:
        for _, txn in self._every():
            yield txn

    def _every(self) -> Iterator[tuple[TransactionPartition, TransactionMetadata]]:
        for led in self._states.partitions():
            for txn in led.transactions():
                yield led, txn

    # -- what time brings

    def abort_timed_out(self) -> None:
        """Aborts the transactions that took longer than their producers' time-out, and fences the producers."""
        if self._round is None:  # the last one is over
            self._abort_some(self._every())

    def _abort_some(self, every: Iterator[tuple[TransactionPartition, TransactionMetadata]]) -> None:
        """In parts, between which the scheduler's thread loads partitions that this broker came to lead."""
        self._round = None
        now_ms = self._clock.wall_ms()
        looks = aborts = 0
        for led, txn in islice(every, _LOOKS_AT_ONCE):
            looks += 1
            if decisions.has_timed_out(txn, now_ms):
                self._try_to_abort(led, txn.transactional_id)
                aborts += 1
                if aborts == _ABORTS_AT_ONCE:
                    break
        if self._active and (aborts == _ABORTS_AT_ONCE or looks == _LOOKS_AT_ONCE):
            self._round = every
            self._scheduler.schedule("transaction-abort", partial(self._abort_some, every))

    def _try_to_abort(self, led: TransactionPartition, transactional_id: str) -> None:
        try:
            self._abort(led, transactional_id)
        except Exception:  # the others must not wait; the next round finds this one again
            left_out = self._lines.left_out()
            if left_out is not None:
                _log.exception(
                    "transaction_abort_failed",
                    transactional_id=transactional_id[:MAX_NAME],
                    left_out=left_out,
                    action="tried again",
                )

    def remove_expired(self) -> None:
        """Forgets transactional ids that were not used for ``transactional.id.expiration.ms``."""
        for led in self._states.partitions():
            led.expire(self._settings.id_expiration_ms)

    def _abort(self, led: TransactionPartition, transactional_id: str) -> None:
        def decide(txn: TransactionMetadata | None, now_ms: int) -> Decision:
            if txn is None or not decisions.has_timed_out(txn, now_ms):
                return Errors.NONE
            return decisions.fence(txn, now_ms)

        def then(error: Errors | NeedsProducerId, target: Transit | None) -> None:
            if target is not None or error is not Errors.NONE:
                self._tell_abort(transactional_id, error)

        led.change(transactional_id, decide, then)

    def _tell_abort(self, transactional_id: str, error: Errors | NeedsProducerId) -> None:
        left_out = self._lines.left_out()
        if left_out is None:
            return
        is_aborted = error is Errors.NONE
        say = _log.info if is_aborted else _log.warning
        say(
            "transaction_timed_out",
            transactional_id=transactional_id[:MAX_NAME],
            error=error.name if isinstance(error, Errors) else "",
            action="aborted, and its producer is fenced" if is_aborted else "the abort is tried again",
            left_out=left_out,
        )

    # -- internal

    def _led(self, transactional_id: str) -> TransactionPartition | Errors:
        if not self._active:
            return Errors.COORDINATOR_NOT_AVAILABLE
        if not transactional_id or not _fits(transactional_id):
            return Errors.INVALID_REQUEST
        return self._states.find(self.partition_for(transactional_id))

    def _tell_no_room(self, error: Errors, transactional_id: str) -> None:
        if error is NO_ROOM:
            self._memory.tell_refusal(transactional_id)


def _fits(name: str) -> bool:
    return len(name) * 4 <= MAX_ID_BYTES or len(name.encode()) <= MAX_ID_BYTES
