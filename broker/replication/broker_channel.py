"""The client side of a connection between brokers: one request at a time.

The controller's senders, the AlterPartition sender, controlled shutdown and the follower
fetchers use it. The user of a channel owns it. Other threads may call only
:meth:`BrokerChannel.close` and :meth:`BrokerChannel.interrupt`.
"""

from __future__ import annotations

import random
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Protocol

from broker.config.endpoint import host_port
from broker.network.transport import PlainTransport, Transport
from broker.protocol import codec, framing
from broker.protocol.errors import ProtocolError
from broker.protocol.fields import Fields
from broker.protocol.primitives import INT32
from broker.sasl.client import ClientLogin, log_in
from broker.sasl.exchange import LoginFailed

_FIRST_BYTES: Final = 16 * 1024
_KEPT_BYTES: Final = 1 << 20
# Of a session's lifetime, before it is renewed; at random, as in Kafka, so that not all brokers do at once.
_RENEWED_AFTER: Final = (0.85, 0.95)


class ChannelError(Exception):
    """The peer could not be reached, disconnected, or did not answer in time; names the peer and why."""


class RefusedError(ChannelError):
    """The peer's port refused the connection: its process has ended or has not started yet."""


class ChannelSecurity(Protocol):
    """What secures connections to other brokers."""

    def secure(self, sock: socket.socket, host: str) -> socket.socket:
        """The connected socket after the handshake. Raises OSError, and then closes it."""

    def transport(self, sock: socket.socket) -> Transport:
        """A secured socket for use without blocking."""


