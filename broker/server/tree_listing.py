"""`landline metadata tree`: ZooKeeper's metadata tree as JSON lines, without credentials.

Each node has a line with its path, size, version and value. Values that are or may hold credentials are replaced
here: users' credentials and quotas, delegation tokens, the secret of SCRAM's decoys, and the passwords among brokers'
configs. Digests in ACLs are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

from broker.server.config_secrets import is_secret
from broker.zookeeper.acl import Acl
from broker.zookeeper.store import Stat, StoreError
from broker.zookeeper.znodes import SCRAM_SECRET

MASKED: Final = "(masked)"
_AT_ONCE: Final = 500
_SECRET_TREES: Final = ("/config/users", "/delegation_token", SCRAM_SECRET)
_SECRET_WORDS: Final = ("password", "secret", "jaas", "keystore.key")
_BROKERS: Final = "/config/brokers/"


class Tree(Protocol):
    """What is read of a store."""

    def get_many(self, paths: Sequence[str]) -> list[tuple[bytes, Stat] | None]: ...
    def children_many(self, paths: Sequence[str]) -> list[list[str] | None]: ...
    def get_acls_many(self, paths: Sequence[str]) -> list[tuple[Acl, ...] | None]: ...


def listed(store: Tree) -> Iterator[str]:
    """A JSON object for each node, parents first. A node that may not be read says so."""
    level = ["/"]
    while level:
        below: list[str] = []
        for start in range(0, len(level), _AT_ONCE):
            for path, node, acls, children in _read(store, level[start : start + _AT_ONCE]):
                yield json.dumps(row_of(path, node, acls))
                below += [f"{path.rstrip('/')}/{name}" for name in children or ()]
        level = sorted(each for each in below if each != "/zookeeper")


Row = tuple[str, tuple[bytes, Stat] | StoreError | None, tuple[Acl, ...] | None, list[str] | None]


def _read(store: Tree, paths: Sequence[str]) -> list[Row]:
    """All at once, or one by one if one of them may not be read."""
    try:
        found = zip(
            paths, store.get_many(paths), store.get_acls_many(paths), store.children_many(paths), strict=True
        )
        return list(found)
    except StoreError as error:
        if len(paths) == 1:
            return [(paths[0], error, None, None)]
        return [row for path in paths for row in _read(store, [path])]


def row_of(
    path: str, node: tuple[bytes, Stat] | StoreError | None, acls: Sequence[Acl] | None
) -> dict[str, Any]:
    """What is shown of a node."""
    if node is None:
        return {"path": path, "error": "deleted meanwhile"}
    if isinstance(node, StoreError):
        return {"path": path, "error": type(node).__name__}
    data, stat = node
    row: dict[str, Any] = {"path": path, "bytes": len(data), "version": stat.version}
    row["modified_ms"] = stat.mtime_ms
    if stat.ephemeral_owner:
        row["ephemeral"] = True
    if acls is not None:
        row["acl"] = [f"{acl.scheme}:{_identity(acl)}:{acl.permissions}" for acl in acls]
    if data:
        row["value"] = shown(path, data)
    return row


def _identity(acl: Acl) -> str:
    """The user of a digest, without the hash of its password."""
    return acl.identity.partition(":")[0] if acl.scheme == "digest" else acl.identity


def shown(path: str, data: bytes) -> object:
    """The value: an object if it is JSON, else text. Credentials are masked."""
    if any(f"{secret}/" in f"{path}/" for secret in _SECRET_TREES):  # also of a cluster with a chroot below
        return MASKED
    is_of_broker = _BROKERS in path
    try:
        value = json.loads(data)
    except ValueError:
        return MASKED if is_of_broker else data.decode(errors="backslashreplace")
    if is_of_broker:
        configs = value.get("config") if isinstance(value, dict) else None
        if not isinstance(configs, dict):
            return MASKED
        value["config"] = {name: MASKED if _may_be_secret(name) else text for name, text in configs.items()}
    return value


def _may_be_secret(name: str) -> bool:
    """Also a key that only Kafka's brokers use."""
    return is_secret(name) or any(word in name.lower() for word in _SECRET_WORDS)
