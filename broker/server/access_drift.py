"""What there is of users, ACLs and quotas that a document for `landline access` does not list, or lists as absent and
names once: it stays, and is told. Of a part that lists nothing, nothing is told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, NamedTuple

from broker.quotas.entities import CLIENT_KEYS, CONNECTION_RATE
from broker.sasl.scram import ALGORITHMS
from broker.security.acl_store import AclStore, VersionedAcls
from broker.security.acls import AccessControlEntry, ResourcePattern
from broker.server.desired.plan import Drift
from broker.zookeeper import quota_nodes
from broker.zookeeper.cluster_store import ClusterStore

_QUOTA_KEYS: Final = CLIENT_KEYS | {CONNECTION_RATE}
_NOT_LISTED: Final = "not listed"
_TO_REMOVE: Final = "list it with state: absent, and name it in landline_access_delete"


class Kept(NamedTuple):
    """The names whose users, ACLs and quotas may go, and what stays."""

    delete: frozenset[str]
    drift: list[Drift]

    def may_go(self, where: str, found: str, names: Iterable[str]) -> bool:
        """Whether what is listed as absent goes: one of ``names`` is in ``delete`` too. Else it is noted."""
        named = list(names)
        if not self.delete.isdisjoint(named):
            return True
        self.drift.append(Drift(where, found, "absent", f"name {named[0]} in landline_access_delete too"))
        return False

    def note_unlisted(self, where: str, found: str) -> None:
        self.drift.append(Drift(where, found, _NOT_LISTED, _TO_REMOVE))


def as_words(pattern: ResourcePattern, entry: AccessControlEntry) -> tuple[str, str]:
    """What an ACL is of, and what it says."""
    where = f"{pattern.resource_type.text} {pattern.name} ({pattern.pattern_type.text})"
    return where, f"{entry.permission.text} {entry.operation.text} from {entry.host} for {entry.principal}"


def unlisted_users(rows: Iterable[tuple[str, Collection[str]]], cluster: ClusterStore, kept: Kept) -> None:
    """Notes credentials that no row has: of each row the user's name and the mechanisms."""
    listed: dict[str, set[str]] = {}
    for name, mechanisms in rows:
        listed.setdefault(name, set()).update(mechanisms)
    if not listed:
        return
    for user, config in sorted(cluster.entity_configs("users").items()):
        for mechanism in ALGORITHMS:
            if mechanism in config and mechanism not in listed.get(user, ()):
                kept.note_unlisted(f"user {user}", mechanism)


def unlisted_acls(
    listed: Mapping[ResourcePattern, Collection[AccessControlEntry]], store: AclStore, kept: Kept
) -> None:
    """Notes entries that are not listed. An unreadable znode is left to who uses it."""
    if not listed:
        return
    for pattern, read in sorted(store.read_all().items(), key=lambda item: str(item[0])):
        if isinstance(read, VersionedAcls):
            for words in sorted(
                as_words(pattern, entry) for entry in read.entries - set(listed.get(pattern, ()))
            ):
                kept.note_unlisted(f"acl {words[0]}", words[1])


def unlisted_quotas(listed: Mapping[str, Collection[Any]], cluster: ClusterStore, kept: Kept) -> None:
    """Notes quotas that are not listed: of each entity's path the keys that are."""
    if not listed:
        return
    for path, config in quota_nodes.entity_configs(cluster, quota_nodes.entity_paths(cluster)).items():
        for key in sorted(config.keys() & _QUOTA_KEYS - set(listed.get(path, ()))):
            kept.note_unlisted(f"quota {path}", f"{key} {config[key]}")
