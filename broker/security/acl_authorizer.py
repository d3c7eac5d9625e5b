"""AclAuthorizer: Kafka's built-in authorizer, with the ACLs in ZooKeeper.

One thread follows the announcements and replaces the snapshot, from which all questions are answered. While
ZooKeeper cannot be reached, the last snapshot holds, as in Kafka. ``acl_snapshot`` has the rules and
``acl_store`` the znodes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Final

import structlog

from broker.protocol.errors import Errors, KafkaError
from broker.security.acl_snapshot import AclSnapshot, Defaults
from broker.security.acl_store import NO_ACLS, AclStore, Entries, Read, VersionedAcls
from broker.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclFilter,
    AclOperation,
    PatternType,
    ResourcePattern,
    ResourceType,
    principal_problem,
)
from broker.security.authorizer import Authorizer, AuthorizerError, Deleted, Requester
from broker.zookeeper.change_follower import ChangeFollower
from broker.zookeeper.refusals import refusal_of
from broker.zookeeper.store import SessionEvent, Store, StoreError, Watch, or_raise
from broker.zookeeper.znodes import BadZnodeError

SUPER_USERS: Final = "super.users"
EVERYONE: Final = "allow.everyone.if.no.acl.found"
_NAMED: Final = 10
_log = structlog.get_logger(__name__)


class AclAuthorizer(Authorizer):
    """The authorizer with ACLs in the store; Kafka's AclAuthorizer. The snapshot is replaced, never modified,
    by whoever holds ``_lock``.
    """

    def __init__(self, store: Store, acl_store: AclStore | None = None) -> None:
        self._session_store = store
        self._store = acl_store or AclStore(store)
        self._lock = threading.Lock()  # lock order 13
        self._acls: dict[ResourcePattern, VersionedAcls] = {}
        self._snapshot = AclSnapshot({})
        self._seen: set[str] = set()
        self._reload = False
        self._follower = ChangeFollower(
            "acl-changes", self._follow, unread="acl_changes_unread", failed="acl_changes_failed"
        )
        self._watches: list[Watch] = []

    # -- start and end

    def start(self, settings: Mapping[str, str]) -> None:
        """Reads all ACLs. Raises StoreError, or AuthorizerError for a super user who is no principal."""
        defaults = Defaults(
            parse_super_users(settings.get(SUPER_USERS, "")), _truth(settings.get(EVERYONE, ""))
        )
        self._snapshot = AclSnapshot({}, defaults)
        self._store.create_paths()
        self._watches = self._store.watch(self._follower.wake)
        self._load(strict=True)
        self._session_store.add_session_listener(self._on_session_event)
        self._follower.start()
        _log.info(
            "acls_loaded",
            resources=len(self._acls),
            super_users=";".join(sorted(defaults.super_users)),
            allow_everyone_if_no_acl_found=defaults.everyone_if_no_acl,
        )

    def close(self) -> None:
        """Stops following changes; idempotent."""
        for watch in self._watches:
            watch.cancel()
        self._watches = []
        self._follower.close()

    # -- questions

    def authorize(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        snapshot = self._snapshot
        principal, host = requester.principal, requester.client_address
        # Its own look-up, for each topic of each request: a call less.
        verdict = snapshot.verdicts.get((principal, host, operation, resource_type, name))
        if verdict is None:
            return snapshot.allows(principal, host, operation, resource_type, name)
        return verdict

    def authorize_any(
        self, requester: Requester, operation: AclOperation, resource_type: ResourceType
    ) -> bool:
        return self._snapshot.allows_any(
            requester.principal, requester.client_address, operation, resource_type
        )

    def version(self) -> object:
        return self._snapshot

    def acls(self, wanted: AclFilter) -> Sequence[AclBinding]:
        return self._snapshot.bindings(wanted)

    # -- changes by requests

    def create_acls(self, requester: Requester, bindings: Sequence[AclBinding]) -> list[KafkaError | None]:
        results = [_problem(binding) for binding in bindings]
        by_pattern: dict[ResourcePattern, list[int]] = {}
        for index, binding in enumerate(bindings):
            if results[index] is None:
                by_pattern.setdefault(binding.pattern, []).append(index)
        changed: dict[ResourcePattern, VersionedAcls] = {}
        with self._changing(changed):
            for pattern, indexes in by_pattern.items():
                added = frozenset(bindings[index].entry for index in indexes)
                try:
                    changed[pattern] = self._store.update(pattern, added.union, self._acls.get(pattern))
                except StoreError as error:
                    refusal = _not_written(pattern, error, requester)
                    for index in indexes:
                        results[index] = refusal
        if changed:
            _tell("acls_created", requester, changed, sum(result is None for result in results))
        return results

    def delete_acls(self, requester: Requester, filters: Sequence[AclFilter]) -> list[list[Deleted]]:
        deleted: list[list[Deleted]] = [[] for _ in filters]
        # What a filter names exactly is read anew: no ACL that was created before is missed. The others are
        # those that this broker knows, as in Kafka.
        exact = {pattern for wanted in filters for pattern in wanted.exact_patterns()}
        changed: dict[ResourcePattern, VersionedAcls] = {}
        try:
            with self._changing(changed):
                for pattern in dict.fromkeys([*self._acls, *exact]):
                    matching = [
                        (i, wanted) for i, wanted in enumerate(filters) if wanted.matches_pattern(pattern)
                    ]
                    known = None if pattern in exact else self._acls.get(pattern)
                    if matching and (known is None or _selects(matching, known.entries)):
                        self._delete(pattern, matching, deleted, changed, requester)
        finally:
            if count := sum(map(len, deleted)):
                _tell("acls_deleted", requester, changed, count)
        return deleted

    def _delete(
        self,
        pattern: ResourcePattern,
        matching: Sequence[tuple[int, AclFilter]],
        deleted: list[list[Deleted]],
        changed: dict[ResourcePattern, VersionedAcls],
        requester: Requester,
    ) -> None:
        """Raises KafkaError if nobody can say which ACLs the filters select."""
        selected: dict[AccessControlEntry, int] = {}

        def kept(entries: Entries) -> Entries:
            selected.clear()
            for entry in entries:
                for index, wanted in matching:
                    if wanted.matches_entry(entry):
                        selected[entry] = index
                        break
            return entries - selected.keys()

        error: KafkaError | None = None
        try:
            changed[pattern] = self._store.update(pattern, kept)
        except StoreError as refused:
            error = _not_written(pattern, refused, requester)
            if not selected:
                kept(self._acls.get(pattern, NO_ACLS).entries)
            if not selected:
                # Not even read. To answer that the filters select nothing might be wrong.
                raise error from refused
        for entry, index in selected.items():
            deleted[index].append(Deleted(AclBinding(pattern, entry), error))

    @contextmanager
    def _changing(self, changed: dict[ResourcePattern, VersionedAcls]) -> Iterator[None]:
        """The changes of one request count at its end: each makes a snapshot of everything."""
        with self._lock:
            try:
                yield
            finally:
                self._take(changed, self._acls)

    # -- changes by others

    def _on_session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._reload = True  # announcements may have come and gone meanwhile
            self._follower.wake()

    def _follow(self) -> None:
        reload, self._reload = self._reload, False
        try:
            if reload:
                self._load()
            else:
                self._read_announced()
        except Exception as error:
            # What was announced must not be lost. If it is an announcement that cannot be read, those after it would be
            # lost too, each time. The store being away is no reason to read more than was announced.
            self._reload = self._reload or reload or not isinstance(error, StoreError)
            raise
        self._store.purge()

    def _load(self, *, strict: bool = False) -> None:
        """Reads everything. ``strict`` raises BadZnodeError for an unreadable znode, which may be a denial.
        Otherwise what was known of it holds.
        """
        with self._lock:
            seen = self._store.announcements()
            found = self._store.read_all()
            if strict:
                for acls in found.values():
                    or_raise(acls)
            self._take(found, {pattern: acls for pattern, acls in self._acls.items() if pattern in found})
            self._seen = seen

    def _read_announced(self) -> None:
        with self._lock:
            there = self._store.announcements()
            try:
                patterns = self._store.announced(there - self._seen)
            except BadZnodeError as error:
                _log.error("acl_change_unreadable", reason=str(error), action="all ACLs are read")
                self._seen, self._reload = there, True
                self._follower.wake()
                return
            changed = self._store.read(patterns)
            self._take(changed, self._acls)
            self._seen = there
        if changed:
            some = [_told(pattern) for pattern in islice(changed, _NAMED)]
            _log.info("acls_taken_up", count=len(changed), patterns=" ".join(some))

    def _take(
        self, changed: Mapping[ResourcePattern, Read], others: Mapping[ResourcePattern, VersionedAcls]
    ) -> None:
        """Makes the changed ACLs count, with those of ``others`` that are not changed. The caller holds
        the lock.
        """
        acls = dict(others)
        for pattern, versioned in changed.items():
            if isinstance(versioned, BadZnodeError):
                _log.error(
                    "acls_unreadable", reason=str(versioned), action="what was known holds: mend or delete it"
                )
            elif versioned.entries:
                acls[pattern] = versioned
            else:
                acls.pop(pattern, None)
        self._acls = acls
        entries = {pattern: versioned.entries for pattern, versioned in acls.items()}
        if entries != self._snapshot.acls:
            self._snapshot = self._snapshot.with_acls(entries)


def _selects(matching: Sequence[tuple[int, AclFilter]], entries: Entries) -> bool:
    return any(wanted.matches_entry(entry) for _, wanted in matching for entry in entries)


def parse_super_users(text: str) -> frozenset[str]:
    """Parses ``User:a;User:b``. Raises AuthorizerError."""
    names = [name.strip() for name in text.split(";") if name.strip()]
    for name in names:
        if problem := principal_problem(name):
            raise AuthorizerError(f"{SUPER_USERS}: {problem}")
    return frozenset(names)


def _truth(text: str) -> bool:
    return text.strip().lower() == "true"


def _problem(binding: AclBinding) -> KafkaError | None:
    """Why the ACL cannot be created; None if it can."""
    pattern, entry = binding
    reason = None
    if pattern.resource_type <= ResourceType.ANY or pattern.pattern_type < PatternType.LITERAL:
        reason = "resource type and pattern type must be specific"
    elif entry.operation <= AclOperation.ANY or entry.permission <= 1:
        reason = "operation and permission must be specific"
    elif not pattern.name:
        reason = "the resource name is empty"
    elif pattern.resource_type is ResourceType.CLUSTER and pattern.name != CLUSTER_NAME:
        reason = f"the only name of a cluster resource is {CLUSTER_NAME}"
    elif "/" in pattern.name or pattern.name in {".", ".."}:
        reason = f"{pattern.name[:100]!r} cannot be the name of a znode"
    else:
        reason = principal_problem(entry.principal)
    return None if reason is None else KafkaError(Errors.INVALID_REQUEST, reason)


def _not_written(pattern: ResourcePattern, error: StoreError, requester: Requester) -> KafkaError:
    return refusal_of(error, request=f"a change of the ACLs of {_told(pattern)}", by=requester.principal)


def _tell(event: str, requester: Requester, patterns: Iterable[ResourcePattern], count: int) -> None:
    some = [_told(pattern) for pattern in islice(patterns, _NAMED)]
    _log.info(event, count=count, patterns=" ".join(some), by=requester.principal)


def _told(pattern: ResourcePattern) -> str:
    return f"{pattern.resource_type.text}:{pattern.pattern_type.name}:{pattern.name[:256]}"
