"""The configs of topics, brokers, users, clients and IP addresses: ``/config`` and its change announcements.

An unreadable config raises :class:`~broker.zookeeper.znodes.BadZnodeError` when it is read alone. When many are
read, it is left out and logged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar

import structlog

from broker.utils.clock import SYSTEM_CLOCK, Clock
from broker.zookeeper import announcements, znodes
from broker.zookeeper.store import BadVersionError, NodeExistsError, NoNodeError, Store, Watch
from broker.zookeeper.znodes import BadZnodeError

_log = structlog.get_logger(__name__)
MIN_INSYNC_REPLICAS = "min.insync.replicas"
K = TypeVar("K")
V = TypeVar("V")


class ConfigStore:
    """The configs in the store; the part of Kafka's KafkaZkClient and AdminZkClient for them. Thread-safe,
    without state of its own.
    """

    def __init__(self, store: Store, clock: Clock = SYSTEM_CLOCK) -> None:
        self.store = store
        self._clock = clock

    def topic_configs(self, topic: str) -> dict[str, str]:
        return self.entity_config("topics", topic)

    def topics_configs(self, topics: Sequence[str]) -> dict[str, dict[str, str]]:
        """The configs of many topics, pipelined. A topic without configs has an empty mapping; one whose configs are
        unreadable is left out.
        """
        paths = [znodes.entity_config_path(znodes.entity_path("topics", topic)) for topic in topics]
        found = self.store.get_many(paths)
        return readable(
            (topic, dict if node is None else partial(znodes.decode_config, path, node[0]))
            for topic, path, node in zip(topics, paths, found, strict=True)
        )

    def min_insync_replicas(self, topics: Sequence[str], default: int) -> dict[str, tuple[int, str]]:
        """Each topic's ``min.insync.replicas``, and the version of the configs it comes from. The version
        changes with every change of them, even one that is undone. ``default`` applies if neither the topic
        nor the cluster sets it; 0 means that it cannot be read.
        """
        default_path = znodes.entity_path("brokers", znodes.DEFAULT_ENTITY)
        paths = [
            znodes.entity_config_path(path)
            for path in (default_path, *(znodes.entity_path("topics", topic) for topic in topics))
        ]
        found = self.store.get_many(paths)
        configs_by_path = readable(
            (path, partial(znodes.decode_config, path, b"" if node is None else node[0]))
            for path, node in zip(paths, found, strict=True)
        )
        configs = [configs_by_path.get(path, {MIN_INSYNC_REPLICAS: ""}) for path in paths]
        versions = ["-" if node is None else f"{node[1].czxid}.{node[1].version}" for node in found]
        cluster = configs[0].get(MIN_INSYNC_REPLICAS, str(default))
        return {
            topic: (_number(config.get(MIN_INSYNC_REPLICAS, cluster)), f"{versions[0]}/{version}")
            for topic, config, version in zip(topics, configs[1:], versions[1:], strict=True)
        }

    def entity_configs(self, kind: str, names: Sequence[str] | None = None) -> dict[str, dict[str, str]]:
        """The configs of these entities of a kind, or of all, pipelined and by unsanitized name. An unreadable
        one is left out.
        """
        if names is None:
            names = self.entity_names(kind)
        paths = [znodes.entity_config_path(znodes.entity_path(kind, name)) for name in names]
        found = self.store.get_many(paths)
        return readable(
            (name, partial(znodes.decode_config, path, node[0]))
            for name, path, node in zip(names, paths, found, strict=True)
            if node is not None
        )

    def entity_config(self, kind: str, name: str) -> dict[str, str]:
        """An entity's config. ``kind`` is topics, brokers, clients, users or ips; ``name`` is unsanitized,
        or ``<default>``.
        """
        return self.entity_config_at(znodes.entity_path(kind, name))

    def entity_config_at(self, entity_path: str) -> dict[str, str]:
        """The config at the path below ``/config`` that a change notification names. Empty if there
        is none.
        """
        path = znodes.entity_config_path(entity_path)
        (found,) = self.store.get_many([path])
        return {} if found is None else znodes.decode_config(path, found[0])

    def entity_names(self, kind: str) -> list[str]:
        return sorted(znodes.desanitize(name) for name in self._children(f"/config/{kind}"))

    def set_entity_config(self, kind: str, name: str, config: Mapping[str, str]) -> None:
        """Creates or replaces the config. :meth:`create_config_change` then notifies the brokers."""
        path = znodes.entity_config_path(znodes.entity_path(kind, name))
        data = znodes.encode_config(config)
        try:
            self.store.set(path, data)
        except NoNodeError:
            self.store.ensure_path(f"/config/{kind}")
            try:
                self.store.create(path, data)
            except NodeExistsError:
                self.store.set(path, data)

    def remove_entity_config(self, kind: str, name: str) -> bool:
        """Removes the config of an entity that is gone; announces nothing. Returns whether there was one."""
        try:
            self.store.delete(znodes.entity_config_path(znodes.entity_path(kind, name)))
        except NoNodeError:
            return False
        return True

    def change_entity_config(
        self, kind: str, name: str, change: Callable[[dict[str, str]], dict[str, str]]
    ) -> None:
        """Replaces a config by what ``change`` makes of it, and announces it. Nobody else's change is lost:
        ``change`` is called again after one.
        """
        entity_path = znodes.entity_path(kind, name)
        path = znodes.entity_config_path(entity_path)
        while True:
            (found,) = self.store.get_many([path])
            data = znodes.encode_config(change({} if found is None else znodes.decode_config(path, found[0])))
            try:
                if found is None:
                    self.store.ensure_path(f"/config/{kind}")
                    self.store.create(path, data)
                else:
                    self.store.set(path, data, found[1].version)
                break
            except (BadVersionError, NodeExistsError, NoNodeError):
                continue
        self.create_config_change(entity_path)

    def create_config_change(self, entity_path: str) -> None:
        """Announces a config change: ``topics/t1``, ``brokers/0``, ``brokers/<default>``."""
        data = znodes.encode_config_change(entity_path)
        self.store.create(znodes.CONFIG_CHANGE_PREFIX, data, sequence=True)

    def config_changes(self, after: str = "") -> list[tuple[str, str]]:
        """``(notification name, entity path)`` of the announcements after ``after``, oldest first."""
        names = [name for name in sorted(self._children(znodes.CONFIG_CHANGES)) if name > after]
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in names]
        found = self.store.get_many(paths)
        changes = readable(
            (name, partial(znodes.decode_config_change, path, node[0]))
            for name, path, node in zip(names, paths, found, strict=True)
            if node is not None
        )
        return list(changes.items())

    def purge_config_changes(self, older_than_ms: int = announcements.KEPT_MS) -> int:
        """Deletes announcements that every broker has seen by now; returns how many."""
        horizon_ms = self._clock.wall_ms() - older_than_ms
        return announcements.purge(self.store, znodes.CONFIG_CHANGES, horizon_ms)

    def watch_config_changes(self, callback: Callable[[], None]) -> Watch:
        return self.store.watch_children(znodes.CONFIG_CHANGES, callback)

    def _children(self, path: str) -> list[str]:
        try:
            return self.store.children(path)
        except NoNodeError:
            return []


def _number(text: str) -> int:
    return int(text) if text.strip().isdecimal() else 0


def readable(nodes: Iterable[tuple[K, Callable[[], V]]]) -> dict[K, V]:
    """The nodes that can be decoded. A node that was damaged by hand must not stop the cluster."""
    values = {}
    for key, decode in nodes:
        try:
            values[key] = decode()
        except BadZnodeError as error:
            _log.error("znode_unreadable", reason=str(error), action="it is left out: mend it or delete it")
    return values
