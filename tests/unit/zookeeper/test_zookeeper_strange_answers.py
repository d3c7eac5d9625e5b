"""Answers that kazoo does not expect: out of turn, as of a ZooKeeper before 3.6, or no answers at all."""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable

import pytest

from broker.zookeeper.client import READ_TOGETHER, ZooKeeperStore
from broker.zookeeper.store import StoreError
from rig.wait import wait_until
from tests.support.scripted_zookeeper import (
    CREATE2,
    DATA,
    GET_DATA,
    MULTI_READ,
    SESSION_MS,
    Connection,
    ScriptedZooKeeper,
)

UNIMPLEMENTED = -6


@pytest.fixture
def connected():
    """Starts a server and a store of it."""
    running: list[Callable[[], None]] = []

    def start(answer_to: Callable[[Connection, int, int], bool]) -> tuple[ScriptedZooKeeper, ZooKeeperStore]:
        server = ScriptedZooKeeper(answer_to)
        store = ZooKeeperStore(server.address, SESSION_MS)
        running.extend((server.stop, store.close))
        store.connect(5000, threading.Event())
        return server, store

    yield start
    for stop in reversed(running):
        stop()


def test_servers_before_3_6_may_say_so_before_they_answer_what_was_asked_earlier(connected) -> None:
    """Such a server refuses at once what it does not know and closes the connection, while writes take their time."""
    creations: list[int] = []

    def answer_to(connection: Connection, xid: int, kind: int) -> bool:
        if kind == CREATE2 and not creations:
            creations.append(xid)
            return True
        if kind == MULTI_READ:
            connection.answer(xid, error=UNIMPLEMENTED)
            connection.close()
        return False

    server, store = connected(answer_to)
    created: list[str] = []
    creator = threading.Thread(target=lambda: created.append(store.create("/a", ephemeral=True)[0]))
    creator.start()
    wait_until(lambda: creations, what="a creation that waits")
    paths = [f"/n{number}" for number in range(READ_TOGETHER + 1)]
    assert [node and node[0] for node in store.get_many(paths, small=True)] == [b"x"] * len(paths)
    creator.join()
    assert created == ["/a"], "sent again, as after any other loss of the connection"
    assert store.get_many(["/a", "/b"], small=True)
    refused = server.requests.count(MULTI_READ)
    assert 1 <= refused <= 2, "those that were under way"
    # The second of them may have been sent with what was sent again, before the first refusal was understood.
    assert 2 <= server.connections <= 1 + refused


@pytest.mark.parametrize(
    "garbage", [b"", b"\0\0\0\1", struct.pack(">iqi", 99, 0, 0)], ids=["empty", "cut", "xid"]
)
def test_an_answer_that_makes_no_sense_costs_the_connection_and_not_the_store(connected, garbage) -> None:
    sent: list[bytes] = []

    def answer_to(connection: Connection, _xid: int, kind: int) -> bool:
        if kind == GET_DATA and not sent:
            sent.append(garbage)
            connection.send(garbage)
            return True
        return False

    server, store = connected(answer_to)
    assert store.get("/a")[0] == b"x"
    assert server.connections == 2


def test_an_answer_for_other_than_the_nodes_asked_for_is_an_error_of_the_store(connected) -> None:
    def answer_to(connection: Connection, xid: int, kind: int) -> bool:
        if kind != MULTI_READ:
            return False
        node = struct.pack(">i?i", GET_DATA, False, 0) + DATA
        connection.answer(xid, node + struct.pack(">i?i", -1, True, -1))
        return True

    _, store = connected(answer_to)
    with pytest.raises(StoreError, match="1 nodes for 2"):
        store.get_many(["/a", "/b"], small=True)
