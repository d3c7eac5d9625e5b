"""The controller's watches in the store. Each change enqueues an event, unless the same event is
already waiting.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from broker.zookeeper.store import Watch

Action = Callable[[], None]


class Watches:
    """The controller's watches. The controller's thread owns it. ``enqueue(key, action)`` is called on the
    store's thread.
    """

    def __init__(self, enqueue: Callable[[Hashable, Action], None]) -> None:
        self._enqueue = enqueue
        self._watches: dict[Hashable, Watch] = {}

    def put(
        self, key: Hashable, watch: Callable[[Action], Watch], action: Action, *, event: Hashable = None
    ) -> None:
        """Sets a watch by calling ``watch(callback)``. It replaces a watch with the same key. Watches with the same
        ``event`` share one event, which ``action`` handles for all: with a new connection every watch counts as fired.
        """
        self.drop(key)
        name = key if event is None else event
        self._watches[key] = watch(lambda: self._enqueue(name, action))

    def drop(self, key: Hashable) -> None:
        watch = self._watches.pop(key, None)
        if watch is not None:
            watch.cancel()

    def clear(self) -> None:
        for watch in self._watches.values():
            watch.cancel()
        self._watches.clear()
