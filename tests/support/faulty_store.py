"""Sessions over one embedded store whose answers may be lost, late or missing; no threads, no time.

This is what a ZooKeeper client can meet in a live session: an operation is done, not done, done in part, done
later, or done twice, because the client sent it again over a new connection.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any

from broker.zookeeper.embedded import EmbeddedStore
from broker.zookeeper.store import (
    ConnectionLossError,
    Create,
    NoNodeError,
    Op,
    OpResult,
    SessionEvent,
    Stat,
    StoreError,
    Watch,
    or_raise,
)

_WRITES = frozenset({"create", "ensure", "set", "delete", "multi"})


class Fault(Enum):
    """What happens to one operation."""

    NOT_DONE = "it is not done, and times out"
    DONE = "it is done, and its answer is lost"
    HALF_DONE = "the first half of its batches is done, and its answer is lost"
    LATE = "it times out, and is done before the next that the session asks for"
    REPEATED = "its first answer is lost, and it is asked for again at once"


class Faults:
    """The faults of a test: ``length`` operations meet ``fault``, from the ``nth`` (from 1) on, over all
    sessions that share this object.

    For a read or a watch all faults are the same, so they are counted only with ``NOT_DONE``.
    """

    def __init__(self, nth: int = 0, fault: Fault = Fault.NOT_DONE, length: int = 1) -> None:
        self._stricken = range(nth, nth + length)
        self._fault = fault
        self.count = 0
        self.met = ""

    def next(self, name: str) -> Fault | None:
        if self._fault is not Fault.NOT_DONE and name.split(" ", 1)[0] not in _WRITES:
            return None
        self.count += 1
        if self.count not in self._stricken:
            return None
        self.met = f"operation {self.count} ({name}): {self._fault.value}"
        return self._fault


class _UnsetWatch:
    """A watch that ZooKeeper refused to set, until it is set again."""

    def __init__(self, watch: Callable[[], Watch], callback: Callable[[], None]) -> None:
        self._watch = watch
        self._callback = callback
        self._set: Watch | None = None
        self._cancelled = False

    def set(self) -> None:
        if not self._cancelled:
            self._set = self._watch()
            self._callback()

    def cancel(self) -> None:
        self._cancelled = True
        if self._set is not None:
            self._set.cancel()


class FaultySession:
    """A :class:`~broker.zookeeper.store.Store` for one broker: it owns its ephemeral nodes, which
    :meth:`expire` deletes.

    ``owners`` is shared by the sessions of one store: the owner of each ephemeral node.
    """

    _ids = iter(range(1, 1 << 62))

    def __init__(self, store: EmbeddedStore, owners: dict[str, int], faults: Faults) -> None:
        self._store = store
        self._owners = owners
        self._faults = faults
        self._late: list[Callable[[], Any]] = []
        self._unset: list[_UnsetWatch] = []
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self.session_id = next(self._ids)
        self.session = None
        self.state_name = "CONNECTED"

    def expire(self) -> None:
        """Ends the session and deletes its nodes; then the next session begins."""
        self._late.clear()
        for path in [path for path, owner in self._owners.items() if owner == self.session_id]:
            del self._owners[path]
            with suppress(NoNodeError):
                self._store.delete(path)
        self.session_id = next(self._ids)
        for event in (SessionEvent.EXPIRED, SessionEvent.CONNECTED):
            for listener in self._listeners:
                listener(event)

    def do_late(self) -> None:
        """Executes what timed out."""
        late, self._late = self._late, []
        for work in late:
            with suppress(StoreError):
                work()

    def close(self) -> None: ...

    def add_session_listener(self, callback: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(callback)

    def watch_children(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._watch(path, callback, self._store.watch_children)

    def watch_data(self, path: str, callback: Callable[[], None]) -> Watch:
        return self._watch(path, callback, self._store.watch_data)

    def _watch(
        self, path: str, callback: Callable[[], None], watch: Callable[[str, Callable[[], None]], Watch]
    ) -> Watch:
        """Setting a watch reports no error: it is set later, and then counts as fired (``client.py``)."""
        if self._faults.next(f"watch {path}") is None:
            return watch(path, callback)
        unset = _UnsetWatch(lambda: watch(path, callback), callback)
        self._unset.append(unset)
        return unset

    def set_watches(self) -> bool:
        """Sets the watches that were refused; returns whether there were any."""
        unset, self._unset = self._unset, []
        for each in unset:
            each.set()
        return bool(unset)

    def create(
        self, path: str, data: bytes = b"", *, ephemeral: bool = False, sequence: bool = False
    ) -> tuple[str, Stat]:
        def work() -> tuple[str, Stat]:
            created, stat = self._store.create(path, data, ephemeral=ephemeral, sequence=sequence)
            if ephemeral:
                self._owners[created] = self.session_id
            return created, self._own(created, stat)

        return self._do(f"create {path}", work)

    def ensure_path(self, path: str) -> None:
        self._do(f"ensure {path}", lambda: self._store.ensure_path(path))

    def get(self, path: str) -> tuple[bytes, Stat]:
        def work() -> tuple[bytes, Stat]:
            data, stat = self._store.get(path)
            return data, self._own(path, stat)

        return self._do(f"get {path}", work)

    def set(self, path: str, data: bytes, version: int = -1) -> Stat:
        return self._do(f"set {path}", lambda: self._store.set(path, data, version))

    def delete(self, path: str, version: int = -1) -> None:
        self._do(f"delete {path}", lambda: self._store.delete(path, version))

    def exists(self, path: str) -> Stat | None:
        return self._do(f"exists {path}", lambda: self._store.exists(path))

    def children(self, path: str) -> list[str]:
        return self._do(f"children {path}", lambda: self._store.children(path))

    def multi(self, ops: Sequence[Op]) -> list[OpResult]:
        return or_raise(self.multi_many([ops])[0])

    def multi_many(self, batches: Sequence[Sequence[Op]]) -> list[list[OpResult] | StoreError]:
        if not batches:
            return []

        def work(part: Sequence[Sequence[Op]] = batches) -> list[list[OpResult] | StoreError]:
            results = self._store.multi_many(part)
            for ops, result in zip(part, results, strict=True):
                for op in () if isinstance(result, StoreError) else ops:
                    if isinstance(op, Create) and op.ephemeral:
                        self._owners[op.path] = self.session_id
            return results

        half = batches[: len(batches) // 2]
        return self._do(f"multi {batches[0][-1]}", work, lambda: work(half))

    def get_many(self, paths: Sequence[str], *, small: bool = False) -> list[tuple[bytes, Stat] | None]:
        def work() -> list[tuple[bytes, Stat] | None]:
            found = self._store.get_many(paths, small=small)
            return [
                None if node is None else (node[0], self._own(path, node[1]))
                for path, node in zip(paths, found, strict=True)
            ]

        return self._do(f"get {paths[0]}", work) if paths else []

    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]:
        return self._do(f"children {paths[0]}", lambda: self._store.children_many(paths)) if paths else []

    def _own(self, path: str, stat: Stat) -> Stat:
        return replace(stat, ephemeral_owner=self._owners.get(path, 0) if stat.ephemeral_owner else 0)

    def _do(self, name: str, work: Callable[[], Any], half: Callable[[], Any] = lambda: None) -> Any:
        self.do_late()
        fault = self._faults.next(name)
        if fault is None:
            return work()
        if fault is Fault.LATE:
            self._late.append(work)
        first = {Fault.REPEATED: work, Fault.DONE: work, Fault.HALF_DONE: half}.get(fault, lambda: None)
        with suppress(StoreError):
            first()
        if fault is Fault.REPEATED:
            return work()
        raise ConnectionLossError(f"{name}: no answer in time")
