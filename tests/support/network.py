"""A socket server over real sockets, with a dispatch function that replaces the APIs, and clients for it."""

from __future__ import annotations

import socket
import struct
import threading
import time

from broker.config.endpoint import Endpoint
from broker.network.connection_quotas import ConnectionQuotas
from broker.network.request_channel import Request, Verdict
from broker.network.socket_server import SocketServer
from broker.network.transport import Security

METADATA = 3
MAX_FRAME = 1 << 20


def frame(correlation_id: int, body: bytes = b"", api_key: int = METADATA) -> bytes:
    payload = struct.pack(">hhih", api_key, 1, correlation_id, 1) + b"c" + body
    return struct.pack(">i", len(payload)) + payload


def answer(request: Request, body: bytes = b"") -> tuple[bytes, bytes]:
    return struct.pack(">ii", 4 + len(body), request.correlation_id), body


class Api:
    """A dispatch function that parks the requests that it is told to, and answers the others at once with the
    request's body.
    """

    def __init__(self) -> None:
        self.parked: dict[int, Request] = {}
        self.seen: list[int] = []
        self.park: set[int] = set()
        self.queue: set[int] = set()
        self.full: set[int] = set()
        self.answers = b""  # empty: the request's body
        self.cost_ms = 0.0
        self.costs_ms: dict[int, float] = {}
        self.gates: dict[int, threading.Event] = {}
        self.thread_names: set[str] = set()

    def __call__(self, request: Request) -> Verdict:
        self.thread_names.add(threading.current_thread().name)
        number = request.correlation_id
        if number in self.full:
            request.keep()
            request.again = lambda: number not in self.full and self(request) is Verdict.SERVED
            return Verdict.FULL
        self.seen.append(number)
        if number in self.gates:
            assert self.gates[number].wait(30)
        done_ns = time.thread_time_ns() + self.costs_ms.get(number, self.cost_ms) * 1_000_000
        while time.thread_time_ns() < done_ns:  # other threads of a busy machine do not count
            pass
        if number in self.park | self.queue:
            request.keep()
            self.parked[number] = request
            return Verdict.QUEUED if number in self.queue else Verdict.SERVED
        request.respond(answer(request, self.answers or bytes(request.body)))
        return Verdict.SERVED


def make_server(
    quotas: ConnectionQuotas,
    idle_ms: int = -1,
    listeners: tuple[str, ...] = ("PLAINTEXT",),
    port: int = 0,
    security: Security | None = None,
) -> SocketServer:
    """A server with these listeners, without TLS except the one named SSL, which needs ``security``."""
    return SocketServer(
        [Endpoint("127.0.0.1", port, name, "SSL" if name == "SSL" else "PLAINTEXT") for name in listeners],
        num_processors=1,
        max_frame_bytes=MAX_FRAME,
        idle_ms=idle_ms,
        send_buffer=-1,
        receive_buffer=-1,
        backlog=50,
        quotas=quotas,
        security=security,
    )


def read_answer(sock: socket.socket) -> tuple[int, bytes]:
    size, number = struct.unpack(">ii", read_exactly(sock, 8))
    return number, read_exactly(sock, size - 4)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        piece = sock.recv(size - len(data))
        if not piece:
            raise EOFError(f"closed after {len(data)} of {size} bytes")
        data += piece
    return data


def is_closed(sock: socket.socket) -> bool:
    try:
        return sock.recv(1) == b""
    except ConnectionResetError:
        return True


def spend(api: Api, clients: list[socket.socket], cost_ms: float, first: int) -> None:
    """Each client sends a request that costs this much, one after another."""
    api.cost_ms = cost_ms
    for number, sock in enumerate(clients, first):
        sock.sendall(frame(number))
        assert read_answer(sock)[0] == number
