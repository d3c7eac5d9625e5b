"""`landline metadata backup`, `verify`, `restore` and `tree`: saves the metadata tree to a file, restores it to an
empty ensemble, lists it.

`zookeeper.tree_backup` defines the backup format; `zookeeper.tree_copy` reads and writes the tree.
"""

from __future__ import annotations

import datetime as dt
import os
import tempfile
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, NamedTuple

from broker.config.log_dirs import log_dir_paths
from broker.config.problems import ConfigError
from broker.log.dirs.meta_properties import read_meta_properties
from broker.log.errors import LogDirError
from broker.server.zookeeper_access import access_from
from broker.zookeeper.access import ZooKeeperAccess
from broker.zookeeper.client import ZooKeeperStore
from broker.zookeeper.connect_string import parse_connect_string
from broker.zookeeper.store import ConnectionLossError, ConnectTimeoutError, SessionExpiredError, StoreError
from broker.zookeeper.tree_backup import Backup, BackupError, NoClusterError, cluster_id_of, decode, encode
from broker.zookeeper.tree_copy import read_tree, write_tree
from broker.zookeeper.znodes import BadZnodeError

EXIT_DONE: Final = 0
EXIT_FAILED: Final = 1
# EX_NOINPUT and EX_UNAVAILABLE of sysexits.h. Whoever wants to restore a tree has to know that it is gone, and not that
# it could not be read for any other reason.
EXIT_NO_TREE: Final = 66
EXIT_NO_ZOOKEEPER: Final = 69
_AWAY: Final = (ConnectTimeoutError, ConnectionLossError, SessionExpiredError)
_SESSION_MS: Final = 20_000

Complain = Callable[[str], None]


class _Tree(NamedTuple):
    """Where the metadata tree is, and how to get at it."""

    connect: str
    access: ZooKeeperAccess


def run(options: Any, properties: Mapping[str, str], complain: Complain) -> int:
    """Runs the command. ``options`` are its options, ``properties`` the broker's file, empty
    with ``--zookeeper``.
    """
    connect = options.zookeeper or properties.get("zookeeper.connect", "")
    if options.verb == "tree":
        return _tree(options.config or options.zookeeper, connect, properties, complain)
    work = {"backup": _backup, "verify": _verify, "restore": _restore}[options.verb]
    if not connect:
        complain(f"{options.config} has no zookeeper.connect: there is no metadata tree")
        return EXIT_FAILED
    try:
        access = replace(access_from(properties), sets_acls=False)  # ACLs are restored as they were
        print(work(options.file, _Tree(connect, access), _cluster_id(properties)))
    except (BackupError, BadZnodeError, ConfigError, StoreError, OSError) as error:
        complain(f"{options.verb} of {options.file} with {connect}: {error}")
        return _exit_code(error, options.verb)
    return EXIT_DONE


def _tree(source: str, connect: str, properties: Mapping[str, str], complain: Complain) -> int:
    """Prints the tree without credentials."""
    if not connect:
        complain(f"{source} has no zookeeper.connect: there is no metadata tree")
        return EXIT_FAILED
    from broker.server.tree_listing import listed

    try:
        store = _connected(_Tree(connect, access_from(properties)))
        try:
            for line in listed(store):
                print(line)
        finally:
            store.close()
    except (ConfigError, StoreError, OSError) as error:
        complain(f"tree of {connect}: {error}")
        return _exit_code(error, "tree")
    return EXIT_DONE


def _exit_code(error: Exception, verb: str) -> int:
    if isinstance(error, NoClusterError) and verb == "backup":
        return EXIT_NO_TREE
    return EXIT_NO_ZOOKEEPER if isinstance(error, _AWAY) else EXIT_FAILED


def _cluster_id(properties: Mapping[str, str]) -> str | None:
    """The cluster id in the broker's data directories, if they have one."""
    if not properties:
        return None
    for directory in log_dir_paths(properties.get("log.dirs"), properties.get("log.dir")):
        try:
            meta = read_meta_properties(Path(directory))
        except (OSError, LogDirError):
            continue
        if meta is not None and meta.cluster_id is not None:
            return meta.cluster_id
    return None


def _backup(file: str, tree: _Tree, own_id: str | None) -> str:
    connect, store = tree.connect, _connected(tree)
    try:
        nodes = tuple(read_tree(store))
    finally:
        store.close()
    cluster_id = cluster_id_of(nodes)
    _refuse_another(f"{connect} has", cluster_id, own_id)
    made_at = dt.datetime.now(tz=dt.UTC).isoformat(timespec="seconds")
    content = encode(Backup(cluster_id, made_at, parse_connect_string(connect)[1], nodes))
    _write(Path(file), content)
    return f"{file}: {len(nodes)} nodes of cluster {cluster_id}, {len(content)} bytes"


def _verify(file: str, _tree: _Tree, own_id: str | None) -> str:
    """Checks the file as a restore would, without ZooKeeper."""
    backup = _read(file, own_id)
    return f"{file}: whole, {len(backup.nodes)} nodes of cluster {backup.cluster_id}, as of {backup.made_at}"


def _read(file: str, own_id: str | None) -> Backup:
    backup = decode(Path(file).read_bytes())
    _refuse_another("it is of", backup.cluster_id, own_id)
    return backup


def _restore(file: str, tree: _Tree, own_id: str | None) -> str:
    backup = _read(file, own_id)
    store = _connected(tree)
    try:
        write_tree(store, backup.nodes)
    finally:
        store.close()
    count, made_at = len(backup.nodes), backup.made_at
    return f"restored {count} nodes of cluster {backup.cluster_id}, as of {made_at}, to {tree.connect}"


def _refuse_another(words: str, cluster_id: str, own_id: str | None) -> None:
    if own_id is not None and own_id != cluster_id:
        raise BackupError(
            f"{words} cluster {cluster_id}, and this broker's data (meta.properties) are of {own_id}: "
            "brokers would refuse the tree. Take the one that belongs to the data"
        )


def _connected(tree: _Tree) -> ZooKeeperStore:
    store = ZooKeeperStore(tree.connect, _SESSION_MS, tree.access)
    store.connect(_SESSION_MS, threading.Event())
    return store


def _write(file: Path, content: bytes) -> None:
    """Writes the file completely or not at all, readable only by its owner: configs may contain secrets."""
    descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.absolute().parent)  # 0600
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        Path(name).replace(file)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
    directory = os.open(file.absolute().parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
