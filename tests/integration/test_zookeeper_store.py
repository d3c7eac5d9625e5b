"""The store over a real ZooKeeper: the same semantics as the embedded one, sessions, watches,
chroot, patience.
"""

from __future__ import annotations

import socket
import threading
import time

import pytest

from broker.zookeeper.access import MOST_BYTES, ZooKeeperAccess
from broker.zookeeper.acl import Acl
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.connect_string import parse_connect_string
from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.session_end import SessionEnd, end_session
from broker.zookeeper.store import (
    ANY_VERSION,
    BadVersionError,
    Cancelled,
    Check,
    ConnectionLossError,
    ConnectTimeoutError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionEvent,
    SetData,
    Stat,
    StoreError,
    TooLargeError,
)
from rig.ports import free_port
from rig.wait import wait_until
from tests.support.znode_tree import read_tree

pytestmark = [pytest.mark.integration, pytest.mark.timeout(180)]


def connected(connect: str, session_timeout_ms: int = 6000) -> ZooKeeperStore:
    store = ZooKeeperStore(connect, session_timeout_ms)
    store.connect(60_000, threading.Event())
    return store


@pytest.fixture(params=["zookeeper", "embedded"])
def store(request, zookeeper, tmp_path):
    if request.param == "zookeeper":
        store = connected(zookeeper.chroot())
    else:
        store = EmbeddedStore(tmp_path / "metadata.db")
        store.connect(0, threading.Event())
    yield store
    store.close()


def test_a_node_without_data_has_none_at_all_as_kafka_has_it(zookeeper):
    """Kafka's controller tells null from empty: it takes an empty producer id block for a damaged one."""
    connect = zookeeper.chroot()
    store = connected(connect)
    store.ensure_path("/made/with/parents")
    store.create("/alone")
    store.multi([Create("/in-one"), Create("/in-one/go", b"data"), Create("/in-one/s-", sequence=True)])
    store.close()
    nodes = {path: node.data for path, node in read_tree(connect).items()}
    assert nodes.pop("/in-one/go") == b"data"
    assert len(nodes) == 6
    assert set(nodes.values()) == {None}


def test_nodes_have_the_same_semantics_in_both_stores(store):
    path, stat = store.create("/a", b"one")
    assert path == "/a"
    assert store.get("/a") == (b"one", stat)
    assert store.set("/a", b"two", 0).version == 1
    with pytest.raises(BadVersionError):
        store.set("/a", b"three", 0)
    with pytest.raises(NodeExistsError):
        store.create("/a")
    with pytest.raises(NoNodeError):
        store.create("/x/y")
    with pytest.raises(NoNodeError):
        store.get("/x")
    with pytest.raises(NoNodeError):
        store.children("/x")
    store.ensure_path("/a/b/c")
    store.ensure_path("/a/b/c")
    with pytest.raises(NotEmptyError):
        store.delete("/a/b")
    store.delete("/a/b/c")
    assert store.children("/a/b") == []
    assert store.exists("/a/b/c") is None
    assert store.exists("/a").num_children == 1
    assert store.create("/a/b/n_", sequence=True)[0].startswith("/a/b/n_00000000")


def test_multis_have_the_same_semantics_in_both_stores(store):
    store.create("/epoch", b"1")
    created, stat, checked = store.multi([Create("/a"), SetData("/a", b"x"), Check("/epoch", 0)])
    assert created == "/a"
    assert isinstance(stat, Stat)
    assert (stat.version, checked) == (1, None)
    assert store.multi([Check("/epoch", ANY_VERSION)]) == [None]
    with pytest.raises(NoNodeError):
        store.multi([Check("/missing", ANY_VERSION)])
    with pytest.raises(BadVersionError) as failed:
        store.multi([Create("/b"), Check("/epoch", 5), Create("/c")])
    assert failed.value.op_index == 1
    assert store.exists("/b") is None
    results = store.multi_many(
        [[Create(f"/n{i}")] for i in range(350)] + [[Delete("/missing")], [Delete("/a")]]
    )
    assert results[349] == ["/n349"]
    assert isinstance(results[350], NoNodeError)
    assert results[351] == [None]
    assert store.get_many(["/n0", "/missing"])[1] is None
    assert store.children_many(["/n0", "/missing"]) == [[], None]


