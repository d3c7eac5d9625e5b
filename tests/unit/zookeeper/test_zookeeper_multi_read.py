"""Many nodes with one request, and servers that know no such request."""

from __future__ import annotations

import struct
import threading

import pytest
from kazoo.exceptions import NoNodeError, UnimplementedError
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.states import ZnodeStat

from broker.zookeeper.client import READ_TOGETHER, ZooKeeperStore
from broker.zookeeper.multi_read import MultiRead

STAT = ZnodeStat(*range(1, 12))
GET_DATA, END = b"\0\0\0\4\0\xff\xff\xff\xff", b"\xff\xff\xff\xff\1\xff\xff\xff\xff"


def found(data: bytes | None) -> bytes:
    """One result, as ZooKeeper writes it."""
    buffer = struct.pack(">i", -1) if data is None else struct.pack(">i", len(data)) + data
    return struct.pack(">i?i", 4, False, 0) + buffer + struct.pack(">qqqqiiiqiiq", *STAT)


def failed(code: int) -> bytes:
    return struct.pack(">i?ii", -1, False, code, code)


class Servers:
    """Stands for kazoo's client: answers requests for nodes, whose data is their path, and counts them."""

    def __init__(self, store: ZooKeeperStore, monkeypatch, *, knows_multi_read: bool) -> None:
        self.requests: list[int] = []
        self.handler = SequentialThreadingHandler()
        self._live = threading.Event()
        self._live.set()
        self._knows_multi_read = knows_multi_read
        monkeypatch.setattr(store, "_client", self)

    def _call(self, request: MultiRead, result) -> None:
        self.requests.append(len(request.paths))
        if self._knows_multi_read:
            result.set([(path.encode(), STAT) for path in request.paths])
        else:
            result.set_exception(UnimplementedError())

    def get_async(self, path: str):
        self.requests.append(1)
        result = self.handler.async_result()
        result.set((path.encode(), STAT))
        return result


@pytest.fixture
def store() -> ZooKeeperStore:
    return ZooKeeperStore("127.0.0.1:1/root", 6000)


def test_the_request_is_zookeepers() -> None:
    request = MultiRead(("/a", "/bc"))
    assert request.type == 22
    assert request.serialize() == (GET_DATA + b"\0\0\0\2/a\0" + GET_DATA + b"\0\0\0\3/bc\0" + END)


def test_the_answer_has_data_no_data_and_errors_in_order() -> None:
    answer = b"head" + found(b"x") + failed(-101) + found(None) + found(b"") + END
    one, missing, none, empty = MultiRead(("/a", "/b", "/c", "/d")).deserialize(answer, 4)
    assert (one, none, empty) == ((b"x", STAT), (None, STAT), (b"", STAT))
    assert isinstance(missing, NoNodeError)


@pytest.mark.parametrize("end", [5, 12, 40])
def test_an_answer_that_is_cut_off_is_an_error(end) -> None:
    with pytest.raises(struct.error):
        MultiRead(("/a",)).deserialize(found(b"x")[:end], 0)


def test_many_nodes_take_few_requests(store, monkeypatch) -> None:
    servers = Servers(store, monkeypatch, knows_multi_read=True)
    paths = [f"/n{number}" for number in range(2 * READ_TOGETHER + 1)]
    assert [data for data, _ in store.get_many(paths, small=True)] == [
        f"/root{path}".encode() for path in paths
    ]
    assert servers.requests == [READ_TOGETHER, READ_TOGETHER, 1]


def test_one_node_is_read_as_ever(store, monkeypatch) -> None:
    servers = Servers(store, monkeypatch, knows_multi_read=False)
    store.get_many(["/n"], small=True)
    assert servers.requests == [1]
    assert store._reads_together


def test_servers_that_know_no_such_request_are_asked_one_by_one_from_then_on(store, monkeypatch) -> None:
    """ZooKeeper before 3.6."""
    servers = Servers(store, monkeypatch, knows_multi_read=False)
    for _ in range(2):
        assert [data for data, _ in store.get_many(["/a", "/b"], small=True)] == [b"/root/a", b"/root/b"]
    assert servers.requests == [2, 1, 1, 1, 1]
