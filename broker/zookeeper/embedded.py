"""The :class:`~broker.zookeeper.store.Store` of a standalone broker: a tree in the process, stored in one
SQLite file.

It has ZooKeeper's semantics: versions, sequence nodes, multis, watches and ephemeral nodes, which are never
written because they end with the process. Transaction ids rise across restarts, and so does the broker's
epoch. Only one process at a time can use the file, which stays locked while it is open.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Event, RLock
from typing import Any

from broker.zookeeper.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    Delete,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Op,
    OpResult,
    SessionEvent,
    SetData,
    Stat,
    StoreError,
    Watch,
    parent_of,
)

_NODE_TABLE = """
CREATE TABLE IF NOT EXISTS node (
  path TEXT PRIMARY KEY, data BLOB NOT NULL, czxid INTEGER NOT NULL, version INTEGER NOT NULL,
  ctime_ms INTEGER NOT NULL, mtime_ms INTEGER NOT NULL, sequence INTEGER NOT NULL
) WITHOUT ROWID
"""
_META_TABLE = "CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID"
_UPSERT = "INSERT OR REPLACE INTO node VALUES (?, ?, ?, ?, ?, ?, ?)"
_EPOCH_SHIFT = 32


@dataclass(slots=True)
class _Node:
    """A node of the tree. ``sequence`` is the number of the next sequential child. The store's lock owns
    all fields.
    """

    data: bytes
    czxid: int
    version: int
    ctime_ms: int
    mtime_ms: int
    sequence: int
    ephemeral: bool
    children: set[str]


class EmbeddedStore:
    """The store of a standalone broker, used instead of ZooKeeper. The whole tree is in memory; the file
    is read once, when it is opened. With ``path`` None there is no file. The store owns the file and keeps
    it locked.

    A transaction id is the number of times the file was opened, shifted by 32 bits, plus a counter. As in
    ZooKeeper, only the opening needs an extra write.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = RLock()  # lock order 28
        self._nodes: dict[str, _Node] = {"/": _Node(b"", 0, 0, 0, 0, 0, False, set())}
        self._zxid = 0
        self._database: Any = None
        self._watches: dict[tuple[str, str], list[_EmbeddedWatch]] = {}
        self._dirty: dict[str, None] = {}
        self._undo: list[Callable[[], None]] = []
        self._fired: dict[_EmbeddedWatch, None] = {}
        self._session_id = 0

    def __repr__(self) -> str:
        return f"<EmbeddedStore {self._path or 'in memory'}>"

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session(self) -> None:
        """None, because the session ends with its process."""
        return

    @property
    def longest_silence_ms(self) -> int:
        return 0

    @property
    def recent_silence_ms(self) -> int:
        return 0

    @property
    def state_name(self) -> str:
        return "CONNECTED" if self._session_id else "CLOSED"

    # -- the session

    def connect(
        self,
        timeout_ms: int = 0,  # noqa: ARG002 - there is no server to wait for
        cancel: Event | None = None,  # noqa: ARG002
        on_waiting: Callable[[str], None] | None = None,  # noqa: ARG002
    ) -> None:
        """Opens the file. Raises :class:`StoreError`, which says what to do, if it cannot be used."""
        import sqlite3  # imported late: a broker with ZooKeeper never needs it

        try:
            self._open(sqlite3)
        except sqlite3.Error as error:
            self.close()
            raise StoreError(self._why_not(str(error))) from error

    def close(self) -> None:
        """Ends the session: ephemeral nodes are deleted."""
        with self._lock:
            database, self._database = self._database, None
            self._session_id = 0
            for path in [path for path, node in self._nodes.items() if node.ephemeral]:
                del self._nodes[path]
                self._nodes[parent_of(path)].children.discard(path.rpartition("/")[2])
        if database is not None:
            database.close()

    def _why_not(self, error: str) -> str:
        if "locked" in error:
            return (
                f"another process uses the standalone metadata in {self._path}: a data directory has one "
                "broker, and a cluster needs ZooKeeper (landline start, with zookeeper.connect)"
            )
        return (
            f"cannot use the standalone metadata in {self._path}: {error}; "
            "restore the file, or move it away to begin with no topics"
        )

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> None:
        """Does nothing: this session lasts as long as the process."""

    # -- operations

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        with self._transaction():
            created = self._create(Create(path, data, ephemeral, sequence))
            return created, self._stat(created)

    def ensure_path(self, path: str) -> None:
        with self._transaction():
            self._ensure(path)

    def get(self, path: str) -> tuple[bytes, Stat]:
        with self._lock:
            return self._node(path).data, self._stat(path)

    def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat:
        with self._transaction():
            return self._set(SetData(path, data, version))

    def delete(self, path: str, version: int = ANY_VERSION) -> None:
        with self._transaction():
            self._delete(Delete(path, version))

    def exists(self, path: str) -> Stat | None:
        with self._lock:
            return self._stat(path) if path in self._nodes else None

    def children(self, path: str) -> list[str]:
        with self._lock:
            return list(self._node(path).children)

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        with self._transaction():
            return self._apply(ops)

    def multi_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        results: list[list[OpResult] | StoreError] = []
        with self._transaction():  # one commit for all; each batch is rolled back separately
            for ops in batches:
                savepoint = len(self._undo)
                try:
                    results.append(self._apply(ops))
                except StoreError as error:
                    self._roll_back(savepoint)
                    results.append(error)
        return results

    def get_many(
        self,
        paths: Sequence[str],
        *,
        small: bool = False,  # noqa: ARG002 - nothing is sent here
    ) -> list[tuple[bytes, Stat] | None]:
        with self._lock:
            return [self.get(path) if path in self._nodes else None for path in paths]

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        with self._lock:
            return [self.children(path) if path in self._nodes else None for path in paths]

    # -- watches

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(("children", path), callback)

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._add_watch(("data", path), callback)

    def _add_watch(self, key: tuple[str, str], callback: Callable[[], None]) -> Watch:
        watch = _EmbeddedWatch(self, key, callback)
        with self._lock:
            self._watches.setdefault(key, []).append(watch)
        return watch

    def forget_watch(self, key: tuple[str, str], watch: _EmbeddedWatch) -> None:
        """Removes a cancelled watch. Called by the watch."""
        with self._lock:
            watches = self._watches.get(key, [])
            if watch in watches:
                watches.remove(watch)
            if not watches:
                self._watches.pop(key, None)

    # -- internal: the tree

    def _apply(self, ops: Sequence[Op]) -> list[OpResult]:
        results: list[OpResult] = []
        for index, op in enumerate(ops):
            try:
                results.append(self._apply_one(op))
            except StoreError as error:
                error.op_index = index
                raise
        return results

    def _apply_one(self, op: Op) -> OpResult:
        match op:
            case Create():
                return self._create(op)
            case SetData():
                return self._set(op)
            case Delete():
                self._delete(op)
                return None
            case Check():
                self._expect(op.path, op.version)
                return None

    def _create(self, op: Create) -> str:
        parent_path = parent_of(op.path)
        parent = self._nodes.get(parent_path)
        if parent is None:
            raise NoNodeError(f"{parent_path}: no such node")
        if parent.ephemeral:
            raise StoreError(f"{parent_path} is ephemeral and may have no children")
        path = op.path
        if op.sequence:
            path = f"{op.path}{parent.sequence:010d}"
        if path in self._nodes:
            raise NodeExistsError(f"{path}: exists already")
        now = time.time_ns() // 1_000_000
        self._zxid += 1
        self._nodes[path] = _Node(op.data, self._zxid, 0, now, now, 0, op.ephemeral, set())
        name = path.rpartition("/")[2]
        parent.children.add(name)
        parent.sequence += 1
        self._undo.append(lambda: self._forget(path, parent, name))
        if not op.ephemeral:
            self._touch(path, parent_path)
        self._fire(("data", path), ("children", path), ("children", parent_path))
        return path

    def _forget(self, path: str, parent: _Node, name: str) -> None:
        del self._nodes[path]
        parent.children.discard(name)
        parent.sequence -= 1

    def _ensure(self, path: str) -> None:
        if path in self._nodes:
            return
        self._ensure(parent_of(path))
        self._create(Create(path))

    def _set(self, op: SetData) -> Stat:
        node = self._expect(op.path, op.version)
        before = (node.data, node.version, node.mtime_ms)

        def undo() -> None:
            node.data, node.version, node.mtime_ms = before

        self._undo.append(undo)
        self._zxid += 1
        node.data, node.version, node.mtime_ms = op.data, node.version + 1, time.time_ns() // 1_000_000
        if not node.ephemeral:
            self._touch(op.path)
        self._fire(("data", op.path))
        return self._stat(op.path)

    def _delete(self, op: Delete) -> None:
        node = self._expect(op.path, op.version)
        if node.children or op.path == "/":
            raise NotEmptyError(f"{op.path}: has children")
        parent_path = parent_of(op.path)
        name = op.path.rpartition("/")[2]
        parent = self._nodes[parent_path]

        def undo() -> None:
            self._nodes[op.path] = node
            parent.children.add(name)

        self._undo.append(undo)
        self._zxid += 1
        del self._nodes[op.path]
        parent.children.discard(name)
        if not node.ephemeral:
            self._touch(op.path)
        self._fire(("data", op.path), ("children", op.path), ("children", parent_path))

    def _expect(self, path: str, version: int) -> _Node:
        node = self._node(path)
        if version not in {ANY_VERSION, node.version}:
            raise BadVersionError(f"{path}: is at version {node.version}, not {version}")
        return node

    def _node(self, path: str) -> _Node:
        node = self._nodes.get(path)
        if node is None:
            raise NoNodeError(f"{path}: no such node")
        return node

    def _stat(self, path: str) -> Stat:
        node = self._nodes[path]
        owner = self._session_id if node.ephemeral else 0
        return Stat(node.czxid, node.version, owner, node.ctime_ms, node.mtime_ms, len(node.children))

    # -- internal: transactions

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Applies the whole body and commits it to the file, or changes nothing. Watches fire afterwards,
        without the lock.
        """
        with self._lock:
            self._dirty, self._undo, self._fired = {}, [], {}
            try:
                yield
                self._commit()
            except BaseException:
                self._roll_back(0)
                raise
            fired = self._fired
        for watch in fired:
            watch.fire()

    def _roll_back(self, savepoint: int) -> None:
        while len(self._undo) > savepoint:
            self._undo.pop()()

    def _touch(self, *paths: str) -> None:
        for path in paths:
            self._dirty[path] = None

    def _fire(self, *keys: tuple[str, str]) -> None:
        for key in keys:
            for watch in self._watches.get(key, ()):
                self._fired[watch] = None

    def _commit(self) -> None:
        if self._database is None:
            if self._path is not None:
                raise StoreError(f"the standalone metadata in {self._path} is closed")
            return
        upserts, deletes = [], []
        for path in self._dirty:
            node = self._nodes.get(path)
            if node is None or node.ephemeral:
                deletes.append((path,))
            else:
                upserts.append(
                    (path, node.data, node.czxid, node.version, node.ctime_ms, node.mtime_ms, node.sequence)
                )
        if not upserts and not deletes:
            return
        import sqlite3

        try:
            with self._database:
                self._database.executemany(_UPSERT, upserts)
                self._database.executemany("DELETE FROM node WHERE path = ?", deletes)
        except sqlite3.Error as error:
            raise StoreError(f"cannot write the standalone metadata in {self._path}: {error}") from error

    def _open(self, sqlite3: Any) -> None:
        if self._path is None:
            self._session_id = 1
            self._zxid = 1 << _EPOCH_SHIFT
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(
            OSError
        ):  # SQLite would let everybody read the credentials in it, and says what is wrong
            os.close(os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        self._database = database = sqlite3.connect(self._path, timeout=0, check_same_thread=False)
        # Exclusive: the lock is kept until close, and the write-ahead log needs no shared memory file.
        database.execute("PRAGMA locking_mode=EXCLUSIVE")
        database.execute("PRAGMA journal_mode=WAL")
        database.execute("PRAGMA synchronous=FULL")
        self._nodes = {"/": _Node(b"", 0, 0, 0, 0, 0, False, set())}
        with database:
            database.execute("BEGIN IMMEDIATE")
            for statement in (_NODE_TABLE, _META_TABLE):
                database.execute(statement)
            row = database.execute("SELECT value FROM meta WHERE key = 'epoch'").fetchone()
            epoch = (row[0] if row else 0) + 1
            database.execute("INSERT OR REPLACE INTO meta VALUES ('epoch', ?)", (epoch,))
        self._session_id = epoch
        self._zxid = epoch << _EPOCH_SHIFT
        self._load(database)

    def _load(self, database: Any) -> None:
        for path, data, czxid, version, ctime_ms, mtime_ms, sequence in database.execute(
            "SELECT path, data, czxid, version, ctime_ms, mtime_ms, sequence FROM node ORDER BY path"
        ):
            children = self._nodes["/"].children if path == "/" else set()
            self._nodes[path] = _Node(
                bytes(data), czxid, version, ctime_ms, mtime_ms, sequence, False, children
            )
            if path != "/":
                self._nodes[parent_of(path)].children.add(path.rpartition("/")[2])


class _EmbeddedWatch:
    """A watch that stays set until it is cancelled."""

    def __init__(self, store: EmbeddedStore, key: tuple[str, str], callback: Callable[[], None]) -> None:
        self._store = store
        self._key = key
        self._callback = callback
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._store.forget_watch(self._key, self)

    def fire(self) -> None:
        if not self._cancelled:
            self._callback()