def test_many_nodes_are_read_in_the_order_asked_for_in_both_stores(store):
    """More than fit into one request, with and without data, and some that are not there."""
    for number in range(0, 260, 2):
        store.create(f"/n{number}", b"x" * number)
    found = store.get_many([f"/n{number}" for number in range(260)], small=True)
    assert found == [None if number % 2 else store.get(f"/n{number}") for number in range(260)]


def test_many_nodes_of_long_names_are_read_in_both_stores(store):
    """A client's id is up to 32 KiB, in a name of its own; ZooKeeper takes no request of more than a MiB."""
    paths = [f"/{number}{'%41' * 30_000}" for number in range(15)]
    for path in paths:
        store.create(path, b"x")
    assert [node and node[0] for node in store.get_many(paths)] == [b"x"] * len(paths)


def test_many_nodes_of_much_data_are_read_in_both_stores(store):
    """As one answer it is more than a server has memory for whose heap holds all of it."""
    paths = [f"/n{number}" for number in range(50)]
    for path in paths:
        store.create(path, b"x" * 500_000)
    assert [node and len(node[0]) for node in store.get_many(paths)] == [500_000] * len(paths)


def test_the_largest_request_is_what_a_server_takes_by_default(zookeeper):
    """A larger one would cost the connection again and again, and so it is not sent."""
    connect = zookeeper.chroot()
    store = connected(connect)
    store.create("/big")
    chroot = connect[connect.index("/") :]
    room = MOST_BYTES - len(f"{chroot}/big") - 20
    store.set("/big", b"x" * room)
    with pytest.raises(TooLargeError):
        store.set("/big", b"x" * (room + 1))
    assert len(store.get("/big")[0]) == room
    store.close()
    daring = ZooKeeperStore(connect, 2000, ZooKeeperAccess(most_bytes=2 * MOST_BYTES))
    daring.connect(60_000, threading.Event())
    with pytest.raises(ConnectionLossError):
        daring.set("/big", b"x" * (room + 1))
    daring.close()


def test_a_node_that_must_not_be_read_fails_the_reading_of_many(zookeeper):
    store = connected(zookeeper.chroot())
    store.create("/open", b"1")
    store.create_with_acls("/closed", b"2", [Acl("digest", "somebody:else", "r")])
    with pytest.raises(StoreError, match=r"/closed.*NoAuth"):
        store.get_many(["/open", "/closed", "/missing"], small=True)
    store.close()


def test_ephemeral_nodes_name_their_session_and_go_with_it(zookeeper):
    connect = zookeeper.chroot()
    one, two = connected(connect), connected(connect)
    one.create("/me", ephemeral=True)
    assert two.exists("/me").ephemeral_owner == one.session_id != two.session_id
    gone = threading.Event()
    two.watch_data("/me", gone.set)
    assert two.exists("/me") is not None  # asked after the watch, answered after it: from here on it is set
    one.close()
    assert gone.wait(30)
    assert two.exists("/me") is None
    two.close()


def test_watches_are_armed_again_after_every_change(store):
    changes = threading.Semaphore(0)
    watch = store.watch_children("/parent", changes.release)
    store.create("/parent")
    assert changes.acquire(timeout=30)
    for number in range(5):
        store.create(f"/parent/{number}")
        assert changes.acquire(timeout=30)
    watch.cancel()
    data = threading.Semaphore(0)
    store.watch_data("/parent", data.release)
    store.set("/parent", b"1")
    assert data.acquire(timeout=30)
    store.set("/parent", b"2")
    assert data.acquire(timeout=30)
    while changes.acquire(blocking=False):
        pass
    store.create("/parent/last")
    store.set("/parent", b"3")
    assert data.acquire(timeout=30)
    assert not changes.acquire(blocking=False)


def test_the_chroot_is_created_and_left_out_of_every_path(zookeeper):
    chroot = zookeeper.chroot() + "/deep"
    store = connected(chroot)
    assert store.create("/a")[0] == "/a"
    assert store.multi([Create("/b")]) == ["/b"]
    outside = connected(zookeeper.connect_string)
    _, path = parse_connect_string(chroot)
    assert sorted(outside.children(path)) == ["a", "b"]
    store.close()
    outside.close()