def grown(buffer: bytearray, filled: int, wanted: int) -> bytearray:
    """A larger buffer for an answer of ``wanted`` bytes, with the ``filled`` bytes of ``buffer``, which is
    full. It has at most four times the received size, whatever the peer announces, and some room for a larger
    next answer.
    """
    larger = bytearray(min(wanted + wanted // 4, 4 * filled))
    larger[:filled] = memoryview(buffer)[:filled]
    return larger


class BrokerChannel:
    """A connection to one broker, made on demand and remade after an error. Raises :class:`ChannelError` for
    every network error.

    The receive buffer is kept between requests and grows to the largest answer, so a raw answer is valid only
    until the next request. After a decoded answer, a buffer above a mebibyte is dropped.

    ``security`` is that of the other broker's listener. With ``login``, each connection is authenticated by SASL,
    and again before its session expires.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str,
        connect_timeout_ms: int = 10_000,
        request_timeout_ms: int = 30_000,
        receive_buffer_bytes: int = -1,
        max_response_bytes: int = 256 * 1024 * 1024,
        security: ChannelSecurity | None = None,
        login: ClientLogin | None = None,
    ) -> None:
        self._security = security
        self.host = host
        self.port = port
        self._client_id = client_id
        self._address = host_port(host, port)
        self._connect_timeout_s = connect_timeout_ms / 1000
        self.request_timeout_s = request_timeout_ms / 1000
        self._receive_buffer_bytes = receive_buffer_bytes
        self._max_response_bytes = max_response_bytes
        self._login = login
        self._login_due_s = 0.0
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()  # lock order 64
        self._closed = False
        self._lent = False
        self._correlation_id = 0
        self._buffer = bytearray(_FIRST_BYTES)

    def __repr__(self) -> str:
        return f"<BrokerChannel {self._address} {self._client_id}>"

    def request(self, api_key: int, version: int, fields: Fields) -> Any:
        """Sends a message given as a mapping and returns the decoded response. Also raises ProtocolError."""
        try:
            body = self.request_raw(api_key, version, (codec.encode(api_key, version, "request", fields),))
            with self.judging():
                return codec.decode(api_key, version, "response", body)
        finally:
            if len(self._buffer) > _KEPT_BYTES:  # no view of the buffer remains
                self._buffer = bytearray(_FIRST_BYTES)

    @contextmanager
    def judging(self) -> Iterator[None]:
        """Wraps the parsing of an answer: an invalid one ends the connection; the error names the peer."""
        try:
            yield
        except ProtocolError as error:
            self.disconnect()
            raise ProtocolError(f"broker at {self._address} answered nonsense: {error}") from error

    def request_raw(
        self, api_key: int, version: int, body: Sequence[bytes | bytearray | memoryview]
    ) -> memoryview:
        """Sends body bytes and returns the response's body, valid until the next request."""
        try:
            connection = self._connected()
            request = self.frame_request(api_key, version, body)  # after a login, which takes numbers too
            return self._converse(connection, api_key, version, request)
        except OSError as error:
            self.disconnect()
            raise self._error(error) from error
        except ChannelError:
            self.disconnect()
            raise

    def _converse(self, connection: socket.socket, api_key: int, version: int, request: bytes) -> memoryview:
        connection.sendall(request)
        frame = self._receive_frame(connection)
        with self.judging():
            return self.body_of(api_key, version, frame)

    def frame_request(
        self, api_key: int, version: int, body: Sequence[bytes | bytearray | memoryview]
    ) -> bytes:
        """The next request's bytes, framed for the wire."""
        self._correlation_id += 1
        size = sum(len(part) for part in body)
        prefix = framing.request_prefix(api_key, version, self._correlation_id, self._client_id, size)
        return b"".join((prefix, *body))

    def body_of(self, api_key: int, version: int, frame: memoryview) -> memoryview:
        """The body of the answer to the latest request. Raises ChannelError if ``frame`` answers another."""
        (correlation_id,) = INT32.unpack_from(frame)
        if correlation_id != self._correlation_id:
            raise ChannelError(
                f"broker at {self._address} answered request {correlation_id}, not {self._correlation_id}"
            )
        return frame[framing.response_body_offset(api_key, version, frame) :]

    def size_of(self, announced: bytearray) -> int:
        """The size of the answer that begins in ``announced``, without these 4 bytes. Raises ChannelError."""
        (size,) = INT32.unpack_from(announced)
        if size < 4 or size > self._max_response_bytes:
            raise ChannelError(f"broker at {self._address} announced an answer of {size} bytes")
        return int(size)

    @contextmanager
    def lent(self) -> Iterator[Transport]:
        """Lends the connection, non-blocking, to another thread within the block. Meanwhile it may be shut
        down but is never closed. An error in the block ends the connection. Raises ChannelError.
        """
        try:
            connection = self._connected()
            with self._lock:
                self._lent = True
            try:
                connection.setblocking(False)
                security = self._security
                yield PlainTransport(connection) if security is None else security.transport(connection)
                connection.settimeout(self.request_timeout_s)
            finally:
                with self._lock:
                    self._lent = False
        except OSError as error:
            self.disconnect()
            raise self._error(error) from error
        except BaseException:  # after any error, an answer may still be on its way
            self.disconnect()
            raise
        if self._closed:
            self.disconnect()

    def connect(self) -> None:
        """Connects if there is no connection, so that the next request is sent at once."""
        try:
            self._connected()
        except OSError as error:
            self.disconnect()
            raise self._error(error) from error
        except ChannelError:
            self.disconnect()
            raise

    @property
    def is_login_due(self) -> bool:
        """Whether the session is to be renewed, before the next request. Only its own thread does so."""
        return self._login_due_s > 0 and time.monotonic() >= self._login_due_s

    def _error(self, error: OSError) -> ChannelError:
        kind = RefusedError if isinstance(error, ConnectionRefusedError) else ChannelError
        return kind(f"broker at {self._address}: {error}")

    def close(self) -> None:
        """Ends the connection and interrupts a request in flight; later requests fail."""
        self._closed = True
        with self._lock:
            lent = self._lent
        if lent:
            self.interrupt()
        else:
            self.disconnect()

    def interrupt(self) -> None:
        """Makes a request in flight fail; the next one reconnects.

        The socket is only shut down; the thread that uses it closes it. If it were closed here, its
        descriptor might belong to another connection by the time that thread waits for it.
        """
        with self._lock:
            if self._socket is not None:
                _hang_up(self._socket)

    def _connected(self) -> socket.socket:
        if self._socket is not None:
            if self._login_due_s and self.is_login_due:
                self._log_in(self._socket)
            return self._socket
        if self._closed:
            raise ChannelError(f"channel to {self._address} is closed")
        connection = socket.create_connection((self.host, self.port), self._connect_timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._receive_buffer_bytes > 0:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        if self._security is not None:
            connection = self._security.secure(connection, self.host)
        connection.settimeout(self.request_timeout_s)
        with self._lock:
            self._socket = connection
        if self._closed:  # closed while it was connecting
            raise ChannelError(f"channel to {self._address} is closed")
        if self._login is not None:
            self._log_in(connection)
        return connection

    def _log_in(self, connection: socket.socket) -> None:
        def ask(api_key: int, version: int, fields: Fields) -> Any:
            body = codec.encode(api_key, version, "request", fields)
            request = self.frame_request(api_key, version, (body,))
            return codec.decode(
                api_key, version, "response", self._converse(connection, api_key, version, request)
            )

        assert self._login is not None
        try:
            lifetime_ms = log_in(self._login, ask, self.host)
        except (LoginFailed, ProtocolError) as error:
            raise ChannelError(f"broker at {self._address} refused the login: {error}") from error
        share = random.uniform(*_RENEWED_AFTER)
        self._login_due_s = time.monotonic() + lifetime_ms / 1000 * share if lifetime_ms else 0.0

    def disconnect(self) -> None:
        """Ends the connection; the next request reconnects. Only for the requesting thread,
        between requests.
        """
        with self._lock:
            connection, self._socket = self._socket, None
            self._login_due_s = 0.0
        if connection is not None:
            _hang_up(connection)  # wakes a thread that waits in recv
            connection.close()

    def _receive_frame(self, connection: socket.socket) -> memoryview:
        self._receive_exactly(connection, memoryview(self._buffer)[:4])
        size = self.size_of(self._buffer)
        received = 0
        while True:
            end = min(size, len(self._buffer))
            self._receive_exactly(connection, memoryview(self._buffer)[received:end])
            if end == size:
                return memoryview(self._buffer)[:size]
            received = end
            self._buffer = grown(self._buffer, received, size)

    def _receive_exactly(self, connection: socket.socket, target: memoryview) -> None:
        while target:
            received = connection.recv_into(target)
            if received == 0:
                raise ChannelError(f"broker at {self._address} closed the connection")
            target = target[received:]


def _hang_up(connection: socket.socket) -> None:
    # Not SSLSocket's own shutdown: after that it would read and write without encryption.
    with suppress(OSError):  # the peer closed first
        socket.socket.shutdown(connection, socket.SHUT_RDWR)
