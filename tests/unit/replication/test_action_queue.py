"""What a thread found out is done where it holds no lock, once, and by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from broker.replication.action_queue import ActionQueue
from broker.utils.topic_partition import TopicPartition

A, B = TopicPartition("a", 0), TopicPartition("b", 0)


class Done:
    """What an ActionQueue has had done, in its order."""

    def __init__(self) -> None:
        self.calls: list[tuple[TopicPartition, bool]] = []
        self.depth = self.deepest = 0
        self.actions = ActionQueue(self)
        self.next: list[TopicPartition] = []

    def __call__(self, partition: TopicPartition, mark_moved: bool) -> None:
        self.depth += 1
        self.deepest = max(self.depth, self.deepest)
        self.calls.append((partition, mark_moved))
        if self.next:
            self.actions.add(self.next.pop(), True)
        self.depth -= 1


@pytest.fixture
def done() -> Done:
    return Done()


def test_what_comes_out_during_an_action_is_done_after_it(done: Done) -> None:
    done.next = [A, B, A, B]
    done.actions.add(A, False)
    assert done.calls == [(A, False), (B, True), (A, True), (B, True), (A, True)]
    assert done.deepest == 1


def test_what_is_put_off_is_done_once_when_the_lock_was_released(done: Done) -> None:
    with done.actions.putting_off():
        for mark_moved in (False, True, False):
            done.actions.add(A, mark_moved)
        with done.actions.putting_off():
            done.actions.add(A, False)
        assert done.calls == []
    assert done.calls == [(A, True)]
    done.actions.add(B, False)
    assert done.calls[1:] == [(B, False)]


def test_an_error_while_it_is_put_off_leaves_nobody_waiting(done: Done) -> None:
    def fail() -> None:
        with done.actions.putting_off():
            done.actions.add(A, True)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert done.calls == [(A, True)]


def test_one_thread_does_not_put_off_for_another(done: Done) -> None:
    with done.actions.putting_off():
        run(lambda: done.actions.add(A, True))
        assert done.calls == [(A, True)]


def test_a_threads_rule_ends_with_the_thread(done: Done) -> None:
    """The system gives the number of a thread that has ended to a later one."""
    numbers: list[int] = []

    def a_processor() -> None:
        numbers.append(threading.get_ident())
        done.actions.settle()

    def another() -> None:
        numbers.append(threading.get_ident())
        done.actions.add(B, True)

    run(a_processor)
    while numbers.count(numbers[0]) < 2:
        run(another)
    assert len(done.calls) == len(numbers) - 1


def run(action: Callable[[], None]) -> None:
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_who_settles_at_the_end_of_its_turn_puts_off_from_then_on(done: Done) -> None:
    done.actions.settle()
    done.actions.add(A, True)
    with done.actions.putting_off():
        done.actions.add(B, False)
    assert done.calls == []
    done.actions.settle()
    assert sorted(done.calls) == [(A, True), (B, False)]


def test_an_action_that_fails_keeps_no_other_from_being_done() -> None:
    tried: list[TopicPartition] = []

    def fail(partition: TopicPartition, _mark_moved: bool) -> None:
        tried.append(partition)
        raise ValueError(partition.topic)

    actions = ActionQueue(fail)

    def two_at_once() -> None:
        with actions.putting_off():
            actions.add(A, True)
            actions.add(B, True)

    with pytest.raises(ValueError, match=r"[ab]"):
        two_at_once()
    assert sorted(tried) == [A, B]
    with pytest.raises(ValueError, match="a"):
        actions.add(A, False)


def test_what_may_come_after_the_answers_is_done_when_they_are_sent(done: Done) -> None:
    after: list[str] = []
    done.actions.settle()
    done.actions.after_answers(lambda: after.append("first"))
    done.actions.add(A, True)
    assert done.actions.settle()
    assert (done.calls, after) == ([(A, True)], [])
    done.actions.after_answers(lambda: after.append("second"))
    assert done.actions.settle()  # the answers are sent
    assert after == ["first"]
    assert not done.actions.settle()
    assert after == ["first", "second"]


def test_a_thread_that_sends_no_answers_does_everything_at_once(done: Done) -> None:
    after: list[str] = []
    with done.actions.putting_off():
        done.actions.after_answers(lambda: after.append("at once"))
        assert after == ["at once"]


def test_what_fails_after_the_answers_keeps_nothing_else_from_being_done(done: Done) -> None:
    after: list[str] = []

    def fail() -> None:
        raise ValueError("first")

    done.actions.settle()
    done.actions.after_answers(fail)
    done.actions.after_answers(lambda: after.append("second"))
    assert done.actions.settle()
    with pytest.raises(ValueError, match="first"):
        done.actions.settle()
    assert after == ["second"]
    assert not done.actions.settle()
