"""The handler threads (``num.io.threads``) for requests that may block. Kafka's KafkaRequestHandlerPool.

Threads start on demand, so an idle broker has few.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import structlog

from broker.network.request_channel import Request, RequestChannel

_log = structlog.get_logger(__name__)
_JOIN_S = 30


class RequestHandlerPool:
    """Takes work from the RequestChannel until :meth:`shutdown`; Kafka's KafkaRequestHandlerPool.

    Invariant: while fewer than ``threads`` handlers run, there is one for each unfinished piece of work. Work
    may wait for other work, so none may be stuck behind a busy handler needlessly. Expensive ("dear") work
    (see RequestChannel) is the exception, and waits for no other work. Work that always waits for other work
    has a separate pool, because ``num.io.threads`` may be 1: for example requests to the controller, which
    may be this broker.
    """

    def __init__(self, channel: RequestChannel, threads: int, name: str = "request-handler") -> None:
        self._channel = channel
        self._name = name
        self._max_threads = threads
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()  # lock order 26
        self._unfinished = 0
        self._busy_ns = 0
        self._started_ns = time.monotonic_ns()
        self._stopped = False

    def submit(self, work: Callable[[], None], request: Request | None = None, *, dear: bool = False) -> bool:
        """Queues work, for a client's ``request`` or for the broker itself; False if the channel has no room
        or the pool has stopped.
        """
        with self._lock:
            if self._stopped or not self._channel.offer(work, request, dear=dear):
                return False
            self._unfinished += 1
            if len(self._threads) < min(self._unfinished, self._max_threads):
                self._add_thread()
        return True

    def resize(self, threads: int) -> None:
        """Changes the number of handlers. Those above it end after the queued work."""
        with self._lock:
            if self._stopped:
                return
            surplus = max(len(self._threads) - threads, 0) - max(len(self._threads) - self._max_threads, 0)
            self._max_threads = threads
        for _ in range(surplus):
            self._channel.stop_one()

    def avg_idle_percent(self) -> float:
        """Kafka's RequestHandlerAvgIdlePercent since the start, 0 to 1, relative to the maximum number
        of threads.
        """
        elapsed = time.monotonic_ns() - self._started_ns
        return 1.0 - min(self._busy_ns / max(elapsed * self._max_threads, 1), 1.0)

    def shutdown(self) -> None:
        """Finishes the queued work and joins the threads."""
        with self._lock:
            self._stopped = True
            threads = list(self._threads)
        for _ in threads:
            self._channel.stop_one()
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(timeout=_JOIN_S)

    def _add_thread(self) -> None:
        name = f"{self._name}-{len(self._threads)}"
        thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _run(self) -> None:
        while (work := self._channel.take()) is not None:
            started = time.monotonic_ns()
            try:
                work.run()
            except Exception:
                _log.exception("request_handler_failed")
            self._channel.finished(work)
            with self._lock:
                self._unfinished -= 1
                self._busy_ns += time.monotonic_ns() - started
            work = None  # frees the request and its results before the wait for the next one
        with self._lock:
            self._threads.remove(threading.current_thread())
