"""A server that speaks as much of ZooKeeper's protocol as kazoo's client needs, and answers as a test wants."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Callable

SESSION_MS = 4000
PING, EXISTS, GET_DATA, SET_DATA, MULTI, CREATE2, MULTI_READ = 11, 3, 4, 5, 14, 15, 22
STAT = struct.pack(">qqqqiiiqiiq", *range(11))
DATA = struct.pack(">i", 1) + b"x" + STAT
MOST_BYTES = 0xFFFFF  # jute.maxbuffer


class ScriptedZooKeeper:
    """Every node exists, with the data ``x``. ``answer_to`` gets each request's xid and type; unless it sees to the
    answer and returns true, the server answers. As ZooKeeper does, it closes the connection that brings a request of
    more than ``MOST_BYTES``.
    """

    def __init__(self, answer_to: Callable[[Connection, int, int], bool]) -> None:
        self._answer_to = answer_to
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[int] = []
        self.connections = 0
        threading.Thread(target=self._run, daemon=True).start()

    def stop(self) -> None:
        self._listener.close()

    def _run(self) -> None:
        while True:
            try:
                peer, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            with contextlib.suppress(OSError, EOFError), peer:
                self._serve(Connection(peer))

    def _serve(self, connection: Connection) -> None:
        connection.receive()
        connection.send(struct.pack(">iiq", 0, SESSION_MS, 1) + struct.pack(">i", 16) + bytes(16) + b"\0")
        while True:
            xid, kind = struct.unpack_from(">ii", connection.receive())
            if kind != PING:
                self.requests.append(kind)
            if not self._answer_to(connection, xid, kind):
                body = {
                    EXISTS: STAT,
                    SET_DATA: STAT,
                    GET_DATA: DATA,
                    CREATE2: struct.pack(">i", 2) + b"/a" + STAT,
                }
                connection.answer(xid, body.get(kind, b""))


class Connection:
    """One client's connection."""

    def __init__(self, peer: socket.socket) -> None:
        self._peer = peer

    def receive(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        if size > MOST_BYTES:
            raise EOFError
        return self._exactly(size)

    def send(self, payload: bytes) -> None:
        self._peer.sendall(struct.pack(">i", len(payload)) + payload)

    def answer(self, xid: int, body: bytes = b"", error: int = 0) -> None:
        self.send(struct.pack(">iqi", xid, 0, error) + body)

    def close(self) -> None:
        raise EOFError

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (chunk := self._peer.recv(size - len(data))):
                raise EOFError
            data += chunk
        return data
