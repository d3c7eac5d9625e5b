"""What passes between a Processor and whoever answers, and the queue for requests that may block.

A :class:`Request` is answered exactly once, from any thread, by one of its ``respond`` methods; the Processor keeps
each connection's answers in the order of its requests. The queue is fair: Kafka's is first come, first served, so that
one client that fills it keeps all others from being read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from broker.network.fair_rounds import FairRounds
from broker.network.request_memory import RequestMemory
from broker.utils.file_region import FileRegion
from broker.utils.purgatory import DelayedOperation

Payload = Sequence[bytes | FileRegion]
_UNCOUNTED = RequestMemory()


@dataclass(slots=True)
class ConnectionInfo:
    """Who asks. ``connection_id`` is Kafka's ``local:port-remote:port-index``. ``reads_cold``: what the peer fetched
    last was not in the page cache, so what it fetches next will not be either. ``waiting``: its fetch that waits for
    data, one at a time. ``gone``: the connection is closed, nobody will read an answer. ``memory`` counts the bodies
    that are kept, but those of brokers.
    """

    connection_id: str
    client_address: str
    listener_name: str
    security_protocol: str = "PLAINTEXT"
    principal: str = "User:ANONYMOUS"
    reads_cold: bool = False
    waiting: DelayedOperation | None = None
    gone: bool = False
    memory: RequestMemory = _UNCOUNTED


class Request:
    """One request. ``body`` (after the header) is valid only until its inline handler returns, unless :meth:`keep`
    was called; ``receive_ns`` is on the monotonic clock. ``payload`` is the answer once ``done``; None in place of an
    answer closes the connection. ``on_abandon`` is called on the Processor's thread when the connection has gone before
    there was an answer: what waits for the peer's sake need wait no longer. ``again``, set before the verdict FULL is
    given, hands over the work that was made of the request once more; False: still no room.
    """

    __slots__ = (
        "_complete",
        "again",
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

    again: Callable[[], bool]

    def __init__(  # noqa: PLR0917 - one a request: by name it takes 90 ns more
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
        self.body = self.connection.memory.keep(self.body)

    def respond(self, payload: Payload) -> None:
        """Answers with a complete frame: length, response header and body."""
        self._finish(payload)

    def respond_nothing(self) -> None:
        """The API has no answer (Produce with acks=0)."""
        self._finish(())

    def close_connection(self) -> None:
        """Gives up on the peer."""
        self._finish(None)

    def drop(self) -> None:
        """Its connection has gone before anybody had it: nothing is to come of it."""
        self.body = memoryview(b"")
        del self.again

    def _finish(self, payload: Payload | None) -> None:
        complete, self._complete = self._complete, None
        if complete is None:
            raise RuntimeError(f"request {self.correlation_id} of API {self.api_key} was answered twice")
        self.body = memoryview(b"")
        self.on_abandon = None
        self.payload = payload
        self.done = True
        complete(self)


class Verdict(Enum):
    """What became of a dispatched request."""

    SERVED = "answered, or waiting in a purgatory: the connection goes on"
    QUEUED = "on its way to a handler: the connection waits for the answer"
    FULL = "the RequestChannel has no room for it: to be handed over ``again``"


Dispatch = Callable[[Request], Verdict]


class Work(NamedTuple):
    """A piece of work for a handler. ``dear``: it computes for long, and is run while no other such one is."""

    run: Callable[[], None]
    address: str
    dear: bool


class RequestChannel:
    """Bounded queue (``queued.max.requests``) between Processors and the RequestHandlerPool. Thread-safe.

    Clients' requests take turns by address, and connections within an address. An address may have no more of them
    waiting than there are places left: alone it fills half of the queue, and whoever comes beside it finds room. Dear
    requests wait apart and run one at a time, so that all handlers but one are there for the others.
    """

    def __init__(self, max_requests: int) -> None:
        self._max_requests = max_requests
        self._quick: FairRounds[Work] = FairRounds()
        self._dear: FairRounds[Work] = FairRounds()
        self._by_address: dict[str, int] = {}
        self._dear_runs = self._dear_was_last = False
        self._ends = 0
        self._changed = threading.Condition()  # lock order 27

    def __len__(self) -> int:
        return len(self._quick) + len(self._dear)

    def offer(self, run: Callable[[], None], request: Request | None = None, *, dear: bool = False) -> bool:
        """Queues work for a client's ``request``, or the broker's own; False when there is no room for it."""
        address = connection_id = ""
        with self._changed:
            left = self._max_requests - len(self)
            if left <= 0:
                return False
            if request is not None:
                address, connection_id = request.connection.client_address, request.connection.connection_id
                waiting = self._by_address.get(address, 0)
                if waiting >= left:
                    return False
                self._by_address[address] = waiting + 1
            (self._dear if dear else self._quick).add(address, connection_id, Work(run, address, dear))
            self._changed.notify()
        return True

    def take(self) -> Work | None:
        """The next piece of work, which :meth:`finished` is to be told of; None tells one handler to end."""
        with self._changed:
            while True:
                if self._dear and not self._dear_runs and not (self._dear_was_last and self._quick):
                    self._dear_runs = self._dear_was_last = True
                    return self._taken(self._dear)
                if self._quick:
                    self._dear_was_last = False
                    return self._taken(self._quick)
                if self._ends:
                    self._ends -= 1
                    return None
                self._changed.wait()

    def _taken(self, rounds: FairRounds[Work]) -> Work:
        address, work = rounds.next()
        if address:
            waiting = self._by_address.pop(address) - 1
            if waiting:
                self._by_address[address] = waiting
        return work

    def finished(self, work: Work) -> None:
        """It was run: the next dear one may be."""
        if work.dear:
            with self._changed:
                self._dear_runs = False
                if self._dear:
                    self._changed.notify()

    def stop_one(self) -> None:
        """Lets one handler end once what is queued was served; who runs a dear one serves the dear ones behind it."""
        with self._changed:
            self._ends += 1
            self._changed.notify()