def test_an_expired_session_is_followed_by_a_new_one_with_its_watches(own_zookeeper):
    store = connected(own_zookeeper.connect_string, 1000)
    other = connected(own_zookeeper.connect_string)
    events: list[SessionEvent] = []
    fired = threading.Semaphore(0)
    store.add_session_listener(events.append)
    first = store.session_id
    store.create("/me", ephemeral=True)
    store.watch_data("/other", fired.release)
    assert end_session(store.session, 30) is SessionEnd.ENDED
    wait_until(lambda: SessionEvent.EXPIRED in events and events[-1] is SessionEvent.CONNECTED, 60)
    assert store.session_id not in {0, first}
    wait_until(lambda: other.exists("/me") is None, 30)
    while fired.acquire(blocking=False):
        pass
    other.create("/other")
    assert fired.acquire(timeout=30)
    store.close()
    other.close()


def test_operations_wait_for_a_server_that_comes_back(own_zookeeper):
    # Thrice, for a server that is starting may take a connection and forget it (its zkDb is null), and a client waits
    # for its answer as long as its session divided by the servers it knows.
    store = connected(",".join([own_zookeeper.connect_string] * 3), 30_000)
    store.create("/a", b"1")
    events: list[SessionEvent] = []
    fired = threading.Event()
    store.add_session_listener(events.append)
    store.watch_data("/a", fired.set)
    own_zookeeper.kill()
    wait_until(lambda: SessionEvent.SUSPENDED in events, 30)
    restart = threading.Thread(target=own_zookeeper.start)
    restart.start()
    assert store.get("/a")[0] == b"1"
    restart.join()
    wait_until(lambda: events[-1] is SessionEvent.CONNECTED, 30)
    assert fired.wait(30)
    store.close()


def test_connecting_goes_on_until_there_is_a_server(tmp_path):
    from rig.zookeeper import ZooKeeperServer

    port = free_port()
    told: list[str] = []
    store = ZooKeeperStore(f"127.0.0.1:{port}/late", 6000)
    thread = threading.Thread(target=store.connect, args=(0, threading.Event(), told.append))
    thread.start()
    wait_until(lambda: told, 30)
    assert f"waiting for ZooKeeper at 127.0.0.1:{port}" in told[0]
    assert "refused" in told[-1]
    with ZooKeeperServer(tmp_path / "zk", port=port):
        thread.join(60)
        assert store.exists("/") is not None
        store.close()


@pytest.fixture(params=["refuses", "is silent"])
def useless_server(request):
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        if request.param == "is silent":
            listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def test_connecting_is_given_up_at_once_when_told_to_stop(useless_server):
    store = ZooKeeperStore(useless_server, 6000)
    cancel = threading.Event()
    outcome: list[tuple[type, float]] = []

    def connect():
        with pytest.raises(Cancelled) as stopped:
            store.connect(0, cancel)
        outcome.append((stopped.type, time.monotonic()))

    thread = threading.Thread(target=connect)
    thread.start()
    cancel.wait(0.3)
    asked = time.monotonic()
    cancel.set()
    thread.join(30)
    assert outcome[0][1] - asked < 0.5


def test_connecting_may_have_a_time_limit_and_says_what_to_check():
    store = ZooKeeperStore(f"127.0.0.1:{free_port()}", 6000)
    with pytest.raises(ConnectTimeoutError, match=r"within 300 ms .*check zookeeper\.connect"):
        store.connect(300, threading.Event())


def test_closing_does_not_wait_for_a_frozen_server(own_zookeeper):
    store = connected(own_zookeeper.connect_string)
    own_zookeeper.process.freeze()
    started = time.monotonic()
    store.close()
    assert time.monotonic() - started < 5
    own_zookeeper.process.thaw()


def test_connect_strings_are_split_into_servers_and_chroot():
    assert parse_connect_string("a:1,b:2/kafka/") == ("a:1,b:2", "/kafka")
    assert parse_connect_string("a:1") == ("a:1", "")
    assert parse_connect_string("a:1/") == ("a:1", "")
