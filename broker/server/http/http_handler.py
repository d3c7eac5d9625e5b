"""Serves one HTTP connection with the standard library's parser: only GET and HEAD, without request bodies.

Separate from `http_endpoint` because importing the parser costs 30 ms and 10 MB, which only the first
request pays.
"""

from __future__ import annotations

import io
import socket
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any, Final

from broker.server.http.http_connections import HttpConnection

_MAX_HEAD_BYTES: Final = 16 * 1024
UNAUTHORIZED: Final = 401
HTML: Final = "text/html; charset=utf-8"
Answer = tuple[int, str, bytes]
#: By a request's target and its Authorization header.
AnswerTo = Callable[[str, str | None], Answer]


def serve_connection(
    connection: HttpConnection,
    address: Any,
    answer: AnswerTo,
    max_requests: int,
    request_timeout_s: float,
) -> None:
    """Responds until the client closes, sends an invalid request, or has sent ``max_requests``, or until a
    request's head or a response takes longer than ``request_timeout_s``. Raises OSError.
    """
    _Handler(connection, address, answer, max_requests, request_timeout_s)


class _HeadReader(io.RawIOBase):
    """Reads a socket within the time and size limits of one request's head."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._deadline = 0.0
        self._bytes_left = 0

    def begin(self, timeout_s: float) -> None:
        """Resets the limits for the next request's head."""
        self._deadline = time.monotonic() + timeout_s
        self._bytes_left = _MAX_HEAD_BYTES

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        left_s = self._deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the request's head took too long")
        if self._bytes_left <= 0:
            raise OSError(f"the request's head is longer than {_MAX_HEAD_BYTES} bytes")
        self._socket.settimeout(left_s)
        received = self._socket.recv_into(target)
        self._bytes_left -= received
        return received


class _Handler(BaseHTTPRequestHandler):
    """The request handler. The library limits the headers to 100."""

    protocol_version = "HTTP/1.1"
    server_version = "landline"
    sys_version = ""

    def __init__(
        self,
        served: HttpConnection,
        address: Any,
        answer: AnswerTo,
        requests_left: int,
        timeout_s: float,
    ) -> None:
        self._served = served
        self._answer_to = answer
        self._requests_left = requests_left
        self._timeout_s = timeout_s
        super().__init__(served.socket, address, None)  # type: ignore[arg-type] # it has no use for a server

    def setup(self) -> None:
        super().setup()
        self._head = _HeadReader(self.connection)
        self.rfile = io.BufferedReader(self._head)

    def handle_one_request(self) -> None:
        self._head.begin(self._timeout_s)
        super().handle_one_request()
        self._served.busy = False
        self._served.sending_since_s = None

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self._requests_left -= 1
        self._served.busy = True
        self.connection.settimeout(self._timeout_s)
        has_body = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        status, content_type, body = self._answer_to(self.path, self.headers.get("Authorization"))
        self.send_response(status)
        if status == UNAUTHORIZED:
            self.send_header("WWW-Authenticate", 'Bearer realm="landline"')
            self.send_header("WWW-Authenticate", 'Basic realm="landline"')  # so that a browser asks for it
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        if content_type == HTML:
            from broker.server.http.page_style import POLICY

            self.send_header("Content-Security-Policy", POLICY)
            self.send_header("Referrer-Policy", "no-referrer")
        if has_body or self._requests_left <= 0:
            # A body is never read, so nothing after it can be read either.
            self.send_header("Connection", "close")
        self._served.sending_since_s = time.monotonic()
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Logs nothing: a scrape is no event."""
