"""What a connection had is freed when it leaves, not when the collector looks for what holds each other.

Once a broker runs that is done at calm moments only, and what came in a request may be megabytes.
"""

from __future__ import annotations

import gc
import socket
import weakref
from collections.abc import Iterator
from functools import partial

import pytest

from broker.network.connection import Connection
from broker.network.request_channel import ConnectionInfo, Request
from broker.network.transport import PlainTransport
from broker.replication.delayed_fetch import DelayedFetch, FetchParams


class Witness:
    """Freed with what holds it. Nothing can be told of the end of an object of a compiled class itself."""


@pytest.fixture(autouse=True)
def without_the_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def witness() -> list[Witness]:
    """In a list, so that a test can let go of it."""
    return [Witness()]


@pytest.fixture
def connection(witness: list[Witness]) -> Iterator[list[Connection]]:
    """In a list too. It holds the witness, and itself."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        made = Connection(
            PlainTransport(ours), ConnectionInfo("1", "127.0.0.1", "PLAINTEXT", "PLAINTEXT"), 1 << 20, 0
        )
        made.on_answer = partial(lambda _connection, _witness, _request: None, made, witness[0])
        held = [made]
        del made
        yield held


def test_a_connection_is_freed_when_it_leaves(connection: list[Connection], witness: list[Witness]) -> None:
    seen = weakref.ref(witness.pop())
    assert seen() is not None
    connection.pop().leave()
    assert seen() is None


def test_a_fetch_that_waits_is_freed_with_its_connection(
    connection: list[Connection], witness: list[Witness]
) -> None:
    info = connection[0].info
    request = Request(1, 11, 7, None, memoryview(b""), info, 0, connection[0].on_answer)
    answered: list[Request] = []
    params = FetchParams(-1, -1, 500, 1, 1 << 20)
    mine = Witness()
    waiting = DelayedFetch(
        params,
        [],
        lambda _partition: None,
        partial(lambda _witness, request, _: answered.append(request), mine, request),
    )
    request.on_abandon = waiting.abandon
    info.waiting = waiting
    connection[0].in_flight.append(request)
    seen = weakref.ref(mine)
    del request, waiting, info, mine
    assert seen() is not None
    connection.pop().leave()
    assert seen() is None
    assert answered == []
