"""Runs for election as controller. While this broker is elected, one :class:`~broker.controller.term.Term`
does the work.

Kafka's KafkaController. One thread with one event queue owns all state. Callbacks of the store, of requests
and of the sender threads only enqueue events. Unlike Kafka, a broker stands for election only after it has
registered: an unregistered controller would first declare its own partitions dead.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import structlog

from broker.config.broker_config import BrokerConfig
from broker.controller.channel_manager import ChannelManager, MakeChannel
from broker.controller.context import ControllerContext
from broker.controller.controlled_shutdown import controlled_shutdown
from broker.controller.elections import ElectionResult, ElectionType
from broker.controller.event_queue import EventQueue
from broker.controller.isr_changes import alter_partitions
from broker.controller.metrics import ControllerMetrics
from broker.controller.reassignment_requests import Refused, Wishes, listed
from broker.controller.settings import ControllerSettings
from broker.controller.slices import Slices, in_one
from broker.controller.term import OwnBrokerGoneError, Term
from broker.metrics.registry import Metrics
from broker.protocol.alter_partition_messages import AlterPartitionRequest, AlterPartitionResponse
from broker.protocol.epochs import NO_EPOCH
from broker.protocol.errors import Errors, KafkaError
from broker.protocol.fields import Fields
from broker.protocol.requests import AlterPartitionReassignmentsRequest, ListPartitionReassignmentsRequest
from broker.utils.clock import Clock
from broker.utils.topic_partition import TopicPartition
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.controller_store import ControllerMovedError, claim_controller, give_up_claim
from broker.zookeeper.store import (
    ConnectionLossError,
    SessionEvent,
    SessionExpiredError,
    StoreError,
)

_log = structlog.get_logger(__name__)
ELECTION_RETRY_MS = 1000
CONTROLLER_CHANGED = "controller_changed"

Answer = Callable[[Fields], None]
Elected = Mapping[TopicPartition, ElectionResult]
T = TypeVar("T")
MakeEvents = Callable[[str, Clock, Callable[[Hashable, Exception], None]], EventQueue]
MakeChannels = Callable[[int, str, MakeChannel], ChannelManager]


class KafkaController:
    """This broker's part in controller elections; Kafka's KafkaController. It has a Term only while it
    is elected.

    Its thread owns all state; other threads put events into its queue. ``on_state(active)`` is
    called on that thread for every election won or lost. ``make_channel(address, client_id)``
    creates a :class:`~broker.replication.broker_channel.BrokerChannel`.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        cluster_store: ClusterStore,
        make_channel: MakeChannel,
        *,
        clock: Clock,
        on_state: Callable[[bool], None],
        metrics: Metrics,
        settings: ControllerSettings | None = None,
        make_events: MakeEvents = EventQueue,
        make_channels: MakeChannels = ChannelManager,
    ) -> None:
        self.broker_id = broker_id
        self._settings = settings or ControllerSettings.of(config, broker_id)
        self._cluster = cluster_store
        self._make_channel = make_channel
        self._clock = clock
        self._on_state = on_state
        self._term: Term | None = None
        self._broker_epoch = NO_EPOCH
        self._electable = False
        self._make_channels = make_channels
        self._events = make_events(f"controller-{broker_id}", clock, self._on_event_error)
        self._metrics = ControllerMetrics(metrics, lambda: self._term, lambda: len(self._events))

    # -- any thread

    @property
    def is_active(self) -> bool:
        return self._term is not None

    @property
    def context(self) -> ControllerContext | None:
        """The active controller's view of the cluster, to be read with care; None on other brokers."""
        term = self._term
        return None if term is None else term.context

    @property
    def epoch(self) -> int:
        """The controller epoch of the current term, or -1 if this broker is not the controller."""
        term = self._term
        return -1 if term is None else term.epoch

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, broker_epoch: int) -> None:
        """Called when the broker has registered (again); from now on it may be elected."""
        self._broker_epoch = broker_epoch
        self._events.put("broker_registered", self._on_registered)

    def is_deleting(self, topic: str) -> bool:
        """Whether the topic is being deleted. False while the deletion waits for a dead broker."""
        term = self._term
        return term is not None and term.deletion.is_under_way(topic)

    def startup(self) -> None:
        self._events.start()
        self._cluster.add_session_listener(self._on_session_event)
        self._cluster.watch_controller(self._enqueue_controller_changed)

    def shutdown(self) -> None:
        """Resigns at once, so that another broker can take over while this one is still stopping."""
        self._events.stop(partial(self._resign, give_back=True))

    def update_config(self, config: BrokerConfig) -> None:
        """Applies dynamic config changes; they affect elections from now on."""
        settings = ControllerSettings.of(config, self.broker_id)
        self._events.put("config_changed", partial(self._on_config_changed, settings))

    def alter_partition(
        self, request: AlterPartitionRequest, callback: Callable[[AlterPartitionResponse], None]
    ) -> None:
        """Answers an AlterPartition request. ``callback`` runs on the controller's thread."""
        self._ask(
            "alter_partition", lambda term: alter_partitions(term, request), AlterPartitionResponse, callback
        )

    def controlled_shutdown(self, broker_id: int, broker_epoch: int, callback: Answer) -> None:
        """Answers ControlledShutdown. ``callback`` gets the response's fields on the controller's thread."""

        def shut_down(term: Term) -> Fields:
            remaining = controlled_shutdown(term, broker_id, broker_epoch)
            rows = [{"topic_name": p.topic, "partition_index": p.partition} for p in remaining]
            return {"error_code": Errors.NONE, "remaining_partitions": rows}

        def refuse(error: Errors) -> Fields:
            return {"error_code": error, "remaining_partitions": []}

        self._ask("controlled_shutdown", shut_down, refuse, callback)

    def allocate_producer_ids(self, broker_id: int, broker_epoch: int, callback: Answer) -> None:
        """Answers AllocateProducerIds (KIP-730). ``callback`` gets the response's fields on the
        controller's thread.
        """

        def allocate(term: Term) -> Fields:
            known = term.context.broker_epoch(broker_id)
            if known is None:
                raise KafkaError(Errors.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered")
            if known != broker_epoch:
                raise KafkaError(Errors.STALE_BROKER_EPOCH, f"broker {broker_id} has epoch {known}")
            try:
                first, length = self._cluster.next_producer_id_block(broker_id)
            except ConnectionLossError as error:
                # The term does not depend on this write: at worst a block of ids is lost.
                raise KafkaError(Errors.REQUEST_TIMED_OUT, str(error)) from error
            _log.info("producer_ids_allocated", broker=broker_id, first=first, length=length)
            return {"error_code": Errors.NONE, "producer_id_start": first, "producer_id_len": length}

        def refuse(error: Errors) -> Fields:
            return {"error_code": error, "producer_id_start": 0, "producer_id_len": 0}

        self._ask("allocate_producer_ids", allocate, refuse, callback)

    def alter_partition_reassignments(
        self, message: AlterPartitionReassignmentsRequest, callback: Callable[[Refused | Errors], None]
    ) -> None:
        """Starts, overrides and cancels reassignments. ``callback`` gets the refused partitions, or the error
        of the whole request, on the controller's thread.
        """
        wishes = Wishes(message)

        def alter(term: Term) -> Slices[Refused | Errors]:
            return term.reassignment_requests.alter_in_slices(wishes)

        self._ask_in_slices("reassign", alter, lambda error: error, callback)

    def list_partition_reassignments(
        self, message: ListPartitionReassignmentsRequest, callback: Answer
    ) -> None:
        """Answers ListPartitionReassignments. ``callback`` gets the response's fields on the
        controller's thread.
        """

        def refuse(error: Errors) -> Fields:
            return listed(error, None, {})

        self._ask("reassignments", lambda term: term.reassignment_requests.list(message), refuse, callback)

    def elect_leaders(
        self,
        kind: ElectionType,
        partitions: Sequence[TopicPartition] | None,
        callback: Callable[[Elected | Errors], None],
    ) -> None:
        """Elects leaders of the given partitions, or of all partitions if None. ``callback`` gets the result
        of each partition, or the error of the whole request, on the controller's thread.
        """

        def elect(term: Term) -> Elected | Errors:
            return term.elections.elect(kind, partitions)

        self._ask("elect_leaders", elect, lambda error: error, callback)

    def topic_config_changed(self, topic: str) -> None:
        """Tries again to elect leaders: the topic's ``unclean.leader.election.enable`` may have changed."""
        self._events.put("topic_config_changed", partial(self._on_topic_config_changed, topic))

    def _ask(
        self,
        name: str,
        work: Callable[[Term], T],
        refuse: Callable[[Errors], T],
        callback: Callable[[T], None],
    ) -> None:
        """Runs ``work`` with the current term. ``callback`` is called exactly once, whatever the outcome."""
        self._ask_in_slices(name, partial(in_one, work), refuse, callback)

    def _ask_in_slices(
        self,
        name: str,
        work: Callable[[Term], Slices[T]],
        refuse: Callable[[Errors], T],
        callback: Callable[[T], None],
    ) -> None:
        """Like :meth:`_ask`, but each slice of the work is an event of its own. If the term ends in between,
        the work ends too, with NOT_CONTROLLER.
        """

        def begin() -> None:
            if self._term is None:
                callback(refuse(Errors.NOT_CONTROLLER))
            else:
                go_on(self._term, work(self._term))

        def go_on(term: Term, slices: Slices[T]) -> None:
            if self._term is not term:
                callback(refuse(Errors.NOT_CONTROLLER))
                return
            try:
                next(slices)
            except StopIteration as done:
                callback(done.value)
            except KafkaError as error:
                _log.warning("request_to_controller_refused", request=name, reason=error.message)
                callback(refuse(error.error_code))
            except StoreError:
                callback(refuse(Errors.NOT_CONTROLLER))
                raise
            except Exception:
                callback(refuse(Errors.UNKNOWN_SERVER_ERROR))
                raise
            else:
                put(partial(go_on, term, slices))

        def put(action: Callable[[], None]) -> None:
            if not self._events.put(name, action):
                callback(refuse(Errors.NOT_CONTROLLER))

        if self._term is None:
            callback(refuse(Errors.NOT_CONTROLLER))
        else:
            put(begin)

    # -- the controller's thread

    def _on_session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._events.put("session_expired", self._on_session_expired)

    def _enqueue_controller_changed(self) -> None:
        self._events.put(CONTROLLER_CHANGED, self._on_controller_changed, coalesce=True)

    def _on_session_expired(self) -> None:
        """ZooKeeper removed ``/controller`` with the session. The next election starts once the broker has
        registered again.
        """
        self._electable = False
        self._resign(give_back=False)

    def _on_registered(self) -> None:
        self._electable = True
        self._elect()

    def _on_config_changed(self, settings: ControllerSettings) -> None:
        before, self._settings = self._settings, settings
        if self._term is not None:
            self._term.settings = settings
            if settings.unclean_leader_election_enable and not before.unclean_leader_election_enable:
                self._term.on_unclean_enabled(None)

    def _on_topic_config_changed(self, topic: str) -> None:
        if self._term is not None:
            self._term.on_unclean_enabled(topic)

    def _on_controller_changed(self) -> None:
        claim = self._cluster.controller_claim()
        if claim is None:
            self._resign(give_back=False)
            self._elect()
            return
        ours = (claim.broker_id, claim.session_id) == (self.broker_id, self._cluster.session_id)
        if not ours:
            self._resign(give_back=False)
        elif self._term is None:
            # Left over from a term that ended while the store was unreachable. Giving it up triggers the
            # next election.
            give_up_claim(self._cluster, self.broker_id)
            self._elect()

    def _elect(self) -> None:
        if self._term is not None or not self._electable or self._cluster.controller_claim() is not None:
            return
        own = self._cluster.broker(self.broker_id)
        if own is None or own.epoch != self._broker_epoch:
            return  # it is stopping, or will register again, which starts an election
        try:
            store = claim_controller(self._cluster, self.broker_id, self._clock)
        except ControllerMovedError as error:
            _log.info("controller_election_lost", reason=str(error))
            return
        listener = self._settings.controller_listener or self._settings.inter_broker_listener
        channels = self._make_channels(self.broker_id, listener, self._make_channel)
        _log.info("controller_elected", broker=self.broker_id, epoch=store.epoch.epoch)
        term = Term(
            self._settings,
            self._cluster,
            store,
            channels,
            events=self._events,
            on_elected=self._metrics.on_elected,
        )
        self._term = term
        try:
            term.begin()
        except Exception:
            self._resign(give_back=True)
            self._look_again()
            raise
        self._on_state(True)

    def _resign(self, *, give_back: bool) -> None:
        """Ends the term. With ``give_back``, ``/controller`` is deleted so that another broker can
        be elected.
        """
        term, self._term = self._term, None
        if term is None:
            return
        term.end()
        _log.info("controller_resigned", broker=self.broker_id, epoch=term.epoch)
        self._on_state(False)
        if not give_back:
            return
        try:
            term.store.resign()
        except StoreError as error:
            _log.warning("controller_not_given_back", reason=str(error))
            self._look_again()

    def _look_again(self) -> None:
        """Recovers from a store request that got no answer, whatever it was. A little later this checks
        ``/controller``, and starts an election if there is no controller. The check is repeated until it
        succeeds. The next controller reads everything, so it also finds what the failed event was about.
        """
        self._events.put_later(ELECTION_RETRY_MS, CONTROLLER_CHANGED, self._on_controller_changed)

    def _on_event_error(self, key: Hashable, error: Exception) -> None:
        """Handles an exception of an event. An error of the store ends the term; the next term starts by
        reading everything again. The session and its connection may be healthy, so no watch would trigger
        that election: this method schedules it.
        """
        name = key if isinstance(key, str) else str(key)
        if isinstance(error, ControllerMovedError):
            _log.warning("controller_moved", event_name=name, reason=str(error))
            self._resign(give_back=False)
            self._enqueue_controller_changed()
        elif isinstance(error, OwnBrokerGoneError):
            _log.info("controller_unregistered", reason=str(error))
            self._electable = False
            self._resign(give_back=True)
        elif isinstance(error, ConnectionLossError | SessionExpiredError):
            _log.warning("controller_lost_store", event_name=name, reason=str(error))
            self._resign(give_back=False)
            self._look_again()
        else:
            _log.error("controller_event_failed", event_name=name, exc_info=error)
