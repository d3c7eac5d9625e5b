"""Requests as they pass from a Processor to a handler and back, and the queue for requests that may block.

A :class:`Request` is answered exactly once, from any thread, by one of its ``respond`` methods. The Processor
keeps each connection's responses in the order of its requests. The queue is fair. Kafka's is first come,
first served, so one client that fills it blocks all others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from broker.network.fair_rounds import FairRounds
from broker.network.request_memory import RequestMemory
from broker.protocol import codec
from broker.protocol.fields import Fields
from broker.protocol.framing import response_prefix
from broker.protocol.throttle_time import with_throttle_time
from broker.quotas.allowance import Allowance
from broker.utils.file_region import FileRegion
from broker.utils.purgatory import DelayedOperation

Payload = Sequence[bytes | FileRegion]
#: The API key of what stands among a connection's requests and is none; it is not counted.
NO_API: Final = -1
_UNCOUNTED: Final = RequestMemory()
_JOIN_BYTES: Final = 2048


@dataclass(slots=True)
class ConnectionInfo:
    """The client side of a connection, as request handlers see it.

    ``connection_id`` is Kafka's ``local:port-remote:port-index``. ``token_authenticated``: the principal was
    proved by a delegation token. ``cold_fetches``: so many of the peer's next fetches are taken for ones of
    data that is not in the page cache. ``waiting``: its delayed fetch, one at a time. ``gone``: the connection
    is closed and no response will be read. ``memory`` counts the request bodies that are kept; those of brokers
    are not counted. ``throttled_until_ns``: until then no more of its requests are read, because a quota is
    used up; on the monotonic clock, in the past for most. ``is_unproved``: on a SASL listener, and not
    authenticated yet, so ``principal`` is nobody's. ``session_ends_ns``: when its SASL session expires, on the
    monotonic clock; 0 if never. ``network_ns``: how long its Processor received and sent for it since the last
    measured request; -1: its requests are not measured. ``produced`` and ``timed`` are its parts of the quotas
    for Produce and requests.
    """

    connection_id: str
    client_address: str
    listener_name: str
    security_protocol: str = "PLAINTEXT"
    principal: str = "User:ANONYMOUS"
    token_authenticated: bool = False
    cold_fetches: int = 0
    waiting: DelayedOperation | None = None
    gone: bool = False
    memory: RequestMemory = _UNCOUNTED
    throttled_until_ns: int = 0
    is_unproved: bool = False
    session_ends_ns: int = 0
    network_ns: int = -1
    produced: Allowance | None = None
    timed: Allowance | None = None

    def throttle(self, until_ns: int) -> None:
        """Mutes the connection until then. Call it before the response is sent, on any thread (KIP-219)."""
        self.throttled_until_ns = max(self.throttled_until_ns, until_ns)

    def settle(self) -> None:
        """Records what it used of its quotas. Once it is ``gone``, so that it gets no other parts of them."""
        for allowance in (self.produced, self.timed):
            if allowance is not None:
                allowance.settle()


class Request:
    """A client's request; Kafka's RequestChannel.Request.

    ``body`` (after the header) is valid only until its inline handler returns, unless :meth:`keep` was
    called. ``receive_ns`` is on the monotonic clock. ``payload`` is the response once ``done``; None instead
    of a response closes the connection. ``on_abandon`` is called on the Processor's thread if the connection
    closes before there was a response, so that nothing waits on its behalf any longer. ``again``, set before
    the verdict FULL is returned, retries to queue the request's work; False: still no room.

    ``meter``, if a quota needs it, is asked once, when the response is there, for how long to throttle; it
    reads ``used_ns``. Without one nothing is measured.
    """

    __slots__ = (
        "_began_ns",
        "_complete",
        "_spent_ns",
        "again",
        "api_key",
        "api_version",
        "body",
        "client_id",
        "connection",
        "correlation_id",
        "done",
        "meter",
        "on_abandon",
        "payload",
        "receive_ns",
    )

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
        self.meter: Callable[[Request], int] | None = None
        self.again: Callable[[], bool] | None = None
        self._complete: Callable[[Request], None] | None = complete

    def keep(self) -> None:
        """Copies the body so that it outlives the receive buffer. Must be called before the request leaves
        the Processor's thread.
        """
        self.body = self.connection.memory.keep(self.body)

    def respond(self, payload: Payload) -> None:
        """Sends a response: a complete frame of length, response header and body."""
        self._finish(payload)

    def respond_body(self, body: bytes) -> None:
        """Answers with an encoded body, whose throttle time is 0."""
        if self.meter is not None:
            body = self.metered(body)
        prefix = response_prefix(self.api_key, self.api_version, self.correlation_id, len(body))
        # A small answer is one piece; a large one may be shared with others (Metadata) and is not copied.
        self._finish((prefix + body,) if len(body) < _JOIN_BYTES else (prefix, body))

    def respond_fields(self, fields: Fields | bytes) -> None:
        """Answers with ``fields``, encoded as a response of the request's version, unless they are already."""
        self.respond_body(codec.encode(self.api_key, self.api_version, "response", fields))

    def measure(self, meter: Callable[[Request], int], now_ns: int) -> None:
        """From now on counts the time of the thread that serves the request, for ``meter``."""
        self.meter = meter
        self._spent_ns = 0
        self._began_ns = now_ns

    def pause(self, began_ns: int, now_ns: int) -> None:
        """The thread that began then no longer serves the request; another one may have taken it over."""
        if self.meter is not None and self._began_ns == began_ns:
            self._began_ns = 0
            self._spent_ns += now_ns - began_ns

    def timed(self, work: Callable[[], None]) -> None:
        """Runs work for the request on a handler's thread, and counts its time."""
        began_ns = time.monotonic_ns()
        is_measured = self.meter is not None
        if is_measured:
            self._spent_ns = self.thread_ns(began_ns)
            self._began_ns = began_ns
        try:
            work()
        finally:
            ended_ns = time.monotonic_ns()
            if is_measured:
                self.pause(began_ns, ended_ns)
            elif self.connection.network_ns >= 0:  # the connection's next request pays
                self.connection.network_ns += ended_ns - began_ns

    def thread_ns(self, now_ns: int) -> int:
        """How long threads have served the request so far."""
        began_ns = self._began_ns
        return self._spent_ns + (now_ns - began_ns if began_ns else 0)

    def used_ns(self, now_ns: int) -> int:
        """The time of threads that the request used, with what the network thread took to receive and to send
        for its connection since this was last asked. Only of a measured request. From the first time on, the
        network thread measures that for the connection.
        """
        connection = self.connection
        network_ns, connection.network_ns = connection.network_ns, 0
        if network_ns < 0:  # noqa: PLR1730 - max is a call more, for each request
            network_ns = 0
        began_ns = self._began_ns
        return network_ns + self._spent_ns + (now_ns - began_ns if began_ns else 0)

    def metered(self, body: bytes) -> bytes:
        """The body of the response with the throttle time that the meter tells."""
        meter, self.meter = self.meter, None
        throttle_ms = meter(self) if meter is not None else 0
        return with_throttle_time(self.api_key, self.api_version, body, throttle_ms) if throttle_ms else body

    def respond_nothing(self) -> None:
        """Completes a request that has no response (Produce with acks=0)."""
        self._finish(())

    def close_connection(self) -> None:
        """Closes the connection instead of sending a response."""
        self._finish(None)

    def drop(self) -> None:
        """Releases a request whose connection closed before it was queued."""
        self.body = memoryview(b"")
        self.again = None

    def _finish(self, payload: Payload | None) -> None:
        complete, self._complete = self._complete, None
        if complete is None:
            raise RuntimeError(f"request {self.correlation_id} of API {self.api_key} was answered twice")
        self.body = memoryview(b"")
        self.on_abandon = self.meter = None
        self.payload = payload
        self.done = True
        complete(self)


