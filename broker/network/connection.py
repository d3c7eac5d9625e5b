"""One client's connection: turns received bytes into frames, and responses into sent bytes, in order. No
threads, no epoll.

The receive buffer grows with the data that arrived, never with the size that a peer announces: it at most
doubles, up to the end of the current frame. Small requests are read through the Processor's shared buffer. A
connection gets its own buffer while a frame is incomplete, and keeps it while it has such frames, so that
large requests are received in place.
"""

from __future__ import annotations

import errno
import mmap
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from broker.network.crowd import UNKNOWN_NS
from broker.network.request_channel import NO_API, ConnectionInfo, Payload, Request
from broker.network.request_memory import RequestMemory
from broker.network.request_times import RequestTimes
from broker.network.sasl import ConnectionLogin
from broker.network.transport import Piece, Transport
from broker.protocol.errors import ProtocolError
from broker.protocol.primitives import INT32
from broker.utils.file_region import FileRegion

Buffer = bytearray | mmap.mmap
_FIRST_BUFFER: Final = 4 * 1024
# A smaller buffer is released after each complete frame: the shared buffer takes more requests per read.
_WORTH_KEEPING: Final = 64 * 1024
# A larger buffer is released with its request, so that one large request does not cost memory for the
# connection's lifetime. Twice the usual largest request of a producer.
_MOST_KEPT: Final = 2 * 1024 * 1024
# Bytes read at once without an own buffer while memory is short, or before the authentication: the unhandled
# rest of them must be kept.
_SHORT_READ: Final = 16 * 1024
# Buffers from this size on are separate memory mappings, which grow without copying. Touching 8 MiB of new
# pages takes 10 ms.
_MAPPED: Final = 1024 * 1024
# For the same reason, one turn receives at most this much. The rest comes with the next turn.
_MOST_RECEIVED: Final = 1024 * 1024
# Few clients send this many requests before the first response. One that does may request large responses
# with small requests, so their size is checked once per this many requests.
PIPELINED: Final = 8
_MOST_IN_FLIGHT: Final = 128
_MOST_UNSENT: Final = 1024 * 1024

# Why a connection is muted: nothing is read, and no frame handled, while there is any cause.
UNANSWERED: Final = 1  # until all its requests are answered and the responses sent
OUT_OF_TURN: Final = 2  # its share of the turn is used up; it continues in the next turn
THROTTLED: Final = 4  # a quota is used up, until `ConnectionInfo.throttled_until_ns`
GONE: Final = 8


