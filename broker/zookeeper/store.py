"""The store of the cluster's state, as the broker sees it: ZooKeeper's operations in plain types.

``client`` implements the interface with ZooKeeper, ``embedded`` with a tree in the process. ``znodes`` and
``cluster_store`` define what the nodes mean. Paths are absolute and below the chroot. Callbacks run on a
thread of the implementation and must only enqueue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Protocol, TypeVar

from broker.zookeeper.session_end import Session

ANY_VERSION = -1
T = TypeVar("T")


class StoreError(Exception):
    """The store refused an operation or could not be reached. ``op_index`` is the failing operation's
    position in a multi.
    """

    def __init__(self, message: str, op_index: int = 0) -> None:
        super().__init__(message)
        self.op_index = op_index


class NoNodeError(StoreError):
    """The node, or the parent of the node to create, does not exist."""


class NodeExistsError(StoreError):
    """The node to create already exists."""


class BadVersionError(StoreError):
    """The node's data has changed since the version that the caller expects."""


class NotEmptyError(StoreError):
    """The node to delete has children."""


class UnimplementedError(StoreError):
    """The servers are too old for the request."""


class SessionExpiredError(StoreError):
    """The session has expired, and its ephemeral nodes are gone. A new session follows automatically."""


class ConnectionLossError(StoreError):
    """No answer in time. It is unknown whether the operation was carried out."""


class TooLargeError(StoreError):
    """The request is larger than ZooKeeper takes. It was not sent."""


class ConnectTimeoutError(StoreError):
    """No connection within the time the caller allowed."""


class Cancelled(StoreError):
    """The caller no longer wants the connection, because the broker is shutting down."""


class SessionEvent(Enum):
    """A change of the session. After EXPIRED, a CONNECTED follows with a new session and with all watches
    set again.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Stat:
    """A node's metadata. ``czxid`` is the transaction that created it; ``ephemeral_owner`` is a session id,
    or 0.
    """

    czxid: int
    version: int
    ephemeral_owner: int
    ctime_ms: int
    mtime_ms: int
    num_children: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node, whose parent must exist. The result is the created path."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replaces a node's data. The result is its new :class:`Stat`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node without children. The result is None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Succeeds only if the node has this version. The result is None."""

    path: str
    version: int


Op = Create | SetData | Delete | Check
OpResult = str | Stat | None


class Watch(Protocol):
    """A permanent watch of a node."""

    def cancel(self) -> None:
        """No callback starts after this call. A running one may still finish."""
        ...


class Store(Protocol):
    """The store of the cluster's state. Thread-safe. Every operation may raise :class:`SessionExpiredError`
    or :class:`ConnectionLossError`.

    The operations of one thread are carried out in order. If the connection breaks, an operation is tried
    again. So a conditional write or a create may find the result of its own first attempt; callers that must
    know read the node back.
    """

    @property
    def session_id(self) -> int:
        """The current session's id, 0 before the first session."""
        ...

    @property
    def session(self) -> Session | None:
        """What is needed to end the current session from outside. None before the first session, and where
        that is impossible.
        """
        ...

    @property
    def longest_silence_ms(self) -> int:
        """The longest time without a message from ZooKeeper since the first connection. An idle session gets
        a message every third of its timeout. After the whole timeout, the session ends.
        """
        ...

    @property
    def recent_silence_ms(self) -> int:
        """The same for the last five to ten minutes."""
        ...

    @property
    def state_name(self) -> str:
        """CONNECTED, CONNECTING, EXPIRED or CLOSED, as in Kafka's SessionState metric."""
        ...

    def connect(
        self,
        timeout_ms: int,
        cancel: threading.Event,
        on_waiting: Callable[[str], None] | None = None,
    ) -> None:
        """Blocks until connected and the chroot exists. With ``timeout_ms`` <= 0 it waits for ever.

        ``on_waiting`` is called about once a second with what it waits for. Raises :class:`Cancelled` within
        100 ms of ``cancel``, :class:`ConnectTimeoutError` when the time is up.
        """
        ...

    def close(self) -> None:
        """Ends the session, which deletes its ephemeral nodes. It does not wait long for a server that
        is down.
        """
        ...

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        """Returns the created path. Raises :class:`NodeExistsError`, :class:`NoNodeError` (no parent)."""
        ...

    def ensure_path(self, path: str) -> None:
        """Creates the node and its parents, empty, where they are missing."""
        ...

    def get(self, path: str) -> tuple[bytes, Stat]:
        """Raises :class:`NoNodeError`."""
        ...

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        """Raises :class:`NoNodeError`, :class:`BadVersionError`."""
        ...

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises :class:`NoNodeError`, :class:`BadVersionError`, :class:`NotEmptyError`."""
        ...

    def exists(self, path: str) -> Stat | None: ...

    def children(self, path: str) -> list[str]:
        """The children's names, in no particular order. Raises :class:`NoNodeError`."""
        ...

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """Carries out all operations or none. Raises the failing operation's error, with its ``op_index``."""
        ...

    def multi_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        """Carries out many multis, pipelined and in order. Each succeeds or fails separately, with the error
        as its result.

        Raises only :class:`SessionExpiredError` and :class:`ConnectionLossError`.
        """
        ...

    def get_many(self, paths: Sequence[str], *, small: bool = False) -> list[tuple[bytes, Stat] | None]:
        """Pipelined reads; None for a node that does not exist. ``small`` promises that no node or path is
        larger than a few KiB, so several may be read with one request.
        """
        ...

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Pipelined :meth:`children`; None for a node that does not exist."""
        ...

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Calls ``callback`` after each change of the node's children or its existence, and after
        each reconnection.

        The watch is set again before the callback, so a read in the callback misses nothing.
        """
        ...

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """Like :meth:`watch_children`, for creation, deletion and change of the node's data."""
        ...

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> None:
        """Calls ``callback`` for every later change of the session, in order."""
        ...


def parent_of(path: str) -> str:
    """``/a/b`` for ``/a/b/c``; ``/`` for a top-level node."""
    return path.rpartition("/")[0] or "/"


def or_raise(result: T | StoreError) -> T:
    """The result of one of many operations. Raises the error in its place."""
    if isinstance(result, StoreError):
        raise result
    return result
