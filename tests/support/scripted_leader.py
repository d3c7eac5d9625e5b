"""A leader on loopback that a test controls: it reads requests and answers when told to."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Sequence
from uuid import UUID

from broker.protocol.errors import Errors
from broker.protocol.fetch_messages import FetchedPartition, encode_fetch_response
from broker.protocol.fetch_requests import TopicKey
from broker.tls.listener_tls import ListenerTls
from broker.utils.file_region import FileRegion

TIMEOUT_S = 30
FETCH_VERSION = 17
SESSION = 7


class ScriptedLeader:
    """One connection at a time, accepted by :meth:`accept`."""

    def __init__(self, security: ListenerTls | None = None) -> None:
        """With ``security`` it speaks TLS, and a channel to it has the same."""
        self.security = security
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(TIMEOUT_S)
        self.port: int = self._listener.getsockname()[1]
        self.socket = self._listener

    def accept(self) -> None:
        self.socket = self._listener.accept()[0]
        self.socket.settimeout(TIMEOUT_S)
        if self.security is not None:
            secured = self.socket = self.security.wrap(self.socket)
            secured.do_handshake()

    def await_request(self) -> None:
        """Returns when the next request begins to arrive, without reading it."""
        socket.socket.recv(self.socket, 1, socket.MSG_PEEK)

    def request(self) -> int:
        """The correlation id of the next request."""
        return self.request_and_body()[0]

    def request_and_body(self) -> tuple[int, bytes]:
        """The correlation id and everything after it."""
        size, _key, _version, correlation_id = struct.unpack(">ihhi", self._exactly(12))
        return correlation_id, self._exactly(size - 8)

    def answer(self, correlation_id: int, body: bytes) -> None:
        """Sends a response of a flexible version."""
        self.socket.sendall(struct.pack(">ii", 5 + len(body), correlation_id) + b"\0" + body)

    def answer_fetch(
        self, topic_id: UUID, partitions: Sequence[FetchedPartition] = (), error: Errors = Errors.NONE
    ) -> None:
        """Reads a Fetch request and answers it within one session."""
        topics: dict[TopicKey, Sequence[FetchedPartition]] = {topic_id: partitions} if partitions else {}
        frame = encode_fetch_response(FETCH_VERSION, self.request(), topics, error, SESSION)
        self.socket.sendall(b"".join(map(_bytes_of, frame)))

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            data += self.socket.recv(size - len(data))
        return bytes(data)

    def close(self) -> None:
        self.socket.close()
        self._listener.close()


def _bytes_of(piece: bytes | FileRegion) -> bytes:
    if isinstance(piece, FileRegion):
        return os.pread(piece.file.fileno(), piece.size, piece.position)
    return piece
