"""Healthcheck: shows other brokers that this one is alive, with its ephemeral znode ``/brokers/ids/N``.

Kafka 0.9's KafkaHealthcheck. It registers last in the start-up, and again after every expired session. Each
registration has a new broker epoch (KIP-380), which is passed to ``on_registered``.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress

import structlog

from broker.config.endpoint import Endpoint
from broker.server.registration.session_file import SessionFile
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.session_end import Session
from broker.zookeeper.store import (
    Cancelled,
    NodeExistsError,
    NoNodeError,
    SessionEvent,
    StoreError,
)
from broker.zookeeper.znodes import BrokerRegistration, LiveBroker, broker_path

_log = structlog.get_logger(__name__)
CONFLICT_POLL_S = 0.1
RETRY_S = 1.0
# A server notices the end of a session only at its next tick.
EXPIRY_GRACE_MS = 2000


class BrokerIdInUseError(StoreError):
    """Another live broker is registered with this broker's id."""


class Healthcheck:
    """Owner of the broker's registration; Kafka 0.9's KafkaHealthcheck. ``startup`` registers on the caller's
    thread, later registrations run on a separate one.

    ``tells_first_epoch``: later registrations contain the epoch of this process's first one. ``speaks_by``:
    the listener that it uses for inter-broker requests, if that is to be declared. ``cancel`` aborts a
    start-up that waits for an old registration, with :class:`Cancelled`.
    """

    def __init__(
        self,
        store: ClusterStore,
        broker_id: int,
        endpoints: Sequence[Endpoint],
        rack: str | None,
        *,
        on_registered: Callable[[int], None],
        session_timeout_ms: int,
        cancel: threading.Event | None = None,
        session_file: SessionFile | None = None,
        clock: Clock = SYSTEM_CLOCK,
        tells_first_epoch: bool = False,
        speaks_by: str | None = None,
    ) -> None:
        self._store = store
        self._broker_id = broker_id
        self._endpoints = tuple(endpoints)
        self._rack = rack
        self._on_registered = on_registered
        self._session_timeout_ms = session_timeout_ms
        self._clock = clock
        self._cancel = cancel or threading.Event()
        self._stopped = threading.Event()
        self._session_file = session_file
        self._tells_first_epoch = tells_first_epoch
        self._speaks_by = speaks_by
        self._first_epoch: int | None = None
        self._own_sessions: set[int] = set()
        self._noted: Session | None = None
        self._events: queue.SimpleQueue[SessionEvent | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def startup(self) -> None:
        """Registers the broker. Raises :class:`BrokerIdInUseError`, :class:`Cancelled`, or the
        store's errors.
        """
        self._store.add_session_listener(self._events.put)
        self._register()
        self._thread = threading.Thread(target=self._run, name="healthcheck", daemon=True)
        self._thread.start()

    def shutdown(self) -> None:
        """Removes the registration, so that this broker gets no more requests."""
        self._stopped.set()
        self._events.put(None)
        if self._thread is None:
            return
        self._thread.join()
        if self._store.state_name != "CONNECTED":
            return  # the registration ends with the session; do not wait
        try:
            found = self._store.broker(self._broker_id)
            if found is not None and found.session_id == self._store.session_id:
                self._store.unregister_broker(self._broker_id)
        except StoreError as error:
            _log.info("broker_not_unregistered", reason=str(error), action="it goes with the session")

    def _run(self) -> None:
        expired = False
        while (event := self._events.get()) is not None:
            if event is SessionEvent.EXPIRED:
                expired = True
            elif event is SessionEvent.CONNECTED and expired:
                expired = not self._register_again()

    def _register_again(self) -> bool:
        """Retries until registered or until the next session event."""
        while not self._stopped.is_set():
            try:
                self._register()
                return True
            except StoreError as error:
                _log.error(
                    "broker_not_registered", broker=self._broker_id, reason=str(error), retry_s=RETRY_S
                )
            if self._stopped.wait(RETRY_S) or not self._events.empty():
                return False
        return False

    def _register(self) -> None:
        registration = BrokerRegistration(
            self._broker_id,
            self._endpoints,
            self._rack,
            timestamp_ms=self._clock.wall_ms(),
            first_epoch=self._first_epoch,
            speaks_by=self._speaks_by,
        )
        deadline_ms = self._clock.monotonic_ms() + self._session_timeout_ms + EXPIRY_GRACE_MS
        told = False
        while True:
            self._note_session()
            try:
                epoch = self._store.register_broker(registration)
                break
            except NodeExistsError:
                holder = self._store.broker(self._broker_id)
            if holder is None or self._remove_if_ours(holder):
                continue
            if not told:
                told = True
                _log.warning(
                    "broker_id_still_registered",
                    broker=self._broker_id,
                    holder=_describe(holder),
                    waiting_ms=self._session_timeout_ms,
                )
            self._wait_for(holder, deadline_ms)
        self._note_session()  # it may have begun only now
        _log.info(
            "broker_registered",
            broker=self._broker_id,
            epoch=epoch,
            listeners=[str(endpoint) for endpoint in self._endpoints],
            rack=self._rack,
        )
        if self._tells_first_epoch and self._first_epoch is None:
            self._first_epoch = epoch
        self._on_registered(epoch)

    def _note_session(self) -> None:
        """Notes the session as ours. Between an expiry and the next connection there is none, and while it is without
        a connection it cannot be written into the file.
        """
        if session_id := self._store.session_id:  # 0 would be the owner of a znode that is not ephemeral
            self._own_sessions.add(session_id)
        session = self._store.store.session
        if self._session_file is None or session is None or session == self._noted:
            return
        self._noted = session
        try:
            self._session_file.write(session)
        except OSError as error:
            _log.warning(
                "session_not_noted",
                file=str(self._session_file.path),
                reason=str(error),
                action="should this broker crash, its failover waits for zookeeper.session.timeout.ms",
            )

    def _remove_if_ours(self, holder: LiveBroker) -> bool:
        """Deletes a znode of an earlier session of this process (KAFKA-7165); any other is kept."""
        if holder.session_id not in self._own_sessions:
            return False
        with suppress(NoNodeError):
            self._store.store.delete(broker_path(self._broker_id))
        return True

    def _wait_for(self, holder: LiveBroker, deadline_ms: int) -> None:
        if self._cancel.is_set() or self._stopped.is_set():
            raise Cancelled(f"gave up registering broker {self._broker_id}: told to stop")
        if self._clock.monotonic_ms() >= deadline_ms:
            raise BrokerIdInUseError(
                f"broker id {self._broker_id} is registered by {_describe(holder)}, which is still alive after "
                f"{self._session_timeout_ms} ms: give this broker another broker.id, or stop the other one"
            )
        self._cancel.wait(CONFLICT_POLL_S)


def _describe(holder: LiveBroker) -> str:
    addresses = ", ".join(str(endpoint) for endpoint in holder.registration.endpoints)
    return f"the broker at {addresses} (session 0x{holder.session_id & (1 << 64) - 1:x})"
