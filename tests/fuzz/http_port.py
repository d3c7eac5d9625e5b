"""The HTTP port: a connection of a stranger, who must not see what needs a token, and the file of tokens."""

from __future__ import annotations

import contextlib
import functools
import re
import secrets
import socket
import tempfile
from collections.abc import Sequence
from typing import IO, Final

from broker.config.problems import ConfigError
from broker.config.token_file import read_tokens
from broker.metrics.registry import Metrics
from broker.server.http.http_connections import HttpConnection
from broker.server.http.http_endpoint import REQUEST_TIMEOUT_S, HttpEndpoint
from broker.server.http.http_handler import serve_connection
from broker.server.http.http_security import HttpSecurity, TokenGuard
from broker.server.http.overview import Overview
from tests.fuzz.target import Target, file_of

_SECRET: Final = "only-for-those-with-a-token"
_MOST_REQUESTS: Final = 4


@functools.cache
def _tokens() -> IO[str]:
    """A file with a token that no input has, for as long as this process runs."""
    file = tempfile.NamedTemporaryFile("w")  # noqa: SIM115 - kept
    file.write(secrets.token_urlsafe(24))
    file.flush()
    return file


@functools.cache
def _endpoint() -> HttpEndpoint:
    guard = TokenGuard(_tokens().name, health_too=False)
    return HttpEndpoint(
        "127.0.0.1",
        -1,
        Metrics(),
        status=lambda: {"secret": _SECRET},
        unready_reasons=list,
        is_alive=lambda: True,
        overview=lambda: Overview(1, _SECRET, _SECRET, _SECRET),
        security=HttpSecurity(guard=guard),
    )


def _http(data: bytes) -> None:
    ours, peer = socket.socketpair()
    with ours, peer:
        peer.sendall(data)
        peer.shutdown(socket.SHUT_WR)
        with contextlib.suppress(OSError):
            serve_connection(
                HttpConnection(ours, "127.0.0.1"),
                ("127.0.0.1", 1),
                lambda target, authorization: _endpoint().answer(target, authorization, "127.0.0.1"),
                _MOST_REQUESTS,
                REQUEST_TIMEOUT_S,
            )
        ours.shutdown(socket.SHUT_WR)
        answer = b""
        while chunk := peer.recv(1 << 16):
            answer += chunk
    assert _SECRET.encode() not in answer
    assert len(re.findall(rb"^HTTP/1\.[01] ", answer, re.MULTILINE)) <= _MOST_REQUESTS + 1
    assert len(answer) < 1 << 16


def _http_seeds() -> Sequence[bytes]:
    token = b"Authorization: Bearer 0123456789abcdef0123456789abcdef\r\n"
    return [
        b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET /status?x=y HTTP/1.1\r\n" + token + b"\r\nGET /livez HTTP/1.1\r\n\r\n",
        b"GET /status HTTP/1.1\r\nAuthorization: Basic eDp5\r\n" + token + b"Content-Length: 3\r\n\r\nabc",
        b"HEAD /readyz HTTP/1.1\r\nExpect: 100-continue\r\nConnection: keep-alive\r\n\r\n",
        b"HEAD / HTTP/1.0\r\n\r\n",
        b"GET / HTTP/1.1\r\nAuthorization: Basic Og==\r\n\r\nGET /? HTTP/1.1\r\nAuthorization: Basic :\r\n\r\n",
        b"GET //status HTTP/0.9\r\n",
        b"POST /\r\n",
    ]


def _token_file(data: bytes) -> None:
    with file_of(data, "tokens") as path:
        found = read_tokens(str(path)).values
        assert 1 <= len(found) <= 16
        guard = TokenGuard(str(path), health_too=True)
        assert all(guard.admits("/", f"Bearer {token.decode()}", "a") for token in found)
        assert not guard.admits("/", "Bearer ", "a")
        assert not guard.admits("/", None, "a")


TARGETS: Sequence[Target] = (
    Target("http", _http, (), _http_seeds, most_lines=1),
    Target(
        "token-file",
        _token_file,
        (ConfigError,),
        lambda: [b"0123456789abcdef\n", b"\n a-b.c_d~e+f/g0123== \r\n\nanother-token-of-many"],
    ),
)
