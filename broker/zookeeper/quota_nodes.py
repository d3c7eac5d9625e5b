"""The znodes of users, client ids and IP addresses below `/config`: reading all of them, and writing one.

A user's client ids are below the user: `/config/users/U/clients/C`. As in Kafka, a node without a config and
without children is deleted, and every change is announced in `/config/changes`. What the configs mean is
known in :mod:`broker.server.quotas`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

import structlog

from broker.zookeeper import znodes
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import BadVersionError, NodeExistsError, NoNodeError, NotEmptyError

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


def change(
    store: ClusterStore, emptied: Sequence[str], make: Callable[[dict[str, str]], Mapping[str, str]]
) -> None:
    """Replaces an entity's config by what ``make`` makes of it, and announces it. Nobody else's change is lost:
    ``make`` is called again after one, and may raise.

    ``emptied`` has the entity's path, and after it those of its parents that are deleted with it if they are
    as empty as it is then.
    """
    path = emptied[0]
    while True:
        try:
            if _replaced(store, path, make):
                for parent in emptied[1:]:
                    if not _replaced(store, parent, _same):
                        break
            break
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue  # somebody else was faster
    store.create_config_change(path)


def _same(config: dict[str, str]) -> dict[str, str]:
    return config


def _replaced(store: ClusterStore, path: str, make: Callable[[dict[str, str]], Mapping[str, str]]) -> bool:
    """Writes the node, or deletes it if its config is empty and it has no children. Returns whether it is
    gone. Raises BadVersionError, NodeExistsError or NoNodeError after a change by somebody else.
    """
    node = znodes.entity_config_path(path)
    (found,) = store.store.get_many([node])
    before = {} if found is None else znodes.decode_config(node, found[0])
    after = make(before)
    if found is None:
        if not after:
            return True
        store.store.ensure_path(node.rpartition("/")[0])
        store.store.create(node, znodes.encode_config(after))
        return False
    if not after:
        with suppress(NotEmptyError):
            store.store.delete(node, found[1].version)
            return True
    if after != before:
        store.store.set(node, znodes.encode_config(after), found[1].version)
    return False
