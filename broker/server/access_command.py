"""`landline access`: brings about the users, ACLs and quotas that a JSON document lists.

What is so already is left alone. What the document does not list stays, and is told as drift; so does what it lists as
absent and does not name in ``delete`` as well. It goes to ZooKeeper, as `kafka-configs.sh --zookeeper` and
`kafka-acls.sh --authorizer-properties zookeeper.connect` do, so it works before the first start of a broker, and
brokers that run take it up. There a password can be compared with the keys that were made of it, which no request
tells. The document is read from the standard input: it has passwords.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final, NamedTuple

from broker.config.problems import ConfigError
from broker.quotas.altered import AlterationError, altered, altered_path, emptied_paths
from broker.quotas.entities import CLIENT_KEYS, CONNECTION_RATE, IPS
from broker.sasl.credential import ScramCredential
from broker.sasl.scram import ALGORITHMS, new_credential
from broker.security.acl_store import AclStore, VersionedAcls
from broker.security.acls import (
    CLUSTER_NAME,
    SUPPORTED,
    AccessControlEntry,
    AclOperation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    principal_problem,
)
from broker.server.access_drift import Kept, as_words, unlisted_acls, unlisted_quotas, unlisted_users
from broker.server.desired.plan import Drift, table
from broker.server.zookeeper_access import access_from
from broker.zookeeper import quota_nodes
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import Store, StoreError, or_raise
from broker.zookeeper.znodes import BadZnodeError

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
_SESSION_MS: Final = 20_000
_DEFAULT: Final = "<default>"
_PARTS: Final = ("users", "acls", "quotas")
_DELETE: Final = "delete"

Complain = Callable[[str], None]
Row = Mapping[str, Any]


class AccessError(Exception):
    """What is wrong with the document, and where. Never with a password."""


class Document(NamedTuple):
    """What is listed, and the names of users, client ids and addresses that may lose what is listed as absent."""

    users: list[Row]
    acls: list[Row]
    quotas: list[Row]
    delete: frozenset[str]


def run(options: Any, properties: Mapping[str, str], complain: Complain) -> int:
    """Runs the command: a line for each change, and a table of what stays on the standard error. ``properties`` are
    those of the broker's file.
    """
    try:
        wanted = read_document(sys.stdin.read())
        connect = properties.get("zookeeper.connect", "")
        if not connect:
            raise AccessError(f"{options.config} has no zookeeper.connect")
        store = ZooKeeperStore(connect, _SESSION_MS, access_from(properties))
        store.connect(_SESSION_MS, threading.Event())
        with closing(store):
            kept: list[Drift] = []
            for line in bring_about(wanted, store, kept, dry_run=options.dry_run):
                print(line)
            print(*table(kept), sep="\n", end="\n" if kept else "", file=sys.stderr)
    except (AccessError, BadZnodeError, ConfigError, StoreError, OSError) as error:
        complain(f"access: {error}")
        return EXIT_FAILED
    return EXIT_DONE


def read_document(text: str) -> Document:
    """The users, ACLs and quotas of the document. Raises :class:`AccessError`."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AccessError("the standard input is no JSON") from error
    if not isinstance(document, dict) or not document.keys() <= {*_PARTS, _DELETE}:
        raise AccessError(f"the document must be an object of {', '.join((*_PARTS, _DELETE))}")
    found = {part: document.get(part, []) for part in _PARTS}
    for part, rows in found.items():
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise AccessError(f"{part} must be a list of objects")
    delete = document.get(_DELETE, [])
    if not isinstance(delete, list) or not all(isinstance(name, str) for name in delete):
        raise AccessError(f"{_DELETE} must be a list of names")
    return Document(**found, delete=frozenset(delete))


