"""KafkaScheduler: a pool of named daemon threads that run one-off and periodic background tasks.

An exception in a task is logged; a periodic task still runs again at its next time. Periodic tasks stop with
the scheduler.

Tasks run in the order in which they are due. Tasks that come in large numbers (a deleted topic's logs, syncs
after a segment roll) are marked as bulk and use at most half of the threads. However many there are, and
however slow the disk, other tasks still run.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from broker.utils.clock import SYSTEM_CLOCK, Clock, wait_s

_log = structlog.get_logger(__name__)


@dataclass(order=True, slots=True)
class ScheduledTask:
    """A task and its next time. ``cancel`` prevents further runs; a run in progress ends normally."""

    due_ms: int
    sequence: int
    name: str = field(compare=False)
    action: Callable[[], None] = field(compare=False)
    period_ms: int = field(compare=False)
    bulk: bool = field(compare=False)
    cancelled: bool = field(default=False, compare=False)

    def cancel(self) -> None:
        self.cancelled = True


class KafkaScheduler:
    """The thread pool for background tasks; Kafka's KafkaScheduler. It has at most ``threads`` daemon
    threads, named ``<prefix>-<n>`` and started on demand. Bulk tasks use at most half of them. The
    BrokerServer owns it.
    """

    def __init__(
        self, threads: int, name_prefix: str = "kafka-scheduler", clock: Clock = SYSTEM_CLOCK
    ) -> None:
        self._max_threads = threads
        self._max_bulk = max(threads // 2, 1)
        self._prefix = name_prefix
        self._clock = clock
        self._lock = threading.Condition()  # lock order 80
        self._tasks: list[ScheduledTask] = []
        self._bulk: list[ScheduledTask] = []
        self._bulk_running = 0
        self._sequence = itertools.count()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._running = False

    def startup(self) -> None:
        """Starts the scheduler. Raises RuntimeError if it is already running."""
        with self._lock:
            if self._running:
                raise RuntimeError("This scheduler has already been started!")
            self._running = True

    @property
    def is_started(self) -> bool:
        return self._running

    def schedule(
        self,
        name: str,
        action: Callable[[], None],
        delay_ms: int = 0,
        period_ms: int = -1,
        *,
        bulk: bool = False,
    ) -> ScheduledTask:
        """Runs ``action`` after ``delay_ms``, then every ``period_ms`` after the end of each run (negative:
        only once). ``bulk``: one of many similar tasks.
        """
        due_ms = self._clock.monotonic_ms() + delay_ms
        task = ScheduledTask(due_ms, next(self._sequence), name, action, period_ms, bulk)
        with self._lock:
            if not self._running:
                raise RuntimeError(f"cannot schedule {name!r}: the scheduler is not running")
            self._push(task)
        return task

    def resize(self, threads: int) -> None:
        """Changes the number of threads. Those above it end after their current tasks."""
        with self._lock:
            self._max_threads = threads
            self._max_bulk = max(threads // 2, 1)
            if self._running and (self._tasks or self._bulk):
                self._have_one_wait()
            self._lock.notify_all()

    def shutdown(self) -> None:
        """Drops waiting tasks and joins the threads, which finish their current tasks first."""
        with self._lock:
            if not self._running:
                return
            self._running = False
            self._tasks.clear()
            self._bulk.clear()
            self._lock.notify_all()
            threads, self._threads = self._threads, []
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join()

    def _push(self, task: ScheduledTask) -> None:
        heapq.heappush(self._bulk if task.bulk else self._tasks, task)
        self._have_one_wait()
        self._lock.notify()

    def _have_one_wait(self) -> None:
        if self._idle == 0 and len(self._threads) < self._max_threads:
            thread = threading.Thread(
                target=self._work, name=f"{self._prefix}-{len(self._threads)}", daemon=True
            )
            try:
                thread.start()
            except RuntimeError:  # out of memory or threads: the existing threads run the task, later
                if not self._threads:
                    raise
                _log.warning("scheduler_thread_not_started", threads=len(self._threads))
            else:
                self._threads.append(thread)

    def _work(self) -> None:
        while (task := self._take()) is not None:
            try:
                task.action()
            except Exception:
                _log.exception("scheduled_task_failed", task=task.name)
            with self._lock:
                if task.bulk:
                    self._bulk_running -= 1
                    self._lock.notify()  # a waiting thread may have skipped the next bulk task
                if task.period_ms >= 0 and not task.cancelled and self._running:
                    task.due_ms = self._clock.monotonic_ms() + task.period_ms
                    self._push(task)

    def _take(self) -> ScheduledTask | None:
        with self._lock:
            while self._running:
                if len(self._threads) > self._max_threads:
                    self._threads.remove(threading.current_thread())
                    self._lock.notify()  # a task that woke this thread is for another one
                    return None
                open_to_bulk = self._bulk_running < self._max_bulk
                queues = [queue for queue in (self._tasks, self._bulk if open_to_bulk else None) if queue]
                queue = min(queues, key=lambda queue: queue[0], default=None)
                wait_ms = queue[0].due_ms - self._clock.monotonic_ms() if queue else None
                if queue and wait_ms is not None and wait_ms <= 0:
                    task = heapq.heappop(queue)
                    if not task.cancelled:
                        self._bulk_running += task.bulk
                        if self._tasks or self._bulk:  # this thread may have been woken for another task
                            self._have_one_wait()
                        return task
                    continue
                self._idle += 1
                self._lock.wait(wait_s(wait_ms))
                self._idle -= 1
            return None
