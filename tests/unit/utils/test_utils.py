"""Timer and scheduler: the things that wait."""

from __future__ import annotations

import threading

import pytest

from broker.utils.clock import wait_s
from broker.utils.lean_import import without
from broker.utils.scheduler import KafkaScheduler
from broker.utils.timer import Timer
from rig.wait import wait_until

WAIT_S = 10


def test_timer_runs_callbacks_in_the_order_of_their_time(timer: Timer) -> None:
    ran: list[str] = []
    timer.add(120, lambda: ran.append("late"))
    timer.add(20, lambda: ran.append("early"))
    wait_until(lambda: len(ran) == 2)
    assert ran == ["early", "late"]


def test_cancelled_entry_is_gone_at_once_and_never_runs(timer: Timer) -> None:
    ran: list[str] = []
    entry = timer.add(30, lambda: ran.append("cancelled"))
    entry.cancel()
    assert not any(timer._buckets.values())
    timer.add(90, lambda: ran.append("kept"))
    wait_until(lambda: ran)
    assert ran == ["kept"]
    assert not timer._buckets


NEVER_MS = (1 << 63) - 1


def test_a_callback_that_is_never_due_stops_no_other(timer: Timer) -> None:
    ran = threading.Event()
    timer.add(NEVER_MS, lambda: None)
    timer.add(20, ran.set)
    assert ran.wait(10)
    assert wait_s(NEVER_MS) == 3600


def test_callback_that_fails_does_not_stop_the_timer(timer: Timer) -> None:
    ran = threading.Event()
    timer.add(0, lambda: 1 / 0)
    timer.add(20, ran.set)
    assert ran.wait(10)


@pytest.fixture
def scheduler():
    scheduler = KafkaScheduler(2, "test-scheduler")
    scheduler.startup()
    yield scheduler
    scheduler.shutdown()


def test_a_task_that_is_never_due_stops_no_other(scheduler: KafkaScheduler) -> None:
    ran = threading.Event()
    scheduler.schedule("never", lambda: None, NEVER_MS, NEVER_MS)
    wait_until(lambda: scheduler._idle)
    scheduler.schedule("now", ran.set)
    assert ran.wait(10)


def test_starting_a_scheduler_twice_is_an_error(scheduler: KafkaScheduler) -> None:
    with pytest.raises(RuntimeError, match="already been started"):
        scheduler.startup()


def test_the_number_of_threads_changes_while_they_work(scheduler: KafkaScheduler) -> None:
    meeting = threading.Barrier(4)
    met: list[int] = []
    for _ in range(4):
        scheduler.schedule("meet", lambda: met.append(meeting.wait(timeout=30)))
    scheduler.resize(4)
    wait_until(lambda: len(met) == 4)
    scheduler.resize(1)
    wait_until(lambda: len(scheduler._threads) == 1)
    ran: list[str] = []
    for _ in range(5):
        scheduler.schedule("run", lambda: ran.append(threading.current_thread().name))
    wait_until(lambda: len(ran) == 5)
    assert len(set(ran)) == 1


def test_periodic_task_runs_again_though_it_fails(scheduler: KafkaScheduler) -> None:
    runs: list[str] = []

    def fail() -> None:
        runs.append(threading.current_thread().name)
        raise ValueError

    scheduler.schedule("fails", fail, period_ms=5)
    wait_until(lambda: len(runs) >= 3)
    assert all(name.startswith("test-scheduler-") for name in runs)


def test_periodic_tasks_stop_with_the_scheduler() -> None:
    scheduler = KafkaScheduler(2)
    scheduler.startup()
    runs: list[int] = []
    scheduler.schedule("counts", lambda: runs.append(1), period_ms=1)
    wait_until(lambda: runs)
    scheduler.shutdown()
    count = len(runs)
    assert not threading.Event().wait(0.05)
    assert len(runs) == count
    with pytest.raises(RuntimeError, match="not running"):
        scheduler.schedule("late", lambda: None)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_a_crowd_of_tasks_leaves_threads_to_the_others(threads: int) -> None:
    scheduler = KafkaScheduler(threads)
    scheduler.startup()
    go_on, running, most = threading.Event(), [], max(threads // 2, 1)

    def of_the_crowd() -> None:
        running.append(1)
        go_on.wait(WAIT_S)

    for _ in range(20):
        scheduler.schedule("crowd", of_the_crowd, bulk=True)
    wait_until(lambda: len(running) == most, WAIT_S)
    ran: list[str] = []
    scheduler.schedule("another", lambda: ran.append("another"), delay_ms=5)
    if threads > 1:
        wait_until(lambda: ran == ["another"], WAIT_S)
    assert len(running) == most
    go_on.set()
    wait_until(lambda: len(running) == 20 and ran == ["another"], WAIT_S)
    scheduler.shutdown()


def test_a_crowd_has_its_turn_though_others_are_always_due() -> None:
    scheduler = KafkaScheduler(1)
    scheduler.startup()
    ran: list[int] = []
    scheduler.schedule("always", lambda: None, period_ms=0)
    scheduler.schedule("crowd", lambda: ran.append(1), bulk=True)
    wait_until(lambda: ran == [1], WAIT_S)
    scheduler.shutdown()


def test_tasks_that_come_together_do_not_wait_for_each_other() -> None:
    """One thread waits when they come: the first takes it, and the next gets another."""
    scheduler = KafkaScheduler(4)
    scheduler.startup()
    scheduler.schedule("first", lambda: None)
    wait_until(lambda: scheduler._idle == 1, WAIT_S)
    go_on, ran = threading.Event(), []
    with scheduler._lock:
        scheduler.schedule("slow", lambda: go_on.wait(WAIT_S))
        scheduler.schedule("quick", lambda: ran.append("quick"))
    try:
        wait_until(lambda: ran, WAIT_S / 2)
    finally:
        go_on.set()
        scheduler.shutdown()


def test_a_thread_that_cannot_be_started_costs_no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    scheduler = KafkaScheduler(4)
    scheduler.startup()
    scheduler.schedule("first", lambda: None)
    wait_until(lambda: scheduler._idle == 1, WAIT_S)

    def start(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", start)
    ran: list[int] = []
    with scheduler._lock:
        for number in range(3):
            scheduler.schedule("task", lambda number=number: ran.append(number))  # type: ignore[misc]
    wait_until(lambda: ran == [0, 1, 2], WAIT_S)
    scheduler.shutdown()


def test_cancelled_task_does_not_run(scheduler: KafkaScheduler) -> None:
    runs: list[str] = []
    scheduler.schedule("cancelled", lambda: runs.append("cancelled"), delay_ms=20).cancel()
    scheduler.schedule("kept", lambda: runs.append("kept"), delay_ms=60)
    wait_until(lambda: runs)
    assert runs == ["kept"]


def test_many_threads_may_hide_the_same_module_at_once() -> None:
    failures: list[Exception] = []
    start = threading.Barrier(8)

    def hide() -> None:
        try:
            start.wait(30)
            for _ in range(2000):
                with without("a_module_that_is_not_there"):
                    pass
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=hide) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
