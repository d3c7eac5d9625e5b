"""Many operations in one go: each answer renews the time for the next; one that never comes ends the wait."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler
from kazoo.protocol.states import KazooState, KeeperState

from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.store import ConnectionLossError
from rig.wait import last_for, wait_until

OPERATIONS, PACE_S, PATIENCE_S = 40, 0.02, 0.25


class SlowServer:
    """Answers one operation after the other, each ``PACE_S`` after the last; silent after ``answers`` of them."""

    def __init__(self, answers: int) -> None:
        self._handler = SequentialThreadingHandler()
        self._handler.start()
        self._results: list[AsyncResult] = []
        self._thread = threading.Thread(target=self._run, args=(answers,))

    def start_one(self) -> AsyncResult:
        self._results.append(self._handler.async_result())
        if len(self._results) == OPERATIONS:
            self._thread.start()
        return self._results[-1]

    def _run(self, answers: int) -> None:
        for number, result in enumerate(self._results[:answers]):
            last_for(PACE_S)
            result.set(number)

    def stop(self) -> None:
        self._thread.join()
        self._handler.stop()


@pytest.fixture
def serve():
    servers: list[SlowServer] = []

    def start(answers: int) -> list[tuple[str, Callable[[], AsyncResult]]]:
        servers.append(SlowServer(answers))
        return [(f"/n{number}", servers[-1].start_one) for number in range(OPERATIONS)]

    yield start
    for server in servers:
        server.stop()


def connected_store() -> ZooKeeperStore:
    """A store that takes itself for connected."""
    store = ZooKeeperStore("127.0.0.1:1", int(PATIENCE_S * 1000))
    store._client._live.set()
    return store


def test_operations_that_together_take_long_are_not_late_while_answers_come(serve) -> None:
    store = connected_store()
    assert OPERATIONS * PACE_S > 2 * PATIENCE_S
    assert store._pipeline(serve(OPERATIONS)) == list(range(OPERATIONS))


def test_an_answer_that_never_comes_is_told_by_its_path(serve) -> None:
    store = connected_store()
    with pytest.raises(ConnectionLossError, match="/n15"):
        store._pipeline(serve(15))


def test_nothing_is_asked_without_a_connection_however_often_somebody_tries() -> None:
    """Kazoo would keep all of it, and its caller would wait for ever from the 279th time on."""
    store = ZooKeeperStore("127.0.0.1:1", 2)
    store._client.start_async()
    fired: list[str] = []
    try:
        for number in range(600):
            with pytest.raises(ConnectionLossError, match=f"/n{number}: no connection to ZooKeeper"):
                store.exists(f"/n{number}")
            store.watch_data(f"/n{number}", partial(fired.append, f"/n{number}"))
        assert len(store._client._queue) == 0
    finally:
        store.close()
    assert not fired


def test_after_one_waited_in_vain_for_the_connection_all_fail_at_once_until_it_is_back() -> None:
    """Else a request about a hundred topics held its thread a hundred times as long, and so did each request."""
    store = ZooKeeperStore("127.0.0.1:1", int(PATIENCE_S * 1000))

    def fails(path: str) -> float:
        started = time.monotonic()
        with pytest.raises(ConnectionLossError, match=f"{path}: no connection to ZooKeeper"):
            store.exists(path)
        return time.monotonic() - started

    assert fails("/first") >= PATIENCE_S
    assert sum(fails(f"/n{number}") for number in range(100)) < PATIENCE_S
    store._on_state(KazooState.CONNECTED)
    assert fails("/later") >= PATIENCE_S, "the connection came and is lost again"


def test_a_session_outlasts_the_connection() -> None:
    store = connected_store()
    store._client._session_id = 7
    store._client._live.clear()
    assert store.session_id == 7
    store._client._reset_session()
    assert store.session_id == 0, "it has expired, and there is no other yet"


def test_a_name_that_cannot_be_looked_up_for_a_while_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a free file descriptor, a look-up fails by another error than that there is no such name."""
    looked_up: list[object] = []

    def fails(*_: object) -> object:
        looked_up.append(None)
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr("kazoo.protocol.connection.socket.getaddrinfo", fails)
    store = ZooKeeperStore("localhost:1", 1000)
    store._client.start_async()
    try:
        wait_until(lambda: len(looked_up) > 2, 30, what="it tries again")
        assert store._client.state != KeeperState.CLOSED
        assert not store._connection.connection_stopped.is_set()
    finally:
        store.close()
