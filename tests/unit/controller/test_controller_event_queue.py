"""One thread, one queue: order, coalescing, delays, errors and the end."""

from __future__ import annotations

import threading
import weakref

import pytest

from broker.controller.event_queue import EventQueue
from broker.utils.clock import SYSTEM_CLOCK
from rig.wait import wait_until


@pytest.fixture
def errors():
    return []


@pytest.fixture
def events(errors):
    queue = EventQueue("events", SYSTEM_CLOCK, lambda key, error: errors.append((key, error)))
    queue.start()
    yield queue
    queue.stop(lambda: None)


def test_events_run_in_order_on_one_thread(events):
    seen = []
    for number in range(100):
        events.put("n", lambda n=number: seen.append((n, threading.current_thread().name)))
    wait_until(lambda: len(seen) == 100)
    assert seen == [(number, "events") for number in range(100)]


def test_an_event_that_waits_already_is_not_put_again(events):
    gate, seen = threading.Event(), []
    events.put("gate", lambda: gate.wait(30))
    for _ in range(5):
        events.put("again", lambda: seen.append(1), coalesce=True)
    gate.set()
    wait_until(lambda: seen)
    done = threading.Event()
    events.put("done", done.set)
    assert done.wait(30)
    assert seen == [1]


def test_an_event_put_while_its_like_runs_is_run_afterwards(events):
    seen = []

    def first():
        events.put("again", lambda: seen.append("second"), coalesce=True)
        seen.append("first")

    events.put("again", first, coalesce=True)
    wait_until(lambda: seen == ["first", "second"])


def test_delayed_events_run_by_their_time(events):
    seen = []
    events.put_later(60, "b", lambda: seen.append("b"))
    events.put_later(20, "a", lambda: seen.append("a"))
    events.put("now", lambda: seen.append("now"))
    wait_until(lambda: seen == ["now", "a", "b"])


def test_an_event_that_is_never_due_stops_no_other(events):
    done = threading.Event()
    events.put_later((1 << 63) - 1, "never", lambda: None)
    events.put_later(20, "soon", done.set)
    assert done.wait(30)


def test_an_error_is_told_and_the_thread_lives_on(events, errors):
    done = threading.Event()
    events.put("bad", lambda: 1 / 0)
    events.put("good", done.set)
    assert done.wait(30)
    assert errors[0][0] == "bad"
    assert isinstance(errors[0][1], ZeroDivisionError)


def test_after_the_last_event_nothing_is_taken(events):
    seen = []
    events.stop(lambda: seen.append("last"))
    assert seen == ["last"]
    assert not events.put("late", lambda: seen.append("late"))
    events.put_later(1, "late", lambda: seen.append("late"))
    events.stop(lambda: seen.append("twice"))
    assert seen == ["last"]


def test_what_an_event_was_made_of_is_let_go_of_when_it_is_over(events):
    class Large:
        def work(self) -> None: ...

    large = Large()
    gone = weakref.ref(large)
    events.put("large", large.work)
    del large
    wait_until(lambda: gone() is None)
