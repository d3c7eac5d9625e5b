"""Requests to API modules in process: encoded, decoded, handled and answered as on the wire, without a socket."""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

from broker.config.broker_config import BrokerConfig
from broker.network.request_channel import ConnectionInfo, Request
from broker.protocol import codec
from broker.protocol.api_keys import ApiKey
from broker.protocol.control_messages import BrokerInfo, MetadataUpdate, PartitionInfo
from broker.protocol.framing import response_body_offset
from broker.server.metadata_cache import MetadataCache
from tests.support.contexts import context_of


class ApiTalk:
    """Of ApiContext what the modules use, with the real metadata cache, and the client's side of a request. ``asked``
    are the internal topics that were to be created.
    """

    def __init__(self, modules: Mapping[ApiKey, ModuleType], config: BrokerConfig) -> None:
        self._modules = modules
        self.config = config
        self.metadata_cache = MetadataCache("PLAINTEXT")
        self.access: Any = None
        self.asked: list[str] = []
        self.auto_topics = SimpleNamespace(ensure_internal=self.asked.append)
        self.know("t", 2)

    def know(self, topic: str, partitions: int, leader: int = 1) -> None:
        infos = [(topic, PartitionInfo(p, leader, 0, (leader,), (leader,))) for p in range(partitions)]
        broker = BrokerInfo(1, {"PLAINTEXT": ("kafka.example", 9092)})
        self.metadata_cache.update(MetadataUpdate(1, [broker], {}, infos))

    def ask(self, key: ApiKey, version: int, /, **fields: Any) -> list[Any]:
        """Serves one request; the list gets its answer when there is one."""
        body = memoryview(codec.encode(key, version, "request", fields))
        connection = ConnectionInfo("c", "10.0.0.9", "PLAINTEXT")
        answers: list[Any] = []
        request = Request(
            key, version, 1, "tester", body, connection, 0, lambda done: answers.append(answer_to(done))
        )
        message = codec.decode(key, version, "request", request.body)
        result = self._modules[key].handle(request, message, context_of(self))
        if result is not None:
            request.respond_fields(result)
        return answers

    def answer(self, key: ApiKey, version: int, /, **fields: Any) -> Any:
        (answer,) = self.ask(key, version, **fields)
        return answer


def answer_to(request: Request) -> Any:
    """The decoded response to a request that has one."""
    assert request.payload is not None
    frame = memoryview(b"".join(bytes(piece) for piece in request.payload)[4:])  # type: ignore[arg-type]
    body = frame[response_body_offset(request.api_key, request.api_version, frame) :]
    return codec.decode(request.api_key, request.api_version, "response", body)
