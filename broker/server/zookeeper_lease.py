"""A lease in a znode: never deleted, empty when free, and over by ZooKeeper's clock when its holder has died."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from broker.server.zookeeper_clock import now_ms
from broker.zookeeper.store import BadVersionError, NodeExistsError, NoNodeError, Stat, Store


class Timed(Protocol):
    """What is stored while somebody has it: for how long after it was written, and since when he has it."""

    @property
    def for_ms(self) -> int: ...

    @property
    def since_ms(self) -> int: ...


L = TypeVar("L", bound=Timed)


class LeaseZnode(Generic[L]):
    """The lease at one path. Stateless. Every method may raise the store's errors."""

    def __init__(self, store: Store, path: str, decode: Callable[[bytes], L | None]) -> None:
        """``decode`` returns None for what is free or unreadable."""
        self._store = store
        self._path = path
        self._decode = decode

    def take(
        self,
        is_own: Callable[[L], bool],
        encode: Callable[[int], bytes],
        *,
        may_end: Callable[[L], bool] = lambda _: False,
    ) -> tuple[L, int] | None:
        """Takes the lease, renews one that ``is_own``, or ends another's that it ``may_end``. ``encode`` gets since
        when it is held. Returns None, or another's lease with its remaining time in ms.
        """
        while True:
            found = self.read()
            if found is None:
                self._make()
                continue
            present, stat = found
            if present is not None and is_own(present):
                since_ms = present.since_ms
            else:
                since_ms = now_ms(self._store)
                remaining_ms = 0 if present is None else stat.mtime_ms + present.for_ms - since_ms
                if present is not None and remaining_ms > 0 and not may_end(present):
                    return present, remaining_ms
            if self.write(encode(since_ms), stat):
                return None

    def held(self) -> tuple[L, int] | None:
        """The lease that has not expired, whosever it is, with its remaining time in ms. Takes nothing."""
        found = self.read()
        if found is None or found[0] is None:
            return None
        remaining_ms = found[1].mtime_ms + found[0].for_ms - now_ms(self._store)
        return (found[0], remaining_ms) if remaining_ms > 0 else None

    def noted(self) -> tuple[L, int] | None:
        """The stored lease, whosever it is, and when it ends by ZooKeeper's clock, which may have been long ago. Writes
        nothing, not even to learn what that clock says.
        """
        found = self.read()
        if found is None or found[0] is None:
            return None
        return found[0], found[1].mtime_ms + found[0].for_ms

    def free(self, is_own: Callable[[L], bool]) -> None:
        """Releases a lease that ``is_own``; another one is kept."""
        found = self.read()
        if found is not None and found[0] is not None and is_own(found[0]):
            self.write(b"", found[1])  # if not: it had expired and now belongs to another holder

    def read(self) -> tuple[L | None, Stat] | None:
        """What is stored; None if there is no znode."""
        try:
            data, stat = self._store.get(self._path)
        except NoNodeError:
            return None
        return self._decode(data), stat

    def write(self, data: bytes, stat: Stat) -> bool:
        """Replaces what was read. False: another writer was faster, or this was our own first try."""
        try:
            self._store.set(self._path, data, stat.version)
        except BadVersionError:
            return False
        return True

    def _make(self) -> None:
        self._store.ensure_path(self._path.rpartition("/")[0])
        with suppress(NodeExistsError):
            self._store.create(self._path)
