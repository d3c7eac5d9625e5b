"""Reads the metadata tree from ZooKeeper, and writes it into an empty one. `tree_backup` defines what a
backup is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol, TypeVar

from broker.zookeeper import znodes
from broker.zookeeper.acl import Acl
from broker.zookeeper.store import Create, Op, SetData, Store, StoreError
from broker.zookeeper.tree_backup import (
    OPEN_ACL,
    BackupError,
    Node,
    is_kept,
    restored,
)

T = TypeVar("T")

# ZooKeeper refuses requests of a mebibyte (jute.maxbuffer).
_MULTI_OPS: Final = 500
_MULTI_BYTES: Final = 400_000
_OP_BYTES: Final = 100
_READ_AT_ONCE: Final = 1000
_PARENT: Final = znodes.CLUSTER_ID.rpartition("/")[0]


class TreeStore(Store, Protocol):
    """A store that also reads and writes ACLs."""

    def get_acls_many(self, paths: Sequence[str]) -> list[tuple[Acl, ...] | None]:
        """The ACLs of each node; None for a node that does not exist. Raises :class:`StoreError` for one that
        cannot be read.
        """
        ...

    def set_acls_many(self, acls: Sequence[tuple[str, Sequence[Acl]]]) -> None:
        """Sets the ACLs. Raises the first :class:`StoreError`."""
        ...

    def create_with_acls(self, path: str, data: bytes, acls: Sequence[Acl]) -> None:
        """Creates the node with its ACL in one step, so that it never has another ACL.
        Raises :class:`StoreError`.
        """
        ...


def read_tree(store: TreeStore) -> list[Node]:
    """All persistent nodes that belong in a backup, sorted; ``/`` with its ACL is the first.

    The cluster may keep running: each node is read as a whole, but two nodes may be from different moments.
    Raises :class:`BackupError` for an ACL that is only partly visible, :class:`StoreError`.
    """
    nodes: list[Node] = []
    level = ["/"]
    while level:
        below: list[str] = []
        for paths in _chunks(level):
            below += _read(store, paths, nodes)
        level = sorted(below)
    return sorted(nodes, key=lambda node: node.path)


def _read(store: TreeStore, paths: Sequence[str], nodes: list[Node]) -> Iterator[str]:
    """Appends to ``nodes``; yields the paths of the children."""
    found = zip(
        paths, store.get_many(paths), store.get_acls_many(paths), store.children_many(paths), strict=True
    )
    for path, node, acls, children in found:
        if node is None or acls is None or children is None or node[1].ephemeral_owner:
            continue
        for acl in acls:
            if acl.scheme == "digest" and acl.identity.endswith(":x"):
                raise BackupError(
                    f"{path} shows the ACL digest:{acl.identity} without its password's hash, as to all who have no "
                    "admin permission there: a backup of it would lock everybody out. Give that permission first"
                )
        nodes.append(Node(path, node[0], node[1].version, acls))
        base = "" if path == "/" else path
        yield from (child for name in children if is_kept(child := f"{base}/{name}"))


def write_tree(store: TreeStore, nodes: Sequence[Node]) -> None:
    """Creates the tree. Raises :class:`BackupError` if there is one already, or if it could not be completed.

    It writes the data first and then the ACLs, because those might forbid the remaining writes.
    ``/cluster/id`` comes last, because with it brokers accept the tree. So a restore that dies earlier leaves
    no unprotected tree in use. Only one ACL may follow later: that of its parent, if the ACL does not let
    this session, which has no credentials, create the node.
    """
    present = [name for name in sorted(store.children("/")) if name != "zookeeper"]
    if present:
        raise BackupError(f"the tree is not empty: it has {_listed(present)}. {_remove(present)}")
    *most, cluster_id = (node for node in restored(nodes) if node.path != "/")
    try:
        for batch in _batches(most):
            store.multi(batch)
        for node in nodes:
            if node.path == znodes.BROKER_SEQUENCE:  # its version is the last broker id that was assigned
                for ops in _chunks([SetData(node.path, node.data)] * node.version):
                    store.multi(ops)
        guarded = [node for node in nodes if node.acls != OPEN_ACL and node.path != cluster_id.path]
        late = [node for node in guarded if node.path == _PARENT and not _lets_anyone_create(node.acls)]
        store.set_acls_many([(node.path, node.acls) for node in guarded if node not in late])
        store.create_with_acls(cluster_id.path, cluster_id.data, cluster_id.acls)
        store.set_acls_many([(node.path, node.acls) for node in late])
    except StoreError as error:
        try:
            made = [name for name in sorted(store.children("/")) if name != "zookeeper"]
        except StoreError:
            made = ["whatever was made"]
        raise BackupError(f"the restore is unfinished: {error}. {_remove(made)}") from error


def _lets_anyone_create(acls: Iterable[Acl]) -> bool:
    return any((acl.scheme, acl.identity) == ("world", "anyone") and "c" in acl.permissions for acl in acls)


def _batches(nodes: Iterable[Node]) -> Iterator[list[Op]]:
    batch: list[Op] = []
    size = 0
    for node in nodes:
        bytes_ = len(node.data) + len(node.path) + _OP_BYTES
        if batch and (len(batch) >= _MULTI_OPS or size + bytes_ > _MULTI_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(Create(node.path, node.data))
        size += bytes_
    if batch:
        yield batch


def _chunks(items: Sequence[T]) -> Iterator[Sequence[T]]:
    return (items[begin : begin + _READ_AT_ONCE] for begin in range(0, len(items), _READ_AT_ONCE))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(f"/{name}" for name in names)


def _remove(names: Sequence[str]) -> str:
    return (
        "With all brokers stopped, and if nothing of it is needed, remove it and restore then: zkCli.sh, "
        f"`deleteall` of {_listed(names)} below the chroot"
    )
