"""What lies between the modelled brokers: messages that wait until a test delivers, repeats or loses them.

Everything passes through the real codecs, so that what is modelled is what would be on the wire.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.utils.timer import Timer
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


def stopped_timer() -> Timer:
    """With it nothing ever times out."""
    timer = Timer("model")
    timer.stop()
    return timer


def request_of(api: ApiKey, version: int, body: bytes = b"") -> Request:
    """A client's request that no connection sends; its answer is kept."""
    client = ConnectionInfo("model", "127.0.0.1", "PLAINTEXT")
    return Request(api, version, 0, None, memoryview(body), client, 0, lambda _request: None)
