"""DynamicConfigManager: follows `/config` in the store and passes changed settings to the parts that
use them.

Kafka's ZkConfigManager. Watch callbacks only enqueue. One thread reads the notifications in
`/config/changes`, each once, and deletes those older than 15 minutes. Configs that Landline cannot use (for
example written by a broker of another version) are skipped with one log line. The API modules write configs.
"""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

import structlog

from broker.config.broker_config import BrokerConfig, check_dynamic
from broker.config.client_floors import below_floors
from broker.config.live_keys import differing_values, reloaded
from broker.config.log_config import LogConfig
from broker.config.problems import ConfigError, Problem
from broker.config.topic_config import check_topic_configs
from broker.config.types import Value
from broker.server.config_file import ConfigFile
from broker.server.config_secrets import decoded, is_secret
from broker.zookeeper import quota_nodes
from broker.zookeeper.change_follower import ChangeFollower
from broker.zookeeper.cluster_store import ClusterStore
from broker.zookeeper.store import SessionEvent, StoreError, Watch
from broker.zookeeper.znodes import BadZnodeError

DEFAULT_ENTITY: Final = "<default>"
_NAMED: Final = 10

_log = structlog.get_logger(__name__)


class DynamicConfigManager:
    """The follower of `/config` in ZooKeeper; Kafka's ZkConfigManager. Owns ``config``, the broker's current
    configuration: only its thread replaces it.

    ``on_topic_config`` receives a topic's new settings, ``on_broker_config`` the broker's, and
    ``on_entity_config`` the path and the configs of a user, a client id, both, or an ip, empty if it has
    none. All are called on that thread (during :meth:`startup` on the caller's). ``local_topics`` returns the
    topics with logs here, whose settings depend on the broker's defaults; without it, all are reported.
    ``on_broker_read`` is called whenever somebody set a config of the broker, even to the value that it had:
    then a file may have changed. ``file`` is the properties file that :meth:`reload` reads.
    """

    def __init__(
        self,
        config: BrokerConfig,
        broker_id: int,
        store: ClusterStore,
        *,
        on_topic_config: Callable[[str, LogConfig], None],
        on_broker_config: Callable[[BrokerConfig], None],
        on_entity_config: Callable[[str, Mapping[str, str]], None] = lambda _path, _config: None,
        local_topics: Callable[[], Iterable[str]] | None = None,
        on_broker_read: Callable[[BrokerConfig], None] = lambda _config: None,
        file: ConfigFile | None = None,
    ) -> None:
        self.config = config
        self._broker_id = broker_id
        self._store = store
        self._on_topic_config = on_topic_config
        self._on_entity_config = on_entity_config
        self._local_topics = local_topics or store.topics
        self._topics: dict[str, dict[str, str]] = {}
        self._entities: dict[str, dict[str, str]] = {}
        self._listeners = [on_broker_config]
        self._on_broker_read = on_broker_read
        self._entity_listeners: list[Callable[[str, Mapping[str, str]], None]] = []
        self._last_change = ""
        self._follower = ChangeFollower(
            "dynamic-config", self._follow, unread="config_changes_unread", failed="config_changes_failed"
        )
        self._unread: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._watch: Watch | None = None
        self._file = file
        self._reloads: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._misses: queue.SimpleQueue[bool] = queue.SimpleQueue()

    def add_listener(self, listener: Callable[[BrokerConfig], None]) -> None:
        """Registers a listener that is called with each new broker config, on the manager's thread."""
        self._listeners.append(listener)

    def add_entity_listener(self, listener: Callable[[str, Mapping[str, str]], None]) -> None:
        """Registers a listener that is called, on the manager's thread, with the path and the new configs of a
        user, client or ip, such as ``users/alice``.
        """
        self._entity_listeners.append(listener)

    def load_topics(self) -> None:
        """Reads all topics' configs at once, before the LogManager loads its logs."""
        self._topics = self._store.topics_configs(self._store.entity_names("topics"))
        self._tell_of_small_segments(self._topics)

    def topic_log_config(self, topic: str) -> LogConfig:
        """A topic's settings for its log. Once the manager runs, they are read again: the topic may have been
        deleted and recreated, and its configs are written before any notification.
        """
        if self._follower.is_started:
            try:
                self._topics[topic] = self._store.topic_configs(topic)
            except StoreError as error:
                _log.warning(
                    "topic_config_unread", topic=topic, error=str(error), using="the last known configs"
                )
                # No notification comes for existing configs: they are read again until that succeeds, then
                # the log gets them.
                self._unread.put(topic)
                self._follower.wake()
        return self._usable_log_config(topic)

    def startup(self) -> None:
        """Applies this broker's dynamic configs and those of users, client ids and ips, and starts following
        changes, including existing notifications: one may have come between an earlier read and this watch.
        Raises StoreError.
        """
        self._watch = self._store.watch_config_changes(self._follower.wake)
        self._read_broker()
        self._on_broker_read(self.config)
        paths = quota_nodes.entity_paths(self._store)
        for path, config in quota_nodes.entity_configs(self._store, paths).items():
            if config:
                self._take_up_entity(path, config)
        self._store.add_session_listener(self._on_session_event)
        self._follower.start()

    def shutdown(self) -> None:
        """Stops following changes; idempotent."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None
        self._follower.close()

    def topic_overrides(self, topic: str) -> dict[str, str]:
        """The topic's own configs, as last read."""
        return dict(self._topics.get(topic, {}))

    def entity_config(self, entity_path: str) -> dict[str, str]:
        """The known configs of ``clients/…``, ``users/…`` or ``ips/…``."""
        return dict(self._entities.get(entity_path, {}))

    def reload(self) -> None:
        """Has the properties file read again soon: its live keys are applied. From any thread."""
        self._reloads.put(True)
        self._follower.wake()

    # --- the thread

    def _on_session_event(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            # Others remove announcements after a while: some may have come and gone meanwhile.
            self._misses.put(True)
        elif event is SessionEvent.CONNECTED:
            self._follower.wake()

    def _follow(self) -> None:
        while not self._misses.empty():
            self._misses.get()
            try:
                self._read_all()
            except StoreError:
                self._misses.put(True)
                raise
        while not self._reloads.empty():
            self._reloads.get()
            try:
                self._reload()
            except StoreError:
                self._reloads.put(True)
                raise
        while not self._unread.empty():
            topic = self._unread.get()
            try:
                self._take_up(f"topics/{topic}")
            except StoreError:
                self._unread.put(topic)
                raise
        changes = self._store.config_changes(self._last_change)
        last = {entity_path: name for name, entity_path in changes}
        for name, entity_path in changes:
            if last[entity_path] == name:  # what it announces is read as it is now, so once is enough
                self._take_up(entity_path)
            self._last_change = name
        self._store.purge_config_changes()
        for topic in self._topics.keys() - set(self._local_topics()):
            del self._topics[topic]

    def _read_all(self) -> None:
        """Takes up whatever differs from what is known, announced or not. Raises StoreError."""
        self._take_up(f"brokers/{self._broker_id}")
        for topic, config in self._store.topics_configs(list(self._local_topics())).items():
            if config != self._topics.get(topic, {}):
                self._take_up(f"topics/{topic}")
        paths = quota_nodes.entity_paths(self._store)
        found = quota_nodes.entity_configs(self._store, paths)
        gone: dict[str, dict[str, str]] = {path: {} for path in self._entities.keys() - set(paths)}
        for path, config in {**found, **gone}.items():
            if config != self._entities.get(path, {}):
                self._take_up(path)

    def _take_up(self, entity_path: str) -> None:
        kind, _, name = entity_path.partition("/")
        try:
            if kind == "topics":
                self._read_topic(name)
            elif kind == "brokers":
                if name in (DEFAULT_ENTITY, str(self._broker_id)):
                    self._read_broker()
                    self._on_broker_read(self.config)
            else:
                config = self._store.entity_config_at(entity_path)
                self._take_up_entity(entity_path, config)
        except BadZnodeError as error:
            _log.warning("config_unreadable", entity=entity_path, error=str(error))
        except StoreError:
            raise
        except Exception:  # the thread must survive any content of /config
            _log.exception("config_change_failed", entity=entity_path)

    def _take_up_entity(self, path: str, config: dict[str, str]) -> None:
        if config:
            self._entities[path] = config
        else:
            self._entities.pop(path, None)
        self._on_entity_config(path, config)
        for listener in self._entity_listeners:
            listener(path, config)

    # --- topics

    def _read_topic(self, topic: str) -> None:
        self._topics[topic] = self._store.topic_configs(topic)
        _log.info("topic_config_taken_up", topic=topic, configs=_told(self._topics[topic]))
        self._tell_of_small_segments({topic: self._topics[topic]})
        self._on_topic_config(topic, self._usable_log_config(topic))

    def _tell_of_small_segments(self, topics: Mapping[str, Mapping[str, str]]) -> None:
        static = self.config.static_values
        small = [t for t in topics if below_floors(static, check_topic_configs(topics[t])[0], t)]
        if small:
            _log.warning(
                "topics_of_small_segments",
                topics=sorted(small)[:_NAMED],
                count=len(small),
                reason="segment.bytes or segment.index.bytes is below what clients may set now; used as it is",
                do="raise it by kafka-configs.sh: each segment is files, and a roll that appends wait for",
            )

    def _usable_log_config(self, topic: str) -> LogConfig:
        overrides = self._topics.get(topic, {})
        good, problems = check_topic_configs(overrides)
        _log_unusable(f"topics/{topic}", problems)
        try:
            return self.config.topic_log_config({name: overrides[name] for name in good})
        except ConfigError as error:
            _log_unusable(f"topics/{topic}", error.problems)
            return self.config.log_config()

    # --- brokers

    def _read_broker(self) -> None:
        own = self._usable_broker_configs(str(self._broker_id))
        defaults = self._usable_broker_configs(DEFAULT_ENTITY)
        try:
            changed = self.config.with_dynamic(own, defaults)
        except ConfigError as error:
            _log_unusable(f"brokers/{self._broker_id}", error.problems)
            return
        before = self.config
        if before.set_values == changed.set_values:
            if _layers(before) != _layers(changed):
                self.config = changed  # only the source of a value changed, which DescribeConfigs shows
            return
        self._apply(changed, own=_told(own), cluster=_told(defaults))

    def _reload(self) -> None:
        file = self._file
        if file is None:
            return
        try:
            changed = reloaded(self.config, file.read())
        except ConfigError as error:
            file.refuse(str(error))
            _log.error("config_file_refused", file=file.path, reason=str(error), action="goes on as before")
            return
        keys = differing_values(self.config.static_values, changed.static_values)
        # Dynamic configs of these keys stay in force.
        if self.config.set_values != changed.set_values:
            self._apply(changed, file=",".join(keys))
        else:
            self.config = changed
        waiting = file.take()
        _log.info(
            "config_file_reloaded", file=file.path, changed=",".join(keys), needs_restart=",".join(waiting)
        )

    def _apply(self, changed: BrokerConfig, **told: str) -> None:
        """Puts a config in force. Raises StoreError before anything has changed."""
        # Everything that may fail comes first: a notification that is processed again must not find half of
        # it applied.
        before = self.config
        follows = before.log_config() != changed.log_config()
        topics = self._topics
        if follows:
            found = self._store.topics_configs(local := list(self._local_topics()))
            # What is unreadable now stays as it was.
            topics = {topic: found.get(topic, self._topics.get(topic, {})) for topic in local}
        self.config = changed
        _log.info("broker_config_changed", **told)
        self._tell_listeners(changed)
        if follows:
            self._topics = topics
            for topic in topics:
                self._on_topic_config(topic, self._usable_log_config(topic))

    def _usable_broker_configs(self, name: str) -> dict[str, str]:
        texts, undecoded = decoded(self.config, self._store.entity_config("brokers", name))
        good, problems = check_dynamic(texts)
        _log_unusable(f"brokers/{name}", [*undecoded, *problems])
        return {key: texts[key] for key in good}

    def _tell_listeners(self, config: BrokerConfig) -> None:
        for listener in self._listeners:
            try:
                listener(config)
            except Exception:  # one listener that fails must not affect the others
                _log.exception("config_listener_failed", listener=repr(listener))


def _layers(config: BrokerConfig) -> Sequence[Mapping[str, Value]]:
    return config.dynamic_broker_values, config.dynamic_default_values


def _log_unusable(entity: str, problems: Iterable[Problem]) -> None:
    told = "; ".join(f"{problem.key}: {problem.message}" for problem in problems)
    if told:
        _log.warning("dynamic_configs_ignored", entity=entity, problems=told)


def _told(configs: Mapping[str, str]) -> str:
    return ",".join(f"{name}={_shown(name, text)}" for name, text in sorted(configs.items()))


def _shown(name: str, text: str) -> str:
    return "[hidden]" if is_secret(name) else text
