"""The :class:`~broker.zookeeper.store.Store` that is ZooKeeper, through kazoo: the only importer of kazoo.

Importing this module costs about 0.1 s of start-up, so whoever may do without ZooKeeper imports it late.
kazoo's threads only enqueue: watches are set again by asynchronous calls, and every callback of ours runs on
one thread, ``zookeeper-events``.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import structlog
from kazoo import exceptions as zk_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.serialization import Create as CreateRequest
from kazoo.protocol.states import EventType, KazooState, WatchedEvent, ZnodeStat
from kazoo.retry import KazooRetry
from kazoo.security import ACL, OPEN_ACL_UNSAFE, Id

from broker.zookeeper.acl import PERMISSIONS, Acl
from broker.zookeeper.connect_string import parse_connect_string
from broker.zookeeper.select_ready import select_ready
from broker.zookeeper.session_end import Session
from broker.zookeeper.store import (
    ANY_VERSION,
    BadVersionError,
    Cancelled,
    Check,
    ConnectionLossError,
    ConnectTimeoutError,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    OpResult,
    SessionEvent,
    SessionExpiredError,
    SetData,
    Stat,
    StoreError,
    Watch,
    parent_of,
)

_log = structlog.get_logger(__name__)

CANCEL_POLL_S = 0.05
CLOSE_TIMEOUT_S = 2.0
RETRY_PAUSE_S = 0.02
REARM_PAUSE_S = 1.0
# With these the connection has gone, and every watch is set again once there is the next.
_GONE_WITH_THE_CONNECTION = (
    zk_errors.ConnectionLoss,
    zk_errors.SessionExpiredError,
    zk_errors.ConnectionClosedError,
)
# kazoo wakes its connection with one byte per request through a socket pair, which holds some 270 of them.
PIPELINE_DEPTH = 100
EPHEMERAL_FLAG, SEQUENCE_FLAG = 1, 2

_STATE_NAMES = {
    KazooState.CONNECTED: "CONNECTED",
    KazooState.SUSPENDED: "CONNECTING",
    KazooState.LOST: "EXPIRED",
}
_ERRORS: tuple[tuple[type[Exception], type[StoreError]], ...] = (
    (zk_errors.NoNodeError, NoNodeError),
    (zk_errors.NodeExistsError, NodeExistsError),
    (zk_errors.BadVersionError, BadVersionError),
    (zk_errors.NotEmptyError, NotEmptyError),
    (zk_errors.ConnectionClosedError, ConnectionLossError),  # kazoo counts it among the expired sessions
    (zk_errors.SessionExpiredError, SessionExpiredError),
    (zk_errors.ConnectionLoss, ConnectionLossError),
    (zk_errors.SessionMovedError, ConnectionLossError),  # asked on a connection that the session has left
    (zk_errors.OperationTimeoutError, ConnectionLossError),
    (zk_errors.RequestTimeoutError, ConnectionLossError),
    (zk_errors.ThrottledOpError, ConnectionLossError),
    (KazooTimeoutError, ConnectionLossError),
)


class ZooKeeperStore:
    """One ZooKeeper session at a time; after an expiry kazoo opens the next by itself.

    An operation waits as long as the session may last for its answer, or for a lost connection to come back, and no
    longer: requests that need ZooKeeper then fail rather than hold their handler thread. What timed out may be done
    all the same, later; never after what this session asked for later.
    """

    def __init__(self, connect: str, session_timeout_ms: int) -> None:
        self._hosts, self._chroot = parse_connect_string(connect)
        self._session_timeout_ms = session_timeout_ms
        self._operation_timeout_s = session_timeout_ms / 1000
        self._last_warning = _LastWarning()
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._watches: dict[_ZooKeeperWatch, None] = {}
        self._lock = threading.Lock()  # lock order 30
        self._closed = False
        self._connected_before = False
        self._state_name = "CONNECTING"
        self._client = self._make_client()

    def __repr__(self) -> str:
        return f"<ZooKeeperStore {self._hosts}{self._chroot} session 0x{self.session_id & (1 << 64) - 1:x}>"

    @property
    def session_id(self) -> int:
        client_id = self._client.client_id
        return 0 if client_id is None else client_id[0] or 0

    @property
    def session(self) -> Session | None:
        client_id = self._client.client_id
        return Session(self._hosts, client_id[0], client_id[1]) if client_id and client_id[0] else None

    @property
    def longest_silence_ms(self) -> int:
        return int(self._handler.longest_silence_s * 1000)

    @property
    def state_name(self) -> str:
        return "CLOSED" if self._closed else self._state_name

    # -- the session ------------------------------------------------------------------------------------

    def connect(
        self,
        timeout_ms: int,
        cancel: threading.Event,
        on_waiting: Callable[[str], None] | None = None,
    ) -> None:
        threading.Thread(target=self._dispatch, name="zookeeper-events", daemon=True).start()
        live = self._client.start_async()
        started = time.monotonic()
        next_report_s = 1.0
        while not live.wait(CANCEL_POLL_S):
            waited_s = time.monotonic() - started
            if cancel.is_set():
                self.close()
                raise Cancelled(f"gave up waiting for ZooKeeper at {self._hosts}: told to stop")
            if 0 < timeout_ms <= waited_s * 1000:
                self.close()
                raise ConnectTimeoutError(
                    f"no ZooKeeper at {self._hosts} within {timeout_ms} ms ({self._last_warning.text}): "
                    "check zookeeper.connect and that the servers run"
                )
            if waited_s >= next_report_s:
                next_report_s += 1.0
                if on_waiting is not None:
                    on_waiting(
                        f"waiting for ZooKeeper at {self._hosts} ({waited_s:.0f} s):"
                        f" {self._last_warning.text}"
                    )
        if self._chroot:
            self._ensure_absolute(self._chroot)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._events.put(None)
        # kazoo waits for the server's goodbye, and joins its threads: seconds when the server is away.
        closer = threading.Thread(target=self._stop_client, name="zookeeper-close", daemon=True)
        closer.start()
        closer.join(CANCEL_POLL_S if not self._connected_before else CLOSE_TIMEOUT_S)

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(callback)

    # -- operations -------------------------------------------------------------------------------------
    # A node without data has none at all (null), as with Kafka: its controller takes an empty
    # /latest_producer_id_block for a damaged one, and gives out no producer ids.

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        created, stat = self._call(
            path,
            lambda: self._client.create_async(
                self._absolute(path),
                data or None,
                ephemeral=ephemeral,
                sequence=sequence,
                include_data=True,
            ),
        )
        return self._relative(created), _stat(stat)

    def ensure_path(self, path: str) -> None:
        if self.exists(path) is None:
            self._ensure_absolute(self._absolute(path))

    def get(self, path: str) -> tuple[bytes, Stat]:
        data, stat = self._call(path, lambda: self._client.get_async(self._absolute(path)))
        return data or b"", _stat(stat)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return _stat(self._call(path, lambda: self._client.set_async(self._absolute(path), data, version)))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._call(path, lambda: self._client.delete_async(self._absolute(path), version))

    def exists(self, path: str) -> Stat | None:
        stat = self._call(path, lambda: self._client.exists_async(self._absolute(path)))
        return None if stat is None else _stat(stat)

    def children(self, path: str) -> list[str]:
        names: list[str] = self._call(path, lambda: self._client.get_children_async(self._absolute(path)))
        return names

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        (result,) = self.multi_many([ops])
        if isinstance(result, StoreError):
            raise result
        return result

    def multi_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        raw = self._pipeline([(ops[0].path, partial(self._start_multi, ops)) for ops in batches])
        return [self._multi_result(ops, results) for ops, results in zip(batches, raw, strict=True)]

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]:
        raw = self._pipeline(
            [(path, partial(self._client.get_async, self._absolute(path))) for path in paths]
        )
        return [
            None if isinstance(found, NoNodeError) else (found[0] or b"", _stat(found[1])) for found in raw
        ]

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        starts = [(path, partial(self._client.get_children_async, self._absolute(path))) for path in paths]
        return [None if isinstance(found, NoNodeError) else found for found in self._pipeline(starts)]

    def get_acls_many(self, paths: Sequence[str]) -> list[tuple[Acl, ...] | None]:
        raw = self._pipeline(
            [(path, partial(self._client.get_acls_async, self._absolute(path))) for path in paths]
        )
        acls: list[tuple[Acl, ...] | None] = []
        for found in raw:
            if isinstance(found, StoreError) and not isinstance(found, NoNodeError):
                raise found
            acls.append(None if isinstance(found, NoNodeError) else tuple(map(_acl, found[0])))
        return acls

    def set_acls_many(self, acls: Sequence[tuple[str, Sequence[Acl]]]) -> None:
        starts = [
            (
                path,
                partial(self._client.set_acls_async, self._absolute(path), [_kazoo_acl(a) for a in entries]),
            )
            for path, entries in acls
        ]
        for done in self._pipeline(starts):
            if isinstance(done, StoreError):
                raise done

    def create_with_acls(self, path: str, data: bytes, acls: Sequence[Acl]) -> None:
        entries = [_kazoo_acl(acl) for acl in acls]
        self._call(path, lambda: self._client.create_async(self._absolute(path), data or None, acl=entries))

    # -- watches ----------------------------------------------------------------------------------------

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(_ChildrenWatch(self, self._absolute(path), callback))

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(_DataWatch(self, self._absolute(path), callback))

    def _add_watch(self, watch: _ZooKeeperWatch) -> Watch:
        with self._lock:
            self._watches[watch] = None
        watch.arm()
        return watch

    def forget_watch(self, watch: _ZooKeeperWatch) -> None:
        """For the watch itself, when it is cancelled."""
        with self._lock:
            self._watches.pop(watch, None)

    @property
    def kazoo(self) -> KazooClient:
        """For the watches of this module."""
        return self._client

    def enqueue(self, event: Callable[[], None]) -> None:
        """Runs ``event`` on the events thread. For the watches of this module."""
        self._events.put(event)

    # -- within -----------------------------------------------------------------------------------------

    def _make_client(self) -> KazooClient:
        logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001 - kept out of the tree of loggers
        logger.addHandler(self._last_warning)
        session_s = self._session_timeout_ms / 1000
        self._handler = _Handler(session_s / (self._hosts.count(",") + 1))
        client = KazooClient(
            hosts=self._hosts,
            timeout=session_s,
            handler=self._handler,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0),
            logger=logger,
        )
        client.add_listener(lambda state: self._events.put(partial(self._on_state, state)))
        return client

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # whatever is left of the connection dies with the process
            _log.debug("zookeeper_close_failed", error=repr(error))

    def _absolute(self, path: str) -> str:
        return self._chroot if path == "/" and self._chroot else self._chroot + path

    def _relative(self, path: str) -> str:
        return path[len(self._chroot) :]

    def _ensure_absolute(self, path: str) -> None:
        """Parents first; a node that somebody else makes at the same time is as good."""
        if path == "/" or self._call(path, lambda: self._client.exists_async(path)) is not None:
            return
        self._ensure_absolute(parent_of(path))
        try:
            self._call(path, lambda: self._client.create_async(path, None))
        except NodeExistsError:
            return

    def _call(self, path: str, start: Callable[[], IAsyncResult]) -> Any:
        (result,) = self._pipeline([(path, start)])
        if isinstance(result, StoreError):
            raise result
        return result

    def _pipeline(self, starts: Sequence[tuple[str, Callable[[], IAsyncResult]]]) -> list[Any]:
        """Starts operations in order and collects each one's value or :class:`StoreError`.

        From the first whose connection broke, all are started again, so that their order holds. Each answer renews
        the time that the next may take: thousands of operations are not late because together they take long.
        """
        deadline = time.monotonic() + self._operation_timeout_s
        done: list[Any] = []
        while len(done) < len(starts):
            chunk = starts[len(done) : len(done) + PIPELINE_DEPTH]
            pending = [(path, start()) for path, start in chunk]
            for path, result in pending:
                value = self._outcome(path, result, deadline)
                if isinstance(value, ConnectionLossError):
                    if self._closed or time.monotonic() >= deadline:
                        raise value
                    time.sleep(RETRY_PAUSE_S)
                    break
                if isinstance(value, SessionExpiredError):
                    raise value
                done.append(value)
                deadline = time.monotonic() + self._operation_timeout_s
        return done

    def _outcome(self, path: str, result: IAsyncResult, deadline: float) -> Any:
        try:
            return result.get(timeout=max(deadline - time.monotonic(), 0.001))
        except Exception as error:
            return _translated(error, path)

    def _start_multi(self, ops: Sequence[Op]) -> IAsyncResult:
        transaction = self._client.transaction()
        for op in ops:
            path = self._absolute(op.path)
            match op:
                case Create():
                    # Not by kazoo's own method, which cannot make a node without data.
                    flags = EPHEMERAL_FLAG * op.ephemeral | SEQUENCE_FLAG * op.sequence
                    request = CreateRequest(path, op.data or None, OPEN_ACL_UNSAFE, flags)
                    transaction.operations.append(request)
                case SetData():
                    transaction.set_data(path, op.data, op.version)
                case Delete():
                    transaction.delete(path, op.version)
                case Check():
                    transaction.check(path, op.version)
        return transaction.commit_async()

    def _multi_result(self, ops: Sequence[Op], results: Any) -> list[OpResult] | StoreError:
        if isinstance(results, StoreError):
            return results
        converted: list[OpResult] = []
        for index, (op, result) in enumerate(zip(ops, results, strict=True)):
            if isinstance(result, zk_errors.RolledBackError):
                continue  # a later one failed and says why
            if isinstance(result, Exception):
                return _translated(result, op.path, index)
            converted.append(self._op_result(result))
        return converted

    def _op_result(self, result: Any) -> OpResult:
        if isinstance(result, str):
            return self._relative(result)
        return _stat(result) if isinstance(result, ZnodeStat) else None

    def _dispatch(self) -> None:
        while (event := self._events.get()) is not None:
            try:
                event()
            except Exception:
                _log.exception("zookeeper_event_failed")

    def _on_state(self, state: str) -> None:
        if self._closed:
            return
        self._state_name = _STATE_NAMES[state]
        if state == KazooState.CONNECTED:
            _log.info(
                "zookeeper_connected", servers=self._hosts, chroot=self._chroot or "/", store=repr(self)
            )
            if self._connected_before:
                self._arm_all()
                self._tell(SessionEvent.CONNECTED)
            self._connected_before = True
        elif state == KazooState.SUSPENDED:
            _log.warning("zookeeper_connection_lost", servers=self._hosts, reason=self._last_warning.text)
            self._tell(SessionEvent.SUSPENDED)
        elif self._connected_before:
            _log.warning("zookeeper_session_expired", servers=self._hosts)
            self._tell(SessionEvent.EXPIRED)

    def _tell(self, event: SessionEvent) -> None:
        for listener in list(self._listeners):
            listener(event)

    def _arm_all(self) -> None:
        """What changed while the connection was away was seen by nobody: every watch counts as fired."""
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.arm()
            watch.fire()


class _ZooKeeperWatch:
    """Sets itself again whenever ZooKeeper's one-shot watch has fired."""

    def __init__(self, store: ZooKeeperStore, path: str, callback: Callable[[], None]) -> None:
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


