"""A watch that ZooKeeper refuses to set while the connection lives is set later, and nothing is missed meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, ThrottledOpError
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

from broker.zookeeper.client import ZooKeeperStore
from rig.wait import wait_until


class Server:
    """What of a KazooClient the watches use; it answers with ``errors`` first, and then with what there is."""

    client_id = None
    connected = True

    def __init__(self, errors: list[KazooException]) -> None:
        self._handler = SequentialThreadingHandler()
        self.errors = errors
        self.asked = 0
        self.set: list[str] = []

    def exists_async(self, path: str, watch: Callable[[Any], None]) -> AsyncResult:
        return self._answer(f"data of {path}", None)

    def get_children_async(self, path: str, watch: Callable[[Any], None]) -> AsyncResult:
        return self._answer(f"children of {path}", [])

    def _answer(self, what: str, value: Any) -> AsyncResult:
        self.asked += 1
        result = self._handler.async_result()
        if self.errors:
            result.set_exception(self.errors.pop(0))
        else:
            self.set.append(what)
            result.set(value)
        return result


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[ZooKeeperStore]:
    monkeypatch.setattr("broker.zookeeper.watches.REARM_PAUSE_S", 0.01)
    store = ZooKeeperStore("127.0.0.1:1", 1000)
    events = threading.Thread(target=store._dispatch)
    events.start()
    yield store
    store._events.put(None)
    events.join()


@pytest.mark.parametrize("kind", ["data", "children"])
def test_a_watch_that_was_refused_is_set_later_and_fires_then(store: ZooKeeperStore, kind: str) -> None:
    fired: list[str] = []
    store._client = server = Server([ThrottledOpError(), ThrottledOpError()])  # type: ignore[assignment]
    watch = store.watch_data if kind == "data" else store.watch_children
    watch("/a", lambda: fired.append("/a"))
    wait_until(lambda: server.set == [f"{kind} of /a"] and fired)
    assert server.asked == 3


def test_a_watch_for_a_node_to_come_that_was_refused_is_set_later_and_fires_then(
    store: ZooKeeperStore,
) -> None:
    fired: list[str] = []
    store._client = server = Server([NoNodeError(), ThrottledOpError()])  # type: ignore[assignment]
    store.watch_children("/a", lambda: fired.append("/a"))
    wait_until(lambda: server.set == ["children of /a"] and fired)


def test_a_watch_that_is_cancelled_meanwhile_is_not_set(store: ZooKeeperStore) -> None:
    fired: list[str] = []
    store._client = server = Server([ThrottledOpError()])  # type: ignore[assignment]
    store.watch_data("/a", lambda: fired.append("/a")).cancel()
    store.watch_data("/b", lambda: fired.append("/b"))
    other = Server([ThrottledOpError()])
    store._client = other  # type: ignore[assignment]
    store.watch_data("/c", lambda: fired.append("/c"))
    wait_until(lambda: fired == ["/c"])
    assert server.set == ["data of /b"]


def test_what_went_with_the_connection_waits_for_the_next_one(store: ZooKeeperStore) -> None:
    fired: list[str] = []
    store._client = server = Server([ConnectionLoss()])  # type: ignore[assignment]
    store.watch_data("/a", lambda: fired.append("/a"))
    store._arm_all()
    wait_until(lambda: fired)
    assert server.asked == 2
