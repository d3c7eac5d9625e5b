"""The handler pool: work that waits for other work is never stuck while a handler may be added."""

from __future__ import annotations

import threading
import weakref

import pytest

from broker.network.request_channel import RequestChannel
from broker.server.request_handler_pool import RequestHandlerPool
from rig.wait import wait_until


@pytest.fixture
def make_pool():
    pools = []

    def make(threads, queue=100):
        pools.append(RequestHandlerPool(RequestChannel(queue), threads))
        return pools[-1]

    yield make
    for pool in pools:
        pool.shutdown()


def test_every_piece_of_work_has_a_handler_while_there_may_be_more(make_pool) -> None:
    pool = make_pool(8)
    meeting = threading.Barrier(8)
    for _ in range(50):
        met = []
        for _ in range(8):
            assert pool.submit(lambda met=met: met.append(meeting.wait(timeout=30)))
        wait_until(lambda met=met: len(met) == 8, what="eight handlers that wait for each other")


def test_the_number_of_handlers_changes_while_they_work(make_pool) -> None:
    pool = make_pool(1)

    def meet(count: int) -> list[int]:
        """Work that ends when as many handlers do it at once."""
        met: list[int] = []
        meeting = threading.Barrier(count)
        for _ in range(count):
            assert pool.submit(lambda: met.append(meeting.wait(timeout=30)))
        return met

    held = meet(3)
    pool.resize(3)
    later = meet(3)  # more work, which brings the handlers
    wait_until(lambda: len(held) == len(later) == 3)
    pool.resize(1)
    wait_until(lambda: len(pool._threads) == 1)
    pool.resize(2)
    again = meet(2)
    wait_until(lambda: len(again) == 2)
    assert len(pool._threads) == 2


def test_handlers_are_started_as_work_comes_and_no_more_than_allowed(make_pool) -> None:
    pool = make_pool(2)
    go = threading.Event()
    done = []
    for number in range(6):
        pool.submit(lambda number=number: (go.wait(30), done.append(number)))
    assert len(pool._threads) == 2
    go.set()
    wait_until(lambda: len(done) == 6)


def test_full_queue_refuses_work(make_pool) -> None:
    pool = make_pool(1, queue=1)
    go, began = threading.Event(), threading.Event()
    pool.submit(lambda: (began.set(), go.wait(30)))
    assert began.wait(30)
    assert pool.submit(lambda: None)
    assert not pool.submit(lambda: None)
    go.set()


def test_work_that_fails_does_not_end_its_handler(make_pool) -> None:
    pool = make_pool(1)
    done = threading.Event()
    pool.submit(lambda: 1 / 0)
    pool.submit(done.set)
    assert done.wait(30)


def test_what_work_was_made_of_is_let_go_of_when_it_is_over(make_pool) -> None:
    class Large:
        def work(self) -> None: ...

    large = Large()
    gone = weakref.ref(large)
    assert make_pool(1).submit(large.work)
    del large
    wait_until(lambda: gone() is None)
