"""Many operations in one go: each answer renews the time for the next; one that never comes ends the wait."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from kazoo.handlers.threading import AsyncResult, SequentialThreadingHandler

from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.store import ConnectionLossError
from rig.wait import last_for

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


def test_operations_that_together_take_long_are_not_late_while_answers_come(serve) -> None:
    store = ZooKeeperStore("127.0.0.1:1", int(PATIENCE_S * 1000))
    assert OPERATIONS * PACE_S > 2 * PATIENCE_S
    assert store._pipeline(serve(OPERATIONS)) == list(range(OPERATIONS))


def test_an_answer_that_never_comes_is_told_by_its_path(serve) -> None:
    store = ZooKeeperStore("127.0.0.1:1", int(PATIENCE_S * 1000))
    with pytest.raises(ConnectionLossError, match="/n15"):
        store._pipeline(serve(15))
