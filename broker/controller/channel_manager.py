"""Sends the controller's requests to the brokers, with a queue and a sender thread for each broker.

Requests are sent in order, and each is retried until it is answered, so that a broker never misses a step.
Requests are dropped only if the broker leaves or the term ends. Kafka's ControllerChannelManager.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from broker.config.endpoint import host_port
from broker.protocol.api_keys import ApiKey
from broker.protocol.errors import ProtocolError
from broker.protocol.fields import Entity, Fields
from broker.protocol.one_body import OneBody
from broker.replication.broker_channel import ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.zookeeper.znodes import LiveBroker

_log = structlog.get_logger(__name__)
RETRY_BACKOFF_S = 0.1
CLIENT_ID = "controller"


class Channel(Protocol):
    """The methods of :class:`~broker.replication.broker_channel.BrokerChannel` that are used here."""

    def request(self, api_key: int, version: int, fields: Fields) -> Entity: ...

    def close(self) -> None: ...


MakeChannel = Callable[[BrokerAddress, str], Channel]


@dataclass(frozen=True, slots=True)
class _Outgoing:
    api: ApiKey
    version: int
    fields: OneBody
    on_response: Callable[[Entity], None]


class ChannelManager:
    """The senders, one per broker; Kafka's ControllerChannelManager. It owns them. Only the controller's
    thread calls it.
    """

    def __init__(self, controller_id: int, listener: str, make_channel: MakeChannel) -> None:
        self._controller_id = controller_id
        self._listener = listener
        self._make_channel = make_channel
        self._senders: dict[int, _Sender] = {}

    def add(self, live: LiveBroker) -> None:
        """Adds a registered broker. A broker without the listener cannot be sent any request."""
        endpoint = live.registration.endpoint(self._listener)
        if endpoint is None:
            _log.error(
                "broker_without_inter_broker_listener",
                broker=live.broker_id,
                listener=self._listener,
                listeners=[e.listener_name for e in live.registration.endpoints],
                action="give every broker the same inter.broker.listener.name and control.plane.listener.name",
            )
            return
        address = BrokerAddress(live.broker_id, endpoint.host, endpoint.port)
        client_id = f"{CLIENT_ID}-{self._controller_id}-to-broker-{live.broker_id}"
        self._senders[live.broker_id] = _Sender(address, live.epoch, self._make_channel, client_id)

    def remove(self, broker_id: int) -> None:
        """Removes a broker that left. Its unanswered requests are dropped."""
        sender = self._senders.pop(broker_id, None)
        if sender is not None:
            sender.stop()

    def send(
        self,
        broker_id: int,
        api: ApiKey,
        version: int,
        fields: OneBody,
        on_response: Callable[[Entity], None],
    ) -> None:
        """Enqueues a request. ``on_response`` gets the decoded response on the sender's thread.

        ``fields`` lacks only the broker's epoch. The same object may be sent to many brokers, and is encoded
        only once.
        """
        sender = self._senders.get(broker_id)
        if sender is not None:
            sender.put(_Outgoing(api, version, fields, on_response))

    def shutdown(self) -> None:
        for broker_id in list(self._senders):
            self.remove(broker_id)


class _Sender:
    """One broker's queue, and the thread that empties it. Its condition guards the shared state."""

    def __init__(
        self, address: BrokerAddress, broker_epoch: int, make_channel: MakeChannel, client_id: str
    ) -> None:
        self._address = address
        self._broker_epoch = broker_epoch
        self._make_channel = make_channel
        self._client_id = client_id
        self._channel: Channel | None = None
        self._queue: deque[_Outgoing] = deque()
        self._wake = threading.Condition()  # lock order 63
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._complained = False

    def put(self, outgoing: _Outgoing) -> None:
        with self._wake:
            self._queue.append(outgoing)
            if self._thread is None and not self._stopped:
                self._thread = threading.Thread(target=self._run, name=self._client_id, daemon=True)
                self._thread.start()
            self._wake.notify()

    def stop(self) -> None:
        """Interrupts the request in progress. It does not wait for the thread, which may be handling a slow
        broker's answer.
        """
        with self._wake:
            self._stopped = True
            self._queue.clear()
            self._wake.notify()
            channel = self._channel
        if channel is not None:
            channel.close()

    def _run(self) -> None:
        while (outgoing := self._next()) is not None:
            response = self._send_until_answered(outgoing)
            if response is not None and not self._stopped:
                outgoing.on_response(response)

    def _next(self) -> _Outgoing | None:
        with self._wake:
            while not self._queue and not self._stopped:
                self._wake.wait()
            return None if self._stopped else self._queue.popleft()

    def _send_until_answered(self, outgoing: _Outgoing) -> Entity | None:
        fields = outgoing.fields.to(self._broker_epoch)
        while not self._stopped:
            try:
                response = self._open().request(outgoing.api, outgoing.version, fields)
            except (ChannelError, ProtocolError) as error:
                self._on_failure(outgoing, error)
                continue
            except Exception as error:  # if the thread ended, the broker would get no more requests
                _log.exception(
                    "controller_request_failed", broker=self._address.broker_id, api=outgoing.api.name
                )
                self._on_failure(outgoing, error)
                continue
            self._complained = False
            return response
        return None

    def _open(self) -> Channel:
        with self._wake:
            if self._stopped:
                raise ChannelError(f"broker {self._address.broker_id} is gone")
            if self._channel is None:
                self._channel = self._make_channel(self._address, self._client_id)
            return self._channel

    def _on_failure(self, outgoing: _Outgoing, error: Exception) -> None:
        with self._wake:
            if self._stopped:
                return
            if not self._complained:
                self._complained = True
                _log.warning(
                    "controller_cannot_reach_broker",
                    broker=self._address.broker_id,
                    address=host_port(self._address.host, self._address.port),
                    api=outgoing.api.name,
                    reason=str(error),
                    action="trying again until the broker answers or is gone",
                )
            self._wake.wait(RETRY_BACKOFF_S)
