"""Whose waiting requests are to be looked at: noted where it comes out, done where the thread holds no lock.

Kafka's ActionQueue, with one queue for each thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.utils.topic_partition import TopicPartition


class _Mine:
    """One thread's."""

    __slots__ = ("due", "puts_off")

    def __init__(self) -> None:
        self.due: dict[TopicPartition, bool] = {}
        self.puts_off = False


class _Threads(threading.local):
    """What is a thread's ends with it. One look-up each time: those of a thread's own are dear."""

    def __init__(self) -> None:
        self.mine = _Mine()


class ActionQueue:
    """Runs ``complete(partition, mark_moved)`` for what a thread has added, on that thread: never within another such
    call, nor within :meth:`putting_off`.
    """

    def __init__(self, complete: Callable[[TopicPartition, bool], None]) -> None:
        self._complete = complete
        self._threads = _Threads()

    def add(self, topic_partition: TopicPartition, mark_moved: bool) -> None:
        """Who waits for the partition's records is to be looked at; who waits for its high watermark, where that moved.
        At once, unless this thread puts off.
        """
        mine = self._threads.mine
        due = mine.due
        due[topic_partition] = mark_moved or due.get(topic_partition, False)
        if not mine.puts_off:
            mine.puts_off = True
            try:
                self._drain(due)
            finally:
                mine.puts_off = False

    def settle(self) -> None:
        """Does what this thread put off since its last call. With its first call a thread begins to put off: so a
        Processor's turn gives a waiting follower all that was appended in it with one answer, not with one each.
        """
        mine = self._threads.mine
        mine.puts_off = True
        due = mine.due
        if due:
            self._drain(due)

    @contextmanager
    def putting_off(self) -> Iterator[None]:
        """For who takes a lock: what comes out within is done after it, when the lock was released."""
        mine = self._threads.mine
        puts_off_anyway, mine.puts_off = mine.puts_off, True
        try:
            yield
        finally:
            try:
                if not puts_off_anyway:
                    self._drain(mine.due)
            finally:
                mine.puts_off = puts_off_anyway

    def _drain(self, due: dict[TopicPartition, bool]) -> None:
        """Raises the first error, after all: who waits on another partition must not wait for ever."""
        failure: Exception | None = None
        while due:
            topic_partition, mark_moved = due.popitem()
            try:
                self._complete(topic_partition, mark_moved)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
