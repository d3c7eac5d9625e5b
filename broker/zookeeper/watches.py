"""Watches that set themselves again after ZooKeeper's one-shot watch has fired or was refused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

import structlog
from kazoo import exceptions as zk_errors
from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import EventType, WatchedEvent

_log = structlog.get_logger(__name__)
REARM_PAUSE_S = 1.0
# With these errors the connection is gone, and every watch is set again once there is a new one.
_GONE_WITH_THE_CONNECTION = (
    zk_errors.ConnectionLoss,
    zk_errors.SessionExpiredError,
    zk_errors.ConnectionClosedError,
)


class WatchedStore(Protocol):
    """The part of its store that a watch uses."""

    @property
    def kazoo(self) -> KazooClient: ...

    def enqueue(self, event: Callable[[], None]) -> None:
        """Runs ``event`` on the events thread."""

    def forget_watch(self, watch: ZooKeeperWatch) -> None:
        """Removes a cancelled watch."""


class ZooKeeperWatch:
    """One watch of a store. ``callback`` runs on the events thread."""

    def __init__(self, store: WatchedStore, path: str, callback: Callable[[], None]) -> None:
        self._store = store
        self._path = path
        self._callback = callback
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._store.forget_watch(self)

    def arm(self) -> None:
        """Sets the watch. Without a connection it does nothing: all are set again when there is a new one, and kazoo
        would keep what is asked meanwhile without a bound.
        """
        if self._store.kazoo.connected:
            self._set()

    def _set(self) -> None:
        raise AssertionError("each kind of watch sets itself")

    def fire(self) -> None:
        if not self._cancelled:
            self._callback()

    def _refused(self, error: Exception) -> None:
        """ZooKeeper did not set the watch, for example because the server is overloaded. While the
        connection lasts, nothing else would set it, and changes would be missed. So it is set later, and
        counts as fired then.
        """
        if self._cancelled or isinstance(error, _GONE_WITH_THE_CONNECTION):
            return
        _log.warning("watch_not_set", path=self._path, reason=repr(error), retry_s=REARM_PAUSE_S)
        timer = threading.Timer(REARM_PAUSE_S, self._arm_late)
        timer.daemon = True
        timer.start()

    def _arm_late(self) -> None:
        if not self._cancelled:
            self.arm()
            self._store.enqueue(self.fire)

    def _on_event(self, event: WatchedEvent) -> None:
        # NONE: kazoo drops its watches with the connection; all are set again when it is back.
        if self._cancelled or event.type == EventType.NONE:
            return
        self.arm()
        self._store.enqueue(self.fire)


class DataWatch(ZooKeeperWatch):
    """A watch of a node's data: ZooKeeper's exists-watch, which reports creation, change and deletion."""

    def _set(self) -> None:
        self._store.kazoo.exists_async(self._path, watch=self._on_event).rawlink(self._on_set)

    def _on_set(self, result: IAsyncResult) -> None:
        if result.exception is not None:
            self._refused(result.exception)


class ChildrenWatch(ZooKeeperWatch):
    """A watch of a node's children. While the node does not exist, an exists-watch replaces it."""

    def _set(self) -> None:
        self._store.kazoo.get_children_async(self._path, watch=self._on_event).rawlink(self._on_children)

    def _on_children(self, result: IAsyncResult) -> None:
        if result.exception is None or self._cancelled:
            return
        if isinstance(result.exception, zk_errors.NoNodeError):
            self._store.kazoo.exists_async(self._path, watch=self._on_event).rawlink(self._on_exists)
        else:
            self._refused(result.exception)

    def _on_exists(self, result: IAsyncResult) -> None:
        if result.exception is not None:
            self._refused(result.exception)
        elif result.value is not None and not self._cancelled:
            self.arm()  # the node was created between the two calls
            self._store.enqueue(self.fire)
