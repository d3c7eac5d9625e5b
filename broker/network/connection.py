"""One client's connection: bytes in to frames, answers in order to bytes out. No threads, no epoll.

Receiving follows what arrived, never what a peer announces: the buffer at most doubles, up to the frame at hand.
Small requests are read through the Processor's shared buffer; a connection gets a buffer of its own while a frame is
incomplete, and keeps it as long as it has such frames, so that large requests are received in place.
"""

from __future__ import annotations

import mmap
import os
import socket
import time
from collections import deque
from collections.abc import Callable, Iterator
from itertools import chain

from broker.network.crowd import UNKNOWN_NS
from broker.network.request_channel import ConnectionInfo, Payload, Request
from broker.network.request_memory import RequestMemory
from broker.network.request_times import RequestTimes
from broker.protocol.errors import ProtocolError
from broker.protocol.primitives import INT32
from broker.utils.file_region import FileRegion

Buffer = bytearray | mmap.mmap
_FIRST_BUFFER = 4 * 1024
# A smaller one is given back with each whole frame: the shared buffer takes more requests at once.
_WORTH_KEEPING = 64 * 1024
# A larger one goes with its request: a client's largest must not cost as much as long as it stays. Twice a producer's
# usual largest request.
_MOST_KEPT = 2 * 1024 * 1024
# What is read at once for who has no buffer yet while memory is short: all that is left of it must be kept.
_SHORT_READ = 16 * 1024
# A buffer from here on is a mapping of its own, which grows without a copy of what it holds: 8 MiB take 10 ms where
# their pages are new.
_MAPPED = 1024 * 1024
# And is filled with so much at once, for the same reason: the rest comes with the next turn.
_MOST_RECEIVED = 1024 * 1024
_MAX_IOV = 64
# A reader that is as fast as sendfile could have all of fetch.max.bytes in one turn, while the others wait.
_MOST_AT_ONCE = 2 * 1024 * 1024
# Few clients send as many requests before the first is answered. Who does may ask for large answers with small ones:
# how large, is looked at once in so many.
PIPELINED = 8
_MOST_IN_FLIGHT = 128
_MOST_UNSENT = 1024 * 1024


def _new_buffer(size: int) -> Buffer:
    if size < _MAPPED:
        return bytearray(size)
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)


def _is_resized(buffer: Buffer, size: int) -> bool:
    """Whether it now has ``size`` bytes: a mapping's pages are moved and not copied."""
    if isinstance(buffer, bytearray):
        return False
    try:
        buffer.resize(size)
    except BufferError:  # somebody still looks at a request in it
        return False
    return True


def _room_for_rest(begun: memoryview) -> int:
    """Bytes of a buffer for a frame of which ``begun`` has come: twice that, though not past the frame's end. Large
    frames are so received one at a time, whole, and none is moved to the front for having come with another.
    """
    if len(begun) < 4:
        return _FIRST_BUFFER
    size: int = INT32.unpack_from(begun)[0]
    return max(_FIRST_BUFFER, len(begun), min(2 * len(begun), size + 4))


def _nobody_listens(request: Request) -> None:
    raise AssertionError(
        f"request {request.correlation_id} was answered before its connection had a Processor"
    )


