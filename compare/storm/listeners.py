"""Brokers that only listen: one port for all the brokers that are registered with a controller.

A controller has its own connection to each broker, and its client id names the broker. It sends
UpdateMetadata; only the number of live brokers is read from it, at its place in Kafka's version 8.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct

_UPDATE_METADATA = 6
_VERSION = 8
_AT_TOPICS = 4 + 1 + 4 + 8
"""Of the body: controller id, whether it is KRaft's, its epoch, the broker's epoch; then topics
and brokers.
"""


class Listeners:
    """The listening brokers: records, by client id, which were last told of all live brokers. Used by one
    event loop.
    """

    def __init__(self, expected: int, wanted: int) -> None:
        """Done when ``expected`` brokers have been told of ``wanted`` live ones."""
        self._expected = expected
        self._wanted = wanted
        self._told: set[str] = set()
        self.requests = 0
        self.received_bytes = 0
        self.all_told = asyncio.Event()

    async def serve(self, host: str) -> tuple[asyncio.Server, int]:
        """Starts the server; returns it and its port."""
        server = await asyncio.start_server(self._serve_one, host, 0, backlog=4096)
        return server, int(server.sockets[0].getsockname()[1])

    def take(self, frame: bytes) -> bytes:
        """Takes a request without its size; returns the response, also without. Raises ValueError for an
        unexpected request.
        """
        api, version, correlation_id, length = struct.unpack_from(">hhih", frame)
        if (api, version) != (_UPDATE_METADATA, _VERSION):
            raise ValueError(
                f"the controller sent API {api} in version {version}, not UpdateMetadata in {_VERSION}"
            )
        client_id = frame[10 : 10 + max(length, 0)].decode()
        live = live_brokers(frame[10 + max(length, 0) + 1 :])
        self.requests += 1
        self.received_bytes += len(frame)
        if live >= self._wanted:
            self._told.add(client_id)
            if len(self._told) >= self._expected:
                self.all_told.set()
        return struct.pack(">ibhb", correlation_id, 0, 0, 0)

    @property
    def told(self) -> int:
        """The number of brokers that know all."""
        return len(self._told)

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                answer = self.take(await reader.readexactly(size))
                writer.write(struct.pack(">i", len(answer)) + answer)
                await writer.drain()
        writer.close()


def live_brokers(body: bytes) -> int:
    """The number of live brokers in an UpdateMetadata of version 8. Raises ValueError if it has topics."""
    topics, at = _varint(body, _AT_TOPICS)
    if topics > 1:
        raise ValueError(
            f"UpdateMetadata names {topics - 1} topics: a storm is measured on a cluster without any"
        )
    return _varint(body, at)[0] - 1


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
