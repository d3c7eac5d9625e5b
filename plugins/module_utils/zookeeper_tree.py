# Copyright: The Landline authors
# SPDX-License-Identifier: Apache-2.0
"""Reads znodes of a ZooKeeper server with Python's standard library only: a new host has no client
library yet.

Protocol, big-endian: every packet is preceded by its length. A request begins with its number and its type; a
response with the number, a zxid and an error (ZooKeeper's `zookeeper.jute`).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import socket
import struct
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

# The first look at a host is to say that its Python is too old, and so has to run on it.
if TYPE_CHECKING:
    from typing import Self

TIMEOUT_S = 3.0
_SESSION_MS = 6000
_GET_DATA, _GET_CHILDREN, _CLOSE = 4, 8, -11
_NO_NODE = -101
_SPEAKS_BY = "landline_inter_broker_listener"  # only in registrations of Landline brokers
_CONNECT = struct.Struct(">iqiqi16sb")
_ANSWER = struct.Struct(">iqi")
_INT = struct.Struct(">i")
_MOST_BYTES = 2**26
_MOST_S = 30.0  # of a session, even if a response arrives in small pieces


class TreeError(Exception):
    """The server does not speak ZooKeeper's protocol, or returned an error."""


class Tree:
    """A session with one server, below a chroot; without watches, and closed when the block ends."""

    def __init__(self, host: str, port: int, chroot: str = "", timeout_s: float = TIMEOUT_S) -> None:
        """Raises OSError, or TreeError if it is not a ZooKeeper server."""
        self._chroot = chroot.rstrip("/")
        self._numbers = itertools.count(1)
        self._until = time.monotonic() + _MOST_S
        self._socket = socket.create_connection((host, port), timeout=timeout_s)
        try:
            self._send(_CONNECT.pack(0, 0, _SESSION_MS, 0, 16, bytes(16), 0))
            if _int_at(self._receive(), _INT.size) <= 0:
                raise TreeError("no session was granted")
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # the session would expire by itself
            self._send(struct.pack(">ii", next(self._numbers), _CLOSE))
        self._socket.close()

    def children(self, path: str) -> list[str]:
        """Returns the names of the children; empty if there is no such node. Raises OSError, TreeError."""
        answer = self._ask(_GET_CHILDREN, path)
        names, at = [], _INT.size
        for _unused in range(_int_at(answer, 0) if answer else 0):
            name = _text_at(answer, at)
            names.append(name.decode())
            at += _INT.size + len(name)
        return names

    def data(self, path: str) -> bytes:
        """Returns a node's data; empty if there is no such node. Raises OSError, TreeError."""
        answer = self._ask(_GET_DATA, path)
        return _text_at(answer, 0) if answer else b""

    def _ask(self, kind: int, path: str) -> bytes:
        number, text = next(self._numbers), f"{self._chroot}{path}".encode()
        self._send(struct.pack(">iii", number, kind, len(text)) + text + b"\0")
        answer = self._receive()
        told, _unused, error = _ANSWER.unpack_from(answer)
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
        found = bytearray()
        while len(found) < count:
            if time.monotonic() > self._until:
                raise TreeError("the answers take too long")
            more = self._socket.recv(min(count - len(found), 65536))
            if not more:
                raise TreeError("the server hung up")
            found += more
        return bytes(found)


def _int_at(answer: bytes, at: int) -> int:
    try:
        return int(_INT.unpack_from(answer, at)[0])
    except struct.error:
        raise TreeError("the answer is too short") from None


def _text_at(answer: bytes, at: int) -> bytes:
    """Bytes that are preceded by their length; -1 means none."""
    length, begin = _int_at(answer, at), at + _INT.size
    if not -1 <= length <= len(answer) - begin:
        raise TreeError("the answer is too short")
    return answer[begin : begin + max(length, 0)]


def registered_brokers(host: str, port: int, chroot: str) -> dict[str, dict[str, Any]]:
    """Returns each broker in ``/brokers/ids`` by id, with its `endpoints` and the listener that
    it `speaks_by`.

    `endpoints` are NAME://host:port, as Kafka writes them; `speaks_by` is empty if the broker does not
    register it. Raises OSError, TreeError, ValueError.
    """
    with Tree(host, port, chroot) as tree:
        found = {each: tree.data(f"/brokers/ids/{each}") for each in tree.children("/brokers/ids")}
    return {
        str(int(broker_id)): _told_by(data)
        for broker_id, data in found.items()
        if data  # the node was deleted meanwhile
    }


def controller_id(host: str, port: int, chroot: str) -> int | None:
    """Returns the broker in ``/controller``; None if there is none. Raises OSError, TreeError, ValueError."""
    with Tree(host, port, chroot) as tree:
        data = tree.data("/controller")
    return int(json.loads(data)["brokerid"]) if data else None


def _told_by(registration: bytes) -> dict[str, Any]:
    try:
        told = json.loads(registration)
    except RecursionError:
        told = None
    endpoints = told.get("endpoints") or [] if isinstance(told, dict) else None
    if not isinstance(told, dict) or not isinstance(endpoints, list):
        raise TreeError("a broker's registration is none of Kafka's")
    return {"endpoints": list(map(str, endpoints)), "speaks_by": str(told.get(_SPEAKS_BY) or "")}
