"""Reads znodes of a ZooKeeper server with nothing but Python's own library: a host that is new has no client yet.

Protocol: packets with a length before them, big-endian; a packet of the client's begins with its number and the kind of
request, an answer with the number, a zxid and an error (ZooKeeper's `zookeeper.jute`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
from types import TracebackType
from typing import Any, Self

TIMEOUT_S = 3.0
_SESSION_MS = 6000
_GET_DATA, _GET_CHILDREN, _CLOSE = 4, 8, -11
_NO_NODE = -101
_CONNECT = struct.Struct(">iqiqi16sb")
_ANSWER = struct.Struct(">iqi")
_INT = struct.Struct(">i")
_MOST_BYTES = 2**26


class TreeError(Exception):
    """A server that does not answer as ZooKeeper does, or with an error."""


class Tree:
    """A session with one server, below a chroot; without watches, and closed when the block ends."""

    def __init__(self, host: str, port: int, chroot: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """Raises OSError, or TreeError where it is no server of ZooKeeper's."""
        self._chroot = chroot.rstrip("/")
        self._numbers = itertools.count(1)
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            self._send(_CONNECT.pack(0, 0, _SESSION_MS, 0, 16, bytes(16), 0))
            _, granted_ms = struct.unpack_from(">ii", self._receive())
            if granted_ms <= 0:
                raise TreeError("no session was granted")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # it would end by itself
            self._send(struct.pack(">ii", next(self._numbers), _CLOSE))
        self._socket.close()

    def children(self, path: str) -> list[str]:
        """Returns names, none where there is no such node. Raises OSError, TreeError."""
        answer = self._ask(_GET_CHILDREN, path)
        names, at = [], _INT.size
        for _ in range(_INT.unpack_from(answer)[0] if answer else 0):
            (length,) = _INT.unpack_from(answer, at)
            names.append(answer[at + _INT.size : at + _INT.size + length].decode())
            at += _INT.size + length
        return names

    def data(self, path: str) -> bytes:
        """Returns what a node holds, nothing where there is no such node. Raises OSError, TreeError."""
        answer = self._ask(_GET_DATA, path)
        length = _INT.unpack_from(answer)[0] if answer else 0
        return answer[_INT.size : _INT.size + max(length, 0)]

    def _ask(self, kind: int, path: str) -> bytes:
        number, text = next(self._numbers), f"{self._chroot}{path}".encode()
        self._send(struct.pack(">iii", number, kind, len(text)) + text + b"\0")
        answer = self._receive()
        told, _, error = _ANSWER.unpack_from(answer)
        if error == _NO_NODE:
            return b""
        if error or told != number:
            raise TreeError(f"{path}: error {error}")
        return answer[_ANSWER.size :]

    def _send(self, packet: bytes) -> None:
        self._socket.sendall(_INT.pack(len(packet)) + packet)

    def _receive(self) -> bytes:
        (length,) = _INT.unpack(self._exactly(_INT.size))
        if not _ANSWER.size <= length <= _MOST_BYTES:
            raise TreeError("the answer is none of ZooKeeper's")
        return self._exactly(length)

    def _exactly(self, count: int) -> bytes:
        found = b""
        while len(found) < count:
            more = self._socket.recv(min(count - len(found), 65536))
            if not more:
                raise TreeError("the server hung up")
            found += more
        return found


def registered_brokers(host: str, port: int, chroot: str) -> dict[str, dict[str, Any]]:
    """Returns the `endpoints` (NAME://host:port) of each broker in ``/brokers/ids``, by id, as Kafka writes them.
    Raises OSError, TreeError, ValueError.
    """
    with Tree(host, port, chroot) as tree:
        found = {each: tree.data(f"/brokers/ids/{each}") for each in tree.children("/brokers/ids")}
    return {
        broker_id: {"endpoints": list(map(str, json.loads(data).get("endpoints") or []))}
        for broker_id, data in found.items()
        if data  # it went meanwhile
    }
