"""Ends a dead process's ZooKeeper session from outside, as ZooKeeper itself would after the session timeout.

A session belongs to whoever knows its id and password, on whatever connection. This module takes the session
over and closes it. So all its ephemeral nodes are deleted in one transaction, and no other nodes. The two
requests are kazoo's. kazoo's client is not used, because it takes long to load and keeps its session alive.
The caller must have verified that the session's process is dead.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import ExitStack
from enum import Enum
from typing import Final, NamedTuple

from broker.zookeeper.connect_string import Secure, server_addresses

_LENGTH: Final = struct.Struct(">i")
_REQUEST_HEADER: Final = struct.Struct(">ii")  # xid, type
_XID: Final = 1
_TIMEOUT_MS: Final = 4000
_MAX_FRAME_BYTES: Final = 1 << 16
# A server that is frozen or cut off from the others costs this long. Each round over all servers
# waits longer.
_FIRST_PATIENCE_S: Final = 0.5
_PAUSE_S: Final = 0.05


class Session(NamedTuple):
    """A session of the ensemble ``servers`` (as in ``zookeeper.connect``), and the password that proves
    its ownership.
    """

    servers: str
    session_id: int
    password: bytes

    def __str__(self) -> str:
        return f"0x{self.session_id & (1 << 64) - 1:x}"


class SessionEnd(Enum):
    """The outcome. ENDED: it was alive and is now closed. GONE: it had ended before or never existed.
    UNREACHABLE: no server answered.
    """

    ENDED = "ended"
    GONE = "gone"
    UNREACHABLE = "unreachable"


def end_session(session: Session, timeout_s: float, secure: Secure | None = None) -> SessionEnd:
    """Tries the servers in turn until one answers or the time is over. Resolving a host name may
    take longer. ``secure`` is for servers that speak TLS.
    """
    try:
        addresses = server_addresses(session.servers)
    except ValueError:
        return SessionEnd.UNREACHABLE
    if not addresses:
        return SessionEnd.UNREACHABLE
    deadline = time.monotonic() + timeout_s
    patience_s = _FIRST_PATIENCE_S
    # This way several commands do not all start with the same server.
    shift = os.getpid() % len(addresses)
    asked_before = False
    while True:
        for address in addresses[shift:] + addresses[:shift]:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return SessionEnd.UNREACHABLE
            try:
                outcome = _ask(address, session, min(patience_s, left_s), secure)
            except _AskedError:
                asked_before = True
            except (OSError, ValueError, struct.error):
                continue
            else:
                # The answer to our first request may have been lost with its connection.
                return SessionEnd.ENDED if asked_before else outcome
        patience_s *= 2
        time.sleep(min(_PAUSE_S, max(deadline - time.monotonic(), 0)))


class _AskedError(Exception):
    """The server received the request to close the session but did not answer it."""


def _ask(address: tuple[str, int], session: Session, patience_s: float, secure: Secure | None) -> SessionEnd:
    """One server's answer. Raises OSError, ValueError or struct.error for a server that is down or
    answers nonsense.
    """
    # A standalone broker, or a deregistration with nothing to do, need not import kazoo.
    from kazoo.protocol.serialization import Close, Connect, ReplyHeader

    with ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection(address, timeout=patience_s))
        if secure is not None:
            connection = stack.enter_context(secure(connection, address[0]))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = Connect(0, 0, _TIMEOUT_MS, session.session_id, session.password, read_only=False)
        _send(connection, request.serialize())
        granted, _ = Connect.deserialize(_receive(connection), 0)
        if granted.time_out <= 0:  # there is no such session
            return SessionEnd.GONE
        if granted.session_id != session.session_id:
            raise ValueError(f"asked for session {session}, got 0x{granted.session_id:x}")
        _send(connection, _REQUEST_HEADER.pack(_XID, Close.type) + Close.serialize())
        try:
            reply, _ = ReplyHeader.deserialize(_receive(connection), 0)
        except (OSError, ValueError, struct.error) as error:
            raise _AskedError from error
        if reply.xid != _XID or reply.err != 0:
            raise ValueError(f"closing session {session} was answered by error {reply.err} (xid {reply.xid})")
        return SessionEnd.ENDED


def _send(connection: socket.socket, payload: bytes | bytearray) -> None:
    connection.sendall(_LENGTH.pack(len(payload)) + payload)


def _receive(connection: socket.socket) -> bytes:
    (size,) = _LENGTH.unpack(_exactly(connection, _LENGTH.size))
    if not 0 < size <= _MAX_FRAME_BYTES:
        raise ValueError(f"a frame of {size} bytes")
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise ConnectionError("closed by ZooKeeper")
        data += chunk
    return bytes(data)
