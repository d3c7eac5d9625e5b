"""Bytes and connections of this process, by the kernel's count."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from broker.utils.own_connections import ConnectionTotals, OwnConnections
from rig.wait import wait_until


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def is_counted(now: ConnectionTotals, before: ConnectionTotals) -> bool:
    """One connection and its 1500 bytes; the kernel counts the handshake as a byte."""
    return now.connections == before.connections + 1 and 1500 <= now.bytes - before.bytes <= 1502


def test_what_went_over_a_connection_that_this_process_opened_is_counted_once(
    listener: socket.socket,
) -> None:
    own = OwnConnections()
    before = own.look()
    with socket.create_connection(listener.getsockname()) as client, listener.accept()[0] as accepted:
        client.sendall(b"x" * 1000)
        assert accepted.recv(1000, socket.MSG_WAITALL) == b"x" * 1000
        accepted.sendall(b"y" * 500)
        assert client.recv(500, socket.MSG_WAITALL) == b"y" * 500
        wait_until(lambda: is_counted(own.look(), before), what="the peer's kernel acknowledges")
    assert is_counted(own.look(), before), "a closed one is remembered"
