"""The :class:`~broker.zookeeper.store.Store` that uses ZooKeeper, through kazoo.

Importing this module adds about 0.1 s to the start-up, so callers that may not need ZooKeeper import it late.
kazoo's threads only enqueue. Watches are set again by asynchronous calls, and all our callbacks run on one
thread, ``zookeeper-events``.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import structlog
from kazoo import exceptions as zk_errors
from kazoo.client import KazooClient
from kazoo.interfaces import IAsyncResult
from kazoo.protocol.states import KazooState
from kazoo.retry import KazooRetry
from kazoo.security import ACL

from broker.zookeeper.access import NO_ACCESS, ZooKeeperAccess
from broker.zookeeper.acl import Acl
from broker.zookeeper.bounded_client import BoundedClient
from broker.zookeeper.connect_string import parse_connect_string
from broker.zookeeper.kazoo_connection import KazooConnection
from broker.zookeeper.kazoo_handler import Handler, LastWarning
from broker.zookeeper.kazoo_values import to_acl, to_kazoo_acl, to_stat, to_store_error
from broker.zookeeper.multi import multi_result, start_multi
from broker.zookeeper.multi_read import MultiRead
from broker.zookeeper.session_end import Session
from broker.zookeeper.silence import Silence
from broker.zookeeper.store import (
    ANY_VERSION,
    Cancelled,
    ConnectionLossError,
    ConnectTimeoutError,
    NodeExistsError,
    NoNodeError,
    Op,
    OpResult,
    SessionEvent,
    SessionExpiredError,
    Stat,
    StoreError,
    UnimplementedError,
    Watch,
    or_raise,
    parent_of,
)
from broker.zookeeper.watches import ChildrenWatch, DataWatch, ZooKeeperWatch

_log = structlog.get_logger(__name__)

CANCEL_POLL_S = 0.05
CLOSE_TIMEOUT_S = 2.0
RETRY_PAUSE_S = 0.02
# kazoo wakes its connection with one byte per request through a socket pair, which holds some 270 of them.
PIPELINE_DEPTH = 100
# As many as the controller writes with one multi, and only for small nodes. The server keeps the whole answer
# in memory, more than once: an answer of 25 MB ends a server with a heap of 128 MB. It accepts no request
# larger than one MiB.
READ_TOGETHER = 50

_STATE_NAMES = {
    KazooState.CONNECTED: "CONNECTED",
    KazooState.SUSPENDED: "CONNECTING",
    KazooState.LOST: "EXPIRED",
}


class ZooKeeperStore:
    """The store that uses ZooKeeper; Kafka's ZooKeeperClient. It has one session at a time; after an expiry
    kazoo opens the next.

    An operation waits for its answer, or for a lost connection to return, at most as long as the session timeout.
    After one has waited for the connection in vain, all fail at once until it is back: each would block its thread
    as long. One that timed out may still be carried out later, but never after later ones of the same session.
    """

    def __init__(self, connect: str, session_timeout_ms: int, access: ZooKeeperAccess = NO_ACCESS) -> None:
        self._access = access
        self._hosts, self._chroot = parse_connect_string(connect)
        self._session_timeout_ms = session_timeout_ms
        self._operation_timeout_s = session_timeout_ms / 1000
        self._last_warning = LastWarning()
        self._events: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._watches: dict[ZooKeeperWatch, None] = {}
        self._lock = threading.Lock()  # lock order 30
        self._closed = False
        self._connected_before = False
        self._waited_in_vain = False
        self._reads_together = True
        self._state_name = "CONNECTING"
        self._silence = Silence()
        self._client = self._make_client()

    def __repr__(self) -> str:
        return f"<ZooKeeperStore {self._hosts}{self._chroot} session 0x{self.session_id & (1 << 64) - 1:x}>"

    @property
    def session_id(self) -> int:
        return self._client._session_id or 0  # noqa: SLF001 - client_id forgets it with the connection

    @property
    def session(self) -> Session | None:
        client_id = self._client.client_id
        return Session(self._hosts, client_id[0], client_id[1]) if client_id and client_id[0] else None

    @property
    def longest_silence_ms(self) -> int:
        return int(self._silence.longest_s(time.monotonic()) * 1000)

    @property
    def recent_silence_ms(self) -> int:
        return int(self._silence.recent_s(time.monotonic()) * 1000)

    @property
    def state_name(self) -> str:
        return "CLOSED" if self._closed else self._state_name

    # -- the session

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
                reason = self._last_warning.text  # kazoo warns again when it is closed
                self.close()
                raise ConnectTimeoutError(
                    f"no ZooKeeper at {self._hosts} within {timeout_ms} ms ({reason}): "
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
        # kazoo waits for the server's close response and joins its threads, which takes seconds if the server
        # is down.
        closer = threading.Thread(target=self._stop_client, name="zookeeper-close", daemon=True)
        closer.start()
        closer.join(CANCEL_POLL_S if not self._connected_before else CLOSE_TIMEOUT_S)

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(callback)

    # -- operations
    # A node without data is stored as null, as in Kafka. Kafka's controller takes an empty
    # /latest_producer_id_block for a damaged one and allocates no producer ids.

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        created, stat = self._call(
            path,
            lambda: self._client.create_async(
                self._absolute(path),
                data or None,
                acl=self._acls_of(path),
                ephemeral=ephemeral,
                sequence=sequence,
                include_data=True,
            ),
        )
        return self._relative(created), to_stat(stat)

    def ensure_path(self, path: str) -> None:
        if self.exists(path) is None:
            self._ensure_absolute(self._absolute(path))

    def get(self, path: str) -> tuple[bytes, Stat]:
        data, stat = self._call(path, lambda: self._client.get_async(self._absolute(path)))
        return data or b"", to_stat(stat)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        return to_stat(self._call(path, lambda: self._client.set_async(self._absolute(path), data, version)))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        self._call(path, lambda: self._client.delete_async(self._absolute(path), version))

    def exists(self, path: str) -> Stat | None:
        stat = self._call(path, lambda: self._client.exists_async(self._absolute(path)))
        return None if stat is None else to_stat(stat)

    def children(self, path: str) -> list[str]:
        names: list[str] = self._call(path, lambda: self._client.get_children_async(self._absolute(path)))
        return names

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        return or_raise(self.multi_many([ops])[0])

    def multi_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        raw = self._pipeline([(ops[0].path, partial(self._start_multi, ops)) for ops in batches])
        return [multi_result(ops, results, self._relative) for ops, results in zip(batches, raw, strict=True)]

    def get_many(self, paths: Sequence[str], *, small: bool = False) -> list[tuple[bytes, Stat] | None]:
        nodes: list[tuple[bytes, Stat] | None] = []
        for path, found in zip(paths, self._read_many(paths, small=small), strict=True):
            if isinstance(found, Exception):
                error = found if isinstance(found, StoreError) else to_store_error(found, path)
                if not isinstance(error, NoNodeError):
                    raise error
                nodes.append(None)
            else:
                nodes.append((found[0] or b"", to_stat(found[1])))
        return nodes

    def _read_many(self, paths: Sequence[str], *, small: bool) -> list[Any]:
        """The result of kazoo for each path: data and stat, or an error."""
        if small and self._reads_together and len(paths) > 1:
            groups = [paths[at : at + READ_TOGETHER] for at in range(0, len(paths), READ_TOGETHER)]
            starts = [(group[0], partial(self._start_multi_read, group)) for group in groups]
            try:
                return list(chain.from_iterable(map(or_raise, self._pipeline(starts))))
            except UnimplementedError:
                self._reads_together = False
                _log.info("zookeeper_reads_one_by_one", reason="its servers are older than ZooKeeper 3.6")
        return self._pipeline(
            [(path, partial(self._client.get_async, self._absolute(path))) for path in paths]
        )

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        starts = [(path, partial(self._client.get_children_async, self._absolute(path))) for path in paths]
        return [
            None if isinstance(found, NoNodeError) else or_raise(found) for found in self._pipeline(starts)
        ]

    def get_acls_many(self, paths: Sequence[str]) -> list[tuple[Acl, ...] | None]:
        raw = self._pipeline(
            [(path, partial(self._client.get_acls_async, self._absolute(path))) for path in paths]
        )
        acls: list[tuple[Acl, ...] | None] = []
        for found in raw:
            if isinstance(found, StoreError) and not isinstance(found, NoNodeError):
                raise found
            acls.append(None if isinstance(found, NoNodeError) else tuple(map(to_acl, found[0])))
        return acls

    def set_acls_many(self, acls: Sequence[tuple[str, Sequence[Acl]]]) -> None:
        starts = [
            (
                path,
                partial(
                    self._client.set_acls_async, self._absolute(path), [to_kazoo_acl(a) for a in entries]
                ),
            )
            for path, entries in acls
        ]
        for done in self._pipeline(starts):
            if isinstance(done, StoreError):
                raise done

    def create_with_acls(self, path: str, data: bytes, acls: Sequence[Acl]) -> None:
        entries = [to_kazoo_acl(acl) for acl in acls]
        self._call(path, lambda: self._client.create_async(self._absolute(path), data or None, acl=entries))

    # -- watches

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(ChildrenWatch(self, self._absolute(path), callback))

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(DataWatch(self, self._absolute(path), callback))

    def _add_watch(self, watch: ZooKeeperWatch) -> Watch:
        with self._lock:
            self._watches[watch] = None
        watch.arm()
        return watch

    def forget_watch(self, watch: ZooKeeperWatch) -> None:
        """Removes a cancelled watch. Called by the watch."""
        with self._lock:
            self._watches.pop(watch, None)

    @property
    def kazoo(self) -> KazooClient:
        """The kazoo client, for the watches."""
        return self._client

    def enqueue(self, event: Callable[[], None]) -> None:
        """Runs ``event`` on the events thread. Called by the watches."""
        self._events.put(event)

    # -- internal

    def _make_client(self) -> KazooClient:
        logger = logging.Logger("kazoo", logging.WARNING)  # noqa: LOG001 - kept out of the logger hierarchy
        logger.addHandler(self._last_warning)
        session_s = self._session_timeout_ms / 1000
        handler = Handler(session_s / (self._hosts.count(",") + 1), self._access.secure, self._silence)
        client = BoundedClient(
            self._access.most_bytes,
            hosts=self._hosts,
            timeout=session_s,
            handler=handler,
            connection_retry=KazooRetry(max_tries=-1, delay=0.1, backoff=2, max_delay=1.0),
            logger=logger,
            auth_data={("digest", self._access.digest)} if self._access.digest else None,
        )
        self._connection = KazooConnection(client, self._access.sasl)
        client.add_listener(lambda state: self._events.put(partial(self._on_state, state)))
        return client

    def _stop_client(self) -> None:
        try:
            self._client.stop()
            self._client.close()
        except Exception as error:  # the rest of the connection ends with the process
            _log.debug("zookeeper_close_failed", error=repr(error))

    def _acls_of(self, path: str) -> list[ACL]:
        return [to_kazoo_acl(acl) for acl in self._access.acls_of(path)]

    def _absolute(self, path: str) -> str:
        return self._chroot if path == "/" and self._chroot else self._chroot + path

    def _relative(self, path: str) -> str:
        return path[len(self._chroot) :]

    def _ensure_absolute(self, path: str) -> None:
        """Creates the path, parents first. A node that another broker creates at the same time is fine."""
        if path == "/" or self._call(path, lambda: self._client.exists_async(path)) is not None:
            return
        self._ensure_absolute(parent_of(path))
        try:
            self._call(
                path, lambda: self._client.create_async(path, None, acl=self._acls_of(self._relative(path)))
            )
        except NodeExistsError:
            return

    def _call(self, path: str, start: Callable[[], IAsyncResult]) -> Any:
        (result,) = self._pipeline([(path, start)])
        return or_raise(result)

    def _pipeline(self, starts: Sequence[tuple[str, Callable[[], IAsyncResult]]]) -> list[Any]:
        """Starts operations in order and collects each one's value or :class:`StoreError`.

        If a connection breaks, the operation and all later ones are started again, which keeps the order.
        Each answer renews the time allowed for the next, so thousands of operations do not time out because
        of their total duration.
        """
        deadline = time.monotonic() + self._operation_timeout_s
        done: list[Any] = []
        while len(done) < len(starts):
            chunk = starts[len(done) : len(done) + PIPELINE_DEPTH]
            self._await_connection(chunk[0][0], deadline)
            pending = [(path, start()) for path, start in chunk]
            for path, result in pending:
                value = self._outcome(path, result, deadline)
                if isinstance(value, ConnectionLossError):
                    if self._closed or time.monotonic() >= deadline:
                        raise self._with_reason(value)
                    time.sleep(RETRY_PAUSE_S)
                    break
                if isinstance(value, SessionExpiredError | UnimplementedError):
                    raise value
                done.append(value)
                deadline = time.monotonic() + self._operation_timeout_s
        return done

    def _await_connection(self, path: str, deadline: float) -> None:
        """Waits for a connection, so that kazoo is never asked without one: it would keep the requests without a bound,
        carry them out when the connection is back, however late that is, and block its callers for good once
        its socket pair is full (kazoo issue 577). Raises ConnectionLossError at the deadline, and when closed.
        """
        live = self._client._live  # noqa: SLF001 - its public methods do not wait
        deadline = 0.0 if self._waited_in_vain else deadline
        while not live.wait(min(CANCEL_POLL_S, max(deadline - time.monotonic(), 0.0))):
            if self._closed or time.monotonic() >= deadline:
                self._waited_in_vain = True
                raise self._with_reason(ConnectionLossError(f"{path}: no connection to ZooKeeper"))
        self._waited_in_vain = False

    def _with_reason(self, error: ConnectionLossError) -> ConnectionLossError:
        reason = self._connection.no_log_in
        return ConnectionLossError(f"{error}: {reason}") if reason else error

    def _outcome(self, path: str, result: IAsyncResult, deadline: float) -> Any:
        try:
            return result.get(timeout=max(deadline - time.monotonic(), 0.001))
        except Exception as error:
            return to_store_error(error, path)

    def _start_multi_read(self, paths: Sequence[str]) -> IAsyncResult:
        result = self._client.handler.async_result()
        if not self._reads_together:
            # Another thread has met an old server, which closes the connection. This avoids losing the next
            # connection too.
            result.set_exception(zk_errors.UnimplementedError())
            return result
        # This is how kazoo sends its own requests; it has no public method to send others.
        self._client._call(MultiRead(tuple(map(self._absolute, paths))), result)  # noqa: SLF001
        return result

    def _start_multi(self, ops: Sequence[Op]) -> IAsyncResult:
        return start_multi(self._client.transaction(), ops, self._absolute, self._acls_of)

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
            self._waited_in_vain = False
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
        """Sets all watches again. Changes during the disconnection were not seen, so every watch counts
        as fired.
        """
        with self._lock:
            watches = list(self._watches)
        for watch in watches:
            watch.arm()
            watch.fire()
