"""What passes between a Processor and whoever answers, and the queue for requests that may block.

A :class:`Request` is answered exactly once, from any thread, by one of its ``respond`` methods; the Processor keeps
each connection's answers in the order of its requests.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from broker.utils.file_region import FileRegion
from broker.utils.purgatory import DelayedOperation

Payload = Sequence[bytes | FileRegion]


@dataclass(slots=True)
class ConnectionInfo:
    """Who asks. ``connection_id`` is Kafka's ``local:port-remote:port-index``. ``reads_cold``: what the peer fetched
    last was not in the page cache, so what it fetches next will not be either. ``waiting``: its fetch that waits for
    data, one at a time.
    """

    connection_id: str
    client_address: str
    listener_name: str
    security_protocol: str = "PLAINTEXT"
    principal: str = "User:ANONYMOUS"
    reads_cold: bool = False
    waiting: DelayedOperation | None = None


class Request:
    """One request. ``body`` (after the header) is valid only until its inline handler returns, unless :meth:`keep`
    was called; ``receive_ns`` is on the monotonic clock. ``payload`` is the answer once ``done``; None in place of an
    answer closes the connection. ``on_abandon`` is called on the Processor's thread when the connection has gone before
    there was an answer: what waits for the peer's sake need wait no longer.
    """

    __slots__ = (
        "_complete",
        "api_key",
        "api_version",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "done",
        "on_abandon",
        "payload",
        "receive_ns",
    )

    def __init__(
        self,
        api_key: int,
        api_version: int,
        correlation_id: int,
        client_id: str | None,
        body: memoryview,
        connection: ConnectionInfo,
        receive_ns: int,
        complete: Callable[[Request], None],
    ) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.body = body
        self.connection = connection
        self.receive_ns = receive_ns
        self.payload: Payload | None = None
        self.done = False
        self.on_abandon: Callable[[], None] | None = None
        self._complete: Callable[[Request], None] | None = complete

    def keep(self) -> None:
        """Copies the body so that it outlives the receive buffer: before the request leaves the Processor's thread."""
        self.body = memoryview(bytearray(self.body))

    def respond(self, payload: Payload) -> None:
        """Answers with a complete frame: length, response header and body."""
        self._finish(payload)

    def respond_nothing(self) -> None:
        """The API has no answer (Produce with acks=0)."""
        self._finish(())

    def close_connection(self) -> None:
        """Gives up on the peer."""
        self._finish(None)

    def _finish(self, payload: Payload | None) -> None:
        complete, self._complete = self._complete, None
        if complete is None:
            raise RuntimeError(f"request {self.correlation_id} of API {self.api_key} was answered twice")
        self.body = memoryview(b"")
        self.on_abandon = None
        self.payload = payload
        self.done = True
        complete(self)


class RequestChannel:
    """Bounded queue (``queued.max.requests``) between Processors and the RequestHandlerPool."""

    def __init__(self, max_requests: int) -> None:
        self._queue: queue.Queue[Callable[[], None] | None] = queue.Queue(max_requests)

    def __len__(self) -> int:
        return self._queue.qsize()

    def offer(self, work: Callable[[], None]) -> bool:
        """False when the queue is full: the Processor leaves the connection and tries again."""
        try:
            self._queue.put_nowait(work)
        except queue.Full:
            return False
        return True

    def take(self) -> Callable[[], None] | None:
        """The next piece of work; None tells one handler to end."""
        return self._queue.get()

    def stop_one(self) -> None:
        """Lets one handler end once what is queued before was served."""
        self._queue.put(None)
