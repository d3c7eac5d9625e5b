"""Queues checks of waiting requests and runs them when the thread holds no lock, and work that need not be done before
an answer.

Kafka's ActionQueue, with one queue per thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from broker.utils.topic_partition import TopicPartition


class _Mine:
    """The queue of one thread. ``settles``: it is a Processor's. ``later`` becomes ``ready`` with the next
    :meth:`ActionQueue.settle`, after which answers are sent.
    """

    __slots__ = ("due", "later", "puts_off", "ready", "settles")

    def __init__(self) -> None:
        self.due: dict[TopicPartition, bool] = {}
        self.puts_off = self.settles = False
        self.later: list[Callable[[], None]] = []
        self.ready: list[Callable[[], None]] = []


class ActionQueue:
    """A queue of checks; Kafka's ActionQueue. Runs ``complete(partition, mark_moved)`` for what a thread has
    added, on that thread: never within another such call, nor within :meth:`putting_off`.
    """

    def __init__(self, complete: Callable[[TopicPartition, bool], None]) -> None:
        self._complete = complete
        # The queue of each thread, which ends with it.
        self._threads = threading.local()

    def _mine(self) -> _Mine:
        threads = self._threads
        try:
            mine: _Mine = threads.mine
        except AttributeError:
            mine = threads.mine = _Mine()
        return mine

    def add(self, topic_partition: TopicPartition, mark_moved: bool) -> None:
        """Adds a check of the requests that wait for the partition's records and, if ``mark_moved``, for its
        high watermark. Runs it at once, unless this thread defers checks.
        """
        mine = self._mine()
        due = mine.due
        due[topic_partition] = mark_moved or due.get(topic_partition, False)
        if not mine.puts_off:
            mine.puts_off = True
            try:
                self._drain(due)
            finally:
                mine.puts_off = False

    def settle(self) -> bool:
        """Runs what this thread deferred since its last call. The first call makes a thread defer its checks.
        That way a Processor's turn answers a waiting follower once with everything appended in the turn.

        True: call it again when the answers are sent, for what :meth:`after_answers` put off.
        """
        mine = self._mine()
        mine.puts_off = mine.settles = True
        if mine.ready:
            ready, mine.ready = mine.ready, []
            _run_all(ready)
        if mine.due:
            self._drain(mine.due)
        if not mine.later:
            return False
        mine.ready, mine.later = mine.later, []
        return True

    def after_answers(self, action: Callable[[], None]) -> None:
        """Runs the action when the answers that this thread has so far are sent. Threads that do not settle run it
        at once.
        """
        mine = self._mine()
        if mine.settles:
            mine.later.append(action)
        else:
            action()

    @contextmanager
    def putting_off(self) -> Iterator[None]:
        """Defers checks while the caller holds a lock; they run after the block, with the lock released."""
        mine = self._mine()
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


def _run_all(actions: Iterable[Callable[[], None]]) -> None:
    """Runs all of them, then raises the first error."""
    failure: Exception | None = None
    for action in actions:
        try:
            action()
        except Exception as error:
            failure = failure or error
    if failure is not None:
        raise failure
