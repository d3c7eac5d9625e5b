"""The queue for handlers: a greedy address leaves room for the others, and dear work for quick work."""

from __future__ import annotations

import threading

import pytest

from broker.network.request_channel import ConnectionInfo, Request, RequestChannel
from broker.server.request_handler_pool import RequestHandlerPool
from rig.wait import wait_until


def request_of(address: str, connection: int = 0) -> Request:
    info = ConnectionInfo(f"{address}-{connection}", address, "PLAINTEXT")
    return Request(3, 1, 7, "client", memoryview(b""), info, 0, lambda _request: None)


def nothing() -> None:
    return


def fill(channel: RequestChannel, address: str, tries: int = 1_000) -> int:
    return sum(channel.offer(nothing, request_of(address, number)) for number in range(tries))


def test_one_address_fills_half_of_the_queue_and_finds_it_full() -> None:
    channel = RequestChannel(100)
    assert fill(channel, "10.0.0.1") == 50
    assert len(channel) == 50


def test_beside_a_greedy_address_there_is_room_for_each_other() -> None:
    channel = RequestChannel(500)
    taken = [fill(channel, f"10.0.0.{number}") for number in range(6)]
    assert all(count > 0 for count in taken), taken
    assert sum(taken) <= 500


def test_what_was_taken_makes_room_for_its_own_address() -> None:
    channel = RequestChannel(10)
    assert fill(channel, "10.0.0.1") == 5
    channel.take()
    assert fill(channel, "10.0.0.1") == 1


@pytest.mark.parametrize("limit", [1, 2, 3])
def test_the_smallest_queue_takes_something_from_one_address(limit: int) -> None:
    assert fill(RequestChannel(limit), "10.0.0.1") >= 1


def test_the_queues_bound_is_a_bound_whoever_asks() -> None:
    channel = RequestChannel(20)
    for number in range(100):
        fill(channel, f"10.0.0.{number}", 5)
        channel.offer(nothing)
    assert len(channel) == 20


def test_dear_work_and_quick_work_take_turns_for_a_single_handler() -> None:
    channel = RequestChannel(100)
    for number in range(3):
        channel.offer(nothing, request_of("10.0.0.1", number), dear=True)
        channel.offer(nothing, request_of("10.0.0.2", number))
    order = []
    for _ in range(6):
        work = channel.take()
        assert work is not None
        order.append(work.dear)
        channel.finished(work)
    assert order == [True, False] * 3


def test_dear_work_runs_one_at_a_time_and_quick_work_beside_it() -> None:
    pool = RequestHandlerPool(RequestChannel(100), 4)
    go, lock = threading.Event(), threading.Lock()
    running, most, done = [0], [0], []

    def dear() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        go.wait(30)
        with lock:
            running[0] -= 1
            done.append("dear")

    try:
        for number in range(6):
            assert pool.submit(dear, request_of(f"10.0.0.{number}"), dear=True)
        wait_until(lambda: running[0] == 1, what="a dear piece of work that runs")
        for number in range(6):
            assert pool.submit(lambda: done.append("quick"), request_of("10.0.1.1", number))
        wait_until(lambda: done == ["quick"] * 6, what="quick work beside dear work")
        go.set()
        wait_until(lambda: done[6:] == ["dear"] * 6, what="all dear work done")
        assert most == [1]
    finally:
        go.set()
        pool.shutdown()


def test_a_pool_that_ends_serves_the_dear_work_that_waits() -> None:
    pool = RequestHandlerPool(RequestChannel(100), 4)
    done: list[int] = []
    go = threading.Event()
    for number in range(5):
        pool.submit(lambda number=number: (go.wait(30), done.append(number)), request_of("a"), dear=True)
    ending = threading.Thread(target=pool.shutdown)
    ending.start()
    go.set()
    ending.join(30)
    assert not ending.is_alive()
    assert done == [0, 1, 2, 3, 4]