def bring_about(
    wanted: Document, store: Store, kept: list[Drift] | None = None, *, dry_run: bool
) -> Iterator[str]:
    """Makes the changes, and yields each in words. ``kept`` gets what is not as listed and stays. Raises
    :class:`AccessError` before the first change if the document is wrong.
    """
    users = [(_place("users", number), row) for number, row in enumerate(wanted.users, 1)]
    for place, row in users:
        _check_user(place, row)
    acls = _acls_by_pattern(wanted.acls)
    quotas = [_quota(_place("quotas", number), row) for number, row in enumerate(wanted.quotas, 1)]
    cluster, entries = ClusterStore(store), AclStore(store)
    if not dry_run:
        cluster.create_top_level_paths()
        entries.create_paths()
    drift = Kept(wanted.delete, [] if kept is None else kept)
    for _, row in users:
        yield from _change_user(row, cluster, drift, dry_run)
    unlisted_users(((row["name"], _mechanisms(row)) for _, row in users), cluster, drift)
    yield from _change_acls(acls, entries, drift, dry_run)
    unlisted_acls(acls, entries, drift)
    for quota in quotas:
        yield from _change_quota(quota, cluster, drift, dry_run)
    unlisted_quotas({quota.path: [key for key, _, _ in quota.changes] for quota in quotas}, cluster, drift)


def _place(part: str, number: int) -> str:
    return f"{part}, entry {number}"


def _is_absent(row: Row) -> bool:
    return bool(row.get("state", "present") == "absent")


# -- users


def _check_user(place: str, row: Row) -> None:
    if not isinstance(row.get("name"), str) or not row["name"]:
        raise AccessError(f"{place}: name is missing")
    if not _is_absent(row) and (not isinstance(row.get("password"), str) or not row["password"]):
        raise AccessError(f"{place}: the password of {row['name']} is missing")
    for mechanism in _mechanisms(row):
        if mechanism not in ALGORITHMS:
            raise AccessError(f"{place}: {mechanism!r} is none of {', '.join(ALGORITHMS)}")


def _mechanisms(row: Row) -> list[str]:
    return list(row.get("mechanisms") or (ALGORITHMS if _is_absent(row) else ("SCRAM-SHA-512",)))


def _change_user(row: Row, cluster: ClusterStore, kept: Kept, dry_run: bool) -> Iterator[str]:
    """A user has the named mechanisms. Absent, it has none of those that are named, or none at all."""
    user, before = row["name"], cluster.entity_config("users", row["name"])
    texts: dict[str, str | None] = {}
    for each in _mechanisms(row):
        if not _is_absent(row):
            if not _is_of(each, row["password"], before.get(each)):
                texts[each] = str(new_credential(each, row["password"]))
        elif each in before and kept.may_go(f"user {user}", each, [user]):
            texts[each] = None
    if not texts:
        return

    def changed(configs: dict[str, str]) -> dict[str, str]:
        kept = {name: text for name, text in configs.items() if name not in texts}
        return kept | {name: text for name, text in texts.items() if text is not None}

    if not dry_run:
        path = altered_path({"user": user})
        quota_nodes.change(cluster, emptied_paths(path), changed)
    for mechanism, text in texts.items():
        yield f"user {user}: {mechanism} {'removed' if text is None else 'set'}"


def _is_of(mechanism: str, password: str, text: str | None) -> bool:
    """Whether a credential was made of a password."""
    try:
        found = ScramCredential.parse(text or "")
    except ValueError:
        return False
    return new_credential(mechanism, password, found.iterations, found.salt) == found


# -- ACLs

Changes = dict[AccessControlEntry, bool]
"""Whether an entry is to be there."""


def _acls_by_pattern(rows: Iterable[Row]) -> dict[ResourcePattern, Changes]:
    found: dict[ResourcePattern, Changes] = {}
    for number, row in enumerate(rows, 1):
        place = _place("acls", number)
        kind = _one_of(place, "resource", row.get("resource"), ResourceType)
        pattern = _one_of(place, "pattern", row.get("pattern", "literal"), PatternType)
        permission = _one_of(place, "permission", row.get("permission", "allow"), Permission)
        name = CLUSTER_NAME if kind is ResourceType.CLUSTER else row.get("name")
        if not isinstance(name, str) or not name or pattern < PatternType.LITERAL:
            raise AccessError(f"{place}: name is missing, or pattern is neither literal nor prefixed")
        principal = str(row.get("principal", ""))
        if (problem := principal_problem(principal)) is not None:
            raise AccessError(f"{place}: {problem}")
        changes = found.setdefault(ResourcePattern(kind, name, pattern), {})
        for text in row.get("operations") or ():
            operation = _one_of(place, "operation", text, AclOperation)
            if operation is not AclOperation.ALL and operation not in SUPPORTED[kind]:
                raise AccessError(f"{place}: {kind.text} knows no operation {operation.text}")
            entry = AccessControlEntry(principal, str(row.get("host", "*")), operation, permission)
            changes[entry] = not _is_absent(row)
    return found


