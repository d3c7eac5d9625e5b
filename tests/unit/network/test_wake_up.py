"""The eventfd of a network thread: one write wakes it, and none goes to a descriptor that is another's by now."""

from __future__ import annotations

import os
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker.network.wake_up import WakeUp


@pytest.fixture
def epoll() -> Iterator[select.epoll]:
    with select.epoll() as epoll:
        yield epoll


def test_a_thread_is_woken_once_by_many_and_again_after_it_took_that(epoll: select.epoll) -> None:
    wake_up = WakeUp(epoll)
    assert epoll.poll(0) == []
    for _ in range(3):
        wake_up.wake()
    assert epoll.poll(0) == [(wake_up.fd, select.EPOLLIN)]
    wake_up.take()
    assert epoll.poll(0) == []
    wake_up.wake()
    assert epoll.poll(0) == [(wake_up.fd, select.EPOLLIN)]
    wake_up.close()


def test_who_wakes_after_the_end_writes_into_nobodys_file(epoll: select.epoll, tmp_path: Path) -> None:
    wake_up = WakeUp(epoll)
    wake_up.close()
    path = tmp_path / "segment"
    file = os.open(path, os.O_CREAT | os.O_WRONLY)  # gets the lowest free number, which is the eventfd's
    try:
        wake_up.wake()
    finally:
        os.close(file)
    assert path.read_bytes() == b""
