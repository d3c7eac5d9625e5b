"""One HTTP connection, by the standard library's parser: GET and HEAD, nothing else, and no request body.

Apart from `http_endpoint` because importing the parser costs 30 ms and 10 MB, which only the first request
pays.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler
from typing import Any

Answer = tuple[int, str, bytes]


def serve_connection(
    connection: socket.socket, address: Any, answer: Callable[[str], Answer], max_requests: int
) -> None:
    """Answers until the client closes, errs, stalls or has asked ``max_requests`` times."""

    class Handler(_Handler):
        requests_left = max_requests

        def answer_path(self) -> Answer:
            return answer(self.path)

    Handler(connection, address, None)  # type: ignore[arg-type] # it has no use for a server


class _Handler(BaseHTTPRequestHandler):
    """The library bounds the request line and header lines to 64 KiB and the headers to 100."""

    protocol_version = "HTTP/1.1"
    server_version = "landline"
    sys_version = ""
    requests_left = 0

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        self.requests_left -= 1
        has_body = "Content-Length" in self.headers or "Transfer-Encoding" in self.headers
        status, content_type, body = self.answer_path()
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        if has_body or self.requests_left <= 0:
            # A body is never read, so what follows it cannot be either.
            self.send_header("Connection", "close")
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def answer_path(self) -> Answer:
        raise KeyError(self.path)  # a connection's own class answers

    def log_message(self, *_: Any) -> None:
        """A scrape is no event."""
