"""What lies between the modelled brokers: messages that wait until a test delivers, repeats or loses them.

Everything passes through the real codecs, so that what is modelled is what would be on the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from broker.network.request_channel import ConnectionInfo
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.zookeeper.znodes import LiveBroker


def over_the_wire(api: ApiKey, version: int, direction: str, fields: Mapping[str, Any]) -> Any:
    """``fields`` as the other side decodes them."""
    return codec.decode(api, version, direction, codec.encode(api, version, direction, fields))


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A controller's request to a broker, with the epoch by which that controller knows the broker."""

    broker_id: int
    broker_epoch: int
    api: ApiKey
    version: int
    fields: Mapping[str, Any]
    on_response: Callable[[Any], None]

    def message(self) -> Any:
        fields = {**self.fields, "broker_epoch": self.broker_epoch}
        return over_the_wire(self.api, self.version, "request", fields)


class WaitingChannels:
    """ChannelManager's interface: requests wait, in order for each broker, until the model delivers them."""

    def __init__(self) -> None:
        self.queues: dict[int, deque[Outgoing]] = {}
        self._epochs: dict[int, int] = {}

    def add(self, live: LiveBroker) -> None:
        self.queues[live.broker_id] = deque()
        self._epochs[live.broker_id] = live.epoch

    def remove(self, broker_id: int) -> None:
        self.queues.pop(broker_id, None)

    def send(
        self,
        broker_id: int,
        api: ApiKey,
        version: int,
        fields: Mapping[str, Any],
        on_response: Callable[[Any], None],
    ) -> None:
        queue = self.queues.get(broker_id)
        if queue is not None:
            queue.append(Outgoing(broker_id, self._epochs[broker_id], api, version, fields, on_response))

    def shutdown(self) -> None:
        self.queues.clear()


class WaitingEvents:
    """EventQueue's interface: events wait until the model runs them."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Hashable, Callable[[], None]]] = deque()

    def put(self, key: Hashable, action: Callable[[], None], *, coalesce: bool = False) -> bool:
        if not (coalesce and any(key == other for other, _ in self.waiting)):
            self.waiting.append((key, action))
        return True

    def put_later(self, delay_ms: int, key: Hashable, action: Callable[[], None]) -> None:
        """What only time brings, the model does when it likes (preferred elections)."""


class NoTimer:
    """Timer's interface; nothing ever times out."""

    def add(self, delay_ms: int, callback: Callable[[], None]) -> SimpleNamespace:
        return SimpleNamespace(cancel=lambda: None)


class Request:
    """What fetch's handler uses of a network Request: the answer is kept instead of sent."""

    def __init__(self, api: ApiKey, version: int, body: bytes) -> None:
        self.api_key = api
        self.api_version = version
        self.correlation_id = 0
        self.body = memoryview(body)
        self.connection = ConnectionInfo("model", "127.0.0.1", "PLAINTEXT")
        self.on_abandon: Callable[[], None] | None = None
        self.parts: list[Any] = []

    def respond(self, parts: Any) -> None:
        self.parts = list(parts)
