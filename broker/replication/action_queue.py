"""Queues checks of waiting requests and runs them when the thread holds no lock.

Kafka's ActionQueue, with one queue per thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from broker.utils.topic_partition import TopicPartition


class _Mine:
    """The queue of one thread."""

    __slots__ = ("due", "puts_off")

    def __init__(self) -> None:
        self.due: dict[TopicPartition, bool] = {}
        self.puts_off = False


class _Threads(threading.local):
    """The queue of each thread, which ends with it. One look-up per use, as thread-local ones are slow."""

    def __init__(self) -> None:
        self.mine = _Mine()


class ActionQueue:
    """A queue of checks; Kafka's ActionQueue. Runs ``complete(partition, mark_moved)`` for what a thread has
    added, on that thread: never within another such call, nor within :meth:`putting_off`.
    """

    def __init__(self, complete: Callable[[TopicPartition, bool], None]) -> None:
        self._complete = complete
        self._threads = _Threads()

    def add(self, topic_partition: TopicPartition, mark_moved: bool) -> None:
        """Adds a check of the requests that wait for the partition's records and, if ``mark_moved``, for its
        high watermark. Runs it at once, unless this thread defers checks.
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
        """Runs what this thread deferred since its last call. The first call makes a thread defer its checks.
        That way a Processor's turn answers a waiting follower once with everything appended in the turn.
        """
        mine = self._threads.mine
        mine.puts_off = True
        due = mine.due
        if due:
            self._drain(due)

    @contextmanager
    def putting_off(self) -> Iterator[None]:
        """Defers checks while the caller holds a lock; they run after the block, with the lock released."""
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
        """Runs all checks, then raises the first error: other partitions' requests must not wait forever."""
        failure: Exception | None = None
        while due:
            topic_partition, mark_moved = due.popitem()
            try:
                self._complete(topic_partition, mark_moved)
            except Exception as error:
                failure = failure or error
        if failure is not None:
            raise failure
