"""A client with one socket that sends any bytes, valid or not: for requests that no client library sends."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping
from itertools import count
from typing import Any, Self

from broker.protocol import codec, framing
from broker.protocol.api_keys import ApiKey
from broker.protocol.fetch_messages import FETCH
from rig.wire import receive_exactly, receive_frame

TIMEOUT_S = 30.0
CLIENT_ID = "raw"
_strangers = count()


def request_frame(
    api_key: int, version: int, body: bytes, correlation_id: int = 1, client_id: str = CLIENT_ID
) -> bytes:
    """A complete request: length, header and ``body``."""
    return framing.request_prefix(api_key, version, correlation_id, client_id, len(body)) + body


def stranger() -> str:
    """A loopback address that no connection came from yet: the broker's log has a line per address."""
    number = next(_strangers)
    return f"127.77.{number // 250}.{1 + number % 250}"


class RawClient:
    """One connection. Connecting and reading raise ``TimeoutError`` after ``timeout_s`` seconds."""

    def __init__(self, host: str, port: int, timeout_s: float = TIMEOUT_S, from_host: str = "") -> None:
        self._socket = socket.create_connection(
            (host, port), timeout_s, (from_host, 0) if from_host else None
        )
        self._correlation_id = 0

    def send(self, data: bytes) -> None:
        """Sends bytes unchanged; ignores that the peer has already closed the connection."""
        try:
            self._socket.sendall(data)
        except (ConnectionResetError, BrokenPipeError):
            return

    def ask(self, api_key: int, version: int, fields: Mapping[str, Any]) -> Any:
        """Sends a request and returns the decoded response."""
        return self.ask_body(api_key, version, codec.encode(api_key, version, "request", fields))

    def ask_body(self, api_key: int, version: int, body: bytes) -> Any:
        """Sends an encoded body and returns the decoded response."""
        self._correlation_id += 1
        self._socket.sendall(request_frame(api_key, version, body, self._correlation_id))
        frame = memoryview(receive_frame(self._socket))
        (answered,) = struct.unpack_from(">i", frame)
        if answered != self._correlation_id:
            raise AssertionError(f"request {self._correlation_id} was answered as {answered}")
        offset = framing.response_body_offset(api_key, version, frame)
        return codec.decode(api_key, version, "response", frame[offset:])

    def produce(
        self, topic: str, partition: int, records: bytes | None, *, version: int = 9, acks: int = -1
    ) -> Any:
        """Produces the bytes as the records of one partition; returns that partition's response."""
        data = {"index": partition, "records": records}
        fields = {
            "acks": acks,
            "timeout": 10_000,
            "topic_data": [{"name": topic, "partition_data": [data]}],
        }
        response = self.ask(ApiKey.PRODUCE, version, fields)
        return response.responses[0].partition_responses[0]

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replicas: int = 1,
        configs: Mapping[str, str] | None = None,
        timeout_ms: int = 30_000,
    ) -> Any:
        """Sends CreateTopics v7 for one topic; returns its row of the response."""
        row = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replicas,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in (configs or {}).items()],
        }
        return self.ask(ApiKey.CREATE_TOPICS, 7, {"topics": [row], "timeout": timeout_ms}).topics[0]

    def end_offset(self, topic: str, partition: int = 0) -> int:
        """The partition's high watermark, from ListOffsets."""
        wanted = {"partition_index": partition, "timestamp": -1}
        fields = {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [wanted]}],
        }
        answer = self.ask(ApiKey.LIST_OFFSETS, 4, fields).topics[0].partitions[0]
        assert answer.error_code == 0, answer
        return int(answer.offset)

    def fetch(self, topic: str, partition: int, offset: int, **partition_fields: Any) -> Any:
        """Fetches without waiting (Fetch v11); returns that partition's response."""
        wanted = {
            "partition": partition,
            "fetch_offset": offset,
            "partition_max_bytes": 1 << 20,
            **partition_fields,
        }
        fields = {
            "replica_id": -1,
            "max_wait": 0,
            "min_bytes": 0,
            "topics": [{"topic": topic, "partitions": [wanted]}],
            "forgotten_topics_data": [],
        }
        return self.ask(FETCH, 11, fields).responses[0].partitions[0]

    def receive_frame(self) -> bytes:
        """One response, without its length field."""
        return receive_frame(self._socket)

    def is_open(self) -> bool:
        """Whether the peer still answers ApiVersions on this connection."""
        try:
            self._socket.sendall(request_frame(ApiKey.API_VERSIONS, 0, b"", 77))
            return receive_exactly(self._socket, 8)[4:] == struct.pack(">i", 77)
        except ConnectionError:
            return False

    def await_close(self) -> bytes:
        """Reads until the peer closes; returns what was received. ``TimeoutError`` when it does not close."""
        received = bytearray()
        try:
            while chunk := self._socket.recv(65536):
                received += chunk
        except ConnectionResetError:
            pass
        return bytes(received)

    def finish_sending(self) -> None:
        """Shuts down the sending side; reading still works."""
        self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Closes the connection."""
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
