"""A follower's conversation with its leader on a Processor's loop, used while there are no errors.

With a separate thread, each system call hands the interpreter to another thread of the process and waits to
get it back; ADR 13 has the measurements.
"""

from __future__ import annotations

import select
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from broker.network.transport import Transport
from broker.replication.broker_channel import BrokerChannel, ChannelError, grown

_FIRST_BUFFER: Final = 64 * 1024
_LENGTH_BYTES: Final = 4


class FetchGuest:
    """A :class:`broker.network.processor.Guest` for a follower's fetches. ``go_on`` handles an answer's
    frame, which is valid until it returns, and returns the bytes of the next request; with None the
    guest leaves.
    """

    def __init__(
        self,
        connection: Transport,
        channel: BrokerChannel,
        go_on: Callable[[memoryview], bytes | None],
    ) -> None:
        self._connection = connection
        # What a transport that needs room for a whole record gets behind an answer.
        self._extra = 4 * connection.room if connection.room > 1 else 0
        self._channel = channel
        self._go_on = go_on
        self._buffer = bytearray(_FIRST_BUFFER)
        self._filled = 0
        self._answers = 0
        self._error: Exception | None = None
        self._left = threading.Event()
        self._unsent = memoryview(b"")

    @property
    def waits_to_send(self) -> bool:
        return bool(self._unsent)

    def fileno(self) -> int:
        return self._connection.fileno()

    def on_ready(self) -> bool:
        try:
            if self._unsent:
                self._send_on()
            return self._receive()
        except BlockingIOError:
            return True
        except Exception as error:  # the fetcher handles it on its own thread
            self._error = self._error or error
            return False

    def on_left(self) -> None:
        self._left.set()

    def wait(self, timeout_s: float) -> None:
        """Waits until the guest has left.

        Raises the error that made it leave, or ChannelError if no answer came for ``timeout_s``.
        """
        seen = -1
        while not self._left.wait(timeout_s):
            if self._answers == seen:
                self._error = ChannelError(f"no answer from {self._channel} for {timeout_s:g} s")
                self.hang_up()
            seen = self._answers
        if self._error is not None:
            raise self._error

    def hang_up(self) -> None:
        """Makes the guest leave. May be called from any thread."""
        self._connection.hang_up()

    def send(self, request: bytes) -> None:
        """Sends the first request from the fetcher's thread. Waits until the socket has accepted all of it;
        no answer comes before. Raises ChannelError, OSError.
        """
        left = memoryview(request)
        timeout_s = self._channel.request_timeout_s
        while left:
            try:
                sent = self._connection.write(left)
                left = left[sent:]
            except BlockingIOError:
                room = select.poll()
                room.register(self._connection.fileno(), select.POLLOUT)
                if not room.poll(timeout_s * 1000):
                    raise ChannelError(
                        f"{self._channel} took nothing of a request for {timeout_s:g} s"
                    ) from None

    def _send_on(self) -> None:
        """Sends what fits the socket's buffer; a request for thousands of partitions is larger."""
        with suppress(BlockingIOError):
            sent = self._connection.write(self._unsent)
            self._unsent = self._unsent[sent:]

    def _receive(self) -> bool:
        received = self._connection.receive(memoryview(self._buffer)[self._filled :], 0)
        if received == 0:
            raise ChannelError(f"{self._channel} closed the connection")
        self._filled += received
        if self._filled < _LENGTH_BYTES:
            return True
        end = _LENGTH_BYTES + self._channel.size_of(self._buffer)
        if self._filled < end:
            if len(self._buffer) - self._filled < self._connection.room:
                self._buffer = grown(self._buffer, self._filled, end + self._extra)
            return True
        self._filled = 0
        self._answers += 1
        request = self._go_on(memoryview(self._buffer)[_LENGTH_BYTES:end])
        if request is None:
            return False
        self._unsent = memoryview(request)
        self._send_on()
        return True
