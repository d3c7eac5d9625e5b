"""The znodes of users, client ids and IP addresses below `/config`: reading all of them, and writing one.

A user's client ids are below the user: `/config/users/U/clients/C`. As in Kafka, a node without a config and
without children is deleted, and every change is announced in `/config/changes`. What the configs mean is
known in :mod:`broker.server.quotas`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

import structlog

from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import NodeExistsError, NoNodeError, NotEmptyError

_log = structlog.get_logger(__name__)
_KINDS = ("users", "clients", "ips")


def entity_paths(store: ClusterStore) -> list[str]:
    """The paths below ``/config`` of all users, users' client ids, client ids and IP addresses."""
    users, *others = store.store.children_many([f"/config/{kind}" for kind in _KINDS])
    user_paths = [f"users/{user}" for user in users or ()]
    below = store.store.children_many([f"/config/{path}/clients" for path in user_paths])
    both = [
        f"{path}/clients/{client}"
        for path, clients in zip(user_paths, below, strict=True)
        for client in clients or ()
    ]
    rest = [f"{kind}/{name}" for kind, names in zip(_KINDS[1:], others, strict=True) for name in names or ()]
    return user_paths + both + rest


def entity_configs(store: ClusterStore, paths: Sequence[str]) -> dict[str, dict[str, str]]:
    """The configs at the paths, pipelined. Nodes that are unreadable, which is logged, or gone are left out."""
    configs = {}
    nodes = [znodes.entity_config_path(path) for path in paths]
    for path, node, found in zip(paths, nodes, store.store.get_many(nodes), strict=True):
        if found is not None:
            try:
                configs[path] = znodes.decode_config(node, found[0])
            except znodes.BadZnodeError as error:
                _log.warning("config_unreadable", entity=path, error=str(error))
    return configs


def write(store: ClusterStore, emptied: Sequence[str], config: Mapping[str, str]) -> None:
    """Writes an entity's config and announces it. ``emptied`` has its path, and after it the paths of its
    parents that are deleted with it if the config is empty and they are, too.
    """
    path = emptied[0]
    if config or not _delete(store, path):
        _set(store, path, config)
    else:
        for parent in emptied[1:]:
            if store.entity_config_at(parent) or not _delete(store, parent):
                break
    store.create_config_change(path)


def _set(store: ClusterStore, path: str, config: Mapping[str, str]) -> None:
    node, data = znodes.entity_config_path(path), znodes.encode_config(config)
    try:
        store.store.set(node, data)
    except NoNodeError:
        store.store.ensure_path(node.rpartition("/")[0])
        try:
            store.store.create(node, data)
        except NodeExistsError:
            store.store.set(node, data)


def _delete(store: ClusterStore, path: str) -> bool:
    """Whether the node is gone; False when it has children."""
    try:
        with suppress(NoNodeError):
            store.store.delete(znodes.entity_config_path(path))
    except NotEmptyError:
        return False
    return True