def _new_buffer(size: int) -> Buffer:
    if size < _MAPPED:
        return bytearray(size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _is_resized(buffer: Buffer, size: int) -> bool:
    """Resizes ``buffer`` in place; False when that is not possible. A mapping's pages are
    moved, not copied.
    """
    if isinstance(buffer, bytearray):
        return False
    try:
        buffer.resize(size)
    except BufferError:  # somebody still has a view of a request in it
        return False
    return True


def _room_for_rest(begun: memoryview, room: int) -> int:
    """The buffer size for a frame of which ``begun`` has arrived: twice that, but not past the frame's end.

    Large frames are therefore received whole and one at a time, and none has to be moved to the front of
    the buffer. A transport that needs more ``room`` than a byte gets it behind that.
    """
    extra = room if room > 1 else 0
    if len(begun) < 4:
        return _FIRST_BUFFER + extra
    size: int = INT32.unpack_from(begun)[0]
    return max(_FIRST_BUFFER, len(begun), min(2 * len(begun), size + 4)) + extra


def _nobody_listens(request: Request) -> None:
    raise AssertionError(
        f"request {request.correlation_id} was answered before its connection had a Processor"
    )


class Connection:
    """A client's connection: its received data, its requests in flight and its unsent responses.
    Kafka's KafkaChannel.

    Responses are sent in the order of the requests: a response is sent when all earlier ones are ready. Its
    Processor's thread owns it; other threads only mark one of its requests as answered.
    """

    __slots__ = (
        "asked_ns",
        "begun_ms",
        "buffer",
        "closing",
        "cost_ns",
        "dirty",
        "drained",
        "drains",
        "events",
        "fd",
        "filled",
        "held",
        "in_flight",
        "info",
        "is_half_closed",
        "last_active_ms",
        "login",
        "max_frame_bytes",
        "memory",
        "muted",
        "next_look_ms",
        "on_answer",
        "out",
        "pinned_since_ms",
        "room",
        "start",
        "starved",
        "throttled_until_ns",
        "transport",
    )

    def __init__(
        self,
        transport: Transport,
        info: ConnectionInfo,
        max_frame_bytes: int,
        now_ms: int,
        memory: RequestMemory | None = None,
    ) -> None:
        #: The socket, with or without TLS; ``fd`` is its descriptor, -1 once the connection is closed.
        self.transport = transport
        self.fd = transport.fileno()
        #: The room that a buffer must have to receive into it.
        self.room = transport.room
        self.drains = transport.drains
        #: The peer, as request handlers see it.
        self.info = info
        #: Limit of one request; ``socket.request.max.bytes``.
        self.max_frame_bytes = max_frame_bytes
        #: The client's authentication, on a SASL listener.
        self.login: ConnectionLogin | None = None

        #: Received data: bytes ``start`` to ``filled`` of the buffer are not handled yet. None when there
        #: is none.
        self.buffer: Buffer | None = None
        self.start = 0
        self.filled = 0
        #: When the incomplete frame began; 0 when there is none.
        self.begun_ms = 0
        #: When it last received, it took all that had arrived.
        self.drained = False

        #: Requests without a response, or whose response waits for an earlier one, in order.
        self.in_flight: deque[Request] = deque()
        #: Unsent responses, or the rest of one, in the order of sending.
        self.out: deque[Piece] = deque()
        #: Notifies the Processor of each response.
        self.on_answer: Callable[[Request], None] = _nobody_listens

        #: Memory of all connections together, and the bytes of it that count for this connection's
        #: own buffer.
        self.memory = memory or RequestMemory()
        self.held = 0
        #: Nothing is read until memory is free.
        self.starved = False

        #: The events that epoll currently watches for.
        self.events = 0
        #: Already in its Processor's queue of connections with responses to send.
        self.dirty = False
        #: The causes why nothing is read and no frame handled; 0 for none.
        self.muted = 0
        #: The end of the last throttle that its Processor has taken up.
        self.throttled_until_ns = 0
        #: The peer has shut down its sending side.
        self.is_half_closed = False
        #: It closes once all output is sent.
        self.closing = False

        #: What its visits cost, computed by `shares`; 0 when it is not measured.
        self.cost_ns = 0
        #: What its visits take on average, computed by `crowd`.
        self.asked_ns = UNKNOWN_NS
        #: For connections.max.idle.ms.
        self.last_active_ms = now_ms
        #: Since when it is known to hold a deleted file (0: it holds none), and when to check for such
        #: files again.
        self.pinned_since_ms = 0
        self.next_look_ms = 0

    def __repr__(self) -> str:
        state = "closing" if self.closing else "muted" if self.muted else "open"
        return f"<Connection {self.info.connection_id} {state}, {len(self.in_flight)} in flight>"

    def receive(self, shared: bytearray) -> bool:
        """Receives once; False when the peer has closed. Raises BlockingIOError when there is no data, OSError
        when the connection is to be closed.
        """
        buffer = self.buffer
        if buffer is None:
            short = self.memory.over or (self.login is not None and self.login.is_new)
            count = self.transport.receive(shared, _SHORT_READ if short else 0)
            self.drained = self.drains and count < (_SHORT_READ if short else len(shared))
            if count:
                self.buffer, self.start, self.filled = shared, 0, count
            return count > 0
        if len(buffer) - self.filled < self.room:
            buffer = self._make_room(buffer)
        most = min(len(buffer) - self.filled, _MOST_RECEIVED)
        count = self.transport.receive(memoryview(buffer)[self.filled : self.filled + most], 0)
        self.drained = self.drains and count < most
        self.filled += count
        return count > 0

    def has_ended(self) -> bool:
        """Whether a peer that has shut down its sending side has left no data to read."""
        return self.filled == self.start and self.transport.has_ended()

    def wants_room(self) -> bool:
        """Whether receiving more requires a larger buffer."""
        return self.buffer is not None and len(self.buffer) - self.filled < self.room

    def next_frame(self) -> memoryview | None:
        """The next complete frame received, without its length prefix; None if there is none, or if the connection
        is muted. Raises :class:`ProtocolError` for an invalid length.
        """
        buffer, start = self.buffer, self.start
        if buffer is None or self.muted or self.filled - start < 4:
            return None
        size: int = INT32.unpack_from(buffer, start)[0]
        if size < 0 or size > self.max_frame_bytes:
            limit = "socket.request.max.bytes"
            if self.login is not None and self.login.is_new:
                limit = "sasl.server.max.receive.size"
            raise ProtocolError(f"request of {size} bytes announced; {limit} is {self.max_frame_bytes}")
        end = start + 4 + size
        if end > self.filled:
            return None
        self.start = end
        return memoryview(buffer)[start + 4 : end]

    def give_back(self, frame: memoryview) -> None:
        """Makes the frame that :meth:`next_frame` returned last the next one again."""
        self.start -= 4 + len(frame)

    def settle(self, shared: bytearray) -> None:
        """Moves unhandled data out of the shared buffer, or to the front of the connection's own buffer."""
        buffer = self.buffer
        if buffer is None:
            return
        left = self.filled - self.start
        if self.start or not self.begun_ms:
            self.begun_ms = self.last_active_ms if left else 0
        if buffer is shared:
            self.buffer = None
            if left:
                own = bytearray(_room_for_rest(memoryview(shared)[self.start : self.filled], self.room))
                self._own(own)
                own[:left] = memoryview(shared)[self.start : self.filled]
        elif not left and (not _WORTH_KEEPING <= len(buffer) <= _MOST_KEPT or self.memory.over):
            self._own(None)
        elif left and self.start:
            whole = memoryview(buffer)
            whole[:left] = whole[self.start : self.filled]
        self.start, self.filled = 0, left

    def release_idle_buffer(self) -> None:
        """Releases the connection's own buffer when it is empty."""
        if self.filled == self.start:
            self.drop_buffer()

    def leave(self) -> None:
        """Closes the socket, releases all memory and abandons the requests that still wait."""
        self.transport.close()
        self.muted |= GONE
        self.info.gone = True
        self.out.clear()
        self.drop_buffer()
        for request in self.in_flight:
            abandon = request.on_abandon  # another thread may be answering it
            if abandon is not None:
                abandon()
                request.on_abandon = None
        self.in_flight.clear()
        # Breaks reference cycles, so that the memory is freed at once and not by the garbage collector.
        self.info.waiting = None
        self.info.settle()
        if self.login is not None:
            self.login.leave()
        self.on_answer = _nobody_listens

    def drop_buffer(self) -> None:
        """Releases the connection's own buffer and its content."""
        self._own(None)
        self.start, self.filled, self.begun_ms = 0, 0, 0

    def _own(self, buffer: Buffer | None) -> None:
        self.buffer = buffer
        size = 0 if buffer is None else len(buffer)
        if size != self.held:
            self.memory.change(size - self.held)
            self.held = size
            if self.login is not None:
                self.login.hold(size)

    def _make_room(self, buffer: Buffer) -> Buffer:
        """Enlarges a full buffer that starts with the current frame."""
        size = _room_for_rest(memoryview(buffer)[: self.filled], self.room)
        if self.login is not None and not self.login.may_grow(size):
            raise OSError(errno.ENOBUFS, "no memory for a request before the authentication")
        grown = buffer if _is_resized(buffer, size) else _new_buffer(size)
        if grown is not buffer:
            grown[: self.filled] = memoryview(buffer)[: self.filled]
        self._own(grown)
        return grown

    def collect_answers(self, times: RequestTimes, now_ns: int) -> bool:
        """Moves the responses that are next in order to the output queue; False when one means: close
        the connection.
        """
        in_flight = self.in_flight
        while in_flight and in_flight[0].done:
            request = in_flight.popleft()
            payload: Payload | None = request.payload
            if payload is None:
                return False
            if request.api_key != NO_API:
                times.record(request.api_key, now_ns - request.receive_ns)
            self.out.extend(payload)
            # What answered may be in a cycle (compiled functions in functions are), and so refer to the request, and
            # its files, until the collector comes.
            request.payload = ()
        return True

    def has_long_answer(self) -> bool:
        """Whether a request is answered in several pieces, as with records."""
        for request in self.in_flight:  # a generator would be made for each small request
            payload = request.payload
            if payload is not None and len(payload) > 1:
                return True
        return False

    def asks_too_much(self) -> bool:
        """Whether to handle no more of its requests until it has read its responses."""
        in_flight = len(self.in_flight)
        if in_flight % PIPELINED:
            return in_flight >= _MOST_IN_FLIGHT
        held = sum(len(piece) for piece in self._unsent() if not isinstance(piece, FileRegion))
        return held > _MOST_UNSENT or in_flight >= _MOST_IN_FLIGHT

    def unsent_regions(self) -> list[FileRegion]:
        """Unsent file regions, including those of responses that wait for an earlier one."""
        return [piece for piece in self._unsent() if isinstance(piece, FileRegion)]

    def _unsent(self) -> Iterator[Piece]:
        answered = (request.payload or () for request in self.in_flight if request.done)
        return chain(self.out, *answered)
