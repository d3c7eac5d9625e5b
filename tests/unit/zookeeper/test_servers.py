"""The brokers see which of ZooKeeper's servers serve, and no scrape waits for that."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from broker.metrics.exposition import Exposition
from broker.metrics.registry import Metrics
from broker.zookeeper import servers
from broker.zookeeper.metrics import register_servers
from broker.zookeeper.servers import PERIOD_MS, Servers, is_serving
from rig.wait import wait_until
from tests.support.clocks import ManualClock

SERVES = b"Zookeeper version: 3.8.0\nLatency min/avg/max: 0/0.0/0\nMode: follower\n"
NO_QUORUM = b"This ZooKeeper instance is not currently serving requests\n"
NOT_LISTED = b"srvr is not executed because it is not in the whitelist.\n"


class Server:
    """Answers each connection in the same way; None: never."""

    def __init__(self, answer: bytes | None) -> None:
        self.answer = answer
        self.asked: list[bytes] = []
        self._kept: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.address: tuple[str, int] = self._socket.getsockname()
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            self.asked.append(connection.recv(100))
            if self.answer is None:
                self._kept.append(connection)
                continue
            connection.sendall(self.answer)
            connection.close()

    def close(self) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        for each in (self._socket, *self._kept):
            each.close()


@contextmanager
def server(answer: bytes | None) -> Iterator[Server]:
    made = Server(answer)
    try:
        yield made
    finally:
        made.close()


@pytest.mark.parametrize(
    ("answer", "serves"),
    [(SERVES, True), (NO_QUORUM, False), (NOT_LISTED, True), (b"", False), (None, False)],
    ids=["follower", "no quorum", "command not allowed", "hangs up", "silent"],
)
def test_a_server_serves_if_it_answers_and_has_a_quorum(answer: bytes | None, serves: bool) -> None:
    with server(answer) as one:
        assert is_serving(one.address, None, 0.3) is serves
        assert one.asked == [b"srvr"]


def test_a_server_that_is_not_there_and_one_without_a_name_do_not_serve() -> None:
    with server(SERVES) as one:
        gone = one.address
    assert not is_serving(gone, None, 0.3)
    assert not is_serving(("." * 300, 2181), None, 0.3)


def test_the_metric_names_each_server_and_asks_once_a_minute() -> None:
    clock, metrics = ManualClock(), Metrics()
    with server(SERVES) as one, server(NO_QUORUM) as other:
        register_servers(metrics, Servers([one.address, other.address], None, clock))
        page = Exposition(metrics)
        named = [
            f'landline_zookeeper_server_serves{{server="127.0.0.1:{each.address[1]}"}}'
            for each in (one, other)
        ]
        wait_until(
            lambda: (
                f"{named[0]} 1.0\n{named[1]} 0.0" in page.text().decode()
                or (f"{named[1]} 0.0\n{named[0]} 1.0" in page.text().decode())
            ),
            what="both are known",
        )
        page.text()
        assert len(one.asked) == 1
        one.answer = NO_QUORUM
        clock.now_ms += PERIOD_MS
        wait_until(lambda: f"{named[0]} 0.0" in page.text().decode(), what="it has lost its quorum")
        assert len(one.asked) == 2


def test_a_scrape_does_not_wait_for_a_server_that_is_silent_and_old_answers_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = ManualClock()
    go = threading.Event()
    go.set()

    def ask(*_: object) -> bool:
        assert go.wait(30)
        return True

    monkeypatch.setattr(servers, "is_serving", ask)
    watched = Servers([("z1", 2181)], None, clock)
    wait_until(lambda: watched.serving() == {"z1:2181": True}, what="the first answer")
    go.clear()
    clock.now_ms += PERIOD_MS
    assert watched.serving() == {"z1:2181": True}
    clock.now_ms += 10 * PERIOD_MS
    assert watched.serving() == {}
    go.set()
