"""The store of the cluster's state, as the broker sees it: ZooKeeper's operations in plain types.

``client`` fills the interface in with ZooKeeper, ``embedded`` with a tree in the process. What the nodes
mean is left to ``znodes`` and ``cluster_store``. Paths are absolute and below the chroot; callbacks run on a
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
    """The store refused or could not be asked. ``op_index`` is the failing operation's place in a multi."""

    def __init__(self, message: str, op_index: int = 0) -> None:
        super().__init__(message)
        self.op_index = op_index


class NoNodeError(StoreError):
    """The node, or the parent of the one to be created, does not exist."""


class NodeExistsError(StoreError):
    """The node to be created is there already."""


class BadVersionError(StoreError):
    """The node's data was changed since the version that the caller expects."""


class NotEmptyError(StoreError):
    """The node to be deleted has children."""


class UnimplementedError(StoreError):
    """The servers are too old for the request."""


class SessionExpiredError(StoreError):
    """The session is gone, its ephemeral nodes with it; a new one follows by itself."""


class ConnectionLossError(StoreError):
    """No answer in time: whether the operation was done is not known."""


class ConnectTimeoutError(StoreError):
    """No connection within the time the caller gave."""


class Cancelled(StoreError):
    """The caller no longer wants the connection: the broker is told to stop."""


class SessionEvent(Enum):
    """What happens to the session. After EXPIRED a CONNECTED follows with a new session and all watches set
    again.
    """

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@dataclass(frozen=True, slots=True)
class Stat:
    """A node's metadata. ``czxid`` is the transaction that created it; ``ephemeral_owner`` a session id, or
    0.
    """

    czxid: int
    version: int
    ephemeral_owner: int
    ctime_ms: int
    mtime_ms: int
    num_children: int


@dataclass(frozen=True, slots=True)
class Create:
    """Creates a node; its parent must exist. Yields the path as created."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequence: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    """Replaces a node's data. Yields its new :class:`Stat`."""

    path: str
    data: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes a node without children. Yields None."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Holds only while the node has this version. Yields None."""

    path: str
    version: int


Op = Create | SetData | Delete | Check
OpResult = str | Stat | None


class Watch(Protocol):
    """A standing interest in a node."""

    def cancel(self) -> None:
        """No callback is started after this; one under way may still end."""
        ...


class Store(Protocol):
    """Thread-safe. Every operation may raise :class:`SessionExpiredError` or :class:`ConnectionLossError`.

    Operations of one thread are done in its order. An operation whose connection breaks is tried again, so a
    conditional write or a create may meet its own first try: callers to whom that matters read the node back.
    """

    @property
    def session_id(self) -> int:
        """The present session's id, 0 before the first."""
        ...

    @property
    def session(self) -> Session | None:
        """What it takes to end the present session from outside; None before the first, and where that cannot be."""
        ...

    @property
    def longest_silence_ms(self) -> int:
        """The longest time in which nothing was heard of ZooKeeper, since the first connection. An idle session is
        heard of every third of its time-out; at the whole of it, it ends.
        """
        ...

    @property
    def state_name(self) -> str:
        """CONNECTED, CONNECTING, EXPIRED or CLOSED, as Kafka's SessionState metric has it."""
        ...

    def connect(
        self,
        timeout_ms: int,
        cancel: threading.Event,
        on_waiting: Callable[[str], None] | None = None,
    ) -> None:
        """Blocks until connected and the chroot exists; ``timeout_ms`` <= 0 waits for ever.

        ``on_waiting`` is told about once a second what is being waited for. Raises :class:`Cancelled` within
        100 ms of ``cancel``, :class:`ConnectTimeoutError` when the time is up.
        """
        ...

    def close(self) -> None:
        """Ends the session: its ephemeral nodes go. Does not wait long for a server that is away."""
        ...

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        """Returns the path as created. Raises :class:`NodeExistsError`, :class:`NoNodeError` (no parent)."""
        ...

    def ensure_path(self, path: str) -> None:
        """Creates the node and its parents, where they are missing, empty."""
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
        """Names in no particular order. Raises :class:`NoNodeError`."""
        ...

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        """All or nothing. Raises the failing operation's error, with its ``op_index``."""
        ...

    def multi_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        """Many multis, pipelined and in order; each succeeds or fails by itself, with the error as its
        result.

        Raises only :class:`SessionExpiredError` and :class:`ConnectionLossError`.
        """
        ...

    def get_many(self, paths: Sequence[str], *, small: bool = False) -> list[tuple[bytes, Stat] | None]:
        """Pipelined reads; None where there is no such node. ``small``: no node or path is of more than a few KiB, and
        some may be read with one request.
        """
        ...

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        """Pipelined :meth:`children`; None where there is no such node."""
        ...

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        """Calls back after each change of the node's children (or of its existence), and after each
        reconnection.

        The watch is set again before the callback: what is read after the callback misses nothing.
        """
        ...

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        """The same for creation, deletion and change of the node's data."""
        ...

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> None:
        """Tells every later change of the session, in order."""
        ...


def parent_of(path: str) -> str:
    """``/a/b`` of ``/a/b/c``; ``/`` for a node at the top."""
    return path.rpartition("/")[0] or "/"


def or_raise(result: T | StoreError) -> T:
    """The result of one of many operations. Raises the error in its place."""
    if isinstance(result, StoreError):
        raise result
    return result