class Verdict(Enum):
    """The result of dispatching a request."""

    SERVED = "answered, or waiting in a purgatory: the connection goes on"
    QUEUED = "on its way to a handler: the connection waits for the answer"
    FULL = "the RequestChannel has no room for it: to be handed over ``again``"


Dispatch = Callable[[Request], Verdict]


class Work(NamedTuple):
    """A piece of work for a handler. ``dear`` work computes for long; no two such pieces run at the
    same time.
    """

    run: Callable[[], None]
    address: str
    dear: bool


class RequestChannel:
    """Bounded queue (``queued.max.requests``) between Processors and the RequestHandlerPool; Kafka's
    RequestChannel. Thread-safe.

    Clients' requests take turns by address, and by connection within an address. An address may have no more
    requests waiting than there are free places: alone it fills half of the queue, and another address still
    finds room. Expensive ("dear") requests wait in a separate queue and run one at a time, so that all
    handlers but one serve the others.
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
        """Queues work for a client's ``request``, or for the broker itself; False when there is no room
        for it.
        """
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
        """Waits for the next piece of work; the caller must pass it to :meth:`finished` afterwards. None: the
        handler ends.
        """
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
        """Reports that a piece of work is done, so that the next expensive one may run."""
        if work.dear:
            with self._changed:
                self._dear_runs = False
                if self._dear:
                    self._changed.notify()

    def stop_one(self) -> None:
        """Lets one handler end after the queued work. A handler that runs expensive work also runs the
        expensive work queued behind it.
        """
        with self._changed:
            self._ends += 1
            self._changed.notify()
