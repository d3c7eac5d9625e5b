"""The controller's thread and its event queue. Kafka's ControllerEventManager."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass

from broker.utils.clock import Clock, wait_s

Action = Callable[[], None]


@dataclass(frozen=True, slots=True)
class QueuedEvent:
    """An event for the controller's thread; Kafka's QueuedEvent. ``key`` names its kind. An event put with
    ``coalesce`` is dropped if one with the same key is already waiting.
    """

    key: Hashable
    action: Action
    coalesce: bool


class EventQueue:
    """The controller's thread with its queue; Kafka's ControllerEventManager. Events run one at a time,
    delayed events once they are due. ``on_error(key, error)`` is called on the same thread for an event
    that raises.
    """

    def __init__(self, name: str, clock: Clock, on_error: Callable[[Hashable, Exception], None]) -> None:
        self._clock = clock
        self._on_error = on_error
        self._lock = threading.Condition()  # lock order 62
        self._events: deque[QueuedEvent] = deque()
        self._waiting: set[Hashable] = set()
        self._later: list[tuple[int, int, QueuedEvent]] = []
        self._sequence = itertools.count()
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def __len__(self) -> int:
        return len(self._events)

    def start(self) -> None:
        self._thread.start()

    def put(self, key: Hashable, action: Action, *, coalesce: bool = False) -> bool:
        """Enqueues an event. Returns False if the queue has been stopped."""
        with self._lock:
            if self._stopped:
                return False
            self._append(QueuedEvent(key, action, coalesce))
            return True

    def put_later(self, delay_ms: int, key: Hashable, action: Action) -> None:
        """Enqueues an event that is due in ``delay_ms``."""
        with self._lock:
            if self._stopped:
                return
            due_ms = self._clock.monotonic_ms() + delay_ms
            heapq.heappush(
                self._later, (due_ms, next(self._sequence), QueuedEvent(key, action, coalesce=False))
            )
            self._lock.notify()

    def stop(self, last: Action) -> None:
        """Drops the waiting events, runs ``last`` as the last event and joins the thread."""
        with self._lock:
            if self._stopped:
                return
            self._stopped = True
            self._events.clear()
            self._later.clear()
            self._events.append(QueuedEvent("stop", last, coalesce=False))
            self._lock.notify()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def _append(self, event: QueuedEvent) -> None:
        if event.coalesce:
            if event.key in self._waiting:
                return
            self._waiting.add(event.key)
        self._events.append(event)
        self._lock.notify()

    def _run(self) -> None:
        while (event := self._next()) is not None:
            try:
                event.action()
            except Exception as error:
                self._on_error(event.key, error)
            event = None  # do not keep the event's objects alive until the next event

    def _next(self) -> QueuedEvent | None:
        with self._lock:
            while True:
                now_ms = self._clock.monotonic_ms()
                while self._later and self._later[0][0] <= now_ms:
                    self._append(heapq.heappop(self._later)[2])
                if self._events:
                    event = self._events.popleft()
                    self._waiting.discard(event.key)
                    return event
                if self._stopped:
                    return None
                self._lock.wait(wait_s(self._later[0][0] - now_ms if self._later else None))
