"""Reads and writes the ACLs in ZooKeeper or the embedded store, together with Apache Kafka's brokers.

A write needs the znode's version that was read before it, so brokers of both kinds can change ACLs at once.
Kafka's AclAuthorizer does the same. ``acl_znodes`` has the paths and the content.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

import structlog

from broker.security import acl_znodes
from broker.security.acls import AccessControlEntry, PatternType, ResourcePattern
from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.zookeeper import announcements
from broker.zookeeper.store import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    Stat,
    Store,
    StoreError,
    Watch,
    or_raise,
)
from broker.zookeeper.znodes import BadZnodeError

_log = structlog.get_logger(__name__)
_MOST_TRIES: Final = 11  # Kafka's: one, and ten more
_BACKOFF_S: Final = (0.1, 0.15)

Entries = frozenset[AccessControlEntry]


class VersionedAcls(NamedTuple):
    """The entries of a pattern and the version of its znode, -1 for none; Kafka's VersionedAcls."""

    entries: Entries = frozenset()
    version: int = -1


NO_ACLS: Final = VersionedAcls()
Read = VersionedAcls | BadZnodeError


class AclStore:
    """The ACLs in the store. Thread-safe, without state of its own. Every method may raise StoreError."""

    def __init__(
        self, store: Store, clock: Clock = SYSTEM_CLOCK, *, pause: Callable[[float], None] = time.sleep
    ) -> None:
        self._store = store
        self._clock = clock
        self._pause = pause

    def create_paths(self) -> None:
        found = self._store.get_many(list(acl_znodes.PATHS))
        for path, node in zip(acl_znodes.PATHS, found, strict=True):
            if node is None:
                self._store.ensure_path(path)

    # -- reading

    def read_all(self) -> dict[ResourcePattern, Read]:
        """All ACLs."""
        return self.read(
            pattern for kind, root in acl_znodes.ACLS.items() for pattern in self._patterns(kind, root)
        )

    def read(self, patterns: Iterable[ResourcePattern]) -> dict[ResourcePattern, Read]:
        """The patterns' ACLs; NO_ACLS for a pattern without a znode. An unreadable znode has its error."""
        wanted = list(patterns)
        paths = [acl_znodes.acl_path(pattern) for pattern in wanted]
        return {
            pattern: _decoded(path, node)
            for pattern, path, node in zip(wanted, paths, self._store.get_many(paths), strict=True)
        }

    def _patterns(self, pattern_type: PatternType, root: str) -> Iterator[ResourcePattern]:
        types = sorted(self._children(root))
        paths = [f"{root}/{name}" for name in types]
        for type_name, names in zip(types, self._store.children_many(paths), strict=True):
            kind = acl_znodes.resource_type(type_name)
            if kind is None:
                _log.warning("acls_of_unknown_type", path=f"{root}/{type_name}", action="they are left out")
                continue
            for name in names or ():
                yield ResourcePattern(kind, name, pattern_type)

    # -- writing

    def update(
        self,
        pattern: ResourcePattern,
        change: Callable[[Entries], Entries],
        known: VersionedAcls | None = None,
    ) -> VersionedAcls:
        """Replaces the pattern's entries by what ``change`` makes of them, and announces it. Returns the
        new ones. ``known``: what was read last; it may be out of date.
        """
        for tries in range(_MOST_TRIES):
            if tries:
                self._pause(random.uniform(*_BACKOFF_S))
            is_fresh = known is None or tries > 0
            before = or_raise(self.read([pattern])[pattern]) if known is None or tries else known
            entries = change(before.entries)
            if is_fresh and entries == before.entries:
                # It may be the result of this broker's own first try, whose answer was lost.
                if tries:
                    self._announce(pattern)
                return before
            version = self._write(pattern, entries, before)
            if version is not None:
                if entries != before.entries:
                    self._announce(pattern)
                return VersionedAcls(entries, version) if entries else NO_ACLS
        raise StoreError(f"the ACLs of {pattern} were changed by others each of {_MOST_TRIES} times")

    def _write(self, pattern: ResourcePattern, entries: Entries, before: VersionedAcls) -> int | None:
        """The new version; None if the znode is not as it was ``before``."""
        path, data = acl_znodes.acl_path(pattern), acl_znodes.encode_acls(entries)
        try:
            if before.version < 0:
                if entries:
                    self._store.create(path, data)
                return 0
            if entries:
                return self._store.set(path, data, before.version).version
            self._store.delete(path, before.version)
        except (NodeExistsError, BadVersionError):
            return None
        except NoNodeError:
            if before.version < 0:
                raise  # the parent is missing: no try will help
            return None
        return 0

    def _announce(self, pattern: ResourcePattern) -> None:
        root = acl_znodes.CHANGES[pattern.pattern_type]
        data = acl_znodes.encode_change(pattern)
        self._store.create(f"{root}/{acl_znodes.CHANGE_PREFIX}", data, sequence=True)

    # -- announcements

    def watch(self, callback: Callable[[], None]) -> list[Watch]:
        """Calls ``callback`` after each announcement, and after each reconnection."""
        return [self._store.watch_children(root, callback) for root in acl_znodes.CHANGES.values()]

    def announcements(self) -> set[str]:
        """The paths of all announcements."""
        return {f"{root}/{name}" for root in acl_znodes.CHANGES.values() for name in self._children(root)}

    def announced(self, paths: Iterable[str]) -> set[ResourcePattern]:
        """The patterns that the announcements name; one that is gone is left out. Raises BadZnodeError."""
        wanted = list(paths)
        return {
            acl_znodes.decode_change(_kind_of(path), path, node[0])
            for path, node in zip(wanted, self._store.get_many(wanted), strict=True)
            if node is not None
        }

    def purge(self) -> None:
        """Deletes announcements that every broker has seen by now: those older than 15 minutes, as Kafka."""
        horizon_ms = self._clock.wall_ms() - announcements.KEPT_MS
        for root in acl_znodes.CHANGES.values():
            announcements.purge(self._store, root, horizon_ms)

    def _children(self, path: str) -> list[str]:
        try:
            return self._store.children(path)
        except NoNodeError:
            return []


def _decoded(path: str, node: tuple[bytes, Stat] | None) -> Read:
    if node is None:
        return NO_ACLS
    try:
        return VersionedAcls(acl_znodes.decode_acls(path, node[0]), node[1].version)
    except BadZnodeError as error:
        return error


def _kind_of(path: str) -> PatternType:
    for kind, root in acl_znodes.CHANGES.items():
        if path.startswith(f"{root}/"):
            return kind
    raise BadZnodeError(f"{path} is no announcement of ACLs")