def _one_of(place: str, what: str, text: object, kind: Any) -> Any:
    """The member with this name, as ``transactional_id`` or ``DescribeConfigs``; neither UNKNOWN nor ANY."""
    members = [each for each in kind if each > 1]
    plain = str(text).replace("_", "").lower()
    for each in members:
        if each.name.replace("_", "").lower() == plain:
            return each
    raise AccessError(
        f"{place}: {what} is {text!r}, none of {', '.join(each.name.lower() for each in members)}"
    )


def _change_acls(
    wanted: Mapping[ResourcePattern, Changes], store: AclStore, kept: Kept, dry_run: bool
) -> Iterator[str]:
    for pattern, read in store.read(wanted).items():
        before: VersionedAcls = or_raise(read)
        changes = {
            entry: is_wanted
            for entry, is_wanted in wanted[pattern].items()
            if is_wanted is not (entry in before.entries) and (is_wanted or _may_go(pattern, entry, kept))
        }
        if not changes:
            continue
        added = {entry for entry, is_wanted in changes.items() if is_wanted}
        gone = changes.keys() - added

        def changed(
            entries: frozenset[AccessControlEntry],
            added: set[AccessControlEntry] = added,
            gone: set[AccessControlEntry] = gone,
        ) -> frozenset[AccessControlEntry]:
            return (entries | added) - gone

        if not dry_run:
            store.update(pattern, changed)
        for entry, is_wanted in changes.items():
            where, words = as_words(pattern, entry)
            yield f"acl {where}: {words} {'added' if is_wanted else 'removed'}"


def _may_go(pattern: ResourcePattern, entry: AccessControlEntry, kept: Kept) -> bool:
    where, words = as_words(pattern, entry)
    return kept.may_go(f"acl {where}", words, [entry.principal.partition(":")[2], entry.principal])


# -- quotas


class _Quota(NamedTuple):
    """What is listed of an entity: its path, its names, and each key with its value and whether it is to be absent."""

    path: str
    names: list[str]
    changes: list[tuple[str, float, bool]]


def _quota(place: str, row: Row) -> _Quota:
    names = {"user": "user", "client_id": "client-id", "ip": "ip"}
    entity = {
        names[key]: None if row[key] == _DEFAULT else str(row[key])
        for key in names
        if row.get(key) is not None
    }
    values = row.get("values") or {}
    if not isinstance(values, dict):
        raise AccessError(f"{place}: values must be an object of rates by key")
    try:
        path = altered_path(entity)
        keys = sorted(values) or ([CONNECTION_RATE] if path.startswith(f"{IPS}/") else sorted(CLIENT_KEYS))
        changes = [(key, float(values.get(key) or 0), _is_absent(row)) for key in keys]
        altered(path, {}, changes)
    except (AlterationError, TypeError, ValueError) as error:
        raise AccessError(f"{place}: {error}") from error
    if not values and not _is_absent(row):
        raise AccessError(f"{place}: values are missing")
    return _Quota(path, [str(row[key]) for key in names if row.get(key) is not None], changes)


def _change_quota(quota: _Quota, cluster: ClusterStore, kept: Kept, dry_run: bool) -> Iterator[str]:
    path, names, listed = quota
    before = cluster.entity_config_at(path)
    changes = [
        change
        for change in listed
        if not change[2]
        or (change[0] in before and kept.may_go(f"quota {path}", f"{change[0]} {before[change[0]]}", names))
    ]
    after = altered(path, before, changes)
    if after == before:
        return
    if not dry_run:
        quota_nodes.change(cluster, emptied_paths(path), lambda config: altered(path, config, changes))
    for key, _, _ in changes:
        if before.get(key) != after.get(key):
            yield f"quota {path}: {key} {'removed' if key not in after else f'set to {after[key]}'}"
