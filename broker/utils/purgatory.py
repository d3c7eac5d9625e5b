"""Purgatory for requests that cannot be answered yet: acks=all, long polls, group joins.
Kafka's DelayedOperationPurgatory.

No thread waits. Code that makes a condition true calls :meth:`Purgatory.check_and_complete` for the key, and
the operation completes on that thread.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable

from broker.utils.timer import Timer, TimerEntry


class DelayedOperation:
    """An operation that completes exactly once: when :meth:`can_complete` succeeds, or at its time-out.
    Kafka's DelayedOperation.

    Subclasses implement ``can_complete`` (checks the condition; one thread at a time), ``on_complete`` (sends
    the response) and optionally ``on_expiration``. ``can_complete`` may take partition locks, so
    ``check_and_complete`` must never be called with such a lock held. ``on_complete`` runs without any lock
    of this module, so it may complete other operations.
    """

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self._lock = threading.Lock()  # lock order 32
        self._completed = False
        self.timer_entry: TimerEntry | None = None
        self.watched: tuple[dict[DelayedOperation, None], ...] = ()

    @property
    def is_completed(self) -> bool:
        return self._completed

    def can_complete(self) -> bool:
        raise AssertionError("a delayed operation says itself when it is complete")

    def on_complete(self) -> None:
        raise AssertionError("a delayed operation says itself what completes it")

    def on_expiration(self) -> None:
        """Called after ``on_complete`` if the operation completed by time-out."""

    def try_complete(self) -> bool:
        """Completes if it can; True for the one caller that completed it."""
        with self._lock:
            if self._completed or not self.can_complete():
                return False
            self._completed = True
        self._leave()
        self.on_complete()
        return True

    def force_complete(self) -> bool:
        """Completes now unless already completed; True for the one caller that completed it."""
        if not self._end():
            return False
        self.on_complete()
        return True

    def abandon(self) -> None:
        """Ends the operation without a response, unless it is already completed: the client is gone."""
        self._end()

    def _end(self) -> bool:
        with self._lock:
            if self._completed:
                return False
            self._completed = True
        self._leave()
        return True

    def _leave(self) -> None:
        entry, self.timer_entry = self.timer_entry, None
        if entry is not None:
            entry.cancel()
        for watchers in self.watched:
            watchers.pop(self, None)

    def expire(self) -> None:
        if self.force_complete():
            self.on_expiration()


class Purgatory:
    """Watch lists by key; Kafka's DelayedOperationPurgatory. Operations run on the caller's thread or
    the timer's.
    """

    def __init__(self, name: str, timer: Timer) -> None:
        self.name = name
        self._timer = timer
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self._lock = threading.Lock()  # lock order 38

    def __len__(self) -> int:
        """The number of waiting operations, counted once per key."""
        return sum(len(watchers) for watchers in list(self._watchers.values()))

    def try_complete_else_watch(self, operation: DelayedOperation, keys: Iterable[Hashable]) -> bool:
        """True if the operation completed at once; otherwise it waits for its keys and its time-out."""
        if operation.try_complete():
            return True
        with self._lock:
            lists = []
            for key in keys:
                watchers = self._watchers.get(key)
                if watchers is None:
                    watchers = self._watchers[key] = {}
                watchers[operation] = None
                lists.append(watchers)
            operation.watched = tuple(lists)
        # The condition may have become true between the first try and the registration.
        if operation.try_complete():
            return True
        operation.timer_entry = entry = self._timer.add(operation.timeout_ms, operation.expire)
        if operation.is_completed:  # by another thread, before the timer entry and the lists were set
            entry.cancel()
            for watchers in operation.watched:
                watchers.pop(operation, None)
        return False

    def watches(self, key: Hashable) -> bool:
        """Whether an operation waits on ``key``."""
        return bool(self._watchers.get(key))

    def check_and_complete(self, key: Hashable) -> int:
        """Tries every operation that waits on ``key``; returns how many completed. Cheap when none waits."""
        watchers = self._watchers.get(key)
        if not watchers:
            return 0
        return sum(operation.try_complete() for operation in list(watchers))

    def cancel_for_key(self, key: Hashable) -> list[DelayedOperation]:
        """Removes the key and returns the operations that waited on it, not completed."""
        with self._lock:
            return list(self._watchers.pop(key, {}))

    def drop_empty(self) -> None:
        """Removes keys without waiting operations. Called periodically, because topics come and go."""
        with self._lock:
            for key in [key for key, watchers in self._watchers.items() if not watchers]:
                del self._watchers[key]
