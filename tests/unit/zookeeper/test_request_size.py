"""A request that is larger than ZooKeeper takes is refused before it is sent, and costs nobody the connection."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from broker.server.zookeeper_access import access_from
from broker.zookeeper.access import NO_ACCESS, OPEN, ZooKeeperAccess
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.store import Check, Create, SetData, TooLargeError
from tests.support.scripted_zookeeper import MOST_BYTES, SET_DATA, ScriptedZooKeeper

# Number and type of the request, the path with its length, the length of the data, the version.
AROUND_DATA = 8 + (4 + len("/big")) + 4 + 4


@pytest.fixture
def server() -> Iterator[ScriptedZooKeeper]:
    made = ScriptedZooKeeper(lambda *_: False)
    yield made
    made.stop()


@pytest.fixture
def connected(server: ScriptedZooKeeper) -> Iterator[Callable[..., ZooKeeperStore]]:
    made: list[ZooKeeperStore] = []

    def connect(access: ZooKeeperAccess = NO_ACCESS, chroot: str = "") -> ZooKeeperStore:
        store = ZooKeeperStore(server.address + chroot, 1500, access)
        made.append(store)
        store.connect(5000, threading.Event())
        return store

    yield connect
    for store in made:
        store.close()


LARGE = b"x" * MOST_BYTES
WRITES: dict[str, Callable[[ZooKeeperStore], object]] = {
    "create": lambda store: store.create("/big", LARGE),
    "set": lambda store: store.set("/big", LARGE),
    "multi": lambda store: store.multi([Check("/epoch", 1), Create("/a"), SetData("/big", LARGE)]),
    "with ACLs": lambda store: store.create_with_acls("/big", LARGE, OPEN),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_that_is_too_large_names_path_size_and_limit_and_keeps_the_connection(
    server: ScriptedZooKeeper, connected: Callable[..., ZooKeeperStore], write: Callable[..., object]
) -> None:
    store = connected()
    with pytest.raises(TooLargeError, match=rf"/big: .* 104\d+ bytes.* takes {MOST_BYTES}.*jute\.maxbuffer"):
        write(store)
    assert store.get("/other")[0] == b"x"
    assert server.connections == 1


def test_of_many_writes_only_the_one_that_is_too_large_fails(
    server: ScriptedZooKeeper, connected: Callable[..., ZooKeeperStore]
) -> None:
    """And not as the check of the controller's epoch, which is each first part, does."""
    (error,) = connected().multi_many([[Check("/epoch", 1), SetData("/big", LARGE)]])
    assert isinstance(error, TooLargeError)
    assert error.op_index == 1
    assert server.connections == 1


def test_the_largest_request_that_zookeeper_takes_is_sent(
    server: ScriptedZooKeeper, connected: Callable[..., ZooKeeperStore]
) -> None:
    store = connected()
    store.set("/big", b"x" * (MOST_BYTES - AROUND_DATA))
    with pytest.raises(TooLargeError):
        store.set("/big", b"x" * (MOST_BYTES - AROUND_DATA + 1))
    assert server.requests == [SET_DATA]
    assert server.connections == 1


def test_servers_that_take_more_or_less_are_configured(connected: Callable[..., ZooKeeperStore]) -> None:
    store = connected(access_from({"landline.zookeeper.jute.maxbuffer": "2000"}))
    store.set("/big", b"x" * (2000 - AROUND_DATA))
    with pytest.raises(TooLargeError, match="takes 2000"):
        store.set("/big", b"x" * (2000 - AROUND_DATA + 1))