class Connection:
    """A client's connection: what has come of requests, those under way, and what is yet to be sent. Kafka's
    KafkaChannel.

    Requests are answered in the order in which they came: an answer goes out when all before it are done. Its
    Processor's thread owns it; other threads only mark a request of it as answered.
    """

    __slots__ = (
        "asked_ns",
        "begun_ms",
        "buffer",
        "closing",
        "cost_ns",
        "dirty",
        "events",
        "fd",
        "filled",
        "held",
        "in_flight",
        "info",
        "is_half_closed",
        "last_active_ms",
        "max_frame_bytes",
        "memory",
        "muted",
        "next_look_ms",
        "on_answer",
        "out",
        "pinned_since_ms",
        "put_off",
        "socket",
        "start",
        "starved",
    )

    def __init__(
        self,
        sock: socket.socket,
        info: ConnectionInfo,
        max_frame_bytes: int,
        now_ms: int,
        memory: RequestMemory | None = None,
    ) -> None:
        self.socket = sock
        self.fd = sock.fileno()
        self.info = info
        self.max_frame_bytes = max_frame_bytes

        #: What has come: bytes ``start`` to ``filled`` of the buffer are not handled yet. None when nothing has.
        self.buffer: Buffer | None = None
        self.start = 0
        self.filled = 0
        #: When the frame that has come in part began; 0 when there is none.
        self.begun_ms = 0

        #: Requests that are not answered yet, or whose answers wait for one before them, in their order.
        self.in_flight: deque[Request] = deque()
        #: Answers, or what is left of them, in the order in which they go out.
        self.out: deque[bytes | memoryview | FileRegion] = deque()
        #: Tells the Processor of each answer.
        self.on_answer: Callable[[Request], None] = _nobody_listens

        #: All connections' together, and how many bytes of it this one's own buffer is counted with.
        self.memory = memory or RequestMemory()
        self.held = 0
        #: Nothing is read until there is memory.
        self.starved = False

        #: What epoll was told to look for.
        self.events = 0
        #: Its Processor has it among those that were answered, to send for.
        self.dirty = False
        #: Nothing is read, and no frame taken, until all requests are answered and the answers sent.
        self.muted = False
        #: Muted because its share of the turn is used up; it goes on in the next.
        self.put_off = False
        #: The peer says that nothing comes behind what it has sent.
        self.is_half_closed = False
        #: It ends when what is to be sent is out.
        self.closing = False

        #: What its visits cost, by `shares`; 0 where nobody looks.
        self.cost_ns = 0
        #: What its visits take on average, by `crowd`.
        self.asked_ns = UNKNOWN_NS
        #: For connections.max.idle.ms.
        self.last_active_ms = now_ms
        #: Since when it is known to hold a deleted file, and when to look for such files again; 0 when it holds none.
        self.pinned_since_ms = 0
        self.next_look_ms = 0

    def __repr__(self) -> str:
        state = "closing" if self.closing else "muted" if self.muted else "open"
        return f"<Connection {self.info.connection_id} {state}, {len(self.in_flight)} in flight>"

    def receive(self, shared: bytearray) -> bool:
        """Receives once; False when the peer has closed. Raises BlockingIOError when nothing is there."""
        buffer = self.buffer
        if buffer is None:
            count = self.socket.recv_into(shared, _SHORT_READ if self.memory.over else 0)
            if count:
                self.buffer, self.start, self.filled = shared, 0, count
            return count > 0
        if self.filled == len(buffer):
            buffer = self._make_room(buffer)
        count = self.socket.recv_into(memoryview(buffer)[self.filled : self.filled + _MOST_RECEIVED])
        self.filled += count
        return count > 0

    def has_ended(self) -> bool:
        """Whether the peer, which said that it sends nothing more, has sent nothing that is yet to be read."""
        if self.filled > self.start:
            return False
        try:
            return not self.socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True

    def wants_room(self) -> bool:
        """Whether to receive more takes a larger buffer."""
        return self.buffer is not None and self.filled == len(self.buffer)

    def frames(self) -> Iterator[memoryview]:
        """The complete frames received, without their lengths. Raises :class:`ProtocolError` for a bad length."""
        while not self.muted and self.buffer is not None and self.filled - self.start >= 4:
            (size,) = INT32.unpack_from(self.buffer, self.start)
            if size < 0 or size > self.max_frame_bytes:
                raise ProtocolError(
                    f"request of {size} bytes announced; socket.request.max.bytes is {self.max_frame_bytes}"
                )
            begin, end = self.start + 4, self.start + 4 + size
            if end > self.filled:
                return
            self.start = end
            yield memoryview(self.buffer)[begin:end]

    def settle(self, shared: bytearray) -> None:
        """Moves what is left of a receive out of the shared buffer, or to the front of the own one."""
        buffer = self.buffer
        if buffer is None:
            return
        left = self.filled - self.start
        if self.start or not self.begun_ms:
            self.begun_ms = self.last_active_ms if left else 0
        if buffer is shared:
            self.buffer = None
            if left:
                own = bytearray(_room_for_rest(memoryview(shared)[self.start : self.filled]))
                self._own(own)
                own[:left] = memoryview(shared)[self.start : self.filled]
        elif not left and (not _WORTH_KEEPING <= len(buffer) <= _MOST_KEPT or self.memory.over):
            self._own(None)
        elif left and self.start:
            whole = memoryview(buffer)
            whole[:left] = whole[self.start : self.filled]
        self.start, self.filled = 0, left

    def release_idle_buffer(self) -> None:
        """Gives the own buffer back when it holds nothing."""
        if self.filled == self.start:
            self.drop_buffer()

    def leave(self) -> None:
        """Its socket is closed, nothing is kept for it, and who waits on its behalf does so no more."""
        self.socket.close()
        self.muted = self.info.gone = True
        self.out.clear()
        self.drop_buffer()
        for request in self.in_flight:
            abandon = request.on_abandon  # another thread may be answering it
            if abandon is not None:
                abandon()
                request.on_abandon = None
        self.in_flight.clear()
        # What holds each other is freed at once, and not when the collector looks for it.
        self.info.waiting = None
        self.on_answer = _nobody_listens

    def drop_buffer(self) -> None:
        """Gives the own buffer back, whatever it holds."""
        self._own(None)
        self.start, self.filled, self.begun_ms = 0, 0, 0

    def _own(self, buffer: Buffer | None) -> None:
        self.buffer = buffer
        size = 0 if buffer is None else len(buffer)
        if size != self.held:
            self.memory.change(size - self.held)
            self.held = size

    def _make_room(self, buffer: Buffer) -> Buffer:
        """It is full and starts with the frame at hand."""
        size = _room_for_rest(memoryview(buffer))
        grown = buffer if _is_resized(buffer, size) else _new_buffer(size)
        if grown is not buffer:
            grown[: self.filled] = buffer
        self._own(grown)
        return grown

    def collect_answers(self, times: RequestTimes) -> bool:
        """Moves the answers that are next in order to the outgoing bytes; False when one says to close."""
        in_flight = self.in_flight
        now_ns = time.monotonic_ns()
        while in_flight and in_flight[0].done:
            request = in_flight.popleft()
            payload: Payload | None = request.payload
            if payload is None:
                return False
            times.record(request.api_key, now_ns - request.receive_ns)
            self.out.extend(payload)
        return True

    def asks_too_much(self) -> bool:
        """Whether no more of its requests are to be served until it has read their answers."""
        in_flight = len(self.in_flight)
        if in_flight % PIPELINED:
            return in_flight >= _MOST_IN_FLIGHT
        held = sum(len(piece) for piece in self._unsent() if not isinstance(piece, FileRegion))
        return held > _MOST_UNSENT or in_flight >= _MOST_IN_FLIGHT

    def unsent_regions(self) -> list[FileRegion]:
        """What of files is still to be sent, also behind a request that is not answered yet."""
        return [piece for piece in self._unsent() if isinstance(piece, FileRegion)]

    def _unsent(self) -> Iterator[bytes | memoryview | FileRegion]:
        answered = (request.payload or () for request in self.in_flight if request.done)
        return chain(self.out, *answered)

    def send(self) -> int:
        """Sends what the socket takes, up to a turn's share; returns the bytes sent. ``out`` is empty when all went."""
        total = 0
        out = self.out
        while out and total < _MOST_AT_ONCE:
            head = out[0]
            if isinstance(head, FileRegion):
                sent, complete = self._send_region(head, _MOST_AT_ONCE - total)
            else:
                sent, complete = self._send_bytes()
            total += sent
            if not complete:
                break
        return total

    def _send_region(self, region: FileRegion, most: int) -> tuple[int, bool]:
        try:
            sent = os.sendfile(self.fd, region.file.fileno(), region.position, min(region.size, most))
        except BlockingIOError:
            return 0, False
        if sent == 0:
            raise OSError(f"segment file ended {region.size} bytes early; was it truncated from outside?")
        if sent == region.size:
            self.out.popleft()
            return sent, True
        self.out[0] = FileRegion(region.file, region.position + sent, region.size - sent)
        return sent, True  # not the socket's end yet: the next call says

    def _send_bytes(self) -> tuple[int, bool]:
        out = self.out
        batch: list[bytes | memoryview] = []
        more = 0
        for piece in out:
            if isinstance(piece, FileRegion) or len(batch) == _MAX_IOV:
                more = socket.MSG_MORE
                break
            batch.append(piece)
        try:
            sent = self.socket.sendmsg(batch, (), more)
        except BlockingIOError:
            return 0, False
        left = sent
        for piece in batch:
            if left < len(piece):
                out[0] = memoryview(piece)[left:]
                return sent, False
            left -= len(piece)
            out.popleft()
        return sent, True
