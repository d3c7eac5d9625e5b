"""A defect of aiokafka 0.14, shown without any broker of ours: why its driver replaces a consumer that went deaf.

When this fails, the library was mended: take the replacement out of ``tests/support/clients/aio.py``.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Iterator

import pytest
from aiokafka.client import AIOKafkaClient
from aiokafka.protocol.metadata import MetadataRequest

from rig.brokers import HOST
from rig.wait import last_for
from rig.wire import API_VERSIONS, HEADER, METADATA, receive_frame

pytestmark = [pytest.mark.integration]

REQUEST_TIMEOUT_S = 1.0


class SilentBroker:
    """Answers ApiVersions, and Metadata on its first connection only; it closes the others when told to.

    Its one thread serves one connection after the other, as they come.
    """

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.port = self._listener.getsockname()[1]
        self.asked = threading.Event()
        self.close_now = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        number = 0
        with contextlib.suppress(OSError):  # The listener was closed.
            while True:
                connection, _ = self._listener.accept()
                number += 1
                with connection, contextlib.suppress(ConnectionError):
                    self._answer(connection, first=number == 1)

    def _answer(self, connection: socket.socket, *, first: bool) -> None:
        while True:
            api_key, _, correlation_id, _ = HEADER.unpack_from(receive_frame(connection))
            if api_key == API_VERSIONS:
                versions = struct.pack(">hihhhhhh", 0, 2, API_VERSIONS, 0, 0, METADATA, 1, 1)
                self._send(connection, correlation_id, versions)
            elif first:
                self._send(connection, correlation_id, self._metadata())
            else:
                self.asked.set()
                self.close_now.wait(30)
                return

    def _metadata(self) -> bytes:
        """Version 1: one broker, this one, which controls; no topic."""
        host = HOST.encode()
        broker = struct.pack(f">ih{len(host)}sih", 0, len(host), host, self.port, -1)
        return struct.pack(">i", 1) + broker + struct.pack(">ii", 0, 0)

    def _send(self, connection: socket.socket, correlation_id: int, body: bytes) -> None:
        connection.sendall(struct.pack(">ii", 4 + len(body), correlation_id) + body)

    def stop(self) -> None:
        self.close_now.set()
        # A thread in accept() is woken by shutting the listener down, not by closing it.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(10)


@pytest.fixture
def broker() -> Iterator[SilentBroker]:
    made = SilentBroker()
    yield made
    made.stop()


def test_a_request_that_times_out_as_its_connection_ends_raises_no_kafka_error(broker: SilentBroker) -> None:
    """The fetcher survives errors of Kafka's only; it ends, no call of the consumer tells, and polls are empty."""

    async def scenario() -> None:
        client = AIOKafkaClient(
            bootstrap_servers=f"{HOST}:{broker.port}", request_timeout_ms=int(REQUEST_TIMEOUT_S * 1000)
        )
        await client.bootstrap()
        try:
            request = asyncio.ensure_future(client.send(0, MetadataRequest([])))
            await asyncio.to_thread(broker.asked.wait, 10)
            # Another task of the client wants the connection, a moment before the request's time is over.
            wanted = asyncio.Event()
            asyncio.get_running_loop().call_later(REQUEST_TIMEOUT_S / 2, wanted.set)
            other = asyncio.ensure_future(_ready_when(client, wanted))
            broker.close_now.set()
            # A loop that is held up, as on a busy machine, finds all three at once: the end, the other, the time-out.
            last_for(2 * REQUEST_TIMEOUT_S)
            with pytest.raises(KeyError):
                await request
            await other
        finally:
            await client.close()

    asyncio.run(scenario())


async def _ready_when(client: AIOKafkaClient, wanted: asyncio.Event) -> bool:
    await wanted.wait()
    ready: bool = await client.ready(0)
    return ready
