"""The cluster id and broker id, from config, meta.properties and ZooKeeper."""

from __future__ import annotations

from typing import NamedTuple

from broker.config.broker_config import BrokerConfig
from broker.log.dirs.log_dirs import LogDirs
from broker.server.lifecycle.startup_steps import StartupError
from broker.zookeeper.cluster_store import ClusterStore


class Identity(NamedTuple):
    """Which broker of which cluster this is."""

    broker_id: int
    cluster_id: str


def settle_identity(config: BrokerConfig, dirs: LogDirs, store: ClusterStore) -> Identity:
    """Reads both ids from wherever they are set, generates missing ones, and stores both in meta.properties.

    Raises :class:`StartupError` if two places differ. Until then nothing is written to ZooKeeper: into an ensemble that
    lost its tree, a restore brings it back only while nobody has begun another one.
    """
    log_dirs = ", ".join(config.log_dirs)
    check_cluster_id(dirs.cluster_id, store.cluster_id(), log_dirs)
    broker_id = known_broker_id(config.broker_id, dirs.broker_id, log_dirs)
    store.create_top_level_paths()
    cluster_id = store.get_or_create_cluster_id()
    if broker_id is None:
        broker_id = store.next_broker_id(config.int("reserved.broker.max.id"))
    dirs.write_meta_properties(broker_id, cluster_id)
    return Identity(broker_id, cluster_id)


def check_cluster_id(stored: str | None, in_zookeeper: str | None, log_dirs: str) -> None:
    """Pure. Raises :class:`StartupError` if the data belongs to another cluster than ZooKeeper's.

    ``stored`` is the id in meta.properties, None if there is none yet; ``in_zookeeper`` is the one
    in /cluster/id.
    """
    if stored is None or stored == in_zookeeper:
        return
    if in_zookeeper is None:
        raise StartupError(
            f"the data in {log_dirs} is of cluster {stored} (meta.properties), but ZooKeeper has no /cluster/id: "
            "correct zookeeper.connect, or remove meta.properties to join anew"
        )
    raise StartupError(
        f"the data in {log_dirs} is of cluster {stored} (meta.properties), but ZooKeeper's /cluster/id is "
        f"{in_zookeeper}: correct zookeeper.connect or log.dirs"
    )


def known_broker_id(configured: int, stored: int | None, log_dirs: str) -> int | None:
    """The broker's id; None if ZooKeeper must generate one. Pure. Raises :class:`StartupError` if two
    places differ.

    ``configured`` is broker.id, -1 for none; ``stored`` is the one in meta.properties.
    """
    if configured < 0:
        return stored
    if stored is not None and configured != stored:
        raise StartupError(
            f"broker.id={configured} is configured, but {log_dirs} holds the data of broker {stored} "
            "(meta.properties): correct broker.id or log.dirs"
        )
    return configured
