"""The wait of kazoo's connection answers as ``select.select`` does, and leaves nothing behind in the kernel."""

from __future__ import annotations

import select
import socket
from collections.abc import Iterator

import pytest

from broker.zookeeper.select_ready import select_ready


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    yield one, other
    one.close()
    other.close()


def test_answers_are_those_of_select(pair) -> None:
    one, other = pair
    for send in (b"", b"x"):
        other.send(send)
        for readers, writers in (([one], []), ([one, other], []), ([], [one]), ([one], [one])):
            assert select_ready(readers, writers, [], 0) == select.select(readers, writers, [], 0)


def test_a_peer_that_is_gone_is_readable(pair) -> None:
    one, other = pair
    other.close()
    assert select_ready([one], [], [], None) == ([one], [], [])


def test_a_closed_socket_is_an_error(pair) -> None:
    one, _ = pair
    one.close()
    with pytest.raises(ValueError, match="negative"):
        select_ready([one], [], [], 0)


def test_a_wait_makes_no_epoll(pair, monkeypatch) -> None:
    monkeypatch.delattr(select, "epoll")
    assert select_ready([pair[0]], [], [], 0) == ([], [], [])
