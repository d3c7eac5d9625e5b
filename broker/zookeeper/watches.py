"""Watches that set themselves again whenever ZooKeeper's one-shot watch has fired, or was refused."""

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
# With these the connection has gone, and every watch is set again once there is the next.
_GONE_WITH_THE_CONNECTION = (
    zk_errors.ConnectionLoss,
    zk_errors.SessionExpiredError,
    zk_errors.ConnectionClosedError,
)


class WatchedStore(Protocol):
    """What a watch needs of the store that it belongs to."""

    @property
    def kazoo(self) -> KazooClient: ...

    def enqueue(self, event: Callable[[], None]) -> None:
        """Runs ``event`` on the events thread."""

    def forget_watch(self, watch: ZooKeeperWatch) -> None:
        """It is cancelled."""


class ZooKeeperWatch:
    """One watch of a store; ``callback`` runs on the events thread."""

    def __init__(self, store: WatchedStore, path: str, callback: Callable[[], None]) -> None:
        self._store = store
        self._path = path
        self._callback = callback
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._store.forget_watch(self)

    def arm(self) -> None:
        raise AssertionError("each kind of watch arms itself")

    def fire(self) -> None:
        if not self._cancelled:
            self._callback()

    def _refused(self, error: Exception) -> None:
        """ZooKeeper did not set it, as a server does that has too much to do. While the connection lives nothing else
        would, and what it was to tell of would be seen by nobody: it is set later, and counts as fired then.
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
        # NONE: kazoo drops its watches with the connection; all are armed again when it is back.
        if self._cancelled or event.type == EventType.NONE:
            return
        self.arm()
        self._store.enqueue(self.fire)


class DataWatch(ZooKeeperWatch):
    """ZooKeeper's exists-watch, which sees creation, change and deletion alike."""

    def arm(self) -> None:
        self._store.kazoo.exists_async(self._path, watch=self._on_event).rawlink(self._on_set)

    def _on_set(self, result: IAsyncResult) -> None:
        if result.exception is not None:
            self._refused(result.exception)


class ChildrenWatch(ZooKeeperWatch):
    """A children-watch, with an exists-watch in its place while there is no such node."""

    def arm(self) -> None:
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
            self.arm()  # the node came between the two calls
            self._store.enqueue(self.fire)