class _DataWatch(_ZooKeeperWatch):
    """ZooKeeper's exists-watch, which sees creation, change and deletion alike."""

    def arm(self) -> None:
        self._store.kazoo.exists_async(self._path, watch=self._on_event).rawlink(self._on_set)

    def _on_set(self, result: IAsyncResult) -> None:
        if result.exception is not None:
            self._refused(result.exception)


class _ChildrenWatch(_ZooKeeperWatch):
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


class _Handler(SequentialThreadingHandler):
    """kazoo gives one dead server the whole session time-out to accept; like ZooKeeper's own client, ours a
    share. Its connection's thread waits here alone, so here it shows how long nothing was heard of ZooKeeper.
    """

    def __init__(self, connect_timeout_s: float) -> None:
        super().__init__()
        self._connect_timeout_s = connect_timeout_s
        self._heard_s: float | None = None
        self._longest_silence_s = 0.0

    @property
    def longest_silence_s(self) -> float:
        since_s = 0.0 if self._heard_s is None else time.monotonic() - self._heard_s
        return max(self._longest_silence_s, since_s)

    def select(self, *args: Any, **kwargs: Any) -> Any:
        ready = select_ready(*args, **kwargs)
        # The first that is watched for reading is the server's socket.
        if args[0] and args[0][0] in ready[0]:
            now_s = time.monotonic()
            if self._heard_s is not None:
                self._longest_silence_s = max(self._longest_silence_s, now_s - self._heard_s)
            self._heard_s = now_s
        return ready

    def create_connection(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["timeout"] = min(kwargs.get("timeout") or self._connect_timeout_s, self._connect_timeout_s)
        return super().create_connection(*args, **kwargs)


class _LastWarning(logging.Handler):
    """Keeps the last thing kazoo complained of, for our own messages; kazoo's log goes nowhere else."""

    def __init__(self) -> None:
        super().__init__()
        self.text = "no answer yet"

    def emit(self, record: logging.LogRecord) -> None:
        message = record.getMessage()
        if not message.startswith("Transition to "):  # says nothing of why
            self.text = message


def _stat(stat: ZnodeStat) -> Stat:
    return Stat(stat.czxid, stat.version, stat.ephemeralOwner, stat.ctime, stat.mtime, stat.numChildren)


def _acl(acl: ACL) -> Acl:
    permissions = "".join(letter for bit, letter in enumerate(PERMISSIONS) if acl.perms >> bit & 1)
    return Acl(acl.id.scheme, acl.id.id, permissions)


def _kazoo_acl(acl: Acl) -> ACL:
    return ACL(
        sum(1 << PERMISSIONS.index(letter) for letter in acl.permissions), Id(acl.scheme, acl.identity)
    )


def _translated(error: Exception, path: str, op_index: int = 0) -> StoreError:
    for theirs, ours in _ERRORS:
        if isinstance(error, theirs):
            return ours(f"{path}: {error.__class__.__name__} {error}".rstrip(), op_index)
    return StoreError(f"{path}: {error!r}", op_index)
