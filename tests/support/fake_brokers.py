"""Brokers that only obey: a controller's channels to them record every request and answer it.

The channels have BrokerChannel's interface. Messages are encoded and decoded as on the wire, so a request
that no broker could read fails here too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.replication.broker_channel import ChannelError
from broker.replication.cluster_view import BrokerAddress
from broker.utils.topic_partition import TopicPartition

Answer = Callable[[Any], Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Recorded:
    """One request, as decoded by the broker."""

    broker_id: int
    api: ApiKey
    message: Any


class FakeBrokers:
    """The fake brokers. Thread-safe. ``down`` brokers cannot be reached; ``answers`` overrides the response
    to an API.
    """

    def __init__(self) -> None:
        self.down: set[int] = set()
        self.answers: dict[ApiKey, Answer] = {}
        self._lock = threading.Lock()
        self._requests: list[Recorded] = []

    def make_channel(self, address: BrokerAddress, client_id: str) -> FakeChannel:
        return FakeChannel(self, address)

    def requests(self, api: ApiKey | None = None, broker_id: int | None = None) -> list[Recorded]:
        with self._lock:
            return [
                r
                for r in self._requests
                if (api is None or r.api is api) and (broker_id is None or r.broker_id == broker_id)
            ]

    def clear(self) -> None:
        with self._lock:
            self._requests.clear()

    def record(self, recorded: Recorded) -> None:
        with self._lock:
            self._requests.append(recorded)

    def leader_and_isr(self, broker_id: int, tp: TopicPartition) -> Any:
        """The last state of a partition that was sent to the broker; None if none was sent."""
        return self._last(ApiKey.LEADER_AND_ISR, broker_id, tp)

    def metadata(self, broker_id: int, tp: TopicPartition) -> Any:
        return self._last(ApiKey.UPDATE_METADATA, broker_id, tp)

    def live_brokers(self, broker_id: int) -> list[int]:
        """The live brokers in the last UpdateMetadata that the broker got."""
        last = self.requests(ApiKey.UPDATE_METADATA, broker_id)[-1:]
        return sorted(broker.id_ for r in last for broker in r.message.live_brokers)

    def stopped(self, broker_id: int, tp: TopicPartition) -> Any:
        return self._last(ApiKey.STOP_REPLICA, broker_id, tp)

    def _last(self, api: ApiKey, broker_id: int, tp: TopicPartition) -> Any:
        last = None
        for recorded in self.requests(api, broker_id):
            for topic in recorded.message.topic_states:
                for state in topic.partition_states:
                    if (topic.topic_name, state.partition_index) == tp:
                        last = state
        return last


class FakeChannel:
    """A channel with BrokerChannel's interface."""

    def __init__(self, brokers: FakeBrokers, address: BrokerAddress) -> None:
        self._brokers = brokers
        self._address = address
        self._closed = False

    def request(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        api = ApiKey(api_key)
        if self._closed or self._address.broker_id in self._brokers.down:
            raise ChannelError(f"broker at {self._address.host}:{self._address.port}: Connection refused")
        message = codec.decode(api, version, "request", codec.encode(api, version, "request", fields))
        answer_to = self._brokers.answers.get(
            api, _ANSWERS[api]
        )  # first: the code that sees the request may change the answers
        self._brokers.record(Recorded(self._address.broker_id, api, message))
        answer = answer_to(message)
        return codec.decode(api, version, "response", codec.encode(api, version, "response", answer))

    def close(self) -> None:
        self._closed = True


def answer_leader_and_isr(message: Any, error: int = 0) -> Mapping[str, Any]:
    topics = [
        {
            "topic_id": topic.topic_id,
            "partition_errors": [
                {"partition_index": state.partition_index, "error_code": error}
                for state in topic.partition_states
            ],
        }
        for topic in message.topic_states
    ]
    return {"error_code": 0, "topics": topics}


def answer_stop_replica(message: Any, error: int = 0) -> Mapping[str, Any]:
    errors = [
        {"topic_name": topic.topic_name, "partition_index": state.partition_index, "error_code": error}
        for topic in message.topic_states
        for state in topic.partition_states
    ]
    return {"error_code": 0, "partition_errors": errors}


_ANSWERS: Mapping[ApiKey, Answer] = {
    ApiKey.LEADER_AND_ISR: answer_leader_and_isr,
    ApiKey.STOP_REPLICA: answer_stop_replica,
    ApiKey.UPDATE_METADATA: lambda _message: {"error_code": 0},
}
